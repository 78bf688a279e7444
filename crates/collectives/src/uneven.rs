//! The `_v` operations: counts that differ by rank.

use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, Communicator, Counts, Descriptor, Element, OwnedCall, OwnedMemory,
    ReduceOp, Result, TypedWork,
};
use unisono_schedule::Collective;

use crate::arguments::{optional, reducing, rooted};
use crate::asynchronous::{separate, vector, without_memory};
use crate::collectives::Collectives;

/// Operations whose counts differ by rank. Buffers hold the shares contiguously in rank order.
///
/// `counts[r]` is rank r's share in elements. Every rank gives the same list.
///
/// # Errors
/// As [`crate::Collectives`]; a list that differs between ranks is a `Error::Mismatch`.
pub trait CollectivesUneven: Communicator {
    /// [`crate::Collectives::all_gather`] with `counts[r]` elements from rank r.
    ///
    /// Cost: each rank receives the other shares once, in ceil(log2 p) messages (`circulant`) up to p-1 (`ring`).
    ///
    /// ```text
    /// rank      0               1               2               3         counts [1, 2, 0, 1]
    /// input     [1]             [2, 3]          []              [4]
    /// output    [1, 2, 3, 4]    [1, 2, 3, 4]    [1, 2, 3, 4]    [1, 2, 3, 4]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesUneven, Solo};
    /// let mut all = [0u8; 3];
    /// Solo::new().all_gather_v(&[1, 2, 3], &mut all, &[3])?;
    /// assert_eq!(all, [1, 2, 3]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_gather_v<T: Element>(&self, input: &[T], output: &mut [T], counts: &[usize]) -> Result<()> {
        let descriptor = uneven(Descriptor::new(Collective::AllGather, T::DTYPE, input.len() as u64));
        let buffers = Buffers::Separate { input: Buffer::of(input), output: BufferMut::of(output) };
        self.issue(Call { counts: per_rank(counts), ..Call::new(descriptor, buffers) }).map(drop)
    }

    /// [`CollectivesUneven::all_gather_v`] on one buffer of all shares, in which rank r has filled its own.
    #[track_caller]
    fn all_gather_v_in_place<T: Element>(&self, buffer: &mut [T], counts: &[usize]) -> Result<()> {
        let descriptor = uneven(Descriptor::new(Collective::AllGather, T::DTYPE, own(self, counts) as u64));
        let call = Call::in_place(descriptor, BufferMut::of(buffer));
        self.issue(Call { counts: per_rank(counts), ..call }).map(drop)
    }

    /// [`CollectivesUneven::all_gather_v`]; the handle gives all shares in rank order.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesUneven, Solo};
    /// assert_eq!(Solo::new().all_gather_v_async(vec![1u8, 2, 3], &[3]).wait()?, [1, 2, 3]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_gather_v_async<T: Element>(&self, input: Vec<T>, counts: &[usize]) -> TypedWork<Vec<T>> {
        let descriptor = Descriptor::new(Collective::AllGather, T::DTYPE, input.len() as u64);
        let call = uneven_call(descriptor, per_rank(counts));
        separate(self, call, OwnedMemory::of(input), vector::<T>(total(counts)))
    }

    /// [`crate::Collectives::reduce_scatter`] with `counts[r]` elements to rank r.
    ///
    /// Cost: each rank sends the other shares once, in ceil(log2 p) messages (`circulant`) up to p-1 (`ring`).
    ///
    /// ```text
    /// rank           0               1               2               3         counts [1, 2, 0, 1]
    /// input          [1, 2, 3, 4]    [1, 1, 1, 1]    [2, 2, 2, 2]    [0, 0, 0, 9]
    /// output, Sum    [4]             [5, 6]          []              [16]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesUneven, ReduceOp, Solo};
    /// let mut share = [0u32; 2];
    /// Solo::new().reduce_scatter_v(&[4, 5], &mut share, &[2], ReduceOp::Sum)?;
    /// assert_eq!(share, [4, 5]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn reduce_scatter_v<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        counts: &[usize],
        op: ReduceOp,
    ) -> Result<()> {
        let descriptor = uneven(reducing(Collective::ReduceScatter, T::DTYPE, output.len(), op));
        let buffers = Buffers::Separate { input: Buffer::of(input), output: BufferMut::of(output) };
        self.issue(Call { counts: per_rank(counts), ..Call::new(descriptor, buffers) }).map(drop)
    }

    /// [`CollectivesUneven::reduce_scatter_v`] on one buffer of all shares: on rank r, share r becomes the result, and
    /// the other shares are indeterminate.
    #[track_caller]
    fn reduce_scatter_v_in_place<T: Element>(
        &self,
        buffer: &mut [T],
        counts: &[usize],
        op: ReduceOp,
    ) -> Result<()> {
        let descriptor = uneven(reducing(Collective::ReduceScatter, T::DTYPE, own(self, counts), op));
        let call = Call::in_place(descriptor, BufferMut::of(buffer));
        self.issue(Call { counts: per_rank(counts), ..call }).map(drop)
    }

    /// [`CollectivesUneven::reduce_scatter_v`]; the handle gives this rank's share of the reduction.
    #[track_caller]
    fn reduce_scatter_v_async<T: Element>(
        &self,
        input: Vec<T>,
        counts: &[usize],
        op: ReduceOp,
    ) -> TypedWork<Vec<T>> {
        let share = own(self, counts);
        let descriptor = reducing(Collective::ReduceScatter, T::DTYPE, share, op);
        let call = uneven_call(descriptor, per_rank(counts));
        separate(self, call, OwnedMemory::of(input), vector::<T>(share))
    }

    /// [`crate::Collectives::gather`] with `counts[r]` elements from rank r.
    ///
    /// Cost: the shares of the others reach the root, as in [`crate::Collectives::gather`].
    ///
    /// ```text
    /// rank              0      1               2     3      counts [1, 2, 0, 1]
    /// input             [1]    [2, 3]          []    [4]
    /// output, root 1    -      [1, 2, 3, 4]    -     -
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesUneven, Solo};
    /// let mut all = [0u32; 2];
    /// Solo::new().gather_v(&[4, 5], Some(&mut all), &[2], 0)?;
    /// assert_eq!(all, [4, 5]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn gather_v<T: Element>(
        &self,
        input: &[T],
        output: Option<&mut [T]>,
        counts: &[usize],
        root: u32,
    ) -> Result<()> {
        let descriptor = uneven(rooted(Collective::Gather, T::DTYPE, input.len(), root));
        let buffers = Buffers::Separate { input: Buffer::of(input), output: optional(output) };
        self.issue(Call { counts: per_rank(counts), ..Call::new(descriptor, buffers) }).map(drop)
    }

    /// [`CollectivesUneven::gather_v`]; the handle gives all shares at the root, an empty vector elsewhere.
    #[track_caller]
    fn gather_v_async<T: Element>(&self, input: Vec<T>, counts: &[usize], root: u32) -> TypedWork<Vec<T>> {
        let elements = if self.rank() == root { total(counts) } else { 0 };
        let call = uneven_call(rooted(Collective::Gather, T::DTYPE, input.len(), root), per_rank(counts));
        separate(self, call, OwnedMemory::of(input), vector::<T>(elements))
    }

    /// [`crate::Collectives::scatter`] with `counts[r]` elements to rank r.
    ///
    /// Cost: the shares of the others leave the root, as in [`crate::Collectives::scatter`].
    ///
    /// ```text
    /// rank             0      1               2     3      counts [1, 2, 0, 1]
    /// input, root 1    -      [1, 2, 3, 4]    -     -
    /// output           [1]    [2, 3]          []    [4]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesUneven, Solo};
    /// let mut share = [0u32; 2];
    /// Solo::new().scatter_v(Some(&[4, 5]), &mut share, &[2], 0)?;
    /// assert_eq!(share, [4, 5]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn scatter_v<T: Element>(
        &self,
        input: Option<&[T]>,
        output: &mut [T],
        counts: &[usize],
        root: u32,
    ) -> Result<()> {
        let descriptor = uneven(rooted(Collective::Scatter, T::DTYPE, output.len(), root));
        let buffers =
            Buffers::Separate { input: Buffer::of(input.unwrap_or(&[])), output: BufferMut::of(output) };
        self.issue(Call { counts: per_rank(counts), ..Call::new(descriptor, buffers) }).map(drop)
    }

    /// [`CollectivesUneven::scatter_v`]; `input` is empty except at the root, and the handle gives this rank's share.
    #[track_caller]
    fn scatter_v_async<T: Element>(&self, input: Vec<T>, counts: &[usize], root: u32) -> TypedWork<Vec<T>> {
        let share = own(self, counts);
        let call = uneven_call(rooted(Collective::Scatter, T::DTYPE, share, root), per_rank(counts));
        separate(self, call, OwnedMemory::of(input), vector::<T>(share))
    }

    /// [`crate::Collectives::all_to_all`] with `send_counts[j]` elements to rank j and `receive_counts[i]` from rank i.
    ///
    /// Cost: each part goes once, from its rank straight to the other: p-1 messages per rank (`direct`, `pairwise`).
    ///
    /// ```text
    /// rank              0               1               2               3
    /// send_counts       [1, 0, 0, 2]    [1, 1, 1, 1]    [0, 0, 1, 0]    [1, 0, 0, 1]
    /// input             [1, 2, 3]       [4, 5, 6, 7]    [8]             [9, 0]
    /// receive_counts    [1, 1, 0, 1]    [0, 1, 0, 0]    [0, 1, 1, 0]    [2, 1, 0, 1]
    /// output            [1, 4, 9]       [5]             [6, 8]          [2, 3, 7, 0]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesUneven, Solo};
    /// let mut output = [0u32; 2];
    /// Solo::new().all_to_all_v(&[4, 5], &[2], &mut output, &[2])?;
    /// assert_eq!(output, [4, 5]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_to_all_v<T: Element>(
        &self,
        input: &[T],
        send_counts: &[usize],
        output: &mut [T],
        receive_counts: &[usize],
    ) -> Result<()> {
        let descriptor = uneven(Descriptor::new(Collective::AllToAll, T::DTYPE, input.len() as u64));
        let buffers = Buffers::Separate { input: Buffer::of(input), output: BufferMut::of(output) };
        let counts = Counts::PerPair { send: wide(send_counts), receive: wide(receive_counts) };
        self.issue(Call { counts, ..Call::new(descriptor, buffers) }).map(drop)
    }

    /// [`CollectivesUneven::all_to_all_v`] in place: `counts[j]` elements for rank j are replaced by as many from it.
    #[track_caller]
    fn all_to_all_v_in_place<T: Element>(&self, buffer: &mut [T], counts: &[usize]) -> Result<()> {
        let descriptor = uneven(Descriptor::new(Collective::AllToAll, T::DTYPE, buffer.len() as u64));
        let counts = Counts::PerPair { send: wide(counts), receive: wide(counts) };
        self.issue(Call { counts, ..Call::in_place(descriptor, BufferMut::of(buffer)) }).map(drop)
    }

    /// [`CollectivesUneven::all_to_all_v`]; the handle gives the received parts in rank order.
    #[track_caller]
    fn all_to_all_v_async<T: Element>(
        &self,
        input: Vec<T>,
        send_counts: &[usize],
        receive_counts: &[usize],
    ) -> TypedWork<Vec<T>> {
        let descriptor = Descriptor::new(Collective::AllToAll, T::DTYPE, input.len() as u64);
        let counts = Counts::PerPair { send: wide(send_counts), receive: wide(receive_counts) };
        let output = vector::<T>(total(receive_counts));
        separate(self, uneven_call(descriptor, counts), OwnedMemory::of(input), output)
    }
}

impl<C: Communicator + ?Sized> CollectivesUneven for C {}

pub(super) fn uneven(descriptor: Descriptor) -> Descriptor {
    Descriptor { uneven: true, ..descriptor }
}

/// An asynchronous call with these counts, without its memory.
#[track_caller]
pub(super) fn uneven_call(descriptor: Descriptor, counts: Counts) -> OwnedCall {
    OwnedCall { counts, ..without_memory(uneven(descriptor)) }
}

/// This rank's count. A list that is too short is refused when the call is checked.
pub(super) fn own<C: Communicator + ?Sized>(comm: &C, counts: &[usize]) -> usize {
    counts.get(comm.rank() as usize).copied().unwrap_or_default()
}

/// The sum of all counts, at most the greatest number.
pub(super) fn total(counts: &[usize]) -> usize {
    counts.iter().fold(0, |sum, &count| sum.saturating_add(count))
}

pub(super) fn per_rank(counts: &[usize]) -> Counts {
    Counts::PerRank(wide(counts))
}

pub(super) fn wide(counts: &[usize]) -> Vec<u64> {
    counts.iter().map(|&count| count as u64).collect()
}
