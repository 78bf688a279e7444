// The numbers of the formats and what a thread does with one of them, as kernels/src/format.rs and
// kernels/src/reference.rs define them: the bytes are the same on every device.
//
// Nothing here depends on how a device rounds divisions or roots, on whether it fuses a product with a sum (products
// that are summed are exact), or on whether its arithmetic keeps subnormal numbers (every result is flushed).
#pragma once

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// The bits of an f32 that hold its exponent.
constexpr u32 EXPONENT = 0x7f800000;
// Blocks of integers whose scale would be below this are zero: 2^-120.
constexpr float INT_SCALE_MIN = 0x1p-120f;

__device__ inline u32 bits_of(float value) {
    return __float_as_uint(value);
}

__device__ inline float float_of(u32 bits) {
    return __uint_as_float(bits);
}

#ifdef __CUDA_ARCH__
// The sum of two numbers, of which subnormal ones are zero; zero, with either sign, where it would be subnormal.
__device__ inline float add_flushed(float left, float right) {
    float sum;
    asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(sum) : "f"(left), "f"(right));
    return sum;
}

// The same of an exact product and a number.
__device__ inline float add_product(float left, float right, float add) {
    float sum;
    asm("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(left), "f"(right), "f"(add));
    return sum;
}

// `one` and `mask`, exclusive or `other`: one instruction, where a compiler that knows both numbers makes two.
__device__ inline u32 and_xor(u32 one, u32 mask, u32 other) {
    u32 bits;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(bits) : "r"(one), "r"(mask), "r"(other));
    return bits;
}

// `value`, or +0.0 if it is zero or subnormal: one instruction, for -0.0 + 0.0 is +0.0.
__device__ inline float flush(float value) {
    return add_flushed(value, 0.0f);
}
#else
__device__ inline float flush(float value) {
    return (bits_of(value) & EXPONENT) == 0 ? 0.0f : value;
}

__device__ inline float add_flushed(float left, float right) {
    return flush(flush(left) + flush(right));
}

__device__ inline float add_product(float left, float right, float add) {
    return add_flushed(left * right, add);
}

__device__ inline u32 and_xor(u32 one, u32 mask, u32 other) {
    return (one & mask) ^ other;
}
#endif

// Whether the bit of `value` is set: always but for negative numbers that are neither zero nor subnormal.
__device__ inline bool is_plus(float value) {
    return bits_of(value) < 0x80800000;
}

__device__ inline bool is_finite(float value) {
    return (bits_of(value) & EXPONENT) != EXPONENT;
}

// Plus or minus `scale`.
__device__ inline float signed_scale(bool plus, float scale) {
    return plus ? scale : -scale;
}

// The bits of the magnitude of `value`: their order is that of magnitudes, and NaN is the largest.
__device__ inline u32 magnitude(float value) {
    return bits_of(value) & 0x7fffffff;
}

// 2^`exponent`, for a normal number.
__device__ inline float power_of_two(int exponent) {
    return float_of((u32)(exponent + 127) << 23);
}

// How integers encode a block. The fields are words, as the host passes them.
struct IntFormat {
    // Bits of a code: 8 or 4.
    u32 width;
    // Symmetric: element = code x scale. Otherwise element = code x scale + the smallest element of the block.
    u32 symmetric;

    __device__ u32 scales_per_block() const {
        return symmetric ? 1 : 2;
    }

    // A little more than `range` / steps, with 16 significant bits; zero if that would be below INT_SCALE_MIN. False if
    // code x scale could overflow.
    __device__ bool scale_of(float range, float& scale) const {
        // The quotients of two constants, rounded once, by the compiler.
        constexpr float BY_127 = 1.0f / 127, BY_255 = 1.0f / 255, BY_7 = 1.0f / 7, BY_15 = 1.0f / 15;
        float factor = width == 8 ? (symmetric ? BY_127 : BY_255) : (symmetric ? BY_7 : BY_15);
        float product = range * factor;
        float rounded = float_of((bits_of(product) + 0x104) & ~0xffu);
        scale = rounded < INT_SCALE_MIN ? 0.0f : rounded;
        float end = width == 8 ? 0x1p120f : 0x1p124f;
        return scale == 0.0f || (scale >= INT_SCALE_MIN && scale < end);
    }

    // The scale of a block whose largest magnitude all ranks know: one that does not exist counts as zero.
    __device__ float shared_scale(u32 magnitude) const {
        float scale;
        return scale_of(float_of(magnitude), scale) ? scale : 0.0f;
    }
};

// A little less than 1 / `scale`, for a scale that is not zero: by division of integers, which none rounds.
__device__ inline float int_reciprocal(float scale) {
    int exponent = (int)(bits_of(scale) >> 23) - 127;
    u32 significand = ((bits_of(scale) & 0x007fffff) | 0x00800000) >> 8;
    u32 high = (1u << 31) / significand;
    u32 rest = (1u << 31) - high * significand;
    float quotient = (float)((high << 8) + (rest << 8) / significand);
    return quotient * power_of_two(-24) * power_of_two(-exponent);
}

// How a code is rounded: to the nearest, ties to even, or up or down by random bits.
struct Rounding {
    u32 stochastic;
    // The source of random bits: different for each rank and call.
    u64 key;
    // The number of the input's first element.
    u64 first;

    __device__ static u32 mix(u32 word) {
        word ^= word >> 16;
        word *= 0x21f0aaad;
        word ^= word >> 15;
        word *= 0x735a2d97;
        return word ^ word >> 15;
    }

    // The random bits of elements 2 x `pair` (low half) and 2 x `pair` + 1.
    __device__ u32 word(u32 pair) const {
        return mix(mix(pair ^ (u32)key) + (u32)(key >> 32));
    }

    // 16 random bits for each of the elements from `index` on, which is a multiple of 4. Two elements share a word.
    __device__ void four(u64 index, u32 (&bits)[4]) const {
        u64 number = first + index;
        u32 pair = (u32)(number >> 1), words[2] = {word(pair), word(pair + 1)};
        if (number % 2 == 0) {
            bits[0] = words[0] & 0xffff, bits[1] = words[0] >> 16;
            bits[2] = words[1] & 0xffff, bits[3] = words[1] >> 16;
        } else {
            bits[0] = words[0] >> 16, bits[1] = words[1] & 0xffff;
            bits[2] = words[1] >> 16, bits[3] = word(pair + 2) & 0xffff;
        }
    }
};

// The codes of four elements, `steps` of their scale each, at most 255 and at least -128.
__device__ inline void round_four(const Rounding& rounding, u64 index, const float (&steps)[4], int (&codes)[4]) {
    if (rounding.stochastic) {
        u32 bits[4];
        rounding.four(index, bits);
        for (u32 i = 0; i < 4; i++) {
            codes[i] = (__float2int_rn(steps[i] * 65536.0f) + (int)bits[i]) >> 16;
        }
    } else {
        for (u32 i = 0; i < 4; i++) {
            // The last bit of such a sum counts one.
            codes[i] = (int)(bits_of(steps[i] + 0x1.8p23f) - bits_of(0x1.8p23f));
        }
    }
}

// To bf16, to the nearest, ties to even. What is not finite stays so.
__device__ inline u32 bf16_of(float value) {
    u32 bits = bits_of(value);
    if (magnitude(value) > EXPONENT) {
        return bits >> 16 | 0x40;
    }
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// The number in the low (0) or high (1) half of a word.
__device__ inline float bf16_in(u32 word, u32 half) {
    return float_of(half == 0 ? word << 16 : word & 0xffff0000);
}
