// One bit for each element, with one scale for all: the first pass sums squares, the second packs. A tile is what the
// host calls a block of squares; it adds up in f64 what the tiles give.

#include "tile.cuh"

// The exponent of two by which the numbers of a tile are divided before they are squared.
__device__ inline int squares_shift(u32 largest) {
    int exponent = (int)(largest >> 23) - 127;
    bool is_usual = exponent == -127 || (exponent >= -40 && exponent < 50);
    return is_usual ? 0 : min(exponent, 126);
}

// Writes the tile, the sum of the squares of what is left of it after the shift, and the shift.
__device__ inline void store_squares(const Tile& tile, u32 number, Span span, float* sum, float* squares, int* shifts) {
    tile.store(sum + span.start, span.count);
    u32 largest = 0;
#pragma unroll
    for (u32 i = 0; i < WARP; i++) {
        largest = max(largest, magnitude(tile.values[i]));
    }
    int shift = squares_shift(largest_of_warp(largest));
    float factor = power_of_two(-shift), low = 0.0f, high = 0.0f;
#pragma unroll
    for (u32 i = 0; i < WARP; i += 2) {
        float even = flush(tile.values[i] * factor), odd = flush(tile.values[i + 1] * factor);
        low += flush(even * even);
        high += flush(odd * odd);
    }
    float total = tree(low, high);
    if (lane() == 0) {
        squares[number] = total;
        shifts[number] = shift;
    }
}

// sum = input + old, and the squares of each tile.
KERNEL compensate(const float* __restrict__ input, const float* __restrict__ old, float* __restrict__ sum, u64 elements,
                  float* __restrict__ squares, int* __restrict__ shifts) {
    u32 number = warp_number();
    Span span(number, TILE, elements);
    if (span.count == 0) {
        return;
    }
    Tile tile;
    tile.compensated(input + span.start, old + span.start, span.count);
    store_squares(tile, number, span, sum, squares, shifts);
}

// sum = the sum of the parts and old, and the squares of each tile. A part is its scale, then its bits.
KERNEL sign_reduce_global(const u32* const* __restrict__ parts, u32 ranks, const float* __restrict__ old,
                          float* __restrict__ sum, u64 elements, float* __restrict__ squares,
                           int* __restrict__ shifts) {
    u32 number = warp_number();
    Span span(number, TILE, elements);
    if (span.count == 0) {
        return;
    }
    Tile tile;
    SignParts from = {parts, ranks, 1, NO_BLOCK};
    from.sum(tile, span.start, span.count);
    tile.cut(span.count);
    tile.add(old + span.start, span.count);
    store_squares(tile, number, span, sum, squares, shifts);
}

// Packs the signs of `values` behind `scale`, and leaves in `values` what plus or minus `scale` leaves out.
KERNEL sign_pack(float* values, u32* __restrict__ out, u64 elements, float scale) {
    u32 number = warp_number();
    if (number == 0 && lane() == 0) {
        out[0] = bits_of(scale);
    }
    Span span(number, TILE, elements);
    if (span.count == 0) {
        return;
    }
    Tile tile;
#pragma unroll
    for (u32 i = 0; i < WARP; i++) {
        u32 at = i * WARP + lane();
        tile.values[i] = at < span.count ? values[span.start + at] : 0.0f;
    }
    tile.pack(scale, span.count, out + 1 + span.start / WARP, values + span.start);
}
