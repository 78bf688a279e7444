//! Inputs that make errors visible, and the results they must give: an independent reference.
//!
//! An element is a function of (seed, rank, index), so every rank can work out every other rank's input. What is moved
//! is random bytes. What is reduced is random too, but such that any order of reduction gives the same bits: integers
//! wrap; floats get small integers, or powers of two for products. Where an operator hides operands (an or of many
//! ones), few ranks at a time differ from the neutral element.

use unisono::{DType, ReduceOp, bf16, f16};

use crate::random::mix;

/// Ranks that multiply by something else than plus or minus one, per element: keeps an f16 in its range.
const FACTORS_MAX: u64 = 8;
/// Larger integers would not make errors more visible.
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

/// An element before it is written down in its dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wide {
    Float(f64),
    /// The low bits count.
    Bits(u64),
}

impl Values {
    /// Writes elements `first..` of rank `rank`'s input.
    pub(crate) fn fill(&self, rank: u32, first: u64, into: &mut [u8]) {
        self.write(first, into, |values, index| values.input(rank, index));
    }

    /// Writes elements `first..` of the reduction of all ranks' inputs.
    pub(crate) fn fill_reduced(&self, first: u64, into: &mut [u8]) {
        self.write(first, into, |values, index| values.reduced(index));
    }

    fn write(&self, first: u64, into: &mut [u8], value: impl Fn(&Values, u64) -> Wide) {
        for (index, element) in (first..).zip(into.chunks_exact_mut(self.dtype.bytes())) {
            match (value(self, index), self.dtype) {
                (Wide::Bits(bits), _) => element.copy_from_slice(&bits.to_le_bytes()[..element.len()]),
                (Wide::Float(value), DType::F32) => {
                    element.copy_from_slice(&(value as f32).to_bits().to_le_bytes());
                }
                (Wide::Float(value), DType::F16) => {
                    element.copy_from_slice(&f16::from_f64(value).to_bits().to_le_bytes());
                }
                (Wide::Float(value), DType::BF16) => {
                    element.copy_from_slice(&bf16::from_f64(value).to_bits().to_le_bytes());
                }
                (Wide::Float(value), _) => element.copy_from_slice(&value.to_bits().to_le_bytes()),
            }
        }
    }

    fn input(&self, rank: u32, index: u64) -> Wide {
        match (self.op, self.dtype) {
            (None, DType::Bool) => Wide::Bits(self.random(rank, index) & 1),
            (None, _) => Wide::Bits(self.random(rank, index)),
            (Some(op), dtype) if dtype.is_float() => Wide::Float(self.float_input(op, rank, index)),
            (Some(op), _) => Wide::Bits(self.integer_input(op, rank, index)),
        }
    }

    /// Depends on the rank.
    fn random(&self, rank: u32, index: u64) -> u64 {
        mix(self.common(index).wrapping_add(mix(u64::from(rank) + 1)))
    }

    /// The same on all ranks.
    fn common(&self, index: u64) -> u64 {
        mix(mix(self.seed).wrapping_add(index))
    }

    /// The largest integer up to which a float holds every one, or less.
    fn exact_max(&self) -> u64 {
        match self.dtype {
            DType::F16 => 1 << 11,
            DType::BF16 => 1 << 8,
            _ => INTEGER_MAX,
        }
    }

    fn float_input(&self, op: ReduceOp, rank: u32, index: u64) -> f64 {
        let ranks = u64::from(self.ranks);
        let random = self.random(rank, index);
        let sign = if random >> 63 == 0 { 1.0 } else { -1.0 };
        match op {
            ReduceOp::Prod => {
                let place = (u64::from(rank) + self.common(index)) % ranks;
                let factor = if random & 1 == 0 { 2.0 } else { 0.5 };
                sign * if place < FACTORS_MAX { factor } else { 1.0 }
            }
            ReduceOp::Min | ReduceOp::Max => sign * (1 + random % self.exact_max()) as f64,
            ReduceOp::Avg => {
                // A mean that all ranks share, and differences that cancel between neighbours: so that the sum divides.
                let largest = self.exact_max() / (2 * ranks);
                let mean = self.common(index) % (largest + 1);
                let pair = self.random(rank & !1, index) % largest.max(1) + 1;
                let difference = match (rank & 1, rank + 1 < self.ranks) {
                    (1, _) => -(pair as f64),
                    (_, true) => pair as f64,
                    (_, false) => 0.0,
                };
                mean as f64 + difference
            }
            _ => sign * (1 + random % (self.exact_max() / ranks).max(1)) as f64,
        }
    }

    fn integer_input(&self, op: ReduceOp, rank: u32, index: u64) -> u64 {
        let random = self.random(rank, index);
        // With one rank more than there are, some elements are neutral everywhere.
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
            // An even factor would soon leave nothing but zeros.
            (ReduceOp::Prod, _) => random | 1,
            _ => random,
        }
    }

    fn reduced(&self, index: u64) -> Wide {
        self.reduction_of(0..self.ranks, index)
    }

    fn reduction_of(&self, ranks: impl Iterator<Item = u32>, index: u64) -> Wide {
        let Some(op) = self.op else { return self.input(0, index) };
        if self.dtype.is_float() {
            let inputs = ranks.map(|rank| self.float_input(op, rank, index));
            return Wide::Float(match op {
                ReduceOp::Prod => inputs.product(),
                ReduceOp::Min => inputs.fold(f64::INFINITY, f64::min),
                ReduceOp::Max => inputs.fold(f64::NEG_INFINITY, f64::max),
                ReduceOp::Avg => inputs.sum::<f64>() / f64::from(self.ranks),
                _ => inputs.sum(),
            });
        }
        let inputs = ranks.map(|rank| self.integer_input(op, rank, index));
        Wide::Bits(match op {
            ReduceOp::Prod => inputs.fold(1, u64::wrapping_mul),
            ReduceOp::Min => inputs.map(|bits| self.number(bits)).min().unwrap_or(0) as u64,
            ReduceOp::Max => inputs.map(|bits| self.number(bits)).max().unwrap_or(0) as u64,
            ReduceOp::BitAnd => inputs.fold(u64::MAX, |all, bits| all & bits),
            ReduceOp::BitOr => inputs.fold(0, |all, bits| all | bits),
            ReduceOp::BitXor => inputs.fold(0, |all, bits| all ^ bits),
            ReduceOp::Avg => (self.number(inputs.fold(0, u64::wrapping_add)) / i128::from(self.ranks)) as u64,
            _ => inputs.fold(0, u64::wrapping_add),
        })
    }

    /// What the low bits mean in this dtype.
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

/// How many elements of `found` are not as expected.
pub(crate) fn count_wrong(dtype: DType, found: &[u8], expected: &[u8]) -> u64 {
    let missing = found.len().abs_diff(expected.len()) / dtype.bytes();
    let pairs = found.chunks_exact(dtype.bytes()).zip(expected.chunks_exact(dtype.bytes()));
    pairs.filter(|(found, expected)| found != expected).count() as u64 + missing as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 11;

    fn read(dtype: DType, element: &[u8]) -> f64 {
        match dtype {
            DType::F64 => bytemuck::pod_read_unaligned(element),
            DType::F32 => f64::from(bytemuck::pod_read_unaligned::<f32>(element)),
            DType::F16 => bytemuck::pod_read_unaligned::<f16>(element).to_f64(),
            _ => bytemuck::pod_read_unaligned::<bf16>(element).to_f64(),
        }
    }

    fn write(dtype: DType, value: f64) -> Vec<u8> {
        match dtype {
            DType::F64 => bytemuck::bytes_of(&value).to_vec(),
            DType::F32 => bytemuck::bytes_of(&(value as f32)).to_vec(),
            DType::F16 => bytemuck::bytes_of(&f16::from_f64(value)).to_vec(),
            _ => bytemuck::bytes_of(&bf16::from_f64(value)).to_vec(),
        }
    }

    /// Reduces in the dtype itself, rounding after each step, in the order of `ranks`.
    fn reduce_in(values: &Values, ranks: impl Iterator<Item = u32>, elements: usize) -> Vec<u8> {
        let width = values.dtype.bytes();
        let mut result: Vec<u8> = Vec::new();
        for rank in ranks {
            let mut input = vec![0; elements * width];
            values.fill(rank, 0, &mut input);
            if result.is_empty() {
                result = input;
                continue;
            }
            for (sum, input) in result.chunks_exact_mut(width).zip(input.chunks_exact(width)) {
                let (a, b) = (read(values.dtype, sum), read(values.dtype, input));
                let value = match values.op {
                    Some(ReduceOp::Prod) => a * b,
                    Some(ReduceOp::Min) => a.min(b),
                    Some(ReduceOp::Max) => a.max(b),
                    _ => a + b,
                };
                sum.copy_from_slice(&write(values.dtype, value));
            }
        }
        if values.op == Some(ReduceOp::Avg) {
            for sum in result.chunks_exact_mut(width) {
                let mean = read(values.dtype, sum) / f64::from(values.ranks);
                sum.copy_from_slice(&write(values.dtype, mean));
            }
        }
        result
    }

    #[test]
    fn float_reductions_are_exact_in_every_dtype_order_and_number_of_ranks() {
        const ELEMENTS: usize = 200;
        let ops = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            for ranks in [1, 2, 3, 4, 7, 8, 64, 100] {
                for op in ops {
                    let values = Values { seed: SEED, ranks, dtype, op: Some(op) };
                    let mut expected = vec![0; ELEMENTS * dtype.bytes()];
                    values.fill_reduced(0, &mut expected);
                    let upwards = reduce_in(&values, 0..ranks, ELEMENTS);
                    let downwards = reduce_in(&values, (0..ranks).rev(), ELEMENTS);
                    assert_eq!(count_wrong(dtype, &upwards, &expected), 0, "{dtype} {op} {ranks}");
                    assert_eq!(count_wrong(dtype, &downwards, &expected), 0, "{dtype} {op} {ranks}");
                }
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
