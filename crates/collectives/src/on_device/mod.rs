//! The typed operations on device memory, in the order of a stream.
//!
//! | file | contents |
//! | --- | --- |
//! | this one | [`OnStream`]: the collectives |
//! | `messages` | sends, receives, and batches of them ([`DeviceBatch`]) |
//! | `uneven` | counts that differ by rank |
//! | `lists` | lists of buffers |
//! | `handles` | calls that own their memory, with handles |

mod handles;
mod lists;
mod messages;
mod uneven;

use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, Communicator, Counts, DType, Descriptor, DeviceSlice, DeviceSliceMut,
    DeviceStream, Element, Outcome, Place, ReduceOp, Result,
};
use unisono_schedule::Collective;

use crate::arguments::{reducing, reducing_at, rooted, share_of};
use crate::collectives::Collectives;

pub use self::messages::DeviceBatch;

/// Typed calls on device memory, for every communicator whose backend reaches it.
pub trait CollectivesOnDevice: Communicator {
    /// The collectives in the order of `stream`, with the options of the communicator: `comm.with(options).on(stream)`.
    fn on(&self, stream: DeviceStream) -> OnStream<'_, Self> {
        OnStream { comm: self, stream }
    }
}

impl<C: Communicator + ?Sized> CollectivesOnDevice for C {}

/// The collectives in the order of a stream. A call returns when it is enqueued, and work behind it on the stream sees
/// its result. [`OnStream::wait`] waits on the host for the end of the call.
///
/// Lengths and errors are as on the host ([`Collectives`]). Besides, `Error::InvalidArgument` for memory or a
/// stream of another device, and `Error::Unsupported` from a backend for host memory.
///
/// | calls | where they are |
/// | --- | --- |
/// | collectives, even and uneven | here, each with a form with a handle (`_async`) |
/// | sends, receives, batches of them | here; messages with tags, from any rank, and probes on memory of the host |
/// | lists of buffers | here for all-reduce, all-gather, reduce-scatter, all-to-all; else [`DeviceBufferMut::list`] |
/// | calls in place on a buffer of shares, scan, exscan | a [`Call`], see [`DeviceBufferMut`] |
/// | shares of many buffers at once, objects, prepared and grouped calls | on memory of the host |
///
/// [`DeviceBufferMut`]: unisono_communicator::DeviceBufferMut
/// [`DeviceBufferMut::list`]: unisono_communicator::DeviceBufferMut::list
///
/// ```no_run
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*};
/// # pub mod call { pub use {unisono_collectives::*, unisono_communicator::*}; } }
/// use unisono::{Communicator, ReduceOp, Result};
/// use unisono::call::{CollectivesOnDevice, DeviceSliceMut, DeviceStream};
///
/// /// Adds up 1,000 gradients on device 0 over all ranks, and waits for the sums.
/// fn sum(comm: &dyn Communicator, gradients: usize, stream: usize) -> Result<()> {
///     // SAFETY: 1,000 f32 that live longer than the call, and that only work of `stream` uses.
///     let mut gradients = unsafe { DeviceSliceMut::<f32>::from_raw(gradients, 1000, 0) }?;
///     // SAFETY: a stream of device 0 that lives as long.
///     let stream = comm.on(unsafe { DeviceStream::from_raw(stream, 0) });
///     let enqueued = stream.all_reduce(&mut gradients, ReduceOp::Avg)?;
///     // Kernels that are enqueued here on the stream see the sums.
///     stream.wait(enqueued)?;
///     Ok(())
/// }
/// # let _ = sum;
/// ```
#[derive(Debug)]
pub struct OnStream<'c, C: ?Sized> {
    comm: &'c C,
    stream: DeviceStream,
}

impl<C: Communicator + ?Sized> OnStream<'_, C> {
    /// Waits for the end of a call.
    ///
    /// # Errors
    /// The late error of the call.
    pub fn wait(&self, enqueued: Outcome) -> Result<Outcome> {
        enqueued.ticket().map_or(Ok(enqueued), |ticket| self.comm.resolve(ticket))
    }

    #[track_caller]
    fn issue(&self, descriptor: Descriptor, buffers: Buffers<'_>) -> Result<Outcome> {
        self.comm.issue(Call { stream: Some(self.stream), ..Call::new(descriptor, buffers) })
    }

    #[track_caller]
    fn in_place<T: Element>(
        &self,
        descriptor: Descriptor,
        buffer: &mut DeviceSliceMut<'_, T>,
    ) -> Result<Outcome> {
        let descriptor = Descriptor { place: Place::InPlace, ..descriptor };
        self.issue(descriptor, Buffers::InOut(BufferMut::Device(buffer.buffer())))
    }

    #[track_caller]
    fn uneven<T: Element>(
        &self,
        (descriptor, counts): (Descriptor, Counts),
        input: Option<&DeviceSlice<'_, T>>,
        output: Option<&mut DeviceSliceMut<'_, T>>,
    ) -> Result<Outcome> {
        let input = input.map_or(Buffer::empty(), |input| Buffer::Device(input.buffer()));
        let output = output.map_or(BufferMut::empty(), |output| BufferMut::Device(output.buffer()));
        let call = Call::separate(Descriptor { uneven: true, ..descriptor }, input, output);
        self.comm.issue(Call { stream: Some(self.stream), counts, ..call })
    }

    #[track_caller]
    fn separate<T: Element>(
        &self,
        descriptor: Descriptor,
        input: Option<&DeviceSlice<'_, T>>,
        output: Option<&mut DeviceSliceMut<'_, T>>,
    ) -> Result<Outcome> {
        let input = input.map_or(Buffer::empty(), |input| Buffer::Device(input.buffer()));
        let output = output.map_or(BufferMut::empty(), |output| BufferMut::Device(output.buffer()));
        self.issue(descriptor, Buffers::Separate { input, output })
    }

    /// As [`Collectives::all_reduce`].
    #[track_caller]
    pub fn all_reduce<T: Element>(
        &self,
        buffer: &mut DeviceSliceMut<'_, T>,
        op: ReduceOp,
    ) -> Result<Outcome> {
        self.in_place(reducing(Collective::AllReduce, T::DTYPE, buffer.len(), op), buffer)
    }

    /// As [`Collectives::all_reduce_into`].
    #[track_caller]
    pub fn all_reduce_into<T: Element>(
        &self,
        input: &DeviceSlice<'_, T>,
        output: &mut DeviceSliceMut<'_, T>,
        op: ReduceOp,
    ) -> Result<Outcome> {
        let descriptor = reducing(Collective::AllReduce, T::DTYPE, input.len(), op);
        self.separate(descriptor, Some(input), Some(output))
    }

    /// As [`Collectives::reduce_scatter`].
    #[track_caller]
    pub fn reduce_scatter<T: Element>(
        &self,
        input: &DeviceSlice<'_, T>,
        output: &mut DeviceSliceMut<'_, T>,
        op: ReduceOp,
    ) -> Result<Outcome> {
        let descriptor = reducing(Collective::ReduceScatter, T::DTYPE, output.len(), op);
        self.separate(descriptor, Some(input), Some(output))
    }

    /// As [`Collectives::all_gather`].
    #[track_caller]
    pub fn all_gather<T: Element>(
        &self,
        input: &DeviceSlice<'_, T>,
        output: &mut DeviceSliceMut<'_, T>,
    ) -> Result<Outcome> {
        let descriptor = Descriptor::new(Collective::AllGather, T::DTYPE, input.len() as u64);
        self.separate(descriptor, Some(input), Some(output))
    }

    /// As [`Collectives::all_to_all`].
    #[track_caller]
    pub fn all_to_all<T: Element>(
        &self,
        input: &DeviceSlice<'_, T>,
        output: &mut DeviceSliceMut<'_, T>,
    ) -> Result<Outcome> {
        let part = share_of(self.comm, Collective::AllToAll, T::DTYPE, input.len(), "input")?;
        let descriptor = Descriptor::new(Collective::AllToAll, T::DTYPE, part as u64);
        self.separate(descriptor, Some(input), Some(output))
    }

    /// As [`Collectives::broadcast`].
    #[track_caller]
    pub fn broadcast<T: Element>(&self, buffer: &mut DeviceSliceMut<'_, T>, root: u32) -> Result<Outcome> {
        self.in_place(rooted(Collective::Broadcast, T::DTYPE, buffer.len(), root), buffer)
    }

    /// As [`Collectives::reduce`].
    #[track_caller]
    pub fn reduce<T: Element>(
        &self,
        input: &DeviceSlice<'_, T>,
        mut output: Option<DeviceSliceMut<'_, T>>,
        op: ReduceOp,
        root: u32,
    ) -> Result<Outcome> {
        self.separate(reducing_at(T::DTYPE, input.len(), op, root), Some(input), output.as_mut())
    }

    /// As [`Collectives::gather`].
    #[track_caller]
    pub fn gather<T: Element>(
        &self,
        input: &DeviceSlice<'_, T>,
        mut output: Option<DeviceSliceMut<'_, T>>,
        root: u32,
    ) -> Result<Outcome> {
        self.separate(rooted(Collective::Gather, T::DTYPE, input.len(), root), Some(input), output.as_mut())
    }

    /// As [`Collectives::scatter`].
    #[track_caller]
    pub fn scatter<T: Element>(
        &self,
        input: Option<DeviceSlice<'_, T>>,
        output: &mut DeviceSliceMut<'_, T>,
        root: u32,
    ) -> Result<Outcome> {
        let descriptor = rooted(Collective::Scatter, T::DTYPE, output.len(), root);
        self.separate(descriptor, input.as_ref(), Some(output))
    }

    /// As [`Collectives::barrier`]: work behind it on the stream starts when every rank's stream has reached the
    /// barrier.
    #[track_caller]
    pub fn barrier(&self) -> Result<Outcome> {
        self.issue(Descriptor::new(Collective::Barrier, DType::U8, 0), Buffers::none())
    }
}
