//! The `_v` operations: counts that differ by rank.

use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, Communicator, Counts, Descriptor, Element, ReduceOp, Result,
};
use unisono_schedule::Collective;

use crate::arguments::{optional, reducing, rooted};
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

    /// [`crate::Collectives::reduce_scatter`] with `counts[r]` elements to rank r.
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

    /// [`crate::Collectives::gather`] with `counts[r]` elements from rank r.
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

    /// [`crate::Collectives::scatter`] with `counts[r]` elements to rank r.
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

    /// [`crate::Collectives::all_to_all`] with `send_counts[j]` elements to rank j and `receive_counts[i]` from rank i.
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
}

impl<C: Communicator + ?Sized> CollectivesUneven for C {}

pub(super) fn uneven(descriptor: Descriptor) -> Descriptor {
    Descriptor { uneven: true, ..descriptor }
}

pub(super) fn per_rank(counts: &[usize]) -> Counts {
    Counts::PerRank(wide(counts))
}

fn wide(counts: &[usize]) -> Vec<u64> {
    counts.iter().map(|&count| count as u64).collect()
}
