// Errors of the library as exceptions of torch.

#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include <unisono.h>

namespace unisono_torch {

// Throws the exception that fits a status of this thread's last function of the library, unless it is a success. A
// signal handler of Python that has ended a wait raises its own exception.
void check(unisono_status status);

// The ranks of the job that errors of this process have named as lost.
std::vector<uint32_t> lost_job_ranks();
// They were ranks of an earlier job.
void forget_lost_ranks();

// A duration as the library takes it.
double seconds(std::chrono::milliseconds duration);

// Has this thread's waits run the signal handlers of Python, if it is the main thread, where they run.
void let_signals_end_waits();

}  // namespace unisono_torch
