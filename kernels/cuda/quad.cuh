// Four elements that follow each other in the registers of a thread, as integers need them: one load of 128 bits, one
// word of 8-bit codes or half a word of 4-bit codes.
#pragma once

#include "warp.cuh"

// Quads that a thread holds at a time.
constexpr u32 QUADS = 4;

// The threads of a warp that take a block together: as few as hold it, so that a warp takes several short blocks. Longer
// ones than 512 elements are taken by a whole warp, one run of 512 after the other.
struct Team {
    // A power of two.
    u32 threads;
    // The number of this thread in its team, and of its team in the grid.
    u32 thread, number;

    __device__ explicit Team(u32 block) {
        u32 quarters = min((block - 1) / (4 * QUADS), WARP - 1);
        threads = 1u << (32 - __clz((int)quarters));
        thread = lane() % threads;
        number = (warp_number() * WARP + lane()) / threads;
    }

    // Elements that it holds at a time.
    __device__ u32 run() const {
        return threads * 4 * QUADS;
    }

    // The first element, in a run that begins at `start`, of quad `i` of this thread.
    __device__ u32 quad_at(u32 start, u32 i) const {
        return start + (i * threads + thread) * 4;
    }

    __device__ u32 largest(u32 value) const {
        for (u32 width = threads / 2; width > 0; width /= 2) {
            value = max(value, __shfl_xor_sync(ALL, value, width));
        }
        return value;
    }
};

// Elements of a run of a whole warp.
constexpr u32 RUN = WARP * 4 * QUADS;

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

    __device__ void flush_all() {
        for (u32 i = 0; i < 4; i++) {
            values[i] = flush(values[i]);
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

// The quads of this thread of the run at `start`; zeros behind `count`. All are loaded before one is used.
__device__ inline void load_run(const Team& team, Quad (&quads)[QUADS], const float* from, u32 start, u32 count) {
#pragma unroll
    for (u32 i = 0; i < QUADS; i++) {
        u32 at = team.quad_at(start, i);
        quads[i] = at < count ? Quad::load(from, at, count) : Quad::zero();
    }
}

// Flushes, and adds `old`, which may be null, flushed again.
__device__ inline void compensate_run(const Team& team, Quad (&quads)[QUADS], const float* old, u32 start, u32 count) {
    if (old == nullptr) {
#pragma unroll
        for (u32 i = 0; i < QUADS; i++) {
            quads[i].flush_all();
        }
    } else {
        Quad add[QUADS];
        load_run(team, add, old, start, count);
#pragma unroll
        for (u32 i = 0; i < QUADS; i++) {
            quads[i].compensate(add[i]);
        }
    }
}

// Writes a run times `weight`.
__device__ inline void store_run(const Team& team, Quad (&quads)[QUADS], float weight, float* to, u32 start,
                                 u32 count) {
#pragma unroll
    for (u32 i = 0; i < QUADS; i++) {
        quads[i].multiply(weight);
        quads[i].store(to, team.quad_at(start, i), count);
    }
}
