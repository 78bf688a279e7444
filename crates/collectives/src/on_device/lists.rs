//! The operations on lists of buffers in the order of a stream. The backend may copy a list together on the device.

use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, Communicator, Counts, Descriptor, DeviceBuffer, DeviceBufferMut,
    DeviceSlice, DeviceSliceMut, Division, Element, Outcome, Place, ReduceOp, Result,
};
use unisono_schedule::Collective;

use super::OnStream;
use crate::arguments::reducing;
use crate::collectives::Collectives;

/// The lengths of the buffers of a list.
fn lengths(element: usize, list: &DeviceBuffer) -> Vec<u64> {
    list.spans().iter().map(|span| (span.bytes() / element) as u64).collect()
}

fn read<'b, T: Element>(list: impl IntoIterator<Item = DeviceSlice<'b, T>>) -> DeviceBuffer {
    DeviceBuffer::list(list.into_iter().map(DeviceSlice::into_buffer), Division::Shares)
}

fn written<'b, T: Element>(
    list: impl IntoIterator<Item = DeviceSliceMut<'b, T>>,
    division: Division,
) -> DeviceBufferMut {
    DeviceBufferMut::list(list.into_iter().map(DeviceSliceMut::into_buffer), division)
}

impl<C: Communicator + ?Sized> OnStream<'_, C> {
    /// As [`crate::Collectives::all_reduce_coalesced`].
    #[track_caller]
    pub fn all_reduce_coalesced<'b, T: Element>(
        &self,
        buffers: impl IntoIterator<Item = DeviceSliceMut<'b, T>>,
        op: ReduceOp,
    ) -> Result<Outcome> {
        let mut list = written(buffers, Division::Coalesced);
        let descriptor = reducing(Collective::AllReduce, T::DTYPE, list.bytes() / T::DTYPE.bytes(), op);
        let descriptor = Descriptor { place: Place::InPlace, ..descriptor };
        self.issue(descriptor, Buffers::InOut(BufferMut::Device(&mut list)))
    }

    /// As [`crate::Collectives::all_gather_list`].
    #[track_caller]
    pub fn all_gather_list<'b, T: Element>(
        &self,
        input: &DeviceSlice<'_, T>,
        outputs: impl IntoIterator<Item = DeviceSliceMut<'b, T>>,
    ) -> Result<Outcome> {
        let mut list = written(outputs, Division::Shares);
        let descriptor = Descriptor::new(Collective::AllGather, T::DTYPE, input.len() as u64);
        let output = BufferMut::Device(&mut list);
        self.issue(descriptor, Buffers::Separate { input: Buffer::Device(input.buffer()), output })
    }

    /// As [`crate::Collectives::reduce_scatter_list`].
    #[track_caller]
    pub fn reduce_scatter_list<'b, T: Element>(
        &self,
        inputs: impl IntoIterator<Item = DeviceSlice<'b, T>>,
        output: &mut DeviceSliceMut<'_, T>,
        op: ReduceOp,
    ) -> Result<Outcome> {
        let list = read(inputs);
        let descriptor = reducing(Collective::ReduceScatter, T::DTYPE, output.len(), op);
        let output = BufferMut::Device(output.buffer());
        self.issue(descriptor, Buffers::Separate { input: Buffer::Device(&list), output })
    }

    /// As [`crate::CollectivesOfLists::all_to_all_list`].
    #[track_caller]
    pub fn all_to_all_list<'i, 'o, T: Element>(
        &self,
        inputs: impl IntoIterator<Item = DeviceSlice<'i, T>>,
        outputs: impl IntoIterator<Item = DeviceSliceMut<'o, T>>,
    ) -> Result<Outcome> {
        let (inputs, mut outputs) = (read(inputs), written(outputs, Division::Shares));
        let element = T::DTYPE.bytes();
        let (send, receive) = (lengths(element, &inputs), lengths(element, &outputs));
        let descriptor = Descriptor::new(Collective::AllToAll, T::DTYPE, send.iter().sum());
        let (input, output) = (Buffer::Device(&inputs), BufferMut::Device(&mut outputs));
        let call = Call::separate(Descriptor { uneven: true, ..descriptor }, input, output);
        let counts = Counts::PerPair { send, receive };
        self.comm.issue(Call { stream: Some(self.stream), counts, ..call })
    }
}
