// Four elements that follow each other in the registers of a thread, as integers need them: one load of 128 bits, one
// word of 8-bit codes or half a word of 4-bit codes.
#pragma once

#include "warp.cuh"

// Quads that a thread holds at a time.
constexpr u32 QUADS = 4;

// The threads of a warp that take a block together: as few as hold it, so that a warp takes several short blocks.
// Longer ones than 512 elements are taken by a whole warp, one run of 512 after the other.
struct Team {
    // A power of two.
    u32 threads;
    // The number of this thread in its team, and of its team in the grid.
    u32 thread, number;

    __device__ explicit Team(u32 block) {
        // Bits of the number of the thread that holds the last element.
        u32 shift = 32 - __clz((int)min((block - 1) / (4 * QUADS), WARP - 1));
        threads = 1u << shift;
        thread = lane() & (threads - 1);
        number = warp_number() << (WARP_SHIFT - shift) | lane() >> shift;
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
constexpr u32 RUN_MAX = WARP * 4 * QUADS;

// Whether an address is that of a load of 128 bits.
__device__ inline bool is_aligned(const void* address) {
    return (u64)address % 16 == 0;
}

struct Quad {
    float values[4];

    __device__ static Quad zero() {
        return {{0.0f, 0.0f, 0.0f, 0.0f}};
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

// The quads of a thread of a run.
struct Run {
    Quad quads[QUADS];

    __device__ void clear() {
#pragma unroll
        for (u32 i = 0; i < QUADS; i++) {
            quads[i] = Quad::zero();
        }
    }

    // The elements of `from` of the run at `start`; zeros behind `count`. All are loaded before one is used.
    __device__ void load(const Team& team, const float* from, u32 start, u32 count) {
        if (is_aligned(from) && start + team.run() <= count) {
            const float4* fours = (const float4*)(from + start) + team.thread;
#pragma unroll
            for (u32 i = 0; i < QUADS; i++) {
                float4 four = fours[i * team.threads];
                quads[i] = {{four.x, four.y, four.z, four.w}};
            }
        } else {
#pragma unroll
            for (u32 i = 0; i < 4 * QUADS; i++) {
                u32 at = team.quad_at(start, i / 4) + i % 4;
                quads[i / 4].values[i % 4] = at < count ? from[at] : 0.0f;
            }
        }
    }

    // Writes the elements before `count`.
    __device__ void store(const Team& team, float* to, u32 start, u32 count) const {
        if (is_aligned(to) && start + team.run() <= count) {
            float4* fours = (float4*)(to + start) + team.thread;
#pragma unroll
            for (u32 i = 0; i < QUADS; i++) {
                const float* four = quads[i].values;
                fours[i * team.threads] = make_float4(four[0], four[1], four[2], four[3]);
            }
        } else {
#pragma unroll
            for (u32 i = 0; i < 4 * QUADS; i++) {
                u32 at = team.quad_at(start, i / 4) + i % 4;
                if (at < count) {
                    to[at] = quads[i / 4].values[i % 4];
                }
            }
        }
    }

    // Flushes, and adds `old`, which may be null, flushed again.
    __device__ void compensate(const Team& team, const float* old, u32 start, u32 count) {
        if (old == nullptr) {
#pragma unroll
            for (u32 i = 0; i < 4 * QUADS; i++) {
                float& value = quads[i / 4].values[i % 4];
                value = flush(value);
            }
        } else {
            Run add;
            add.load(team, old, start, count);
#pragma unroll
            for (u32 i = 0; i < QUADS; i++) {
                quads[i].compensate(add.quads[i]);
            }
        }
    }

    // Writes what it holds times `weight`.
    __device__ void store_times(float weight, const Team& team, float* to, u32 start, u32 count) {
#pragma unroll
        for (u32 i = 0; i < QUADS; i++) {
            quads[i].multiply(weight);
        }
        store(team, to, start, count);
    }

    // Makes what is behind `count` zero.
    __device__ void cut(const Team& team, u32 start, u32 count) {
        if (start + team.run() > count) {
#pragma unroll
            for (u32 i = 0; i < 4 * QUADS; i++) {
                float& value = quads[i / 4].values[i % 4];
                value = team.quad_at(start, i / 4) + i % 4 < count ? value : 0.0f;
            }
        }
    }
};
