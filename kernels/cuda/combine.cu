// Two values of an element become one, and elements are multiplied: what a schedule does with messages that a vendor's
// library moves. The bits are those of crates/engine/src/reduce, NaNs aside.

#include "warp.cuh"

using i8 = signed char;
using u8 = unsigned char;
using i16 = short;
using i32 = int;
using i64 = long long;

// What offload-nccl/src/arithmetic.rs passes.
enum Type : u32 { I8, U8, I16, U16, I32, U32, I64, U64, F16, BF16, F32, F64 };
enum Operator : u32 { SUM, PROD, MIN, MAX, MEAN, BIT_AND, BIT_OR, BIT_XOR };

// The bits of narrow floats.
struct Half {
    u16 bits;
};
struct Brain {
    u16 bits;
};

#ifdef __CUDA_ARCH__
__device__ inline float wide(Half half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half.bits));
    return value;
}

__device__ inline Half narrow(float value, Half) {
    Half half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(value));
    return half;
}
#else
// The same for the host's compiler.
__device__ inline float wide(Half half) {
    u32 sign = (u32)(half.bits & 0x8000) << 16, magnitude = half.bits & 0x7fff;
    if (magnitude >= 0x7c00) {
        return __uint_as_float(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    }
    // 2^112 moves the exponent from one bias to the other, also that of subnormal numbers.
    return __uint_as_float(sign | __float_as_uint(__uint_as_float(magnitude << 13) * 0x1p112f));
}

__device__ inline Half narrow(float value, Half) {
    u32 bits = __float_as_uint(value), magnitude = bits & 0x7fffffff;
    u16 sign = (u16)(bits >> 16 & 0x8000);
    if (magnitude > 0x7f800000) {
        return {(u16)(sign | 0x7e00)};
    }
    // From half a step above the largest number on it is infinity.
    if (magnitude >= 0x477ff000) {
        return {(u16)(sign | 0x7c00)};
    }
    // Below 2^-14 numbers are multiples of 2^-24: a sum with 0.5 has such multiples in its last bits.
    if (magnitude < 0x38800000) {
        return {(u16)(sign | (__float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000))};
    }
    u32 rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return {(u16)(sign | ((rounded - 0x38000000) >> 13))};
}
#endif

__device__ inline float wide(Brain brain) {
    return __uint_as_float((u32)brain.bits << 16);
}

__device__ inline Brain narrow(float value, Brain) {
    u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffff) > 0x7f800000) {
        return {(u16)(bits >> 16 | 0x40)};
    }
    return {(u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

__device__ inline float wide(float value) {
    return value;
}

__device__ inline float narrow(float value, float) {
    return value;
}

__device__ inline double wide(double value) {
    return value;
}

__device__ inline double narrow(double value, double) {
    return value;
}

// The integers as wide as a float, and how many NaNs there are of one sign.
template <class T>
struct Bits;
template <>
struct Bits<Half> {
    using Signed = i16;
    using Unsigned = u16;
    static constexpr i16 LARGEST = 0x7fff, NANS = 0x3ff;
};
template <>
struct Bits<Brain> {
    using Signed = i16;
    using Unsigned = u16;
    static constexpr i16 LARGEST = 0x7fff, NANS = 0x7f;
};
template <>
struct Bits<float> {
    using Signed = i32;
    using Unsigned = u32;
    static constexpr i32 LARGEST = 0x7fffffff, NANS = 0x7fffff;
};
template <>
struct Bits<double> {
    using Signed = i64;
    using Unsigned = u64;
    static constexpr i64 LARGEST = 0x7fffffffffffffff, NANS = 0xfffffffffffff;
};

// The smaller or the larger of two floats, in an order in which nothing is equal but equal bits: -0.0 comes before 0.0,
// and NaNs before every number for the smaller one, behind every number for the larger one.
template <class T>
__device__ inline T extreme(T left, T right, bool smaller) {
    using Signed = typename Bits<T>::Signed;
    using Unsigned = typename Bits<T>::Unsigned;
    union Both {
        T value;
        Signed bits;
    };
    const Unsigned turn = (Unsigned)(smaller ? Bits<T>::NANS : -Bits<T>::NANS);
    Both one, other;
    one.value = left;
    other.value = right;
    Signed keys[2] = {one.bits, other.bits};
    for (Signed& key : keys) {
        key = (Signed)(key < 0 ? key ^ Bits<T>::LARGEST : key);
        key = (Signed)((Unsigned)key + turn);
    }
    bool is_left = smaller ? keys[0] <= keys[1] : keys[0] >= keys[1];
    return is_left ? left : right;
}

// On floats. There is nothing bitwise.
template <class T>
struct Floats {
    u32 by, ranks;

    __device__ T operator()(T left, T right) const {
        auto one = wide(left), other = wide(right);
        switch (by) {
            case PROD:
                return narrow(one * other, T());
            case MIN:
                return extreme(left, right, true);
            case MAX:
                return extreme(left, right, false);
            case MEAN:
                return narrow((one + other) / (decltype(one))ranks, T());
            default:
                return narrow(one + other, T());
        }
    }
};

// On integers as 64 bits with or without a sign: what is cut off is the same.
template <class T, class Wide>
struct Integers {
    u32 by, ranks;

    __device__ T operator()(T left, T right) const {
        switch (by) {
            case PROD:
                return (T)((u64)left * (u64)right);
            case MIN:
                return left < right ? left : right;
            case MAX:
                return left > right ? left : right;
            case MEAN:
                return (T)((Wide)(T)((u64)left + (u64)right) / (Wide)ranks);
            case BIT_AND:
                return left & right;
            case BIT_OR:
                return left | right;
            case BIT_XOR:
                return left ^ right;
            default:
                return (T)((u64)left + (u64)right);
        }
    }
};

// What a thread moves at a time.
constexpr u32 PACK_BYTES = 16;

template <class T>
struct alignas(PACK_BYTES) Pack {
    static constexpr u32 LANES = PACK_BYTES / sizeof(T);
    T lanes[LANES];
};

__device__ inline bool is_pack_aligned(const void* one, const void* two, const void* three) {
    return ((u64)one | (u64)two | (u64)three) % PACK_BYTES == 0;
}

// Applies `each` to this thread's elements. `to` may be one of the others.
template <class T, class Each>
__device__ inline void each_of_pack(void* to, const void* left, const void* right, u64 count, Each each) {
    u64 first = ((u64)blockIdx.x * THREADS + threadIdx.x) * Pack<T>::LANES;
    if (first + Pack<T>::LANES <= count && is_pack_aligned(to, left, right)) {
        u64 pack = first / Pack<T>::LANES;
        Pack<T> one = ((const Pack<T>*)left)[pack], other = ((const Pack<T>*)right)[pack];
        for (u32 lane = 0; lane < Pack<T>::LANES; lane++) {
            one.lanes[lane] = each(one.lanes[lane], other.lanes[lane]);
        }
        ((Pack<T>*)to)[pack] = one;
        return;
    }
    for (u64 at = first; at < count && at < first + Pack<T>::LANES; at++) {
        ((T*)to)[at] = each(((const T*)left)[at], ((const T*)right)[at]);
    }
}

// to = left and right, combined; a thread takes a pack. `ranks` is for the mean alone.
KERNEL combine(void* to, const void* left, const void* right, u64 count, u32 type, u32 by, u32 ranks) {
    switch (type) {
        case I8:
            return each_of_pack<i8>(to, left, right, count, Integers<i8, i64>{by, ranks});
        case U8:
            return each_of_pack<u8>(to, left, right, count, Integers<u8, u64>{by, ranks});
        case I16:
            return each_of_pack<i16>(to, left, right, count, Integers<i16, i64>{by, ranks});
        case U16:
            return each_of_pack<u16>(to, left, right, count, Integers<u16, u64>{by, ranks});
        case I32:
            return each_of_pack<i32>(to, left, right, count, Integers<i32, i64>{by, ranks});
        case U32:
            return each_of_pack<u32>(to, left, right, count, Integers<u32, u64>{by, ranks});
        case I64:
            return each_of_pack<i64>(to, left, right, count, Integers<i64, i64>{by, ranks});
        case U64:
            return each_of_pack<u64>(to, left, right, count, Integers<u64, u64>{by, ranks});
        case F16:
            return each_of_pack<Half>(to, left, right, count, Floats<Half>{by, ranks});
        case BF16:
            return each_of_pack<Brain>(to, left, right, count, Floats<Brain>{by, ranks});
        case F32:
            return each_of_pack<float>(to, left, right, count, Floats<float>{by, ranks});
        case F64:
            return each_of_pack<double>(to, left, right, count, Floats<double>{by, ranks});
    }
}

// The product of a float with a factor, which narrower floats take as f32.
template <class T>
struct Multiplied {
    double factor;

    __device__ T operator()(T value, T) const {
        auto one = wide(value);
        return narrow(one * (decltype(one))factor, T());
    }
};

// buffer = buffer x factor; a thread takes a pack.
KERNEL multiply(void* buffer, u64 count, u32 type, double factor) {
    switch (type) {
        case F16:
            return each_of_pack<Half>(buffer, buffer, buffer, count, Multiplied<Half>{factor});
        case BF16:
            return each_of_pack<Brain>(buffer, buffer, buffer, count, Multiplied<Brain>{factor});
        case F32:
            return each_of_pack<float>(buffer, buffer, buffer, count, Multiplied<float>{factor});
        case F64:
            return each_of_pack<double>(buffer, buffer, buffer, count, Multiplied<double>{factor});
    }
}
