// Integers by scales that all ranks share, so that codes can be added on their way. A code is a whole number of one,
// two or four bytes; codes are filled with zeros up to a whole word.

#include "quad.cuh"

// Where codes of `size` bytes are.
struct SharedCodes {
    u32* words;
    u32 size;

    // Those of the elements from `start` on, a multiple of 64.
    __device__ SharedCodes from(u64 start) const {
        return {words + start * size / 4, size};
    }

    // Writes the codes of a quad.
    __device__ void store(u32 at, u32 count, const int (&codes)[4]) const {
        if (size == 1) {
            if (at < count) {
                words[at / 4] =
                    (codes[0] & 0xff) | (codes[1] & 0xff) << 8 | (codes[2] & 0xff) << 16 | (u32)codes[3] << 24;
            }
        } else if (size == 2) {
            if (at < count) {
                words[at / 2] = (codes[0] & 0xffff) | (u32)codes[1] << 16;
            }
            if (at + 2 < count) {
                words[at / 2 + 1] = (codes[2] & 0xffff) | (u32)codes[3] << 16;
            }
        } else if (is_aligned(words) && at + 4 <= count) {
            *(int4*)(words + at) = make_int4(codes[0], codes[1], codes[2], codes[3]);
        } else {
            for (u32 i = 0; i < 4; i++) {
                if (at + i < count) {
                    words[at + i] = (u32)codes[i];
                }
            }
        }
    }

    // The codes of a quad; zero behind the last element, or behind the last word.
    __device__ void load(u32 at, u32 count, int (&codes)[4]) const {
        if (size == 1) {
            u32 word = at < count ? words[at / 4] : 0;
            for (u32 i = 0; i < 4; i++) {
                codes[i] = (int)(signed char)(word >> 8 * i);
            }
        } else if (size == 2) {
            u32 low = at < count ? words[at / 2] : 0, high = at + 2 < count ? words[at / 2 + 1] : 0;
            codes[0] = (int)(short)low, codes[1] = (int)low >> 16;
            codes[2] = (int)(short)high, codes[3] = (int)high >> 16;
        } else if (is_aligned(words) && at + 4 <= count) {
            int4 four = *(const int4*)(words + at);
            codes[0] = four.x, codes[1] = four.y, codes[2] = four.z, codes[3] = four.w;
        } else {
            for (u32 i = 0; i < 4; i++) {
                codes[i] = at + i < count ? (int)words[at + i] : 0;
            }
        }
    }
};

// The largest magnitude of `input + old` in each block, as bits of f32.
KERNEL int_magnitudes(const float* __restrict__ input, const float* __restrict__ old, u32* __restrict__ out,
                      u64 elements, u32 block) {
    Team team(block);
    Span span(team.number, block, elements);
    const float* add = old == nullptr ? nullptr : old + span.start;
    u32 largest = 0;
#pragma unroll 1
    for (u32 start = 0; start < span.count; start += team.run()) {
        Run run;
        run.load(team, input + span.start, start, span.count);
        run.compensate(team, add, start, span.count);
#pragma unroll
        for (u32 i = 0; i < 4 * QUADS; i++) {
            largest = max(largest, magnitude(run.quads[i / 4].values[i % 4]));
        }
    }
    largest = team.largest(largest);
    if (span.count > 0 && team.thread == 0) {
        // Devices differ in the bits of NaN.
        out[team.number] = min(largest, EXPONENT);
    }
}

// The codes of a quad, which becomes what they leave out. The code of zero is zero.
__device__ inline void shared_codes(Quad& quad, float scale, float reciprocal, const Rounding& rounding, u64 index,
                                    int (&codes)[4]) {
    float steps[4];
    for (u32 i = 0; i < 4; i++) {
        steps[i] = quad.values[i] * reciprocal;
    }
    round_four(rounding, index, steps, codes);
    for (u32 i = 0; i < 4; i++) {
        quad.values[i] = flush(quad.values[i] - (float)codes[i] * scale);
    }
}

KERNEL int_encode_shared(const float* __restrict__ input, const float* __restrict__ old, float* __restrict__ fresh,
                         const u32* __restrict__ magnitudes, u32* __restrict__ out, u64 elements, u32 block,
                         u32 width, u32 stochastic, u64 key, u64 first, u32 size) {
    Team team(block);
    Span span(team.number, block, elements);
    if (span.count == 0) {
        return;
    }
    Rounding rounding = {stochastic, key, first};
    float scale = IntFormat{width, 1}.shared_scale(magnitudes[team.number]);
    float reciprocal = scale == 0.0f ? 0.0f : int_reciprocal(scale);
    const float* add = old == nullptr ? nullptr : old + span.start;
    SharedCodes to = SharedCodes{out, size}.from(span.start);
#pragma unroll 1
    for (u32 start = 0; start < span.count; start += team.run()) {
        Run run;
        run.load(team, input + span.start, start, span.count);
        run.compensate(team, add, start, span.count);
#pragma unroll
        for (u32 i = 0; i < QUADS; i++) {
            u32 at = team.quad_at(start, i);
            int codes[4];
            shared_codes(run.quads[i], scale, reciprocal, rounding, span.start + at, codes);
            to.store(at, span.count, codes);
        }
        if (fresh != nullptr) {
            run.store(team, fresh + span.start, start, span.count);
        }
    }
}

// out = sum of codes x scale x `weight`.
KERNEL int_expand_shared(const u32* __restrict__ codes, const u32* __restrict__ magnitudes, float* __restrict__ out,
                         u64 elements, u32 block, u32 width, u32 size, float weight) {
    Team team(block);
    Span span(team.number, block, elements);
    if (span.count == 0) {
        return;
    }
    float scale = IntFormat{width, 1}.shared_scale(magnitudes[team.number]);
    // They are only read.
    SharedCodes from = SharedCodes{(u32*)codes, size}.from(span.start);
#pragma unroll 1
    for (u32 start = 0; start < span.count; start += team.run()) {
        int sums[QUADS][4];
#pragma unroll
        for (u32 i = 0; i < QUADS; i++) {
            from.load(team.quad_at(start, i), span.count, sums[i]);
        }
        Run run;
#pragma unroll
        for (u32 i = 0; i < 4 * QUADS; i++) {
            run.quads[i / 4].values[i % 4] = flush((float)sums[i / 4][i % 4] * scale);
        }
        run.store_times(weight, team, out + span.start, start, span.count);
    }
}
