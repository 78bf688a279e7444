//! One call for many buffers, of each of which every rank has a share.

use std::ops::Range;

use unisono_communicator::{
    Communicator, Counts, DType, Descriptor, Division, Element, Error, Outcome, OwnedBuffers, OwnedCall,
    OwnedMemory, ReduceOp, Result, Site, TypedWork, zeroed,
};
use unisono_schedule::Collective;

use crate::asynchronous::{refused, separate, vectors};

/// The elements that one rank has of a buffer.
pub(crate) fn share_of_rank(elements: usize, ranks: usize, rank: usize) -> Range<usize> {
    let most = elements.div_ceil(ranks);
    let start = most.saturating_mul(rank).min(elements);
    start..start.saturating_add(most).min(elements)
}

/// The lengths of a coalesced call with a share of each buffer for each rank.
pub(crate) struct Coalesced<'a> {
    collective: Collective,
    dtype: DType,
    ranks: usize,
    own_rank: usize,
    /// The elements of each whole buffer.
    whole: &'a [usize],
    /// The names of the whole buffers and of the shares.
    names: [&'static str; 2],
    site: Site,
}

impl Coalesced<'_> {
    #[track_caller]
    pub(crate) fn new<'a, C: Communicator + ?Sized>(
        comm: &C,
        collective: Collective,
        dtype: DType,
        whole: &'a [usize],
        names: [&'static str; 2],
    ) -> Coalesced<'a> {
        let (ranks, own_rank) = (comm.size() as usize, comm.rank() as usize);
        Coalesced { collective, dtype, ranks, own_rank, whole, names, site: Site::caller() }
    }

    /// Checks the lengths of this rank's shares, which [`check`](unisono_communicator::check) cannot see in the call.
    pub(crate) fn check_own(&self, shares: &[usize]) -> Result<()> {
        let Coalesced { collective, dtype, own_rank, whole, names, site, .. } = self;
        let problem = if shares.len() != whole.len() {
            format!("{} buffers, but there are {} {}", shares.len(), whole.len(), names[0])
        } else {
            let own = whole.iter().map(|elements| share_of_rank(*elements, self.ranks, *own_rank).len());
            let mut pairs = shares.iter().zip(own).enumerate();
            let Some((at, (found, share))) = pairs.find(|(_, (found, share))| *found != share) else {
                return Ok(());
            };
            let elements = whole[at];
            format!(
                "buffer {at} has {found} elements, but the share of rank {own_rank} in {elements} has {share}"
            )
        };
        let call = format_args!("{collective}_coalesced({} buffers of {dtype}){}", whole.len(), site.at());
        Err(Error::invalid(names[1], problem).in_call(&call))
    }

    /// The share of each rank in each buffer, in the order of the ranks: the buffer's number, and the elements.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let of_rank = move |rank| {
            let part = move |(buffer, elements): (usize, &usize)| {
                (buffer, share_of_rank(*elements, self.ranks, rank))
            };
            self.whole.iter().enumerate().map(part)
        };
        (0..self.ranks).flat_map(of_rank)
    }

    /// The elements of a rank's shares together.
    fn share(&self, rank: usize) -> u64 {
        self.whole.iter().map(|elements| share_of_rank(*elements, self.ranks, rank).len() as u64).sum()
    }

    /// Whether each buffer divides among the ranks, so that more algorithms fit.
    fn is_even(&self) -> bool {
        self.whole.iter().all(|elements| elements.is_multiple_of(self.ranks))
    }

    pub(crate) fn counts(&self) -> Counts {
        if self.is_even() {
            Counts::Even
        } else {
            Counts::PerRank((0..self.ranks).map(|rank| self.share(rank)).collect())
        }
    }

    pub(crate) fn descriptor(&self, op: Option<ReduceOp>) -> Descriptor {
        let descriptor = Descriptor::new(self.collective, self.dtype, self.share(self.own_rank));
        Descriptor { op, uneven: !self.is_even(), ..descriptor }
    }
}

/// The call of a shape, without its memory.
fn call(shape: &Coalesced<'_>, op: Option<ReduceOp>) -> OwnedCall {
    let call = OwnedCall::new(shape.descriptor(op), OwnedBuffers::None);
    OwnedCall { counts: shape.counts(), site: shape.site, ..call }
}

/// Starts one all-gather for many buffers of these lengths.
#[track_caller]
pub(crate) fn all_gather<T: Element, C: Communicator + ?Sized>(
    comm: &C,
    inputs: Vec<Vec<T>>,
    lengths: &[usize],
) -> TypedWork<Vec<Vec<T>>> {
    let shape = Coalesced::new(comm, Collective::AllGather, T::DTYPE, lengths, ["lengths", "inputs"]);
    let shares: Vec<usize> = inputs.iter().map(Vec::len).collect();
    let inputs = OwnedMemory::of_list(inputs, Division::Anywhere);
    if let Err(error) = shape.check_own(&shares) {
        return TypedWork::new(refused(inputs, error), joined);
    }
    let outputs = vectors::<T>(shape.parts().map(|(_, part)| part.len()), Division::Coalesced);
    TypedWork::new(separate::<Vec<Vec<T>>, _>(comm, call(&shape, None), inputs, outputs).into_work(), joined)
}

/// The buffers of an all-gather: the output has all shares of rank 0, then all shares of rank 1, and so on.
fn joined<T: Element>(_: &Outcome, buffers: Option<OwnedBuffers>) -> Vec<Vec<T>> {
    let Some(OwnedBuffers::Separate { input, output }) = buffers else { return Vec::new() };
    let (Some(inputs), Some(parts)) = (input.into_list::<T>(), output.into_list::<T>()) else {
        return Vec::new();
    };
    let mut whole: Vec<Vec<T>> = inputs.iter().map(|_| Vec::new()).collect();
    for (at, part) in parts.into_iter().enumerate() {
        whole[at % inputs.len()].extend(part);
    }
    whole
}

/// Starts one reduce-scatter for many buffers.
#[track_caller]
pub(crate) fn reduce_scatter<T: Element, C: Communicator + ?Sized>(
    comm: &C,
    inputs: Vec<Vec<T>>,
    op: ReduceOp,
) -> TypedWork<Vec<Vec<T>>> {
    let whole: Vec<usize> = inputs.iter().map(Vec::len).collect();
    let shape = Coalesced::new(comm, Collective::ReduceScatter, T::DTYPE, &whole, ["inputs", "outputs"]);
    let copied = |(buffer, part): (usize, Range<usize>)| {
        let mut copy = zeroed::<T>(part.len())?;
        copy.copy_from_slice(&inputs[buffer][part]);
        Ok(copy)
    };
    let own = whole.iter().map(|elements| share_of_rank(*elements, shape.ranks, shape.own_rank).len());
    match shape.parts().map(copied).collect::<Result<Vec<_>>>() {
        Ok(parts) => {
            let parts = OwnedMemory::of_list(parts, Division::Coalesced);
            separate(comm, call(&shape, Some(op)), parts, vectors::<T>(own, Division::Anywhere))
        }
        Err(shortage) => {
            // They have as many elements as their parts.
            let inputs = OwnedMemory::of_list(inputs, Division::Anywhere);
            separate(comm, call(&shape, Some(op)), inputs, || Err(shortage))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b11_the_shares_of_all_ranks_are_the_whole() {
        let shares = |elements, ranks| -> Vec<usize> {
            (0..ranks).map(|rank| share_of_rank(elements, ranks, rank).len()).collect()
        };
        assert_eq!(shares(6, 2), [3, 3]);
        assert_eq!(shares(3, 2), [2, 1]);
        assert_eq!(shares(5, 4), [2, 2, 1, 0], "the last rank has none");
        assert_eq!(shares(0, 3), [0, 0, 0]);
        for elements in 0..40 {
            for ranks in 1..9 {
                assert_eq!(shares(elements, ranks).iter().sum::<usize>(), elements);
            }
        }
    }
}
