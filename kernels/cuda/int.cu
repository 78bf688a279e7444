// Eight or four bits for each element, with scales for each block. An encoded part is one scale (symmetric) or scale and
// smallest element for each block, then the codes, filled with zeros up to a whole word.

#include "quad.cuh"

// The codes of quad `at` / 4: a whole word or half of one.
__device__ inline u32 packed_codes(IntFormat format, const u32* codes, u32 at) {
    return format.width == 8 ? codes[at / 4] : ((const u16*)codes)[at / 4];
}

__device__ inline void unpack(IntFormat format, u32 packed, int (&codes)[4]) {
    if (format.width == 8) {
        for (u32 i = 0; i < 4; i++) {
            codes[i] = format.symmetric ? (int)(signed char)(packed >> 8 * i) : (int)(packed >> 8 * i & 0xff);
        }
    } else {
        for (u32 i = 0; i < 4; i++) {
            codes[i] = format.symmetric ? (int)(packed << (28 - 4 * i)) >> 28 : (int)(packed >> 4 * i & 15);
        }
    }
}

// Writes what `packed_codes` reads.
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

    __device__ static IntScale load(IntFormat format, const u32* part, u32 number) {
        const u32* scales = part + (u64)number * format.scales_per_block();
        return {float_of(scales[0]), format.symmetric ? 0.0f : float_of(scales[1])};
    }

    // What a code stands for. The product is exact.
    __device__ float value(IntFormat format, int code) const {
        float product = (float)code * scale;
        return format.symmetric ? product : flush(product + min);
    }
};

// Where the integers of several ranks are.
struct IntParts {
    const u32* const* parts;
    u32 ranks;
    IntFormat format;
    // Words before the codes.
    u32 scales;

    // The sums of the quads of this thread, of the run at `run` of block `number`, which has `span`. Codes behind the
    // last element are not trusted to be zero.
    __device__ void sum(const Team& team, Quad (&quads)[QUADS], Span span, u32 run) const {
#pragma unroll
        for (u32 i = 0; i < QUADS; i++) {
            quads[i] = Quad::zero();
        }
        if (span.count == 0) {
            return;
        }
#pragma unroll 1
        for (u32 rank = 0; rank < ranks; rank++) {
            const u32* part = parts[rank];
            IntScale scale = IntScale::load(format, part, team.number);
            u32 packed[QUADS];
            load_codes(team, packed, part, span, run);
#pragma unroll
            for (u32 i = 0; i < QUADS; i++) {
                int codes[4];
                unpack(format, packed[i], codes);
                for (u32 j = 0; j < 4; j++) {
                    float sum = flush(quads[i].values[j] + scale.value(format, codes[j]));
                    quads[i].values[j] = team.quad_at(run, i) + j < span.count ? sum : 0.0f;
                }
            }
        }
    }

    // The packed codes of the quads of this thread; zeros behind the last element.
    __device__ void load_codes(const Team& team, u32 (&packed)[QUADS], const u32* part, Span span, u32 run) const {
        const u32* codes = codes_from(part, span.start);
#pragma unroll
        for (u32 i = 0; i < QUADS; i++) {
            u32 at = team.quad_at(run, i);
            packed[i] = at < span.count ? packed_codes(format, codes, at) : 0;
        }
    }

    // The codes of the elements from `start` on, a multiple of 64.
    __device__ const u32* codes_from(const u32* part, u64 start) const {
        return part + scales + start * format.width / 32;
    }
};

// The largest magnitude of a block, or its smallest and largest element and whether all are finite.
struct Range {
    u32 largest;
    float min, max;

    __device__ static Range none() {
        return {0, float_of(EXPONENT), -float_of(EXPONENT)};
    }

    __device__ void add(bool symmetric, const Quad& quad, u32 at, u32 count) {
        for (u32 i = 0; i < 4; i++) {
            largest = ::max(largest, magnitude(quad.values[i]));
            if (!symmetric && at + i < count) {
                min = fminf(min, quad.values[i]);
                max = fmaxf(max, quad.values[i]);
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
    u64 elements;
    u32 block;
    IntFormat format;
    Rounding rounding;
    u32* first_bad;
};

// The codes of a quad of a block.
__device__ inline void quad_codes(const IntOut& to, IntScale scale, float reciprocal, const Quad& quad, Span span,
                                  u32 at, int (&codes)[4]) {
    float steps[4];
    for (u32 i = 0; i < 4; i++) {
        float distance = to.format.symmetric ? quad.values[i] : flush(quad.values[i] - scale.min);
        steps[i] = distance * reciprocal;
    }
    round_four(to.rounding, span.start + at, steps, codes);
    for (u32 i = 0; i < 4; i++) {
        // Codes behind the last element are zero.
        codes[i] = at + i < span.count ? codes[i] : 0;
    }
}

// Writes the codes of quad `at` of a block and what they leave out.
__device__ inline void encode_quad(const IntOut& to, IntScale scale, float reciprocal, const Quad& quad, Span span,
                                   u32 at, u32* codes_to) {
    int codes[4];
    quad_codes(to, scale, reciprocal, quad, span, at, codes);
    put_codes(to.format, codes_to, at, codes);
    if (to.fresh != nullptr) {
        Quad left;
        for (u32 i = 0; i < 4; i++) {
            left.values[i] = flush(quad.values[i] - scale.value(to.format, codes[i]));
        }
        left.store(to.fresh + span.start, at, span.count);
    }
}

// Encodes the block of this team. `load` gives the quads of a run of it, zeros behind the last element; a block that is
// longer than a run is loaded twice, and the second time it comes from the caches. A team behind the last block does
// nothing, but for the exchanges in which it takes part.
template <class Load>
__device__ inline void encode_block(const Team& team, const IntOut& to, Span span, Load load) {
    u32 per_block = to.format.scales_per_block();
    u32* scales = to.out + (u64)team.number * per_block;
    u32* codes = to.out + (to.elements + to.block - 1) / to.block * per_block + span.start * to.format.width / 32;
    // The last word of 4-bit codes has two quads.
    u32 end = to.format.width == 8 ? span.count : (span.count + 7) / 8 * 8;
    Quad quads[QUADS];
    Range range = Range::none();
    IntScale scale;
    float reciprocal = 0.0f;
    // One loop for both passes, so that the loads are compiled once.
#pragma unroll 1
    for (u32 pass = 0; pass < 2; pass++) {
#pragma unroll 1
        for (u32 run = 0; run < end; run += team.run()) {
            if (pass == 0 || end > team.run()) {
                load(quads, run);
            }
#pragma unroll
            for (u32 i = 0; i < QUADS; i++) {
                u32 at = team.quad_at(run, i);
                if (pass == 0) {
                    range.add(to.format.symmetric, quads[i], at, span.count);
                } else if (at < end) {
                    encode_quad(to, scale, reciprocal, quads[i], span, at, codes);
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
            if (team.thread == 0) {
                scales[0] = bits_of(scale.scale);
            } else if (team.thread == 1 && !to.format.symmetric) {
                scales[1] = bits_of(scale.min);
            }
            reciprocal = scale.scale == 0.0f ? 0.0f : int_reciprocal(scale.scale);
        }
    }
}

KERNEL int_encode(const float* __restrict__ input, const float* __restrict__ old, float* __restrict__ fresh,
                  u32* __restrict__ out, u64 elements, u32 block, u32 width, u32 symmetric, u32 stochastic, u64 key,
                  u64 first, u32* first_bad) {
    Team team(block);
    Span span(team.number, block, elements);
    IntOut to = {out, fresh, elements, block, {width, symmetric}, {stochastic, key, first}, first_bad};
    const float* from = input + span.start;
    const float* add = old == nullptr ? nullptr : old + span.start;
    encode_block(team, to, span, [&](Quad(&quads)[QUADS], u32 run) {
        load_run(team, quads, from, run, span.count);
        compensate_run(team, quads, add, run, span.count);
    });
}

// Where the parts of a call are, of so many elements.
__device__ inline IntParts int_parts(const u32* const* parts, u32 ranks, IntFormat format, u64 elements, u32 block) {
    return {parts, ranks, format, (u32)((elements + block - 1) / block) * format.scales_per_block()};
}

KERNEL int_reduce_encode(const u32* const* __restrict__ parts, u32 ranks, const float* __restrict__ old,
                         float* __restrict__ fresh, u32* __restrict__ out, u64 elements, u32 block, u32 width,
                         u32 symmetric, u32 stochastic, u64 key, u64 first, u32* first_bad) {
    Team team(block);
    Span span(team.number, block, elements);
    IntOut to = {out, fresh, elements, block, {width, symmetric}, {stochastic, key, first}, first_bad};
    IntParts from = int_parts(parts, ranks, to.format, elements, block);
    const float* add = old == nullptr ? nullptr : old + span.start;
    encode_block(team, to, span, [&](Quad(&quads)[QUADS], u32 run) {
        from.sum(team, quads, span, run);
        compensate_run(team, quads, add, run, span.count);
    });
}

// out = the sum of the parts times `weight`.
KERNEL int_decode_sum(const u32* const* __restrict__ parts, u32 ranks, float* __restrict__ out, u64 elements, u32 block,
                      u32 width, u32 symmetric, float weight) {
    Team team(block);
    Span span(team.number, block, elements);
    IntParts from = int_parts(parts, ranks, {width, symmetric}, elements, block);
#pragma unroll 1
    for (u32 run = 0; run < span.count; run += team.run()) {
        Quad quads[QUADS];
        from.sum(team, quads, span, run);
        store_run(team, quads, weight, out + span.start, run, span.count);
    }
}

// out = what the codes stand for, times `weight`.
KERNEL int_expand(const u32* __restrict__ part, float* __restrict__ out, u64 elements, u32 block, u32 width,
                  u32 symmetric, float weight) {
    Team team(block);
    Span span(team.number, block, elements);
    if (span.count == 0) {
        return;
    }
    IntParts from = int_parts(nullptr, 1, {width, symmetric}, elements, block);
    IntScale scale = IntScale::load(from.format, part, team.number);
#pragma unroll 1
    for (u32 run = 0; run < span.count; run += team.run()) {
        u32 packed[QUADS];
        Quad quads[QUADS];
        from.load_codes(team, packed, part, span, run);
#pragma unroll
        for (u32 i = 0; i < QUADS; i++) {
            int codes[4];
            unpack(from.format, packed[i], codes);
            for (u32 j = 0; j < 4; j++) {
                quads[i].values[j] = scale.value(from.format, codes[j]);
            }
        }
        store_run(team, quads, weight, out + span.start, run, span.count);
    }
}
