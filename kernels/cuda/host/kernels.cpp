// The kernels, compiled for the host, as a library by itself: for a double of the driver that is elsewhere
// (tests/doubles/nccl), which has streams and memory of its own.

#include <mutex>

#include "functions.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

// The kernel of this name, or null.
EXPORT const void* unisono_kernel_find(const char* name) {
    for (const Function& one : FUNCTIONS) {
        if (strcmp(one.name, name) == 0) {
            return &one;
        }
    }
    return nullptr;
}

// How many threads a block must have.
EXPORT unsigned unisono_kernel_threads() {
    return THREADS;
}

// Takes the arguments of a launch, which is to be run once. At most `room` pointers among them go to `pointers`.
EXPORT void* unisono_kernel_bind(const void* kernel, void** arguments, const void** pointers, unsigned room,
                                 unsigned* count) {
    Launch* launch = new Launch(((const Function*)kernel)->bind(arguments));
    *count = (unsigned)launch->pointers.size();
    for (unsigned at = 0; at < *count && at < room; at++) {
        pointers[at] = launch->pointers[at];
    }
    return launch;
}

// Runs a launch, and ends it; with no blocks, it only ends it.
EXPORT void unisono_kernel_run(void* bound, unsigned blocks) {
    // There is one warp.
    static std::mutex lock;
    std::lock_guard<std::mutex> guard(lock);
    Launch* launch = (Launch*)bound;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        for (unsigned first = 0; first < THREADS; first += Warp::THREADS) {
            warp.run(launch->body, first);
        }
    }
    delete launch;
}
