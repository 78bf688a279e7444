//! Messages between two ranks on device memory, in the order of a stream.

use unisono_communicator::{
    Buffer, BufferMut, Call, Communicator, DeviceSlice, DeviceSliceMut, DeviceStream, Element, Operation,
    Outcome, Peer, Result, Tag,
};

use super::OnStream;
use crate::arguments::message_descriptor;
use crate::collectives::Collectives;
use crate::point_to_point::exchange_as_one;

/// The one tag of messages on a device: libraries have none.
pub(super) const TAG: Tag = Tag::Is(0);

impl<C: Communicator + ?Sized> OnStream<'_, C> {
    /// Sends `message` to `peer`, a rank or [`Peer::None`], when the stream comes to it; work behind it may overwrite
    /// the message. Messages of a pair have no tags, and match in their order.
    ///
    /// Two ranks that send to each other use [`OnStream::exchange`], since a send may wait for its receive on the
    /// stream. Nothing compares messages on devices: a message may be damaged, or end by its deadline, if the other
    /// rank does not receive it, or receives another length.
    ///
    /// # Errors
    /// As [`OnStream`]; [`Error::Unsupported`] from a library without grouped messages; [`Error::InvalidArgument`] for
    /// the own rank, whose messages need both ends in one batch.
    ///
    /// [`Error::Unsupported`]: unisono_communicator::Error::Unsupported
    /// [`Error::InvalidArgument`]: unisono_communicator::Error::InvalidArgument
    #[track_caller]
    pub fn send<T: Element>(&self, message: &DeviceSlice<'_, T>, peer: impl Into<Peer>) -> Result<Outcome> {
        self.comm.issue(send_call(message, peer.into(), self.stream))
    }

    /// Receives the next message of `peer`, a rank or [`Peer::None`], as long as `buffer`.
    ///
    /// # Errors
    /// As [`OnStream::send`]; [`Error::Unsupported`] also for [`Peer::Any`].
    ///
    /// [`Error::Unsupported`]: unisono_communicator::Error::Unsupported
    #[track_caller]
    pub fn recv<T: Element>(
        &self,
        buffer: &mut DeviceSliceMut<'_, T>,
        peer: impl Into<Peer>,
    ) -> Result<Outcome> {
        self.comm.issue(recv_call(buffer, peer.into(), self.stream))
    }

    /// Enqueues all sends and receives of a batch as one group of the library: they cannot wait for each other, in
    /// any order of the list. The outcome has one ticket for all. A batch of nobody's messages, or
    /// without any, is done at once.
    ///
    /// ```no_run
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*};
    /// # pub mod call { pub use {unisono_collectives::*, unisono_communicator::*}; } }
    /// use unisono::{Communicator, Result};
    /// use unisono::call::{DeviceBatch, DeviceSlice, DeviceSliceMut, OnStream};
    ///
    /// /// Gives activations to the next stage of a pipeline, and takes activations of the stage before.
    /// fn pass<C: Communicator>(
    ///     on: &OnStream<'_, C>,
    ///     (rank, ranks): (u32, u32),
    ///     own: &DeviceSlice<'_, f32>,
    ///     next: &mut DeviceSliceMut<'_, f32>,
    /// ) -> Result<()> {
    ///     let mut batch = DeviceBatch::new();
    ///     batch.send(own, (rank + 1) % ranks).recv(next, (rank + ranks - 1) % ranks);
    ///     let enqueued = on.exchange(batch)?;
    ///     // Kernels that are enqueued here see the activations.
    ///     on.wait(enqueued).map(drop)
    /// }
    /// # let _ = pass::<unisono::Solo>;
    /// ```
    ///
    /// # Errors
    /// As [`OnStream::send`], for one of them, and none starts.
    #[doc(alias = "batch_isend_irecv")]
    pub fn exchange(&self, batch: DeviceBatch<'_>) -> Result<Outcome> {
        let mut calls = batch.calls;
        calls.iter_mut().for_each(|call| call.stream = Some(self.stream));
        exchange_as_one(self.comm, &mut calls)
    }
}

/// Sends and receives that [`OnStream::exchange`] enqueues together.
#[derive(Default)]
pub struct DeviceBatch<'a> {
    calls: Vec<Call<'a>>,
}

impl<'a> DeviceBatch<'a> {
    /// An empty batch.
    pub fn new() -> DeviceBatch<'a> {
        DeviceBatch::default()
    }

    /// Adds a send; see [`OnStream::send`].
    #[track_caller]
    pub fn send<T: Element>(
        &mut self,
        message: &'a DeviceSlice<'_, T>,
        peer: impl Into<Peer>,
    ) -> &mut DeviceBatch<'a> {
        self.calls.push(send_call(message, peer.into(), None));
        self
    }

    /// Adds a receive; see [`OnStream::recv`].
    #[track_caller]
    pub fn recv<T: Element>(
        &mut self,
        buffer: &'a mut DeviceSliceMut<'_, T>,
        peer: impl Into<Peer>,
    ) -> &mut DeviceBatch<'a> {
        self.calls.push(recv_call(buffer, peer.into(), None));
        self
    }
}

#[track_caller]
fn send_call<'a, T: Element>(
    message: &'a DeviceSlice<'_, T>,
    peer: Peer,
    stream: impl Into<Option<DeviceStream>>,
) -> Call<'a> {
    let descriptor = message_descriptor(Operation::Send, T::DTYPE, message.len(), peer, TAG);
    let call = Call::separate(descriptor, Buffer::Device(message.buffer()), BufferMut::empty());
    Call { stream: stream.into(), ..call }
}

#[track_caller]
fn recv_call<'a, T: Element>(
    buffer: &'a mut DeviceSliceMut<'_, T>,
    peer: Peer,
    stream: impl Into<Option<DeviceStream>>,
) -> Call<'a> {
    let descriptor = message_descriptor(Operation::Recv, T::DTYPE, buffer.len(), peer, TAG);
    let call = Call::separate(descriptor, Buffer::empty(), BufferMut::Device(buffer.buffer()));
    Call { stream: stream.into(), ..call }
}
