// Errors of the library as exceptions of torch, and waits that Ctrl-C ends.

#include "error.hpp"

#include <exception>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include <sys/syscall.h>
#include <unistd.h>

#include <torch/csrc/utils/pybind.h>

namespace unisono_torch {
namespace {

// The exception of a signal handler that has ended the wait of this thread.
thread_local std::exception_ptr signal_error;

// A program asks for them after it has caught the exception, which has only a text.
struct Lost {
  std::mutex mutex;
  std::set<uint32_t> job_ranks;
};

Lost& lost() {
  static auto* lost = new Lost();
  return *lost;
}

void note_lost(const unisono_error_t* error) {
  if (error == nullptr || error->root_status != UNISONO_STATUS_PEER_LOST) return;
  const std::lock_guard<std::mutex> lock(lost().mutex);
  lost().job_ranks.insert(error->ranks, error->ranks + error->rank_count);
}

// Runs the handlers of signals that have come; 1 when one has raised an exception.
int32_t has_signal(void* /*context*/) {
  if (!Py_IsInitialized()) return 0;
  pybind11::gil_scoped_acquire interpreter;
  if (PyErr_CheckSignals() == 0) return 0;
  signal_error = std::make_exception_ptr(pybind11::error_already_set());
  return 1;
}

std::string last_text(const char* before = "unisono: ") {
  const unisono_error_t* error = unisono_last_error();
  return std::string(before) + (error == nullptr ? "no error is known" : error->text);
}

}  // namespace

void check(unisono_status status) {
  if (status == UNISONO_STATUS_OK) return;
  note_lost(unisono_last_error());
  if (signal_error) std::rethrow_exception(std::exchange(signal_error, nullptr));
  switch (status) {
    case UNISONO_STATUS_UNSUPPORTED:
      C10_THROW_ERROR(NotImplementedError, last_text());
    case UNISONO_STATUS_INVALID_ARGUMENT:
    case UNISONO_STATUS_ALGORITHM_REFUSED:
    case UNISONO_STATUS_CONFIGURATION:
      C10_THROW_ERROR(Error, last_text());
    case UNISONO_STATUS_TIMEOUT:
      // Programs look for one of the words "Timed out", "timeout" and "closed".
      C10_THROW_ERROR(DistBackendError, last_text("unisono: timeout in "));
    default:
      C10_THROW_ERROR(DistBackendError, last_text());
  }
}

std::vector<uint32_t> lost_job_ranks() {
  const std::lock_guard<std::mutex> lock(lost().mutex);
  return {lost().job_ranks.begin(), lost().job_ranks.end()};
}

void forget_lost_ranks() {
  const std::lock_guard<std::mutex> lock(lost().mutex);
  lost().job_ranks.clear();
}

double seconds(std::chrono::milliseconds duration) { return static_cast<double>(duration.count()) / 1000.0; }

void let_signals_end_waits() {
  if (syscall(SYS_gettid) == getpid()) check(unisono_interrupt_check(has_signal, nullptr));
}

}  // namespace unisono_torch
