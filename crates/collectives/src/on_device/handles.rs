//! Calls in the order of a stream that own their memory, with handles. For memory with a keeper, use
//! [`DeviceSliceMut::into_memory`] and [`CollectivesAsync::start`].

use unisono_communicator::{
    Communicator, Counts, DType, Descriptor, DeviceSliceMut, Element, Finished, Operation, OwnedBuffers,
    OwnedCall, OwnedMemory, Peer, Place, ReduceOp, Work,
};
use unisono_schedule::Collective;

use super::OnStream;
use super::messages::TAG;
use crate::arguments::{message_descriptor, reducing, reducing_at, rooted, share_of};
use crate::asynchronous::CollectivesAsync;
use crate::uneven::{own, per_rank, wide};

/// The memory of one side; the side that a rank does not have is empty.
fn memory<T: Element>(side: Option<DeviceSliceMut<'static, T>>) -> OwnedMemory {
    side.map_or_else(|| OwnedMemory::of(Vec::<T>::new()), |side| side.into_memory(None))
}

impl<C: Communicator + ?Sized> OnStream<'_, C> {
    #[track_caller]
    fn submit(&self, descriptor: Descriptor, buffers: OwnedBuffers) -> Work {
        self.comm.start(OwnedCall { stream: Some(self.stream), ..OwnedCall::new(descriptor, buffers) })
    }

    #[track_caller]
    fn submit_separate<T: Element>(
        &self,
        descriptor: Descriptor,
        input: Option<DeviceSliceMut<'static, T>>,
        output: Option<DeviceSliceMut<'static, T>>,
    ) -> Work {
        self.submit(descriptor, OwnedBuffers::Separate { input: memory(input), output: memory(output) })
    }

    #[track_caller]
    fn submit_uneven<T: Element>(
        &self,
        (descriptor, counts): (Descriptor, Counts),
        input: Option<DeviceSliceMut<'static, T>>,
        output: Option<DeviceSliceMut<'static, T>>,
    ) -> Work {
        let buffers = OwnedBuffers::Separate { input: memory(input), output: memory(output) };
        let call = OwnedCall::new(Descriptor { uneven: true, ..descriptor }, buffers);
        self.comm.start(OwnedCall { stream: Some(self.stream), counts, ..call })
    }

    /// [`OnStream::all_reduce`] with a handle. For memory with a keeper, use [`DeviceSliceMut::into_memory`] and
    /// [`CollectivesAsync::start`].
    #[track_caller]
    pub fn all_reduce_async<T: Element>(&self, buffer: DeviceSliceMut<'static, T>, op: ReduceOp) -> Work {
        let descriptor = reducing(Collective::AllReduce, T::DTYPE, buffer.len(), op);
        let buffer: OwnedMemory = buffer.into_memory(None);
        self.submit(Descriptor { place: Place::InPlace, ..descriptor }, OwnedBuffers::InOut(buffer))
    }

    /// [`OnStream::reduce_scatter`] with a handle.
    #[track_caller]
    pub fn reduce_scatter_async<T: Element>(
        &self,
        input: DeviceSliceMut<'static, T>,
        output: DeviceSliceMut<'static, T>,
        op: ReduceOp,
    ) -> Work {
        let descriptor = reducing(Collective::ReduceScatter, T::DTYPE, output.len(), op);
        self.submit_separate(descriptor, Some(input), Some(output))
    }

    /// [`OnStream::all_gather`] with a handle.
    #[track_caller]
    pub fn all_gather_async<T: Element>(
        &self,
        input: DeviceSliceMut<'static, T>,
        output: DeviceSliceMut<'static, T>,
    ) -> Work {
        let descriptor = Descriptor::new(Collective::AllGather, T::DTYPE, input.len() as u64);
        self.submit_separate(descriptor, Some(input), Some(output))
    }

    /// [`OnStream::broadcast`] with a handle.
    #[track_caller]
    pub fn broadcast_async<T: Element>(&self, buffer: DeviceSliceMut<'static, T>, root: u32) -> Work {
        let descriptor = rooted(Collective::Broadcast, T::DTYPE, buffer.len(), root);
        let buffer = buffer.into_memory(None);
        self.submit(Descriptor { place: Place::InPlace, ..descriptor }, OwnedBuffers::InOut(buffer))
    }

    /// [`OnStream::all_to_all`] with a handle.
    #[track_caller]
    pub fn all_to_all_async<T: Element>(
        &self,
        input: DeviceSliceMut<'static, T>,
        output: DeviceSliceMut<'static, T>,
    ) -> Work {
        match share_of(self.comm, Collective::AllToAll, T::DTYPE, input.len(), "input") {
            Ok(part) => {
                let descriptor = Descriptor::new(Collective::AllToAll, T::DTYPE, part as u64);
                self.submit_separate(descriptor, Some(input), Some(output))
            }
            Err(error) => {
                let [input, output] = [input, output].map(|side| side.into_memory(None));
                let buffers = Some(OwnedBuffers::Separate { input, output });
                Work::finished(Finished { result: Err(error), buffers })
            }
        }
    }

    /// [`OnStream::reduce`] with a handle.
    #[track_caller]
    pub fn reduce_async<T: Element>(
        &self,
        input: DeviceSliceMut<'static, T>,
        output: Option<DeviceSliceMut<'static, T>>,
        op: ReduceOp,
        root: u32,
    ) -> Work {
        self.submit_separate(reducing_at(T::DTYPE, input.len(), op, root), Some(input), output)
    }

    /// [`OnStream::gather`] with a handle.
    #[track_caller]
    pub fn gather_async<T: Element>(
        &self,
        input: DeviceSliceMut<'static, T>,
        output: Option<DeviceSliceMut<'static, T>>,
        root: u32,
    ) -> Work {
        self.submit_separate(rooted(Collective::Gather, T::DTYPE, input.len(), root), Some(input), output)
    }

    /// [`OnStream::scatter`] with a handle.
    #[track_caller]
    pub fn scatter_async<T: Element>(
        &self,
        input: Option<DeviceSliceMut<'static, T>>,
        output: DeviceSliceMut<'static, T>,
        root: u32,
    ) -> Work {
        self.submit_separate(rooted(Collective::Scatter, T::DTYPE, output.len(), root), input, Some(output))
    }

    /// [`OnStream::barrier`] with a handle.
    #[track_caller]
    pub fn barrier_async(&self) -> Work {
        self.submit(Descriptor::new(Collective::Barrier, DType::U8, 0), OwnedBuffers::None)
    }

    /// [`OnStream::all_gather_v`] with a handle.
    #[track_caller]
    pub fn all_gather_v_async<T: Element>(
        &self,
        input: DeviceSliceMut<'static, T>,
        output: DeviceSliceMut<'static, T>,
        counts: &[usize],
    ) -> Work {
        let descriptor = Descriptor::new(Collective::AllGather, T::DTYPE, input.len() as u64);
        self.submit_uneven((descriptor, per_rank(counts)), Some(input), Some(output))
    }

    /// [`OnStream::reduce_scatter_v`] with a handle.
    #[track_caller]
    pub fn reduce_scatter_v_async<T: Element>(
        &self,
        input: DeviceSliceMut<'static, T>,
        output: DeviceSliceMut<'static, T>,
        counts: &[usize],
        op: ReduceOp,
    ) -> Work {
        let descriptor = reducing(Collective::ReduceScatter, T::DTYPE, output.len(), op);
        self.submit_uneven((descriptor, per_rank(counts)), Some(input), Some(output))
    }

    /// [`OnStream::gather_v`] with a handle.
    #[track_caller]
    pub fn gather_v_async<T: Element>(
        &self,
        input: DeviceSliceMut<'static, T>,
        output: Option<DeviceSliceMut<'static, T>>,
        counts: &[usize],
        root: u32,
    ) -> Work {
        let descriptor = rooted(Collective::Gather, T::DTYPE, input.len(), root);
        self.submit_uneven((descriptor, per_rank(counts)), Some(input), output)
    }

    /// [`OnStream::scatter_v`] with a handle.
    #[track_caller]
    pub fn scatter_v_async<T: Element>(
        &self,
        input: Option<DeviceSliceMut<'static, T>>,
        output: DeviceSliceMut<'static, T>,
        counts: &[usize],
        root: u32,
    ) -> Work {
        let descriptor = rooted(Collective::Scatter, T::DTYPE, own(self.comm, counts), root);
        self.submit_uneven((descriptor, per_rank(counts)), input, Some(output))
    }

    /// [`OnStream::all_to_all_v`] with a handle.
    #[track_caller]
    pub fn all_to_all_v_async<T: Element>(
        &self,
        input: DeviceSliceMut<'static, T>,
        send_counts: &[usize],
        output: DeviceSliceMut<'static, T>,
        receive_counts: &[usize],
    ) -> Work {
        let descriptor = Descriptor::new(Collective::AllToAll, T::DTYPE, input.len() as u64);
        let counts = Counts::PerPair { send: wide(send_counts), receive: wide(receive_counts) };
        self.submit_uneven((descriptor, counts), Some(input), Some(output))
    }

    /// [`OnStream::send`] with a handle.
    #[track_caller]
    pub fn send_async<T: Element>(&self, message: DeviceSliceMut<'static, T>, peer: impl Into<Peer>) -> Work {
        let descriptor = message_descriptor(Operation::Send, T::DTYPE, message.len(), peer.into(), TAG);
        self.submit_separate(descriptor, Some(message), None)
    }

    /// [`OnStream::recv`] with a handle.
    #[track_caller]
    pub fn recv_async<T: Element>(&self, buffer: DeviceSliceMut<'static, T>, peer: impl Into<Peer>) -> Work {
        let descriptor = message_descriptor(Operation::Recv, T::DTYPE, buffer.len(), peer.into(), TAG);
        self.submit_separate(descriptor, None, Some(buffer))
    }
}
