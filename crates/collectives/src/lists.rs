//! The operations on lists of buffers: a list with a buffer for each rank, and lists that one call handles together.

use std::ops::Range;

use unisono_communicator::{
    Buffer, BufferMut, Call, Communicator, Counts, DType, Descriptor, Division, Element, Error, ReduceOp,
    Result, Site,
};
use unisono_schedule::Collective;

use crate::arguments::rooted;
use crate::collectives::Collectives;
use crate::uneven::{per_rank, uneven};

/// Collectives on lists of buffers that lie apart. Each link carries one message for any number of buffers, and nothing
/// is copied together. Lengths are in elements; `p` is the number of ranks.
///
/// # Errors
/// As [`crate::Collectives`]. A list with another number of buffers, and a buffer of another length, is an
/// [`Error::InvalidArgument`] that names the list, before anything is sent. Lengths that differ between ranks where
/// they must not are an [`Error::Mismatch`].
pub trait CollectivesOfLists: Communicator {
    /// `inputs[j]` goes to rank j, and `outputs[i]` receives the buffer of rank i. Lengths may differ: rank j's
    /// `outputs[i]` is as long as rank i's `inputs[j]`. Other ranks may call
    /// [`crate::CollectivesUneven::all_to_all_v`].
    ///
    /// Cost: as [`crate::CollectivesUneven::all_to_all_v`].
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfLists, Solo};
    /// let mut received = [0u16; 2];
    /// Solo::new().all_to_all_list(&[&[4, 5]], &mut [&mut received])?;
    /// assert_eq!(received, [4, 5]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_to_all_list<T: Element>(&self, inputs: &[&[T]], outputs: &mut [&mut [T]]) -> Result<()> {
        let send: Vec<u64> = inputs.iter().map(|input| input.len() as u64).collect();
        let receive = outputs.iter().map(|output| output.len() as u64).collect();
        let descriptor = Descriptor::new(Collective::AllToAll, T::DTYPE, send.iter().sum());
        let (input, output) = (Buffer::of_list(inputs, Division::Shares), shares_mut(outputs));
        let counts = Counts::PerPair { send, receive };
        self.issue(Call { counts, ..Call::separate(uneven(descriptor), input, output) }).map(drop)
    }

    /// [`crate::Collectives::all_gather_list`] of inputs of unequal lengths: on every rank `outputs[r]` is as long as
    /// rank r's input. Other ranks may call [`crate::CollectivesUneven::all_gather_v`].
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfLists, Solo};
    /// let mut from_rank_0 = [0u64; 2];
    /// Solo::new().all_gather_list_v(&[8, 9], &mut [&mut from_rank_0])?;
    /// assert_eq!(from_rank_0, [8, 9]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_gather_list_v<T: Element>(&self, input: &[T], outputs: &mut [&mut [T]]) -> Result<()> {
        let counts: Vec<usize> = outputs.iter().map(|output| output.len()).collect();
        let descriptor = uneven(Descriptor::new(Collective::AllGather, T::DTYPE, input.len() as u64));
        let call = Call::separate(descriptor, Buffer::of(input), shares_mut(outputs));
        self.issue(Call { counts: per_rank(&counts), ..call }).map(drop)
    }

    /// [`crate::Collectives::gather`] into a list: the root's `outputs[r]`, as long as `input`, receives rank r's
    /// input; the other ranks give `None`.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfLists, Solo};
    /// let mut from_rank_0 = [0u64; 1];
    /// Solo::new().gather_list(&[9], Some(&mut [&mut from_rank_0]), 0)?;
    /// assert_eq!(from_rank_0, [9]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn gather_list<T: Element>(
        &self,
        input: &[T],
        outputs: Option<&mut [&mut [T]]>,
        root: u32,
    ) -> Result<()> {
        let descriptor = rooted(Collective::Gather, T::DTYPE, input.len(), root);
        let output = outputs.map_or(BufferMut::empty(), shares_mut);
        self.issue(Call::separate(descriptor, Buffer::of(input), output)).map(drop)
    }

    /// [`CollectivesOfLists::gather_list`] with `counts[r]` elements from rank r. Every rank gives the same counts.
    #[track_caller]
    fn gather_list_v<T: Element>(
        &self,
        input: &[T],
        outputs: Option<&mut [&mut [T]]>,
        counts: &[usize],
        root: u32,
    ) -> Result<()> {
        let descriptor = uneven(rooted(Collective::Gather, T::DTYPE, input.len(), root));
        let output = outputs.map_or(BufferMut::empty(), shares_mut);
        let call = Call::separate(descriptor, Buffer::of(input), output);
        self.issue(Call { counts: per_rank(counts), ..call }).map(drop)
    }

    /// [`crate::Collectives::scatter`] from a list: the root's `inputs[r]`, as long as `output`, goes to rank r; the
    /// other ranks give `None`.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfLists, Solo};
    /// let mut share = [0i16; 2];
    /// Solo::new().scatter_list(Some(&[&[3, 4]]), &mut share, 0)?;
    /// assert_eq!(share, [3, 4]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn scatter_list<T: Element>(&self, inputs: Option<&[&[T]]>, output: &mut [T], root: u32) -> Result<()> {
        let descriptor = rooted(Collective::Scatter, T::DTYPE, output.len(), root);
        let input = inputs.map_or(Buffer::empty(), |inputs| Buffer::of_list(inputs, Division::Shares));
        self.issue(Call::separate(descriptor, input, BufferMut::of(output))).map(drop)
    }

    /// [`CollectivesOfLists::scatter_list`] with `counts[r]` elements to rank r. Every rank gives the same counts.
    #[track_caller]
    fn scatter_list_v<T: Element>(
        &self,
        inputs: Option<&[&[T]]>,
        output: &mut [T],
        counts: &[usize],
        root: u32,
    ) -> Result<()> {
        let descriptor = uneven(rooted(Collective::Scatter, T::DTYPE, output.len(), root));
        let input = inputs.map_or(Buffer::empty(), |inputs| Buffer::of_list(inputs, Division::Shares));
        let call = Call::separate(descriptor, input, BufferMut::of(output));
        self.issue(Call { counts: per_rank(counts), ..call }).map(drop)
    }

    /// One all-gather for many buffers: `outputs[i]` becomes all ranks' `inputs[i]` in rank order. Every rank gives the
    /// same number of outputs with the same lengths. A length need not divide among the ranks: `inputs[i]` has the
    /// elements of this rank's [`CollectivesOfLists::coalesced_share`] of `outputs[i]`.
    ///
    /// Cost: one all-gather of all elements together.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfLists, Solo};
    /// let (mut weights, mut biases) = ([0.0f32; 3], [0.0f32; 1]);
    /// Solo::new().all_gather_coalesced(&[&[1.0, 2.0, 3.0], &[4.0]], &mut [&mut weights, &mut biases])?;
    /// assert_eq!((weights, biases), ([1.0, 2.0, 3.0], [4.0]));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_gather_coalesced<T: Element>(&self, inputs: &[&[T]], outputs: &mut [&mut [T]]) -> Result<()> {
        let whole: Vec<usize> = outputs.iter().map(|output| output.len()).collect();
        let shares: Vec<usize> = inputs.iter().map(|input| input.len()).collect();
        let shape = Coalesced::new(self, Collective::AllGather, T::DTYPE, &whole, ["outputs", "inputs"]);
        shape.check_own(&shares)?;
        let mut rests: Vec<&mut [T]> = outputs.iter_mut().map(|output| &mut **output).collect();
        let parts = shape.parts().map(|(buffer, part)| {
            let (part, rest) = std::mem::take(&mut rests[buffer]).split_at_mut(part.len());
            rests[buffer] = rest;
            part
        });
        let output = BufferMut::of_list(parts, Division::Coalesced);
        let input = Buffer::of_list(inputs, Division::Anywhere);
        let descriptor = shape.descriptor(None);
        self.issue(Call { counts: shape.counts(), ..Call::separate(descriptor, input, output) }).map(drop)
    }

    /// One reduce-scatter for many buffers: `outputs[i]` becomes this rank's share of the reduction of all ranks'
    /// `inputs[i]`; the inputs stay as they are. Every rank gives the same number of inputs with the same lengths. A
    /// length need not divide among the ranks: `outputs[i]` has the elements of this rank's
    /// [`CollectivesOfLists::coalesced_share`] of `inputs[i]`.
    ///
    /// Cost: one reduce-scatter of all elements together.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfLists, ReduceOp, Solo};
    /// let (mut weights, mut biases) = ([0.0f32; 3], [0.0f32; 1]);
    /// let gradients: [&[f32]; 2] = [&[1.0, 2.0, 3.0], &[4.0]];
    /// Solo::new().reduce_scatter_coalesced(&gradients, &mut [&mut weights, &mut biases], ReduceOp::Avg)?;
    /// assert_eq!((weights, biases), ([1.0, 2.0, 3.0], [4.0]));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn reduce_scatter_coalesced<T: Element>(
        &self,
        inputs: &[&[T]],
        outputs: &mut [&mut [T]],
        op: ReduceOp,
    ) -> Result<()> {
        let whole: Vec<usize> = inputs.iter().map(|input| input.len()).collect();
        let shares: Vec<usize> = outputs.iter().map(|output| output.len()).collect();
        let shape = Coalesced::new(self, Collective::ReduceScatter, T::DTYPE, &whole, ["inputs", "outputs"]);
        shape.check_own(&shares)?;
        let parts: Vec<&[T]> = shape.parts().map(|(buffer, part)| &inputs[buffer][part]).collect();
        let input = Buffer::of_list(&parts, Division::Coalesced);
        let output = BufferMut::of_list(outputs.iter_mut().map(|output| &mut **output), Division::Anywhere);
        let descriptor = shape.descriptor(Some(op));
        self.issue(Call { counts: shape.counts(), ..Call::separate(descriptor, input, output) }).map(drop)
    }

    /// The elements that rank `rank` has of a buffer of `elements` elements in the coalesced calls: all ranks but the
    /// last ones have `elements / p`, rounded up; the last ones have fewer, or none.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesOfLists, Communicator, Solo};
    /// let comm = Solo::new();
    /// assert_eq!(comm.coalesced_share(6, comm.rank()), 0..6);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    fn coalesced_share(&self, elements: usize, rank: u32) -> Range<usize> {
        share_of_rank(elements, self.size() as usize, rank as usize)
    }
}

impl<C: Communicator + ?Sized> CollectivesOfLists for C {}

fn shares_mut<'a, T: Element>(list: &'a mut [&mut [T]]) -> BufferMut<'a> {
    BufferMut::of_list(list.iter_mut().map(|part| &mut **part), Division::Shares)
}

fn share_of_rank(elements: usize, ranks: usize, rank: usize) -> Range<usize> {
    let most = elements.div_ceil(ranks);
    let start = most.saturating_mul(rank).min(elements);
    start..start.saturating_add(most).min(elements)
}

/// The lengths of a coalesced call with a share of each buffer for each rank.
struct Coalesced<'a> {
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
    fn new<'a, C: Communicator + ?Sized>(
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
    fn check_own(&self, shares: &[usize]) -> Result<()> {
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
        let call = format_args!("{collective}_coalesced({} buffers of {dtype}) at {site}", whole.len());
        Err(Error::invalid(names[1], problem).in_call(&call))
    }

    /// The share of each rank in each buffer, in the order of the ranks: the buffer's number, and the elements.
    fn parts(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
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

    fn counts(&self) -> Counts {
        if self.is_even() {
            Counts::Even
        } else {
            Counts::PerRank((0..self.ranks).map(|rank| self.share(rank)).collect())
        }
    }

    fn descriptor(&self, op: Option<ReduceOp>) -> Descriptor {
        let descriptor = Descriptor::new(self.collective, self.dtype, self.share(self.own_rank));
        Descriptor { op, uneven: !self.is_even(), ..descriptor }
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
