// Arithmetic on f32 that is not encoded.

#include "quad.cuh"

// out = the sum of the parts, each flushed.
KERNEL sum(const float* const* __restrict__ parts, u32 ranks, float* __restrict__ out, u64 elements) {
    Team team(RUN);
    Span span(team.number, RUN, elements);
    if (span.count == 0) {
        return;
    }
    Quad quads[QUADS];
#pragma unroll
    for (u32 i = 0; i < QUADS; i++) {
        quads[i] = Quad::zero();
    }
#pragma unroll 1
    for (u32 rank = 0; rank < ranks; rank++) {
        Quad part[QUADS];
        load_run(team, part, parts[rank] + span.start, 0, span.count);
#pragma unroll
        for (u32 i = 0; i < 4 * QUADS; i++) {
            float& sum = quads[i / 4].values[i % 4];
            sum = flush(sum + flush(part[i / 4].values[i % 4]));
        }
    }
#pragma unroll
    for (u32 i = 0; i < QUADS; i++) {
        quads[i].store(out + span.start, team.quad_at(0, i), span.count);
    }
}

// fresh += (fresh - old) x 2^-shift, from `old`: the moving average of residuals.
KERNEL average(const float* __restrict__ old, float* __restrict__ fresh, u64 elements, u32 shift) {
    Team team(RUN);
    Span span(team.number, RUN, elements);
    float factor = power_of_two(-(int)shift);
    if (span.count == 0) {
        return;
    }
    Quad before[QUADS], now[QUADS];
    load_run(team, before, old + span.start, 0, span.count);
    load_run(team, now, fresh + span.start, 0, span.count);
#pragma unroll
    for (u32 i = 0; i < QUADS; i++) {
        for (u32 j = 0; j < 4; j++) {
            float difference = flush(now[i].values[j] - before[i].values[j]);
            now[i].values[j] = flush(before[i].values[j] + flush(difference * factor));
        }
        now[i].store(fresh + span.start, team.quad_at(0, i), span.count);
    }
}
