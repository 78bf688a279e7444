//! The arithmetic of each operator on two elements, which is in no other file.

use unisono_communicator::{Bool, Complex, bf16, f8e4m3, f8e5m2, f16};

/// One operator on one type. Only [`Mean`] uses `ranks`.
pub(super) trait Operator<T> {
    fn combine(left: T, right: T, ranks: u32) -> T;
}

/// Multiplication of an input by a factor, before a sum.
pub(super) trait Scale: Copy {
    fn scale(self, factor: f64) -> Self;
}

pub(super) enum Sum {}
pub(super) enum Prod {}
pub(super) enum Min {}
pub(super) enum Max {}
/// The last step of an average: sum and division in one operator, so that narrow floats round once.
pub(super) enum Mean {}
pub(super) enum BitAnd {}
pub(super) enum BitOr {}
pub(super) enum BitXor {}

macro_rules! operators {
    ($type:ty { $($operator:ident($left:ident, $right:ident, $ranks:pat) = $result:expr;)* }) => {
        $(impl Operator<$type> for $operator {
            #[inline(always)]
            fn combine($left: $type, $right: $type, $ranks: u32) -> $type {
                $result
            }
        })*
    };
}

/// Minimum and maximum compare bits as integers, in a total order where only equal bits are equal. -0.0 comes right
/// before 0.0. NaNs come first for the minimum and last for the maximum. So the result is always an operand, and does
/// not depend on their order.
///
/// The bits become a signed integer in the order of the floats: for a negative float, all bits but the sign are
/// inverted. Negative NaNs are then at the low end, and positive NaNs at the high end. Let n be how many NaNs have one
/// sign. For the maximum, subtracting n with wrapping moves the negative NaNs to the high end; for the minimum, adding
/// n moves the positive NaNs to the low end.
///
/// `$largest` is the largest value that is no NaN.
macro_rules! ordered_by_bits {
    ($($float:ident, $signed:ident, $unsigned:ident, $largest:ident;)*) => {
        $(impl Ordered for $float {
            type Key = $signed;
            const NANS: $signed = $signed::MAX - $float::$largest.to_bits() as $signed;

            #[inline(always)]
            fn key(self) -> $signed {
                let bits = self.to_bits() as $signed;
                bits ^ ((bits >> ($signed::BITS - 1)) & $signed::MAX)
            }

            #[inline(always)]
            fn of_key(key: $signed) -> $float {
                let bits = key ^ ((key >> ($signed::BITS - 1)) & $signed::MAX);
                $float::from_bits(bits as $unsigned)
            }
        }

        operators! { $float {
            Min(left, right, _) = {
                let nans_first = |float: $float| float.key().wrapping_add($float::NANS);
                $float::of_key(nans_first(left).min(nans_first(right)).wrapping_sub($float::NANS))
            };
            Max(left, right, _) = {
                let nans_last = |float: $float| float.key().wrapping_sub($float::NANS);
                $float::of_key(nans_last(left).max(nans_last(right)).wrapping_add($float::NANS))
            };
        } })*
    };
}

/// A float type as integers in the order of its numbers, with NaNs at both ends.
trait Ordered {
    type Key;
    /// The number of NaNs of one sign.
    const NANS: Self::Key;
    fn key(self) -> Self::Key;
    fn of_key(key: Self::Key) -> Self;
}

macro_rules! float {
    ($($float:ty)*) => {
        $(operators! { $float {
            Sum(left, right, _) = left + right;
            Prod(left, right, _) = left * right;
            Mean(left, right, ranks) = (left + right) / ranks as $float;
        } }

        impl Scale for $float {
            #[inline(always)]
            fn scale(self, factor: f64) -> $float {
                self * factor as $float
            }
        })*
    };
}

macro_rules! without_mean {
    ($integer:ty) => {
        operators! { $integer {
            Sum(left, right, _) = left.wrapping_add(right);
            Prod(left, right, _) = left.wrapping_mul(right);
            Min(left, right, _) = left.min(right);
            Max(left, right, _) = left.max(right);
            BitAnd(left, right, _) = left & right;
            BitOr(left, right, _) = left | right;
            BitXor(left, right, _) = left ^ right;
        } }
    };
}

/// Division of a sum's magnitude by the number of ranks.
trait Divide {
    fn divide(self, ranks: u32) -> Self;
}

macro_rules! integer {
    ($($signed:ty, $unsigned:ty, $double:ty;)*) => {
        $(without_mean! { $signed }
        without_mean! { $unsigned }

        operators! { $signed {
            Mean(left, right, ranks) = {
                let sum = left.wrapping_add(right);
                // -1 or 0. A conditional negation would be a branch, and the loop would not be vectorised.
                let sign = sum >> (<$signed>::BITS - 1);
                let quotient = (sum ^ sign).wrapping_sub(sign).cast_unsigned().divide(ranks);
                (quotient.cast_signed() ^ sign).wrapping_sub(sign)
            };
        } }
        operators! { $unsigned {
            Mean(left, right, ranks) = left.wrapping_add(right).divide(ranks);
        } }

        /// No vector instruction divides integers, so this multiplies by the reciprocal 2^2w / ranks, rounded up, for
        /// integers of w bits. The product exceeds the quotient by less than 2^-w, which is at most 1 / ranks, so
        /// truncation is exact. More than 2^w ranks give 0, as 2^w ranks do. One rank, whose reciprocal needs one bit
        /// more, does not come here: its mean is its sum.
        impl Divide for $unsigned {
            #[inline(always)]
            fn divide(self, ranks: u32) -> $unsigned {
                const BITS: u32 = <$unsigned>::BITS;
                let ranks = u128::from(ranks.max(2)).min(1 << BITS) as $double;
                let reciprocal = <$double>::MAX / ranks + 1;
                let magnitude = <$double>::from(self);
                let carry = (magnitude * <$double>::from(reciprocal as $unsigned)) >> BITS;
                ((magnitude * (reciprocal >> BITS) + carry) >> BITS) as $unsigned
            }
        })*
    };
}

float! { f32 f64 }
ordered_by_bits! {
    f8e4m3, i8, u8, MAX;
    f8e5m2, i8, u8, INFINITY;
    f16, i16, u16, INFINITY;
    bf16, i16, u16, INFINITY;
    f32, i32, u32, INFINITY;
    f64, i64, u64, INFINITY;
}
operators! { Complex<f32> { Prod(left, right, _) = left * right; } }
operators! { Complex<f64> { Prod(left, right, _) = left * right; } }
integer! {
    i8, u8, u16;
    i16, u16, u32;
    i32, u32, u64;
    i64, u64, u128;
}

/// 0 or 1, on which bitwise operators are logical.
#[inline(always)]
fn truth(value: Bool) -> u8 {
    u8::from(value.0 != 0)
}

operators! { Bool {
    BitAnd(left, right, _) = Bool(truth(left) & truth(right));
    BitOr(left, right, _) = Bool(truth(left) | truth(right));
    BitXor(left, right, _) = Bool(truth(left) ^ truth(right));
} }
