// Eight or four bits for each element, with scales for each block. An encoded part is one scale (symmetric) or scale
// and smallest element for each block, then the codes, filled with zeros up to a whole word.

#include "quad.cuh"

// The codes of a quad as floats. A code without a sign stays where it is in its word, among the last bits of a power of
// two so large that the code's lowest bit counts one.
__device__ inline void unpack(IntFormat format, u32 packed, float (&codes)[4]) {
    u32 mask = (1u << format.width) - 1, middle = format.symmetric ? 1u << (format.width - 1) : 0;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        // A float has room for the lower half of a word.
        u32 word = format.width == 8 && i >= 2 ? packed >> 16 : packed;
        u32 shift = format.width == 8 ? i % 2 * 8 : i * 4;
        float power = power_of_two(23 - (int)shift);
        u32 bits = and_xor(word, mask << shift, bits_of(power) ^ middle << shift);
        codes[i] = float_of(bits) - (power + (float)middle);
    }
}

// Writes the codes of quad `at` / 4: a whole word or half of one.
__device__ inline void put_codes(IntFormat format, u32* codes, u32 at, const int (&values)[4]) {
    if (format.width == 8) {
        codes[at / 4] = (values[0] & 0xff) | (values[1] & 0xff) << 8 | (values[2] & 0xff) << 16 | (u32)values[3] << 24;
    } else {
        u32 half = (values[0] & 15) | (values[1] & 15) << 4 | (values[2] & 15) << 8 | (values[3] & 15) << 12;
        ((u16*)codes)[at / 4] = (u16)half;
    }
}

// The scale of a block, and its smallest element (0 where the format is symmetric).
struct IntScale {
    float scale, min;

    // Zeros, unless it is there.
    __device__ static IntScale load(IntFormat format, const u32* part, u32 number, bool is_there) {
        const u32* scales = part + (u64)number * format.scales_per_block();
        float scale = is_there ? float_of(scales[0]) : 0.0f;
        return {scale, is_there && !format.symmetric ? float_of(scales[1]) : 0.0f};
    }

    // What a code stands for. The product is exact.
    __device__ float value(IntFormat format, float code) const {
        float product = code * scale;
        return format.symmetric ? product : flush(product + min);
    }

    // `sum` and what a code stands for; a zero may have either sign.
    __device__ float added(IntFormat format, float code, float sum) const {
        return format.symmetric ? add_product(code, scale, sum) : add_flushed(sum, add_product(code, scale, min));
    }
};

// Ranks whose codes a thread loads before it adds any.
constexpr u32 LOADED = 4;

// Where the integers of several ranks are.
struct IntParts {
    const u32* const* parts;
    u32 ranks;
    IntFormat format;
    // Words before the codes.
    u32 scales;

    // The sum of the run at `start` of the block of this team; zeros, of either sign as others, behind the last
    // element.
    __device__ void sum(const Team& team, Run& run, Span span, u32 start) const {
        run.clear();
        if (span.count == 0) {
            return;
        }
        u32 at[QUADS];
        code_numbers(team, at, span, start);
        u64 codes = codes_at(span.start);
#pragma unroll 1
        for (u32 first = 0; first < ranks; first += LOADED) {
            IntScale scale[LOADED];
            u32 packed[LOADED][QUADS];
#pragma unroll
            for (u32 i = 0; i < LOADED; i++) {
                // Behind the last rank comes what adds nothing.
                const u32* part = parts[min(first + i, ranks - 1)];
                scale[i] = IntScale::load(format, part, team.number, first + i < ranks);
                load_codes(packed[i], part + codes, at);
            }
#pragma unroll
            for (u32 i = 0; i < LOADED; i++) {
                add(run, scale[i], packed[i]);
            }
        }
        run.cut(team, start, span.count);
    }

    __device__ void add(Run& run, IntScale scale, const u32 (&packed)[QUADS]) const {
#pragma unroll
        for (u32 i = 0; i < QUADS; i++) {
            float codes[4];
            unpack(format, packed[i], codes);
            for (u32 j = 0; j < 4; j++) {
                float& sum = run.quads[i].values[j];
                sum = scale.added(format, codes[j], sum);
            }
        }
    }

    // Where the codes of the run at `start` are, by quads behind those of its block: the last ones again behind its
    // end.
    __device__ void code_numbers(const Team& team, u32 (&at)[QUADS], Span span, u32 start) const {
#pragma unroll
        for (u32 i = 0; i < QUADS; i++) {
            at[i] = min(team.quad_at(start, i), span.count - 1) / 4;
        }
    }

    __device__ void load_codes(u32 (&packed)[QUADS], const u32* codes, const u32 (&at)[QUADS]) const {
#pragma unroll
        for (u32 i = 0; i < QUADS; i++) {
            packed[i] = format.width == 8 ? codes[at[i]] : ((const u16*)codes)[at[i]];
        }
    }

    // The words before the codes of the elements from `start` on, a multiple of 64.
    __device__ u64 codes_at(u64 start) const {
        return scales + start * format.width / 32;
    }
};

// The largest magnitude of a block, or its smallest and largest element and whether all are finite.
struct Range {
    u32 largest;
    float min, max;

    __device__ static Range none() {
        return {0, float_of(EXPONENT), -float_of(EXPONENT)};
    }

    // Of a run at `start`.
    __device__ void add(bool symmetric, const Team& team, const Run& run, u32 start, u32 count) {
#pragma unroll
        for (u32 i = 0; i < 4 * QUADS; i++) {
            float value = run.quads[i / 4].values[i % 4];
            largest = ::max(largest, magnitude(value));
            if (!symmetric && team.quad_at(start, i / 4) + i % 4 < count) {
                min = fminf(min, value);
                max = fmaxf(max, value);
            }
        }
    }

    // Over the team. Whether the elements can be encoded.
    __device__ bool scale(const Team& team, IntFormat format, IntScale& scale) {
        largest = team.largest(largest);
        float range = float_of(largest);
        scale.min = 0.0f;
        if (!format.symmetric) {
            for (u32 width = team.threads / 2; width > 0; width /= 2) {
                min = fminf(min, __shfl_xor_sync(ALL, min, width));
                max = fmaxf(max, __shfl_xor_sync(ALL, max, width));
            }
            scale.min = flush(min);
            range = flush(max - min);
        }
        bool is_encodable = largest < EXPONENT && is_finite(range);
        return format.scale_of(range, scale.scale) && is_encodable;
    }
};

// Where one rank's integers are put.
struct IntOut {
    u32* out;
    float* fresh;
    IntFormat format;
    // Words before the codes.
    u32 scales;
    Rounding rounding;
    u32* first_bad;

    // Writes the codes of a run, which becomes what they leave out.
    __device__ void encode(const Team& team, Run& run, IntScale scale, float reciprocal, Span span, u32 start) const {
        u32* codes_to = out + scales + span.start * format.width / 32;
        // The last word of 4-bit codes has two quads.
        u32 end = format.width == 8 ? span.count : (span.count + 7) / 8 * 8;
#pragma unroll
        for (u32 i = 0; i < QUADS; i++) {
            u32 at = team.quad_at(start, i);
            int codes[4];
            encode_quad(run.quads[i], scale, reciprocal, span, at, codes);
            if (at < end) {
                put_codes(format, codes_to, at, codes);
            }
        }
    }

    // The codes of a quad, which becomes what they leave out, if anybody wants that.
    __device__ void encode_quad(Quad& quad, IntScale scale, float reciprocal, Span span, u32 at,
                                int (&codes)[4]) const {
        float steps[4];
        for (u32 i = 0; i < 4; i++) {
            float distance = format.symmetric ? quad.values[i] : flush(quad.values[i] - scale.min);
            // Behind the last element is a zero, whose symmetric code is zero.
            steps[i] = (format.symmetric || at + i < span.count ? distance : 0.0f) * reciprocal;
        }
        round_four(rounding, span.start + at, steps, codes);
        if (fresh != nullptr) {
            for (u32 i = 0; i < 4; i++) {
                quad.values[i] = flush(quad.values[i] - scale.value(format, (float)codes[i]));
            }
        }
    }

    // Writes the scales of the block of a team.
    __device__ void put_scale(const Team& team, IntScale scale) const {
        u32* to = out + (u64)team.number * format.scales_per_block();
        if (team.thread == 0) {
            to[0] = bits_of(scale.scale);
        } else if (team.thread == 1 && !format.symmetric) {
            to[1] = bits_of(scale.min);
        }
    }
};

// Encodes the block of this team. `load` gives a run of it, zeros behind the last element; a block that is longer than
// a run is loaded twice, and the second time it comes from the caches. A team behind the last block does nothing, but
// for the exchanges in which it takes part.
template <class Load>
__device__ inline void encode_block(const Team& team, const IntOut& to, Span span, Load load) {
    Run run;
    Range range = Range::none();
    IntScale scale;
    float reciprocal = 0.0f;
    // One loop for both passes, so that the loads are compiled once.
#pragma unroll 1
    for (u32 pass = 0; pass < 2; pass++) {
#pragma unroll 1
        for (u32 start = 0; start < span.count; start += team.run()) {
            if (pass == 0 || span.count > team.run()) {
                load(run, start);
            }
            if (pass == 0) {
                range.add(to.format.symmetric, team, run, start, span.count);
            } else {
                to.encode(team, run, scale, reciprocal, span, start);
                if (to.fresh != nullptr) {
                    run.store(team, to.fresh + span.start, start, span.count);
                }
            }
        }
        if (pass == 0) {
            bool is_encodable = range.scale(team, to.format, scale);
            if (span.count == 0) {
                return;
            }
            if (!is_encodable) {
                atomicMin(to.first_bad, team.number);
                return;
            }
            to.put_scale(team, scale);
            reciprocal = scale.scale == 0.0f ? 0.0f : int_reciprocal(scale.scale);
        }
    }
}

KERNEL int_encode(const float* __restrict__ input, const float* __restrict__ old, float* __restrict__ fresh,
                  u32* __restrict__ out, u64 elements, u32 block, u32 scales, u32 width, u32 symmetric, u32 stochastic,
                  u64 key, u64 first, u32* first_bad) {
    Team team(block);
    Span span(team.number, block, elements);
    IntOut to = {out, fresh, {width, symmetric}, scales, {stochastic, key, first}, first_bad};
    const float* from = input + span.start;
    const float* add = old == nullptr ? nullptr : old + span.start;
    encode_block(team, to, span, [&](Run& run, u32 start) {
        run.load(team, from, start, span.count);
        run.compensate(team, add, start, span.count);
    });
}

// int_reduce_encode of one format.
template <u32 WIDTH, u32 SYMMETRIC>
OUTLINED void reduce_encode(const u32* const* parts, u32 ranks, const float* old, float* fresh, u32* out, u64 elements,
                            u32 block, u32 scales, u32 stochastic, u64 key, u64 first, u32* first_bad) {
    constexpr IntFormat FORMAT = {WIDTH, SYMMETRIC};
    Team team(block);
    Span span(team.number, block, elements);
    const float* add = old == nullptr ? nullptr : old + span.start;
    IntOut to = {out, fresh, FORMAT, scales, {stochastic, key, first}, first_bad};
    IntParts from = {parts, ranks, FORMAT, scales};
    encode_block(team, to, span, [&](Run& run, u32 start) {
        from.sum(team, run, span, start);
        run.compensate(team, add, start, span.count);
    });
}

KERNEL int_reduce_encode(const u32* const* __restrict__ parts, u32 ranks, const float* __restrict__ old,
                         float* __restrict__ fresh, u32* __restrict__ out, u64 elements, u32 block, u32 scales,
                         u32 width, u32 symmetric, u32 stochastic, u64 key, u64 first, u32* first_bad) {
    if (width == 8 && symmetric) {
        reduce_encode<8, 1>(parts, ranks, old, fresh, out, elements, block, scales, stochastic, key, first, first_bad);
    } else if (width == 8) {
        reduce_encode<8, 0>(parts, ranks, old, fresh, out, elements, block, scales, stochastic, key, first, first_bad);
    } else if (symmetric) {
        reduce_encode<4, 1>(parts, ranks, old, fresh, out, elements, block, scales, stochastic, key, first, first_bad);
    } else {
        reduce_encode<4, 0>(parts, ranks, old, fresh, out, elements, block, scales, stochastic, key, first, first_bad);
    }
}

// Calls `body` with the format as a constant, so that each has code of its own.
template <class Body>
__device__ inline void with_format(u32 width, u32 symmetric, Body body) {
    if (width == 8 && symmetric) {
        body(IntFormat{8, 1});
    } else if (width == 8) {
        body(IntFormat{8, 0});
    } else if (symmetric) {
        body(IntFormat{4, 1});
    } else {
        body(IntFormat{4, 0});
    }
}

// out = the sum of the parts times `weight`.
KERNEL int_decode_sum(const u32* const* __restrict__ parts, u32 ranks, float* __restrict__ out, u64 elements, u32 block,
                      u32 scales, u32 width, u32 symmetric, float weight) {
    with_format(width, symmetric, [&](IntFormat format) {
        Team team(block);
        Span span(team.number, block, elements);
        IntParts from = {parts, ranks, format, scales};
#pragma unroll 1
        for (u32 start = 0; start < span.count; start += team.run()) {
            Run run;
            from.sum(team, run, span, start);
            run.store_times(weight, team, out + span.start, start, span.count);
        }
    });
}

// out = what the codes stand for, times `weight`.
KERNEL int_expand(const u32* __restrict__ part, float* __restrict__ out, u64 elements, u32 block, u32 scales, u32 width,
                  u32 symmetric, float weight) {
    with_format(width, symmetric, [&](IntFormat format) {
        Team team(block);
        Span span(team.number, block, elements);
        if (span.count == 0) {
            return;
        }
        IntParts from = {nullptr, 1, format, scales};
        IntScale scale = IntScale::load(format, part, team.number, true);
#pragma unroll 1
        for (u32 start = 0; start < span.count; start += team.run()) {
            u32 packed[QUADS];
            Run run;
            u32 at[QUADS];
            from.code_numbers(team, at, span, start);
            from.load_codes(packed, part + from.codes_at(span.start), at);
#pragma unroll
            for (u32 i = 0; i < QUADS; i++) {
                float codes[4];
                unpack(format, packed[i], codes);
                for (u32 j = 0; j < 4; j++) {
                    run.quads[i].values[j] = scale.value(format, codes[j]);
                }
            }
            run.store_times(weight, team, out + span.start, start, span.count);
        }
    });
}
