//! Inputs that make errors visible, and the results that they must give: an independent reference.
//!
//! An element is a function of (seed, rank, index), so every rank can compute every other rank's input. Operations that
//! only move data get random bytes. Reductions get random values for which any order gives the same bits: integers
//! wrap; floats are small integers, or powers of two for products (for complex numbers multiples of 2 + i). Where one
//! operand can hide the others (as in an OR), only few ranks differ from the neutral element.

use unisono::extend::calls::{FloatFormat, Kind};
use unisono::{Complex, DType, ReduceOp};
use unisono_schedule::mix64;

/// For each element of a product, how many ranks have a factor other than plus or minus one: so that an f16 and an
/// 8-bit float stay in range.
const FACTORS_MAX: u64 = 8;
/// The largest integer; larger ones would not make errors more visible.
const INTEGER_MAX: u64 = 1 << 20;

/// The contents of the buffers of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values {
    pub(crate) seed: u64,
    pub(crate) ranks: u32,
    pub(crate) dtype: DType,
    /// `None`: bytes are moved, not reduced.
    pub(crate) op: Option<ReduceOp>,
}

/// An element before it is written in its dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wide {
    Float(f64),
    Complex(Complex<f64>),
    /// The low bits are the element; an element of more than 64 bits is derived from them.
    Bits(u64),
}

impl Values {
    /// Writes elements `first..` of rank `rank`'s input.
    pub(crate) fn fill(&self, rank: u32, first: u64, into: &mut [u8]) {
        self.write(first, into, |values, index| values.input(rank, index));
    }

    /// About a standard normal number: the sum of four uniform ones (Irwin and Hall 1927).
    pub(crate) fn normal(&self, rank: u32, index: u64) -> f32 {
        let random = self.random(rank, index);
        let sum: u64 = [0, 16, 32, 48].into_iter().map(|shift| random >> shift & 0xffff).sum();
        // Each of the four has the mean (2^16 - 1) / 2 and the variance 2^32 / 12.
        ((sum as f64 - 2.0 * 65_535.0) / (65_536.0 / 3f64.sqrt())) as f32
    }

    /// Writes elements `first..` of the reduction of all ranks' inputs.
    pub(crate) fn fill_reduced(&self, first: u64, into: &mut [u8]) {
        self.write(first, into, |values, index| values.reduced(index));
    }

    /// Writes elements `first..` of the reduction of the inputs of the first `ranks` ranks.
    pub(crate) fn fill_prefix(&self, ranks: u32, first: u64, into: &mut [u8]) {
        self.write(first, into, |values, index| values.reduction_of(0..ranks, index));
    }

    fn write(&self, first: u64, into: &mut [u8], value: impl Fn(&Values, u64) -> Wide) {
        for (index, element) in (first..).zip(into.chunks_exact_mut(self.dtype.bytes())) {
            match (value(self, index), self.dtype.kind()) {
                (Wide::Float(value), Kind::Float(format)) => format.write(value, element),
                (Wide::Complex(value), Kind::Complex(format)) => {
                    let (real, imaginary) = element.split_at_mut(format.bytes);
                    format.write(value.re, real);
                    format.write(value.im, imaginary);
                }
                (Wide::Bits(mut bits), _) => {
                    for part in element.chunks_mut(size_of::<u64>()) {
                        part.copy_from_slice(&bits.to_le_bytes()[..part.len()]);
                        bits = mix64(bits);
                    }
                }
                (value, kind) => unreachable!("{value:?} is not of {kind:?}"),
            }
        }
    }

    fn input(&self, rank: u32, index: u64) -> Wide {
        match (self.op, self.dtype.kind()) {
            (None, Kind::Bool) => Wide::Bits(self.random(rank, index) & 1),
            (None, _) => Wide::Bits(self.random(rank, index)),
            (Some(op), Kind::Float(format)) => Wide::Float(self.float_input(&format, op, rank, index)),
            (Some(op), Kind::Complex(format)) => Wide::Complex(self.complex_input(&format, op, rank, index)),
            (Some(op), Kind::Signed | Kind::Unsigned | Kind::Bool | Kind::Opaque) => {
                Wide::Bits(self.integer_input(op, rank, index))
            }
        }
    }

    /// A random number that depends on the rank.
    fn random(&self, rank: u32, index: u64) -> u64 {
        mix64(self.common(index).wrapping_add(mix64(u64::from(rank) + 1)))
    }

    /// A random number that is the same on all ranks.
    fn common(&self, index: u64) -> u64 {
        mix64(mix64(self.seed).wrapping_add(index))
    }

    /// Whether `rank` contributes something other than the neutral value; for each element `busy` ranks do.
    fn is_among(&self, busy: u64, rank: u32, index: u64) -> bool {
        (u64::from(rank) + self.common(index)) % u64::from(self.ranks) < busy
    }

    fn float_input(&self, format: &FloatFormat, op: ReduceOp, rank: u32, index: u64) -> f64 {
        // Up to here, every integer is exact.
        let exact_max = INTEGER_MAX.min(1 << format.digits);
        let ranks = u64::from(self.ranks);
        let random = self.random(rank, index);
        let sign = if random >> 63 == 0 { 1.0 } else { -1.0 };
        match op {
            ReduceOp::Prod => {
                let factor = if random & 1 == 0 { 2.0 } else { 0.5 };
                sign * if self.is_among(FACTORS_MAX, rank, index) { factor } else { 1.0 }
            }
            ReduceOp::Min | ReduceOp::Max => sign * (1 + random % exact_max) as f64,
            ReduceOp::Avg if exact_max >= 2 * ranks => {
                // All ranks have the same mean, and differences that cancel between neighbours, so the sum divides
                // without a remainder.
                let largest = exact_max / (2 * ranks);
                let mean = self.common(index) % (largest + 1);
                let pair = self.random(rank & !1, index) % largest + 1;
                let difference = match (rank & 1, rank + 1 < self.ranks) {
                    (1, _) => -(pair as f64),
                    (_, true) => pair as f64,
                    (_, false) => 0.0,
                };
                mean as f64 + difference
            }
            // If there are more ranks than the format can count, not all contribute to one sum.
            _ if !self.is_among(exact_max, rank, index) => 0.0,
            _ => sign * (1 + random % (exact_max / ranks.min(exact_max))) as f64,
        }
    }

    fn complex_input(&self, format: &FloatFormat, op: ReduceOp, rank: u32, index: u64) -> Complex<f64> {
        if op != ReduceOp::Prod {
            let part = |index| self.float_input(format, op, rank, index);
            return Complex::new(part(2 * index), part(2 * index + 1));
        }
        // No product of these has a zero part, since the sign of a zero would depend on the order.
        match (self.is_among(FACTORS_MAX, rank, index), self.random(rank, index) % 3) {
            (false, _) => Complex::new(1.0, 0.0),
            (true, 0) => Complex::new(2.0, 1.0),
            (true, 1) => Complex::new(-2.0, -1.0),
            (true, _) => Complex::new(1.0, 0.5),
        }
    }

    fn integer_input(&self, op: ReduceOp, rank: u32, index: u64) -> u64 {
        let random = self.random(rank, index);
        // Chosen among one rank more than there are, so that some elements are neutral on all ranks.
        let chosen = self.common(index) % (u64::from(self.ranks) + 1) == u64::from(rank);
        match (op, self.dtype) {
            (ReduceOp::Min | ReduceOp::BitAnd, DType::Bool) => u64::from(!chosen),
            (ReduceOp::Max | ReduceOp::BitOr, DType::Bool) => u64::from(chosen),
            (_, DType::Bool) => random & 1,
            (ReduceOp::BitAnd, _) => {
                if chosen {
                    random
                } else {
                    u64::MAX
                }
            }
            (ReduceOp::BitOr, _) => {
                if chosen {
                    random
                } else {
                    0
                }
            }
            // Even factors would soon make every product 0.
            (ReduceOp::Prod, _) => random | 1,
            _ => random,
        }
    }

    fn reduced(&self, index: u64) -> Wide {
        self.reduction_of(0..self.ranks, index)
    }

    fn reduction_of(&self, ranks: impl Iterator<Item = u32>, index: u64) -> Wide {
        let Some(op) = self.op else { return self.input(0, index) };
        match self.dtype.kind() {
            Kind::Float(format) => {
                let inputs = ranks.map(|rank| self.float_input(&format, op, rank, index));
                Wide::Float(match op {
                    ReduceOp::Prod => inputs.product(),
                    ReduceOp::Min => inputs.fold(f64::INFINITY, f64::min),
                    ReduceOp::Max => inputs.fold(f64::NEG_INFINITY, f64::max),
                    ReduceOp::Avg => inputs.sum::<f64>() / f64::from(self.ranks),
                    _ => inputs.sum(),
                })
            }
            Kind::Complex(format) => {
                let inputs = ranks.map(|rank| self.complex_input(&format, op, rank, index));
                Wide::Complex(match op {
                    ReduceOp::Prod => inputs.product(),
                    ReduceOp::Avg => inputs.sum::<Complex<f64>>() / f64::from(self.ranks),
                    _ => inputs.sum(),
                })
            }
            Kind::Signed | Kind::Unsigned | Kind::Bool | Kind::Opaque => {
                Wide::Bits(self.integers_reduced(op, ranks, index))
            }
        }
    }

    fn integers_reduced(&self, op: ReduceOp, ranks: impl Iterator<Item = u32>, index: u64) -> u64 {
        let inputs = ranks.map(|rank| self.integer_input(op, rank, index));
        match op {
            ReduceOp::Prod => inputs.fold(1, u64::wrapping_mul),
            ReduceOp::Min => inputs.map(|bits| self.number(bits)).min().unwrap_or(0) as u64,
            ReduceOp::Max => inputs.map(|bits| self.number(bits)).max().unwrap_or(0) as u64,
            ReduceOp::BitAnd => inputs.fold(u64::MAX, |all, bits| all & bits),
            ReduceOp::BitOr => inputs.fold(0, |all, bits| all | bits),
            ReduceOp::BitXor => inputs.fold(0, |all, bits| all ^ bits),
            ReduceOp::Avg => (self.number(inputs.fold(0, u64::wrapping_add)) / i128::from(self.ranks)) as u64,
            _ => inputs.fold(0, u64::wrapping_add),
        }
    }

    /// The value of the low bits in this dtype.
    fn number(&self, bits: u64) -> i128 {
        let unused = 64 - 8 * self.dtype.bytes() as u32;
        match self.dtype {
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
                i128::from(((bits << unused) as i64) >> unused)
            }
            _ => i128::from((bits << unused) >> unused),
        }
    }
}

/// The number of elements of `found` that differ from `expected`.
pub(crate) fn count_wrong(dtype: DType, found: &[u8], expected: &[u8]) -> u64 {
    let missing = found.len().abs_diff(expected.len()) / dtype.bytes();
    let pairs = found.chunks_exact(dtype.bytes()).zip(expected.chunks_exact(dtype.bytes()));
    pairs.filter(|(found, expected)| found != expected).count() as u64 + missing as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 11;

    fn format(dtype: DType) -> Option<FloatFormat> {
        match dtype.kind() {
            Kind::Float(format) | Kind::Complex(format) => Some(format),
            Kind::Signed | Kind::Unsigned | Kind::Bool | Kind::Opaque => None,
        }
    }

    /// One step in the dtype itself: each operation on floats rounds.
    fn step(values: &Values, format: &FloatFormat, left: &[u8], right: &[u8]) -> Vec<u8> {
        let rounded = |value: f64| {
            let mut bytes = vec![0; format.bytes];
            format.write(value, &mut bytes);
            bytes
        };
        let product = |a: f64, b: f64| format.read(&rounded(a * b));
        let numbers =
            |bytes: &[u8]| -> Vec<f64> { bytes.chunks(format.bytes).map(|x| format.read(x)).collect() };
        let (left, right) = (numbers(left), numbers(right));
        if let ([a, b], [c, d], Some(ReduceOp::Prod)) = (&left[..], &right[..], values.op) {
            let (real, imaginary) = (product(*a, *c) - product(*b, *d), product(*a, *d) + product(*b, *c));
            return [rounded(real), rounded(imaginary)].concat();
        }
        let combined = left.iter().zip(&right).map(|(&a, &b)| match values.op {
            Some(ReduceOp::Prod) => a * b,
            Some(ReduceOp::Min) => a.min(b),
            Some(ReduceOp::Max) => a.max(b),
            _ => a + b,
        });
        combined.flat_map(rounded).collect()
    }

    /// Reduces in the dtype itself, rounding after each step, in the order of `ranks`.
    fn reduce_in(
        values: &Values,
        format: &FloatFormat,
        ranks: impl Iterator<Item = u32>,
        elements: usize,
    ) -> Vec<u8> {
        let width = values.dtype.bytes();
        let mut result: Vec<u8> = Vec::new();
        for rank in ranks {
            let mut input = vec![0; elements * width];
            values.fill(rank, 0, &mut input);
            if result.is_empty() {
                result = input;
                continue;
            }
            let pairs = result.chunks_exact(width).zip(input.chunks_exact(width));
            result = pairs.flat_map(|(left, right)| step(values, format, left, right)).collect();
        }
        if values.op == Some(ReduceOp::Avg) {
            for sum in result.chunks_exact_mut(format.bytes) {
                format.write(format.read(sum) / f64::from(values.ranks), sum);
            }
        }
        result
    }

    #[test]
    fn float_reductions_are_exact_in_every_dtype_order_and_number_of_ranks() {
        const ELEMENTS: usize = 200;
        let ops = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];
        let floats = DType::ALL.iter().filter_map(|&dtype| Some((dtype, format(dtype)?)));
        for (dtype, format) in floats {
            for (ranks, op) in
                [1, 2, 3, 4, 7, 8, 64, 100].into_iter().flat_map(|ranks| ops.map(|op| (ranks, op)))
            {
                if !op.accepts(dtype) {
                    continue;
                }
                let values = Values { seed: SEED, ranks, dtype, op: Some(op) };
                let mut expected = vec![0; ELEMENTS * dtype.bytes()];
                values.fill_reduced(0, &mut expected);
                let upwards = reduce_in(&values, &format, 0..ranks, ELEMENTS);
                let downwards = reduce_in(&values, &format, (0..ranks).rev(), ELEMENTS);
                assert_eq!(count_wrong(dtype, &upwards, &expected), 0, "{dtype} {op} {ranks}");
                assert_eq!(count_wrong(dtype, &downwards, &expected), 0, "{dtype} {op} {ranks}");
            }
        }
    }

    #[test]
    fn a_missing_or_doubled_operand_changes_results() {
        const ELEMENTS: u64 = 400;
        let ranks = 5;
        for &dtype in DType::ALL {
            for &op in ReduceOp::PLAIN.iter().filter(|op| op.accepts(dtype)) {
                let values = Values { seed: SEED, ranks, dtype, op: Some(op) };
                let differing = |others: &[u32]| {
                    (0..ELEMENTS)
                        .filter(|&i| values.reduced(i) != values.reduction_of(others.iter().copied(), i))
                        .count() as u64
                };
                let missing = differing(&[0, 1, 2, 3]);
                assert!(missing >= ELEMENTS / 10, "{dtype} {op}: {missing}");
                let swapped = differing(&[0, 1, 2, 3, 3]);
                assert!(swapped >= ELEMENTS / 10, "{dtype} {op}: {swapped}");
            }
        }
    }

    #[test]
    fn integers_reduce_as_their_types_do() {
        let column = |op| {
            let values = Values { seed: SEED, ranks: 3, dtype: DType::I8, op: Some(op) };
            let inputs: Vec<i8> = (0..3).map(|rank| values.integer_input(op, rank, 42) as i8).collect();
            let mut result = [0u8];
            values.fill_reduced(42, &mut result);
            (inputs, result[0] as i8)
        };
        let (inputs, sum) = column(ReduceOp::Sum);
        assert_eq!(sum, inputs[0].wrapping_add(inputs[1]).wrapping_add(inputs[2]));
        let (inputs, mean) = column(ReduceOp::Avg);
        assert_eq!(mean, inputs[0].wrapping_add(inputs[1]).wrapping_add(inputs[2]) / 3);
        let (inputs, least) = column(ReduceOp::Min);
        assert_eq!(Some(&least), inputs.iter().min());
        let (inputs, product) = column(ReduceOp::Prod);
        assert_eq!(product, inputs[0].wrapping_mul(inputs[1]).wrapping_mul(inputs[2]));
    }

    #[test]
    fn normal_numbers_have_mean_0_variance_1_and_both_tails() {
        let values = Values { seed: SEED, ranks: 2, dtype: DType::F32, op: None };
        let numbers: Vec<f64> = (0..100_000).map(|index| f64::from(values.normal(1, index))).collect();
        let mean = numbers.iter().sum::<f64>() / 1e5;
        let variance = numbers.iter().map(|x| x * x).sum::<f64>() / 1e5 - mean * mean;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
        let beyond = |limit: f64| numbers.iter().filter(|x| **x * limit.signum() > limit.abs()).count();
        assert!((1_500..3_000).contains(&beyond(2.0)) && (1_500..3_000).contains(&beyond(-2.0)));
        assert_ne!(values.normal(0, 7).to_bits(), values.normal(1, 7).to_bits());
    }

    #[test]
    fn moved_elements_tell_their_rank_index_and_call() {
        let values = Values { seed: 1, ranks: 2, dtype: DType::U64, op: None };
        let element = |values: Values, rank, index| {
            let mut bytes = [0; 8];
            values.fill(rank, index, &mut bytes);
            u64::from_le_bytes(bytes)
        };
        let all = [
            element(values, 0, 0),
            element(values, 1, 0),
            element(values, 0, 1),
            element(values, 1, 1),
            element(Values { seed: 2, ..values }, 0, 0),
        ];
        for (at, value) in all.iter().enumerate() {
            assert!(!all[..at].contains(value), "{at}");
        }
    }
}
