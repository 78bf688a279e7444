//! Elements to send, and what they must reduce to: a reference that shares nothing with the engine's kernels.
//!
//! An element is a function of (seed, rank, index), so every rank can work out every other rank's input. Operands are
//! such that every order of reduction gives the same bits: integers wrap, floats are whole numbers that stay exact,
//! powers of two for products. No operand is a NaN or a negative zero, of which backends may make what they like
//! (`suite/arithmetic.rs`). What the order changes is tested with [`Sample::rough`] against the canonical tree.

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};
use unisono_communicator::{Bool, Collective, Complex, DType, Element, ReduceOp, UserOp, f8e4m3, f8e5m2};
use unisono_schedule::SplitMix;

/// Composition of `x -> a x + b`, with a and b in the halves of a u64: associative, and not commutative.
pub const AFFINE: UserOp = UserOp::ordered("affine");

/// Where an operand stands.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// Of the whole call.
    pub seed: u64,
    /// Of the group.
    pub ranks: u32,
    /// Whose input it is.
    pub rank: u32,
    /// In that input.
    pub index: u64,
}

/// A number that depends on all bits of `value`.
#[inline]
pub fn mix(value: u64) -> u64 {
    SplitMix(value).next_u64()
}

impl Position {
    /// Differs between ranks.
    #[inline]
    pub fn random(&self) -> u64 {
        mix(self.common().wrapping_add(mix(u64::from(self.rank) + 1)))
    }

    /// The same on all ranks.
    #[inline]
    pub fn common(&self) -> u64 {
        mix(mix(self.seed).wrapping_add(self.index))
    }

    fn of(&self, rank: u32) -> Position {
        Position { rank, ..*self }
    }
}

/// An element type, with the reference arithmetic.
pub trait Sample: Element {
    /// Any bits at all: for what is moved.
    fn any(random: u64) -> Self;
    /// An operand whose reduction is exact in any order.
    fn operand(op: ReduceOp, position: &Position) -> Self;
    /// An operand whose sums round, so that the order shows.
    fn rough(random: u64) -> Self;
    /// One reduction step.
    fn combine(op: ReduceOp, left: Self, right: Self) -> Self;
    /// The last step of an average.
    fn divide(self, ranks: u32) -> Self;
    /// The first step of a pre-multiplied sum.
    fn multiply(self, factor: f64) -> Self;
    /// The one representative of values that count as equal: of all NaN, of all true.
    fn normalised(self) -> Self;
}

/// The operator as `rank` passes it: the factor of a pre-multiplied sum differs between ranks.
pub fn op_of(op: ReduceOp, rank: u32) -> ReduceOp {
    match op {
        ReduceOp::PreMulSum(_) => ReduceOp::PreMulSum([0.5, 1.0, 2.0][rank as usize % 3]),
        other => other,
    }
}

/// The operator, or a sum in place of a mean, which no prefix reduction has.
pub fn op_in(collective: Collective, op: ReduceOp) -> ReduceOp {
    match op {
        ReduceOp::Avg if collective.is_prefix() => ReduceOp::Sum,
        other => other,
    }
}

/// What `rank` contributes, after a pre-multiplication.
fn contribution<T: Sample>(op: ReduceOp, position: &Position) -> T {
    match op_of(op, position.rank) {
        ReduceOp::PreMulSum(factor) => T::operand(op, position).multiply(factor),
        _ => T::operand(op, position),
    }
}

/// The reduction of all ranks' operands, in rank order.
pub fn reduced<T: Sample>(op: ReduceOp, position: &Position) -> T {
    reduced_of_first(op, position, position.ranks)
}

/// The reduction of the operands of the first `ranks` ranks, in rank order.
pub fn reduced_of_first<T: Sample>(op: ReduceOp, position: &Position, ranks: u32) -> T {
    let first = contribution::<T>(op, &position.of(0));
    let fold = |left, rank| T::combine(op, left, contribution(op, &position.of(rank)));
    let value = (1..ranks).fold(first, fold);
    if op == ReduceOp::Avg { value.divide(ranks) } else { value }
}

/// The same bits for values that count as equal.
pub fn normalised<T: Sample>(values: &[T]) -> Vec<u8> {
    let values: Vec<T> = values.iter().map(|value| value.normalised()).collect();
    bytemuck::cast_slice(&values).to_vec()
}

macro_rules! integers {
    ($($type:ident)*) => { $(impl Sample for $type {
        fn any(random: u64) -> Self {
            random as $type
        }

        fn operand(op: ReduceOp, position: &Position) -> Self {
            // An and of many random numbers is 0 and their or all ones, so most ranks are neutral.
            let is_busy = (u64::from(position.rank) + position.common()) % u64::from(position.ranks) < 2;
            match op {
                ReduceOp::BitAnd if !is_busy => !0,
                ReduceOp::BitOr if !is_busy => 0,
                ReduceOp::Prod => (position.random() | 1) as $type,
                _ => position.random() as $type,
            }
        }

        fn rough(random: u64) -> Self {
            random as $type
        }

        fn combine(op: ReduceOp, left: Self, right: Self) -> Self {
            match op {
                ReduceOp::Prod => left.wrapping_mul(right),
                ReduceOp::Min => left.min(right),
                ReduceOp::Max => left.max(right),
                ReduceOp::BitAnd => left & right,
                ReduceOp::BitOr => left | right,
                ReduceOp::BitXor => left ^ right,
                ReduceOp::User(_) => compose(left as u64, right as u64) as $type,
                _ => left.wrapping_add(right),
            }
        }

        fn divide(self, ranks: u32) -> Self {
            (i128::from(self) / i128::from(ranks)) as $type
        }

        fn multiply(self, _factor: f64) -> Self {
            unreachable!("integers have no pre-multiplied sum")
        }

        fn normalised(self) -> Self {
            self
        }
    })* };
}

integers! { i8 i16 i32 i64 u8 u16 u32 u64 }

/// First `left`, then `right`.
pub fn compose(left: u64, right: u64) -> u64 {
    let halves = |value: u64| (value as u32, (value >> 32) as u32);
    let ((a, b), (c, d)) = (halves(left), halves(right));
    u64::from(a.wrapping_mul(c)) | u64::from(b.wrapping_mul(c).wrapping_add(d)) << 32
}

/// A whole number or a power of two, with all partial results up to `exact_max` in size. Where the ranks are too many
/// for a format, some contribute nothing.
fn float_operand(op: ReduceOp, position: &Position, exact_max: u64) -> f64 {
    let ranks = u64::from(position.ranks);
    let random = position.random();
    let sign = if random >> 63 == 0 { 1.0 } else { -1.0 };
    let up_to = |largest: u64| (random % (largest + 1)) as f64;
    let is_among = |busy: u64| (u64::from(position.rank) + position.common()) % ranks < busy;
    // Backends may differ in a zero with a sign: adding 0.0 takes it off.
    let shared_by =
        |busy: u64, total: u64| if is_among(busy) { sign * up_to(total / busy) + 0.0 } else { 0.0 };
    match op {
        // Few ranks change the size, so that products stay within an f16 and an 8-bit float.
        ReduceOp::Prod if !is_among(8) => sign,
        ReduceOp::Prod => sign * if random & 1 == 0 { 2.0 } else { 0.5 },
        ReduceOp::Min | ReduceOp::Max => sign * up_to(exact_max) + 0.0,
        ReduceOp::Avg if exact_max >= 2 * ranks => {
            // A mean that all share, and differences that cancel between neighbours: the sum divides.
            let largest = exact_max / (2 * ranks);
            let mean = (position.common() % (largest + 1)) as f64;
            let pair = (position.of(position.rank & !1).random() % (largest + 1)) as f64;
            let has_partner = (position.rank | 1) < position.ranks;
            let sign = if position.rank & 1 == 0 { 1.0 } else { -1.0 };
            mean + if has_partner { sign * pair } else { 0.0 }
        }
        // Even, and with room for a factor of 2.
        ReduceOp::PreMulSum(_) => 2.0 * shared_by(ranks.min(exact_max / 4), exact_max / 4),
        _ => shared_by(ranks.min(exact_max), exact_max),
    }
}

macro_rules! floats {
    ($($type:ident, $wide:ident, $exact_max:expr, $from_f64:expr, $widen:expr, $narrow:expr;)*) => { $(
    impl Sample for $type {
        fn any(random: u64) -> Self {
            let bytes = random.to_le_bytes();
            bytemuck::pod_read_unaligned(&bytes[..size_of::<$type>()])
        }

        fn operand(op: ReduceOp, position: &Position) -> Self {
            $from_f64(float_operand(op, position, $exact_max))
        }

        fn rough(random: u64) -> Self {
            // Between 1/16 and 16, of either sign, with a full mantissa.
            let size = 1.0 + (random >> 12) as f64 / (1u64 << 52) as f64;
            let sign = if random & 1 == 0 { 1.0 } else { -1.0 };
            $from_f64(sign * size * (1u64 << (random >> 1 & 7)) as f64 / 16.0)
        }

        fn combine(op: ReduceOp, left: Self, right: Self) -> Self {
            let (left, right): ($wide, $wide) = ($widen(left), $widen(right));
            let is_nan = left.is_nan() || right.is_nan();
            $narrow(match op {
                ReduceOp::Prod => left * right,
                ReduceOp::Min | ReduceOp::Max if is_nan => $wide::NAN,
                // Of -0.0 and 0.0, the minimum is the negative one.
                ReduceOp::Min => if left.total_cmp(&right).is_le() { left } else { right },
                ReduceOp::Max => if left.total_cmp(&right).is_ge() { left } else { right },
                _ => left + right,
            })
        }

        fn divide(self, ranks: u32) -> Self {
            $narrow($widen(self) / ranks as $wide)
        }

        fn multiply(self, factor: f64) -> Self {
            $narrow($widen(self) * factor as $wide)
        }

        fn normalised(self) -> Self {
            if self.is_nan() { $from_f64(f64::NAN) } else { self }
        }
    })* };
}

floats! {
    f64, f64, 1 << 20, |x: f64| x, |x: f64| x, |x: f64| x;
    f32, f32, 1 << 20, |x: f64| x as f32, |x: f32| x, |x: f32| x;
    f16, f32, 1 << 11, f16::from_f64, f16::to_f32, f16::from_f32;
    bf16, f32, 1 << 8, bf16::from_f64, bf16::to_f32, bf16::from_f32;
    f8e4m3, f32, 1 << 4, |x: f64| f8e4m3::from_f32(x as f32), f8e4m3::to_f32, f8e4m3::from_f32;
    f8e5m2, f32, 1 << 3, |x: f64| f8e5m2::from_f32(x as f32), f8e5m2::to_f32, f8e5m2::from_f32;
}

macro_rules! complexes {
    ($($part:ident)*) => { $(impl Sample for Complex<$part> {
        fn any(random: u64) -> Self {
            Complex::new($part::any(random), $part::any(mix(random)))
        }

        fn operand(op: ReduceOp, position: &Position) -> Self {
            if op != ReduceOp::Prod {
                let other = Position { seed: !position.seed, ..*position };
                return Complex::new($part::operand(op, position), $part::operand(op, &other));
            }
            // Powers of 2 + i have no part that is zero, whose sign would depend on the order.
            let random = position.random();
            let is_busy = (u64::from(position.rank) + position.common()) % u64::from(position.ranks) < 8;
            match (is_busy, random % 3) {
                (false, _) => Complex::new(1.0, 0.0),
                (true, 0) => Complex::new(2.0, 1.0),
                (true, 1) => Complex::new(-2.0, -1.0),
                (true, _) => Complex::new(1.0, 0.5),
            }
        }

        fn rough(random: u64) -> Self {
            Complex::new($part::rough(random), $part::rough(mix(random)))
        }

        fn combine(op: ReduceOp, left: Self, right: Self) -> Self {
            let ((a, b), (c, d)) = ((left.re, left.im), (right.re, right.im));
            match op {
                ReduceOp::Prod => Complex::new(a * c - b * d, a * d + b * c),
                _ => Complex::new($part::combine(op, a, c), $part::combine(op, b, d)),
            }
        }

        fn divide(self, ranks: u32) -> Self {
            Complex::new(self.re.divide(ranks), self.im.divide(ranks))
        }

        fn multiply(self, factor: f64) -> Self {
            Complex::new(self.re.multiply(factor), self.im.multiply(factor))
        }

        fn normalised(self) -> Self {
            Complex::new(self.re.normalised(), self.im.normalised())
        }
    })* };
}

complexes! { f32 f64 }

impl Sample for Bool {
    fn any(random: u64) -> Self {
        Bool(random as u8)
    }

    fn operand(op: ReduceOp, position: &Position) -> Self {
        // Few ranks differ from the neutral value; what is true is any byte but 0.
        let is_busy = (u64::from(position.rank) + position.common()) % u64::from(position.ranks) < 2;
        let random = position.random();
        let truth = (random as u8).max(1);
        match op {
            ReduceOp::Min | ReduceOp::BitAnd => Bool(if is_busy && random >> 63 == 0 { 0 } else { truth }),
            ReduceOp::Max | ReduceOp::BitOr => Bool(if is_busy && random >> 63 == 0 { truth } else { 0 }),
            _ => Bool(if random >> 63 == 0 { truth } else { 0 }),
        }
    }

    fn rough(random: u64) -> Self {
        Bool(random as u8 & 1)
    }

    fn combine(op: ReduceOp, left: Self, right: Self) -> Self {
        let (left, right) = (left.0 != 0, right.0 != 0);
        Bool(u8::from(match op {
            ReduceOp::Min | ReduceOp::BitAnd => left && right,
            ReduceOp::BitXor => left != right,
            _ => left || right,
        }))
    }

    fn divide(self, _ranks: u32) -> Self {
        unreachable!("bool has no average")
    }

    fn multiply(self, _factor: f64) -> Self {
        unreachable!("bool has no pre-multiplied sum")
    }

    fn normalised(self) -> Self {
        Bool(u8::from(self.0 != 0))
    }
}

/// An element type of a program's own, of an odd size: an affine map, and marks of who came first, last, and at all.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Parcel {
    affine: [u8; 8],
    first: [u8; 5],
    last: [u8; 5],
    all: u8,
}

impl Element for Parcel {
    const DTYPE: DType = DType::opaque_of::<Parcel>();
}

impl Sample for Parcel {
    fn any(random: u64) -> Self {
        let bytes = [random.to_le_bytes(), mix(random).to_le_bytes(), mix(!random).to_le_bytes()].concat();
        bytemuck::pod_read_unaligned(&bytes[..size_of::<Parcel>()])
    }

    fn operand(_op: ReduceOp, position: &Position) -> Self {
        Parcel::any(position.random())
    }

    fn rough(random: u64) -> Self {
        Parcel::any(random)
    }

    fn combine(_op: ReduceOp, left: Self, right: Self) -> Self {
        let affine = compose(u64::from_le_bytes(left.affine), u64::from_le_bytes(right.affine));
        let (first, last, all) = (left.first, right.last, left.all ^ right.all);
        Parcel { affine: affine.to_le_bytes(), first, last, all }
    }

    fn divide(self, _ranks: u32) -> Self {
        unreachable!("opaque elements have no average")
    }

    fn multiply(self, _factor: f64) -> Self {
        unreachable!("opaque elements have no pre-multiplied sum")
    }

    fn normalised(self) -> Self {
        self
    }
}

/// Every element type, the opaque one of [`Parcel`] among them.
pub fn dtypes() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().chain([Parcel::DTYPE])
}

/// Runs a body with `$T` as the Rust type of a [`DType`].
#[macro_export]
macro_rules! with_dtype {
    ($dtype:expr, $T:ident => $body:expr) => {
        $crate::with_dtype!(@arms $dtype, $T, $body,
            F64 f64, F32 f32, F16 f16, BF16 bf16, F8E4M3 f8e4m3, F8E5M2 f8e5m2,
            Complex64 Complex<f32>, Complex128 Complex<f64>,
            I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, Bool Bool)
    };
    (@arms $dtype:expr, $T:ident, $body:expr, $($variant:ident $rust:ty),*) => {{
        #[allow(unused_imports, reason = "some of the types are not built in")]
        use unisono_communicator::{Bool, Complex, DType, Element, bf16, f8e4m3, f8e5m2, f16};
        match $dtype {
            $(DType::$variant => {
                type $T = $rust;
                $body
            })*
            opaque @ DType::Opaque { .. } => {
                type $T = $crate::sample::Parcel;
                assert_eq!(opaque, $T::DTYPE, "the suite has one opaque type");
                $body
            }
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_reduce_to_the_same_bits_in_any_order() {
        for &dtype in DType::ALL {
            let ops = ReduceOp::PLAIN.iter().copied().filter(|op| op.accepts(dtype));
            for op in ops {
                with_dtype!(dtype, T => for (ranks, index) in (0..600).map(|i| ([2, 9, 40][i % 3], i as u64)) {
                    let position = Position { seed: 3, ranks, rank: 0, index };
                    let fold = |order: &mut dyn Iterator<Item = u32>| {
                        let values = order.map(|rank| T::operand(op, &position.of(rank)));
                        let value = values.reduce(|left, right| T::combine(op, left, right)).unwrap();
                        normalised(&[value])
                    };
                    let forward = fold(&mut (0..ranks));
                    assert_eq!(forward, fold(&mut (0..ranks).rev()), "{dtype} {op} {index}");
                });
            }
        }
    }

    #[test]
    fn rough_operands_show_the_order() {
        let values: Vec<f32> = (0..100).map(|rank| f32::rough(mix(rank))).collect();
        let forward = values.iter().fold(0.0, |sum, value| sum + value);
        let backward = values.iter().rev().fold(0.0, |sum, value| sum + value);
        assert_ne!(f32::to_bits(forward), f32::to_bits(backward));
    }

    /// No sum is out of the range in which a type holds every whole number, or much below it.
    #[test]
    fn operands_use_the_range_of_their_type() {
        for (ranks, op) in
            [2, 9, 40].into_iter().flat_map(|r| [(r, ReduceOp::Sum), (r, ReduceOp::PreMulSum(1.0))])
        {
            let sizes = |rank, index| {
                let position = Position { seed: 7, ranks, rank, index };
                (f8e4m3::operand(op, &position).to_f32().abs(), f8e5m2::operand(op, &position).to_f32().abs())
            };
            let column = |index| {
                (0..ranks)
                    .map(|rank| sizes(rank, index))
                    .fold((0.0, 0.0), |sum, x| (sum.0 + x.0, sum.1 + x.1))
            };
            let largest =
                (0..500).map(column).fold((0.0f32, 0.0f32), |all, x| (all.0.max(x.0), all.1.max(x.1)));
            assert!(
                (4.0..=16.0).contains(&largest.0) && (2.0..=8.0).contains(&largest.1),
                "{ranks} {op} {largest:?}"
            );
        }
    }

    #[test]
    fn the_affine_operator_is_associative_and_not_commutative() {
        let (a, b, c) = (mix(1), mix(2), mix(3));
        assert_eq!(compose(compose(a, b), c), compose(a, compose(b, c)));
        assert_ne!(compose(a, b), compose(b, a));
    }
}
