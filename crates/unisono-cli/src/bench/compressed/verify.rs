//! Whether compressed calls were right, by independent code.

use std::ops::Range;

use unisono::call::{Buffer, BufferMut};
use unisono::compression::CompressionState;
use unisono::extend::codecs::EncodeContext;
use unisono::{Collectives, Communicator, ReduceOp};
use unisono_schedule::mix64;

use super::expected::{Definition, Sum, own_debts};
use crate::bench::values::Values;
use crate::combine::combine;
use crate::problem::Result;

/// The elements that are exchanged and computed at a time.
const PART_ELEMENTS: usize = 1 << 18;
/// Elements that are compared over the ranks by one number.
const DIGEST_ELEMENTS: usize = 1 << 10;
/// Roundings of f32 in one call: the sum over ranks, with the residual, the scale, its product, and the mean.
const ROUNDINGS_PER_CALL: f64 = 8.0;

/// The expected vector of all ranks after calls that began with `values`.
pub(super) struct Verification<'a> {
    pub(super) comm: &'a dyn Communicator,
    pub(super) values: Values,
    pub(super) state: &'a CompressionState,
    pub(super) vector: &'a [f32],
}

/// The findings of this rank among the elements that it sums.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Judgement {
    /// Elements that cannot be right.
    pub(super) wrong: u64,
    /// Sums of squares: of result minus exact mean, and of the exact mean.
    error: f64,
    exact: f64,
}

impl Judgement {
    /// Of all elements. Collective.
    pub(super) fn relative_error(&self, comm: &dyn Communicator) -> Result<f64> {
        let mut squares = [self.error, self.exact];
        combine(comm, &mut squares, ReduceOp::Sum)?;
        let [error, exact] = squares;
        Ok(if exact > 0.0 { (error / exact).sqrt() } else { 0.0 })
    }
}

impl Verification<'_> {
    /// Wrong elements after any number of calls in place. Nobody knows the errors of a codec without error feedback
    /// after the next call, so its check only compares all ranks. Collective.
    pub(super) fn after_calls(&self) -> Result<u64> {
        if self.state.codec().has_feedback() { Ok(self.after_one_call()?.wrong) } else { self.differing() }
    }

    /// Every rank judges the elements that it sums; rank 0 also whether all ranks have the same. Collective.
    pub(super) fn after_one_call(&self) -> Result<Judgement> {
        let mut judgement = Judgement { wrong: self.differing()?, ..Judgement::default() };
        let elements = self.vector.len();
        let part = PART_ELEMENTS.next_multiple_of(self.state.codec().block());
        for start in (0..elements).step_by(part) {
            let range = start..elements.min(start + part);
            let owed = self.owed(range.clone())?;
            let own = self.state.owned();
            let own = own.start.max(range.start)..own.end.min(range.end);
            if own.is_empty() {
                continue;
            }
            let means: Vec<f64> = own.clone().map(|index| self.mean(index)).collect();
            judgement.wrong += match owed {
                Some(owed) => self.untold(own.clone(), &owed[own.start - start..], &means),
                None => self.unlike(own.clone())?,
            };
            for (found, mean) in self.vector[own].iter().zip(&means) {
                judgement.error += (f64::from(*found) - mean).powi(2);
                judgement.exact += mean * mean;
            }
        }
        Ok(judgement)
    }

    fn mean(&self, index: usize) -> f64 {
        let ranks = self.values.ranks;
        let of_rank = |rank| f64::from(self.values.normal(rank, index as u64));
        (0..ranks).map(of_rank).sum::<f64>() / f64::from(ranks)
    }

    /// On rank 0 the elements of blocks that are not the same bits on every rank.
    fn differing(&self) -> Result<u64> {
        let digest = |block: &[f32]| {
            block
                .iter()
                .fold(block.len() as u64, |digest, element| mix64(digest ^ u64::from(element.to_bits())))
        };
        let digests: Vec<u64> = self.vector.chunks(DIGEST_ELEMENTS).map(digest).collect();
        let (mut least, mut most) = (digests.clone(), digests);
        combine(self.comm, &mut least, ReduceOp::Min)?;
        combine(self.comm, &mut most, ReduceOp::Max)?;
        let blocks = self.vector.chunks(DIGEST_ELEMENTS).zip(least.iter().zip(&most));
        let differing = blocks.filter(|(_, (least, most))| least != most);
        let elements: usize = differing.map(|(block, _)| block.len()).sum();
        Ok(if self.comm.rank() == 0 { elements as u64 } else { 0 })
    }

    /// The residuals of all ranks' encoders; `None` for a codec that forgets them.
    fn owed(&self, range: Range<usize>) -> Result<Option<Vec<f32>>> {
        if !self.state.codec().has_feedback() {
            return Ok(None);
        }
        let mut owed = own_debts(self.state, range);
        self.comm.all_reduce(&mut owed, ReduceOp::Sum)?;
        Ok(Some(owed))
    }

    /// Elements whose result and debts do not add up to the exact mean. Calls follow each other in place, so that all
    /// results but the last are the exact means of the next calls.
    fn untold(&self, own: Range<usize>, owed: &[f32], means: &[f64]) -> u64 {
        let owner = &self.state.owner_residual()[own.start - self.state.owned().start..];
        let ranks = f64::from(self.values.ranks);
        let tolerance = (self.state.calls() as f64 + 1.0) * ROUNDINGS_PER_CALL * f64::from(f32::EPSILON);
        let found = self.vector[own].iter().zip(owed).zip(owner).zip(means);
        let is_wrong = |(((&result, &owed), &owner), &mean): (((&f32, &f32), &f32), &f64)| {
            let [result, owed, owner] = [result, owed, owner].map(f64::from);
            let magnitude = result.abs() + owed.abs() + owner.abs() + mean.abs() + 1.0;
            let difference = result + (owed + owner) / ranks - mean;
            let is_right = difference.abs() <= tolerance * magnitude;
            // Not a number is wrong too.
            !is_right
        };
        found.filter(|found| is_wrong(*found)).count() as u64
    }

    /// Elements that differ from the definition of the call when this rank encodes, sums and decodes the vectors of
    /// all.
    fn unlike(&self, own: Range<usize>) -> Result<u64> {
        let codec = self.state.codec();
        let definition = Definition::new(self.comm, self.values, self.state);
        let mut sum = vec![0u32; codec.encoded_words(own.len())];
        let context = EncodeContext { key: 0, first: own.start, scale: 0.0 };
        let input = definition.sum(own.clone())?;
        let (kernels, out) = (&definition.kernels, BufferMut::of(&mut sum));
        match input {
            Sum::Parts(parts) => {
                let parts: Vec<Buffer<'_>> = parts.iter().map(|part| Buffer::of(part)).collect();
                codec.reduce_encode(kernels, &parts, own.len(), None, context, out)?
            }
            Sum::Decoded(values) => codec.encode(kernels, Buffer::of(&values), None, context, out)?,
        };
        let mut expected = vec![0.0f32; own.len()];
        let weight = 1.0 / self.values.ranks as f32;
        codec.decode(kernels, Buffer::of(&sum), weight, BufferMut::of(&mut expected))?;
        let pairs = self.vector[own].iter().zip(&expected);
        Ok(pairs.filter(|(found, expected)| found.to_bits() != expected.to_bits()).count() as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use unisono::compression::{CompressedCollectives, codec_by_name};
    use unisono::{DType, Solo};

    use super::*;

    const ELEMENTS: usize = 3000;

    /// Some calls in place, then one element is changed.
    fn wrong(name: &str, calls: u32, change: impl Fn(&mut [f32])) -> u64 {
        let comm = Solo::new();
        let values = Values { seed: 5, ranks: 1, dtype: DType::F32, op: None };
        let mut vector: Vec<f32> = (0..ELEMENTS as u64).map(|index| values.normal(0, index)).collect();
        let codec = codec_by_name(name).unwrap();
        let mut state =
            CompressionState::with_codec(&comm, Arc::clone(&codec), DType::F32, ELEMENTS).unwrap();
        for _ in 0..calls {
            comm.compressed_all_reduce(&mut vector, ReduceOp::Avg, &mut state).unwrap();
        }
        change(&mut vector);
        let found = Verification { comm: &comm, values, state: &state, vector: &vector };
        if calls == 1 { found.after_one_call().unwrap().wrong } else { found.after_calls().unwrap() }
    }

    #[test]
    fn right_results_pass_and_one_changed_element_is_found() {
        for name in ["sign", "sign-rms", "int8", "int4", "bf16"] {
            assert_eq!(wrong(name, 1, |_| ()), 0, "{name}");
            assert_eq!(wrong(name, 1, |vector| vector[ELEMENTS - 1] += 0.01), 1, "{name}");
            assert_eq!(wrong(name, 1, |vector| vector[0] = f32::NAN), 1, "{name}");
        }
    }

    #[test]
    fn what_is_owed_after_many_calls_is_told_by_the_result() {
        for name in ["sign", "sign-rms"] {
            assert_eq!(wrong(name, 100, |_| ()), 0, "{name}");
            assert_eq!(wrong(name, 100, |vector| vector[7] += 0.01), 1, "{name}");
        }
    }

    #[test]
    fn the_error_is_relative_to_the_exact_mean() {
        let comm = Solo::new();
        let error = |error, exact| Judgement { wrong: 0, error, exact }.relative_error(&comm).unwrap();
        assert_eq!((error(4.0, 16.0), error(0.0, 0.0)), (0.5, 0.0));
    }
}
