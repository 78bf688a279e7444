// A host compiler's view of CUDA: the text of the kernels compiles with g++, and the 32 threads of a warp run in lock
// step, as fibers that change places where threads exchange numbers. For tests; nothing here is fast or parallel.
#pragma once

#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ucontext.h>

#include <cmath>

#define __device__
#define KERNEL static void
#define OUTLINED static

// As CUDA's own headers have them.
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) int4 {
    int x, y, z, w;
};

static inline float2 make_float2(float x, float y) {
    return {x, y};
}

static inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}

static inline int4 make_int4(int x, int y, int z, int w) {
    return {x, y, z, w};
}

static inline unsigned __float_as_uint(float value) {
    unsigned bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float __uint_as_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// To the nearest, ties to even, as long as nobody changes the rounding of the process.
static inline int __float2int_rn(float value) {
    return (int)__builtin_lrintf(value);
}

static inline int __clz(int value) {
    return value == 0 ? 32 : __builtin_clz((unsigned)value);
}

static inline unsigned max(unsigned left, unsigned right) {
    return left > right ? left : right;
}

static inline unsigned min(unsigned left, unsigned right) {
    return left < right ? left : right;
}

static inline int min(int left, int right) {
    return left < right ? left : right;
}

// One warp runs at a time.
static inline unsigned atomicMin(unsigned* at, unsigned value) {
    unsigned before = *at;
    *at = min(before, value);
    return before;
}

struct Index {
    unsigned x;
};

// Of the thread that runs.
static Index threadIdx, blockIdx;

// The threads of one warp.
class Warp {
  public:
    static constexpr unsigned THREADS = 32;

    // Runs `body` as threads `first` to `first` + 31 of a block.
    void run(const std::function<void()>& body, unsigned first) {
        this->body = &body;
        round = 0;
        unsigned done = 0;
        for (Fiber& fiber : fibers) {
            fiber.is_done = false;
        }
        while (done == 0) {
            for (unsigned thread = 0; thread < THREADS; thread++) {
                threadIdx.x = first + thread;
                current = thread;
                resume();
                done += fibers[thread].is_done;
            }
            check_lock_step(done);
            round++;
        }
    }

    // What thread `from` of the warp gives when all threads are at the same exchange.
    unsigned exchange(const char* name, unsigned value, unsigned from) {
        Fiber& own = fibers[current];
        unsigned now = round % 2;
        own.exchange = name;
        own.value[now] = value;
        if (_setjmp(own.place) == 0) {
            _longjmp(scheduler, 1);
        }
        // Others may already be at the next exchange, but not at the one after it.
        return fibers[from].value[now];
    }

    unsigned thread() const {
        return current;
    }

  private:
    struct Fiber {
        jmp_buf place;
        ucontext_t start;
        char* stack = nullptr;
        bool is_done = false;
        const char* exchange = nullptr;
        unsigned value[2] = {};
    };

    static constexpr size_t STACK_BYTES = 128 * 1024;

    Fiber fibers[THREADS];
    jmp_buf scheduler;
    const std::function<void()>* body = nullptr;
    unsigned current = 0;
    unsigned round = 0;

    // Lets the current thread go on to its next exchange or its end.
    void resume() {
        if (_setjmp(scheduler) != 0) {
            return;
        }
        Fiber& fiber = fibers[current];
        if (fiber.stack != nullptr) {
            _longjmp(fiber.place, 1);
        }
        fiber.stack = (char*)malloc(STACK_BYTES);
        getcontext(&fiber.start);
        fiber.start.uc_stack.ss_sp = fiber.stack;
        fiber.start.uc_stack.ss_size = STACK_BYTES;
        makecontext(&fiber.start, (void (*)())live, 0);
        setcontext(&fiber.start);
    }

    // A fiber's life: one body after the other.
    static void live();

    // A card's threads would wait for ever, or get worthless numbers.
    void check_lock_step(unsigned done) const {
        bool is_split = done != 0 && done != THREADS;
        for (const Fiber& fiber : fibers) {
            is_split |= done == 0 && fiber.exchange != fibers[0].exchange;
        }
        if (is_split) {
            fprintf(stderr, "test double: threads of a warp are at different places\n");
            abort();
        }
    }

    friend void live_on(Warp& warp);
};

static Warp warp;

inline void live_on(Warp& warp) {
    for (;;) {
        (*warp.body)();
        Warp::Fiber& own = warp.fibers[warp.current];
        own.is_done = true;
        if (_setjmp(own.place) == 0) {
            _longjmp(warp.scheduler, 1);
        }
    }
}

inline void Warp::live() {
    live_on(warp);
}

static inline unsigned __shfl_sync(unsigned, unsigned value, unsigned from) {
    return warp.exchange("__shfl_sync", value, from % Warp::THREADS);
}

static inline unsigned __shfl_xor_sync(unsigned, unsigned value, unsigned width) {
    return warp.exchange("__shfl_xor_sync", value, warp.thread() ^ width);
}

static inline unsigned __shfl_down_sync(unsigned, unsigned value, unsigned width) {
    unsigned from = warp.thread() + width;
    return warp.exchange("__shfl_down_sync", value, from < Warp::THREADS ? from : warp.thread());
}

static inline float __shfl_sync(unsigned mask, float value, unsigned from) {
    return __uint_as_float(__shfl_sync(mask, __float_as_uint(value), from));
}

static inline float __shfl_xor_sync(unsigned mask, float value, unsigned width) {
    return __uint_as_float(__shfl_xor_sync(mask, __float_as_uint(value), width));
}

static inline float __shfl_down_sync(unsigned mask, float value, unsigned width) {
    return __uint_as_float(__shfl_down_sync(mask, __float_as_uint(value), width));
}
