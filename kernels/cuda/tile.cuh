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
#pragma unroll
        for (u32 i = 0; i < WARP; i++) {
            values[i] = flush(values[i]);
        }
        if (old != nullptr) {
            add(old, count);
        }
    }

    // Makes what is behind `count` zero.
    __device__ void cut(u32 count) {
        if (count < TILE) {
#pragma unroll
            for (u32 i = 0; i < WARP; i++) {
                values[i] = i * WARP + lane() < count ? values[i] : 0.0f;
            }
        }
    }

    // Adds `old` to what holds no subnormal number, and flushes.
    __device__ void add(const float* old, u32 count) {
#pragma unroll
        for (u32 i = 0; i < WARP; i++) {
            u32 at = i * WARP + lane();
            values[i] = flush(values[i] + (at < count ? old[at] : 0.0f));
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
        u32 word[1] = {own};
        transpose(word);
        if (lane() * WARP < count) {
            bits[lane()] = word[0];
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
    // their order. What is behind `count` is worthless, and a zero may have either sign.
    __device__ void sum(Tile& tile, u64 start, u32 count) const {
        if (scales == 1 || block_groups % (TILE / LANES) == 0) {
            sum_fours<1>(tile, start, count);
        } else {
            sum_fours<TILE / LANES / 2>(tile, start, count);
        }
    }

    // With one table of sums for all elements, or one for each two runs of 64. Four signs make 16 sums, which threads
    // work out once and look up in each other's registers.
    template <u32 TABLES>
    __device__ void sum_fours(Tile& tile, u64 start, u32 count) const {
#pragma unroll
        for (u32 i = 0; i < WARP; i++) {
            tile.values[i] = 0.0f;
        }
        u32 number = TABLES == 1 ? (u32)(start / LANES) / block_groups : scale_number(start);
#pragma unroll 1
        for (u32 first = 0; first < ranks; first += 4) {
            float sums[TABLES];
            u32 signs[4];
            load_four(sums, signs, first, number, start, count);
            transpose_four(signs);
#pragma unroll
            for (u32 i = 0; i < WARP; i++) {
                u32 from = signs[i % 4] >> i / 4 * 4;
                if (TABLES > 1) {
                    from = (from & 15) | (i / 2 % 2) << 4;
                }
                tile.values[i] = add_flushed(tile.values[i], __shfl_sync(ALL, sums[TABLES == 1 ? 0 : i / 4], from));
            }
        }
    }

    // The words of the signs of four parts, and the sums of their scales: those that bits 0 to 3 of this thread's
    // number make negative or not, and bit 4 says of which run. A part that there is not is one whose scale is zero.
    template <u32 TABLES>
    __device__ void load_four(float (&sums)[TABLES], u32 (&signs)[4], u32 first, u32 number, u64 start,
                              u32 count) const {
        float own_scales[4];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            bool is_there = first + i < ranks;
            const u32* part = parts[is_there ? first + i : first];
            bool has_scale = TABLES == 1 || (lane() < TILE / LANES && number < scales);
            own_scales[i] = is_there && has_scale ? float_of(part[number]) : 0.0f;
            signs[i] = is_there && lane() * WARP < count ? part[scales + start / WARP + lane()] : 0;
        }
#pragma unroll
        for (u32 table = 0; table < TABLES; table++) {
            float sum = 0.0f;
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                float scale = own_scales[i];
                if (TABLES > 1) {
                    scale = __shfl_sync(ALL, scale, 2 * table + lane() / (WARP / 2));
                }
                sum = flush(sum + signed_scale(lane() >> i & 1, scale));
            }
            sums[table] = sum;
        }
    }
};
