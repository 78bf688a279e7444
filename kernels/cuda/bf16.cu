// The upper half of an f32, rounded to the nearest, ties to even: two to a word, filled with zeros up to a whole word.

#include "warp.cuh"

// Pairs that a thread takes.
constexpr u32 PAIRS = 4;
// Elements that a warp takes.
constexpr u32 BF16_RUN = PAIRS * WARP * 2;
// Elements of a block, as errors count them.
constexpr u32 BF16_BLOCK = 1024;

__device__ inline bool is_pair_aligned(const void* address) {
    return (u64)address % 8 == 0;
}

__device__ inline void store_pair(float* out, u32 at, u32 count, float low, float high) {
    if (is_pair_aligned(out) && at + 2 <= count) {
        *(float2*)(out + at) = make_float2(low, high);
    } else {
        if (at < count) {
            out[at] = low;
        }
        if (at + 1 < count) {
            out[at + 1] = high;
        }
    }
}

// The first element, in the run of this warp, of pair `i` of this thread.
__device__ inline u32 pair_at(u32 i) {
    return (i * WARP + lane()) * 2;
}

// Writes the codes of this thread's pairs; notes what is not finite. The half word behind the last element is zero.
__device__ inline void encode_pairs(const float2 (&pairs)[PAIRS], u32* out, Span span, u32* first_bad) {
#pragma unroll
    for (u32 i = 0; i < PAIRS; i++) {
        u32 at = pair_at(i);
        u32 low = bf16_of(flush(pairs[i].x)), high = at + 1 < span.count ? bf16_of(flush(pairs[i].y)) : 0;
        if (at < span.count) {
            out[(span.start + at) / 2] = low | high << 16;
            if ((low << 16 & EXPONENT) == EXPONENT || (high << 16 & EXPONENT) == EXPONENT) {
                atomicMin(first_bad, (u32)((span.start + at) / BF16_BLOCK));
            }
        }
    }
}

// The sums of this thread's pairs over all parts.
__device__ inline void sum_of_pairs(float2 (&sums)[PAIRS], const u32* const* parts, u32 ranks, Span span) {
#pragma unroll
    for (u32 i = 0; i < PAIRS; i++) {
        sums[i] = make_float2(0.0f, 0.0f);
    }
#pragma unroll 1
    for (u32 rank = 0; rank < ranks; rank++) {
        const u32* part = parts[rank] + span.start / 2;
        u32 codes[PAIRS];
#pragma unroll
        for (u32 i = 0; i < PAIRS; i++) {
            codes[i] = pair_at(i) < span.count ? part[pair_at(i) / 2] : 0;
        }
#pragma unroll
        for (u32 i = 0; i < PAIRS; i++) {
            sums[i].x = flush(sums[i].x + flush(bf16_in(codes[i], 0)));
            sums[i].y = flush(sums[i].y + flush(bf16_in(codes[i], 1)));
        }
    }
}

KERNEL bf16_encode(const float* __restrict__ input, u32* __restrict__ out, u64 elements, u32* first_bad) {
    Span span(warp_number(), BF16_RUN, elements);
    const float* from = input + span.start;
    float2 pairs[PAIRS];
#pragma unroll
    for (u32 i = 0; i < PAIRS; i++) {
        u32 at = pair_at(i);
        if (is_pair_aligned(from) && at + 2 <= span.count) {
            pairs[i] = *(const float2*)(from + at);
        } else {
            pairs[i].x = at < span.count ? from[at] : 0.0f;
            pairs[i].y = at + 1 < span.count ? from[at + 1] : 0.0f;
        }
    }
    encode_pairs(pairs, out, span, first_bad);
}

// The sum of the parts, encoded again.
KERNEL bf16_reduce_encode(const u32* const* __restrict__ parts, u32 ranks, u32* __restrict__ out, u64 elements,
                          u32* first_bad) {
    Span span(warp_number(), BF16_RUN, elements);
    float2 sums[PAIRS];
    sum_of_pairs(sums, parts, ranks, span);
    encode_pairs(sums, out, span, first_bad);
}

// out = the sum of the parts times `weight`.
KERNEL bf16_decode_sum(const u32* const* __restrict__ parts, u32 ranks, float* __restrict__ out, u64 elements,
                       float weight) {
    Span span(warp_number(), BF16_RUN, elements);
    float2 sums[PAIRS];
    sum_of_pairs(sums, parts, ranks, span);
#pragma unroll
    for (u32 i = 0; i < PAIRS; i++) {
        store_pair(out + span.start, pair_at(i), span.count, flush(sums[i].x * weight), flush(sums[i].y * weight));
    }
}

KERNEL bf16_expand(const u32* __restrict__ part, float* __restrict__ out, u64 elements, float weight) {
    Span span(warp_number(), BF16_RUN, elements);
    u32 codes[PAIRS];
#pragma unroll
    for (u32 i = 0; i < PAIRS; i++) {
        codes[i] = pair_at(i) < span.count ? part[(span.start + pair_at(i)) / 2] : 0;
    }
#pragma unroll
    for (u32 i = 0; i < PAIRS; i++) {
        float low = flush(flush(bf16_in(codes[i], 0)) * weight), high = flush(flush(bf16_in(codes[i], 1)) * weight);
        store_pair(out + span.start, pair_at(i), span.count, low, high);
    }
}
