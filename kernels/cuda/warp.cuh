// What the threads of a warp do together. Each warp works alone: kernels have no barrier and no shared memory.
#pragma once

#include "format.cuh"

constexpr u32 WARP_SHIFT = 5;
constexpr u32 WARP = 1 << WARP_SHIFT;
constexpr u32 ALL = 0xffffffff;
// Threads of a block: the host launches this many.
constexpr u32 THREADS = 128;
// What no block of elements has as its number.
constexpr u32 NO_BLOCK = 0xffffffff;

// A kernel whose blocks have THREADS threads. The host's compiler has its own.
#ifndef KERNEL
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)
// A function that gets its registers apart from other branches of a kernel.
#define OUTLINED __device__ __noinline__
#endif

// The number of this thread in its warp.
__device__ inline u32 lane() {
    return threadIdx.x % WARP;
}

// The number of this warp in the grid.
__device__ inline u32 warp_number() {
    return blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
}

__device__ inline u32 largest_of_warp(u32 value) {
    for (u32 width = WARP / 2; width > 0; width /= 2) {
        value = max(value, __shfl_xor_sync(ALL, value, width));
    }
    return value;
}

// The sum of 64 lanes, of which each thread has the one of its number and the one 32 further on: halves are added until
// one is left.
__device__ inline float tree(float low, float high) {
    float sum = low + high;
    for (u32 width = WARP / 2; width > 0; width /= 2) {
        sum += __shfl_down_sync(ALL, sum, width);
    }
    return __shfl_sync(ALL, sum, 0);
}

// The transposes of matrices of bits whose row is a thread's word: bit i of thread t becomes bit t of thread i.
template <u32 WORDS>
__device__ inline void transpose(u32 (&words)[WORDS]) {
    u32 mask = 0x0000ffff;
#pragma unroll
    for (u32 width = WARP / 2; width > 0; width /= 2) {
        // What this thread keeps, and how far what it gets is turned to the left.
        u32 kept = lane() & width ? ~mask : mask, turn = lane() & width ? WARP - width : width;
#pragma unroll
        for (u32 i = 0; i < WORDS; i++) {
            u32 other = __shfl_xor_sync(ALL, words[i], width);
            words[i] = (words[i] & kept) | ((other << turn | other >> (WARP - turn)) & ~kept);
        }
        mask ^= mask << width / 2;
    }
}

// Transposes four words, and brings together what is of one number: bits i + 4 x j of the four, the first word's
// lowest, become bits 4 x j to 4 x j + 3 of word i.
__device__ inline void transpose_four(u32 (&words)[4]) {
    transpose(words);
    u32 pairs[4];
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        u32 low = words[2 * i], high = words[2 * i + 1];
        pairs[i] = (low & 0x55555555) | (high << 1 & 0xaaaaaaaa);
        pairs[2 + i] = (low >> 1 & 0x55555555) | (high & 0xaaaaaaaa);
    }
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        u32 low = pairs[2 * i], high = pairs[2 * i + 1];
        words[i] = (low & 0x33333333) | (high << 2 & 0xcccccccc);
        words[2 + i] = (low >> 2 & 0x33333333) | (high & 0xcccccccc);
    }
}

// The elements of one of the units that warps take: blocks or tiles.
struct Span {
    u64 start;
    u32 count;

    // Of unit `number`; none behind the last one.
    __device__ Span(u32 number, u32 unit, u64 elements) : start((u64)number * unit), count(0) {
        if (start < elements) {
            count = elements - start < unit ? (u32)(elements - start) : unit;
        }
    }
};
