// A tile of 1,024 elements in the registers of a warp, as signs need it: element 32 x i + t is value i of thread t. So
// every load of a warp is one line of 128 bytes at whatever address a buffer begins, a thread has two of the 64 lanes
// in which a block is summed, and a transposition of bits makes the words of signs.
#pragma once

#include "warp.cuh"

// Elements of a tile.
constexpr u32 TILE = 1024;
// Elements of a tile that have one scale at least: half the pairs of values of a thread.
constexpr u32 LANES = 64;

struct Tile {
    float values[WARP];

    // `input + old`; zero behind `count`.
    __device__ void compensated(const float* input, const float* old, u32 count) {
#pragma unroll
        for (u32 i = 0; i < WARP; i++) {
            u32 at = i * WARP + lane();
            values[i] = at < count ? input[at] : 0.0f;
        }
        if (old == nullptr) {
#pragma unroll
            for (u32 i = 0; i < WARP; i++) {
                values[i] = flush(values[i]);
            }
        } else {
            add(old, count);
        }
    }

    // Flushes, adds `old` and flushes.
    __device__ void add(const float* old, u32 count) {
#pragma unroll
        for (u32 i = 0; i < WARP; i++) {
            u32 at = i * WARP + lane();
            values[i] = flush(flush(values[i]) + (at < count ? old[at] : 0.0f));
        }
    }

    __device__ void store(float* out, u32 count) const {
#pragma unroll
        for (u32 i = 0; i < WARP; i++) {
            u32 at = i * WARP + lane();
            if (at < count) {
                out[at] = values[i];
            }
        }
    }

    // Adds the magnitudes to the two lanes of this thread.
    __device__ void sum_magnitudes(float& low, float& high) const {
#pragma unroll
        for (u32 i = 0; i < WARP; i += 2) {
            low += fabsf(values[i]);
            high += fabsf(values[i + 1]);
        }
    }

    // Packs the signs, and leaves what plus or minus `scale` leaves out in `fresh`, if there is one.
    __device__ void pack(float scale, u32 count, u32* bits, float* fresh) const {
        u32 own = 0;
#pragma unroll
        for (u32 i = 0; i < WARP; i++) {
            bool plus = is_plus(values[i]);
            u32 at = i * WARP + lane();
            own |= (u32)(plus && at < count) << i;
            if (fresh != nullptr && at < count) {
                fresh[at] = flush(values[i] - signed_scale(plus, scale));
            }
        }
        u32 word = transpose(own);
        if (lane() * WARP < count) {
            bits[lane()] = word;
        }
    }
};

// Where the signs of several ranks are: each part is its scales, then its bits.
struct SignParts {
    const u32* const* parts;
    u32 ranks;
    // Scales of a part.
    u32 scales;
    // Runs of 64 elements of a block.
    u32 block_groups;

    // The number of the scale of the run of 64 elements that begins at element `start` + 64 x this thread's number;
    // those of a tile are of the first 16 threads.
    __device__ u32 scale_number(u64 start) const {
        return ((u32)(start / LANES) + lane()) / block_groups;
    }

    // That scale of one part; 0 where there is none.
    __device__ float scale(const u32* part, u32 number) const {
        return lane() < TILE / LANES && number < scales ? float_of(part[number]) : 0.0f;
    }

    // The sums of a tile that begins at a whole run of 64: parts are summed by fours, and the sums of the fours in
    // their order. What is behind `count` is worthless.
    __device__ void sum(Tile& tile, u64 start, u32 count) const {
#pragma unroll
        for (u32 i = 0; i < WARP; i++) {
            tile.values[i] = 0.0f;
        }
        u32 number = scale_number(start);
        for (u32 first = 0; first < ranks; first += 4) {
            sum_four(tile, first, number, start, count);
        }
    }

    __device__ void sum_four(Tile& tile, u32 first, u32 number, u64 start, u32 count) const {
        float group_scales[4];
        u32 signs[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (first + i < ranks) {
                const u32* part = parts[first + i];
                group_scales[i] = scale(part, number);
                signs[i] = lane() * WARP < count ? part[scales + start / WARP + lane()] : 0;
            }
        }
        float sums[WARP] = {};
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            if (first + i < ranks) {
                u32 own = transpose(signs[i]);
#pragma unroll
                for (u32 j = 0; j < WARP; j += 2) {
                    float scale = __shfl_sync(ALL, group_scales[i], j / 2);
                    sums[j] = flush(sums[j] + signed_scale(own >> j & 1, scale));
                    sums[j + 1] = flush(sums[j + 1] + signed_scale(own >> (j + 1) & 1, scale));
                }
            }
        }
#pragma unroll
        for (u32 j = 0; j < WARP; j++) {
            tile.values[j] = flush(tile.values[j] + sums[j]);
        }
    }
};
