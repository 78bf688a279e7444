// One bit for each element and a scale for each block, its mean magnitude. An encoded part is ceil(elements / block)
// scales, then ceil(elements / 32) words of bits.

#include "tile.cuh"

// The sum of the lanes of a block, each divided by 64 first, times `factor`: its mean.
__device__ inline float mean(float low, float high, float factor) {
    return flush(tree(flush(low * (1.0f / LANES)), flush(high * (1.0f / LANES))) * factor);
}

// Where one rank's signs are put.
struct SignsOut {
    u32* out;
    // Elements of a block, and how many blocks there are.
    u32 block, blocks;
    // What the sum of the lanes of a block is multiplied by, and that of the last block.
    float factor, last_factor;
    u32* first_bad;
};

// Encodes the block of this warp. `load` gives tile `at` of the block. A block that is longer than a tile is loaded
// twice, and the second time it comes from the caches.
template <class Load>
__device__ inline void encode_block(const SignsOut& to, float* fresh, u32 number, Span span, Load load) {
    u32* bits = to.out + to.blocks + span.start / WARP;
    Tile tile;
    float low = 0.0f, high = 0.0f, scale = 0.0f;
    // One loop for both passes, so that the loads are compiled once.
#pragma unroll 1
    for (u32 pass = 0; pass < 2; pass++) {
#pragma unroll 1
        for (u32 at = 0; at < span.count; at += TILE) {
            if (pass == 0 || span.count > TILE) {
                load(tile, at);
            }
            if (pass == 0) {
                tile.sum_magnitudes(low, high);
            } else {
                float* left = fresh == nullptr ? nullptr : fresh + span.start + at;
                tile.pack(scale, min(span.count - at, TILE), bits + at / WARP, left);
            }
        }
        if (pass == 0) {
            scale = mean(low, high, span.count == to.block ? to.factor : to.last_factor);
        }
    }
    if (lane() == 0) {
        to.out[number] = bits_of(scale);
        if (!is_finite(scale)) {
            atomicMin(to.first_bad, number);
        }
    }
}

KERNEL sign_encode(const float* __restrict__ input, const float* __restrict__ old, float* __restrict__ fresh,
                   u32* __restrict__ out, u64 elements, u32 block, u32 blocks, float factor,
                   float last_factor, u32* first_bad) {
    u32 number = warp_number();
    Span span(number, block, elements);
    if (span.count == 0) {
        return;
    }
    SignsOut to = {out, block, blocks, factor, last_factor, first_bad};
    encode_block(to, fresh, number, span, [&](Tile& tile, u32 at) {
        u64 start = span.start + at;
        tile.compensated(input + start, old == nullptr ? nullptr : old + start, min(span.count - at, TILE));
    });
}

KERNEL sign_reduce_encode(const u32* const* __restrict__ parts, u32 ranks, const float* __restrict__ old,
                          float* __restrict__ fresh, u32* __restrict__ out, u64 elements, u32 block, u32 blocks,
                          float factor, float last_factor, u32* first_bad) {
    u32 number = warp_number();
    Span span(number, block, elements);
    if (span.count == 0) {
        return;
    }
    SignsOut to = {out, block, blocks, factor, last_factor, first_bad};
    SignParts from = {parts, ranks, blocks, block / LANES};
    encode_block(to, fresh, number, span, [&](Tile& tile, u32 at) {
        u64 start = span.start + at;
        u32 count = min(span.count - at, TILE);
        from.sum(tile, start, count);
        tile.cut(count);
        if (old != nullptr) {
            tile.add(old + start, count);
        }
    });
}

// out = plus or minus the block's scale times `weight`.
KERNEL sign_expand(const u32* __restrict__ part, float* __restrict__ out, u64 elements, u32 scales, u32 block_groups,
                   float weight) {
    Span span(warp_number(), TILE, elements);
    if (span.count == 0) {
        return;
    }
    SignParts from = {nullptr, 1, scales, block_groups};
    float weighted = flush(from.scale(part, from.scale_number(span.start)) * weight);
    u32 own[1] = {lane() * WARP < span.count ? part[scales + span.start / WARP + lane()] : 0};
    transpose(own);
    Tile tile;
#pragma unroll
    for (u32 i = 0; i < WARP; i += 2) {
        float scale = __shfl_sync(ALL, weighted, i / 2);
        tile.values[i] = signed_scale(own[0] >> i & 1, scale);
        tile.values[i + 1] = signed_scale(own[0] >> (i + 1) & 1, scale);
    }
    tile.store(out + span.start, span.count);
}

// out = the sum of the parts times `weight`.
KERNEL sign_decode_sum(const u32* const* __restrict__ parts, u32 ranks, float* __restrict__ out, u64 elements,
                       u32 scales, u32 block_groups, float weight) {
    Span span(warp_number(), TILE, elements);
    if (span.count == 0) {
        return;
    }
    Tile tile;
    SignParts from = {parts, ranks, scales, block_groups};
    from.sum(tile, span.start, span.count);
#pragma unroll
    for (u32 i = 0; i < WARP; i++) {
        tile.values[i] = flush(tile.values[i] * weight);
    }
    tile.store(out + span.start, span.count);
}
