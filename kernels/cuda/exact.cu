// Arithmetic on f32 that is not encoded.

#include "quad.cuh"

// out = the sum of the parts, each flushed.
KERNEL sum(const float* const* __restrict__ parts, u32 ranks, float* __restrict__ out, u64 elements) {
    Team team(RUN_MAX);
    Span span(team.number, RUN_MAX, elements);
    Run sums;
    sums.clear();
#pragma unroll 1
    for (u32 rank = 0; rank < ranks; rank++) {
        Run part;
        part.load(team, parts[rank] + span.start, 0, span.count);
#pragma unroll
        for (u32 i = 0; i < 4 * QUADS; i++) {
            float& sum = sums.quads[i / 4].values[i % 4];
            sum = flush(sum + flush(part.quads[i / 4].values[i % 4]));
        }
    }
    sums.store(team, out + span.start, 0, span.count);
}

// fresh = old + (fresh - old) x 2^-shift: the moving average of residuals.
KERNEL average(const float* __restrict__ old, float* __restrict__ fresh, u64 elements, u32 shift) {
    Team team(RUN_MAX);
    Span span(team.number, RUN_MAX, elements);
    float factor = power_of_two(-(int)shift);
    Run before, now;
    before.load(team, old + span.start, 0, span.count);
    now.load(team, fresh + span.start, 0, span.count);
#pragma unroll
    for (u32 i = 0; i < 4 * QUADS; i++) {
        float was = before.quads[i / 4].values[i % 4];
        float& value = now.quads[i / 4].values[i % 4];
        value = flush(was + flush(flush(value - was) * factor));
    }
    now.store(team, fresh + span.start, 0, span.count);
}
