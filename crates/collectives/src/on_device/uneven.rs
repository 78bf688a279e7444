//! The `_v` operations in the order of a stream: counts that differ by rank.

use unisono_communicator::{
    Communicator, Counts, Descriptor, DeviceSlice, DeviceSliceMut, Element, Outcome, ReduceOp, Result,
};
use unisono_schedule::Collective;

use super::OnStream;
use crate::arguments::{reducing, rooted};
use crate::uneven::{per_rank, wide};

impl<C: Communicator + ?Sized> OnStream<'_, C> {
    /// As [`crate::CollectivesUneven::all_gather_v`].
    #[track_caller]
    pub fn all_gather_v<T: Element>(
        &self,
        input: &DeviceSlice<'_, T>,
        output: &mut DeviceSliceMut<'_, T>,
        counts: &[usize],
    ) -> Result<Outcome> {
        let descriptor = Descriptor::new(Collective::AllGather, T::DTYPE, input.len() as u64);
        self.uneven((descriptor, per_rank(counts)), Some(input), Some(output))
    }

    /// As [`crate::CollectivesUneven::reduce_scatter_v`].
    #[track_caller]
    pub fn reduce_scatter_v<T: Element>(
        &self,
        input: &DeviceSlice<'_, T>,
        output: &mut DeviceSliceMut<'_, T>,
        counts: &[usize],
        op: ReduceOp,
    ) -> Result<Outcome> {
        let descriptor = reducing(Collective::ReduceScatter, T::DTYPE, output.len(), op);
        self.uneven((descriptor, per_rank(counts)), Some(input), Some(output))
    }

    /// As [`crate::CollectivesUneven::gather_v`].
    #[track_caller]
    pub fn gather_v<T: Element>(
        &self,
        input: &DeviceSlice<'_, T>,
        mut output: Option<DeviceSliceMut<'_, T>>,
        counts: &[usize],
        root: u32,
    ) -> Result<Outcome> {
        let descriptor = rooted(Collective::Gather, T::DTYPE, input.len(), root);
        self.uneven((descriptor, per_rank(counts)), Some(input), output.as_mut())
    }

    /// As [`crate::CollectivesUneven::scatter_v`].
    #[track_caller]
    pub fn scatter_v<T: Element>(
        &self,
        input: Option<DeviceSlice<'_, T>>,
        output: &mut DeviceSliceMut<'_, T>,
        counts: &[usize],
        root: u32,
    ) -> Result<Outcome> {
        let descriptor = rooted(Collective::Scatter, T::DTYPE, output.len(), root);
        self.uneven((descriptor, per_rank(counts)), input.as_ref(), Some(output))
    }

    /// As [`crate::CollectivesUneven::all_to_all_v`].
    #[track_caller]
    pub fn all_to_all_v<T: Element>(
        &self,
        input: &DeviceSlice<'_, T>,
        send_counts: &[usize],
        output: &mut DeviceSliceMut<'_, T>,
        receive_counts: &[usize],
    ) -> Result<Outcome> {
        let descriptor = Descriptor::new(Collective::AllToAll, T::DTYPE, input.len() as u64);
        let counts = Counts::PerPair { send: wide(send_counts), receive: wide(receive_counts) };
        self.uneven((descriptor, counts), Some(input), Some(output))
    }
}
