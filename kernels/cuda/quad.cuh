// Four elements that follow each other in the registers of a thread, as integers need them: one load of 128 bits, one
// word of 8-bit codes or half a word of 4-bit codes. Quad 32 x i + t of a run of elements is the i-th of thread t.
#pragma once

#include "warp.cuh"

// Quads that a thread holds at a time.
constexpr u32 QUADS = 4;
// Elements that a warp holds at a time.
constexpr u32 RUN = QUADS * WARP * 4;

// Whether an address is that of a load of 128 bits.
__device__ inline bool is_aligned(const void* address) {
    return (u64)address % 16 == 0;
}

struct Quad {
    float values[4];

    __device__ static Quad zero() {
        return {{0.0f, 0.0f, 0.0f, 0.0f}};
    }

    // Elements `at` to `at` + 3 of `from`; zero behind `count`.
    __device__ static Quad load(const float* from, u32 at, u32 count) {
        Quad quad = zero();
        if (is_aligned(from) && at + 4 <= count) {
            float4 four = *(const float4*)(from + at);
            quad = {{four.x, four.y, four.z, four.w}};
        } else {
            for (u32 i = 0; i < 4; i++) {
                quad.values[i] = at + i < count ? from[at + i] : 0.0f;
            }
        }
        return quad;
    }

    __device__ void store(float* to, u32 at, u32 count) const {
        if (is_aligned(to) && at + 4 <= count) {
            *(float4*)(to + at) = make_float4(values[0], values[1], values[2], values[3]);
        } else {
            for (u32 i = 0; i < 4; i++) {
                if (at + i < count) {
                    to[at + i] = values[i];
                }
            }
        }
    }

    // Flushes, adds `old` and flushes.
    __device__ void compensate(const Quad& old) {
        for (u32 i = 0; i < 4; i++) {
            values[i] = flush(flush(values[i]) + old.values[i]);
        }
    }

    __device__ void multiply(float weight) {
        for (u32 i = 0; i < 4; i++) {
            values[i] = flush(values[i] * weight);
        }
    }
};

// The first element, in a run that begins at `run`, of quad `i` of this thread.
__device__ inline u32 quad_at(u32 run, u32 i) {
    return run + (i * WARP + lane()) * 4;
}

// The quads of a run of this thread; zeros behind `count`. All are loaded before one is used.
__device__ inline void load_run(Quad (&quads)[QUADS], const float* from, u32 run, u32 count) {
#pragma unroll
    for (u32 i = 0; i < QUADS; i++) {
        u32 at = quad_at(run, i);
        quads[i] = at < count ? Quad::load(from, at, count) : Quad::zero();
    }
}

// Adds `old`, which may be null; flushed before and after.
__device__ inline void compensate_run(Quad (&quads)[QUADS], const float* old, u32 run, u32 count) {
    Quad add[QUADS];
    if (old == nullptr) {
#pragma unroll
        for (u32 i = 0; i < QUADS; i++) {
            add[i] = Quad::zero();
        }
    } else {
        load_run(add, old, run, count);
    }
#pragma unroll
    for (u32 i = 0; i < QUADS; i++) {
        quads[i].compensate(add[i]);
    }
}

// Writes a run times `weight`.
__device__ inline void store_run(Quad (&quads)[QUADS], float weight, float* to, u32 run, u32 count) {
#pragma unroll
    for (u32 i = 0; i < QUADS; i++) {
        quads[i].multiply(weight);
        quads[i].store(to, quad_at(run, i), count);
    }
}

// For each quad of this warp's unit, one after the other where they are many, side by side in runs.
template <class Body>
__device__ inline void for_quads(u32 count, Body body) {
    for (u32 run = 0; run < count; run += RUN) {
#pragma unroll
        for (u32 i = 0; i < QUADS; i++) {
            u32 at = quad_at(run, i);
            if (at < count) {
                body(at);
            }
        }
    }
}
