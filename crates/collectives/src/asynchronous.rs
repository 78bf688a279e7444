//! The asynchronous operations: they take owned buffers and return a handle.

use unisono_communicator::{
    CallOptions, Communicator, DType, Descriptor, Division, Element, Error, Finished, FromMemory, MemoryKind,
    Operation, Outcome, OwnedBuffer, OwnedBuffers, OwnedCall, OwnedMemory, Peer, Place, Received, ReduceOp,
    Result, Tag, TypedWork, Work, check, zeroed,
};
use unisono_schedule::Collective;

use crate::arguments::{message_descriptor, reducing, reducing_at, rooted, share_of};
use crate::collectives::Collectives;
use crate::skip::skip;

/// Operations that return at once. The vector moves in and comes back through the handle, so no call works on memory
/// that its caller may free. The handle also gives the error of a refused call.
///
/// Asynchronous and blocking calls follow one order of issue. If a rank has no memory for a call's output, the calls of
/// all ranks end, because the others would wait for it.
pub trait CollectivesAsync: Communicator {
    /// [`crate::Collectives::all_reduce`]; the handle gives the reduced vector.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesAsync, ReduceOp, Solo};
    /// let work = Solo::new().all_reduce_async(vec![1.0f32, 2.0], ReduceOp::Sum);
    /// assert_eq!(work.wait()?, [1.0, 2.0]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_reduce_async<T: Element>(&self, buffer: Vec<T>, op: ReduceOp) -> TypedWork<Vec<T>> {
        let descriptor = reducing(Collective::AllReduce, T::DTYPE, buffer.len(), op);
        in_place(self, without_memory(descriptor), OwnedMemory::of(buffer))
    }

    /// [`crate::Collectives::all_reduce_coalesced`]; the handle gives the list of reduced vectors.
    ///
    /// ```text
    /// rank                  0             1             2             3
    /// weights, biases       [1, 2] [5]    [1, 2] [6]    [1, 2] [7]    [1, 2] [8]
    /// of the handle, Sum    [4, 8] [26]   [4, 8] [26]   [4, 8] [26]   [4, 8] [26]
    /// ```
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesAsync, ReduceOp, Solo};
    /// let (weights, biases) = (vec![1.0f32; 6], vec![2.0f32; 2]);
    /// let work = Solo::new().all_reduce_coalesced_async(vec![weights, biases], ReduceOp::Sum);
    /// assert_eq!(work.wait()?, [vec![1.0; 6], vec![2.0; 2]]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_reduce_coalesced_async<T: Element>(
        &self,
        buffers: Vec<Vec<T>>,
        op: ReduceOp,
    ) -> TypedWork<Vec<Vec<T>>> {
        let count = buffers.iter().map(Vec::len).sum();
        let descriptor = reducing(Collective::AllReduce, T::DTYPE, count, op);
        in_place(self, without_memory(descriptor), OwnedMemory::of_list(buffers, Division::Coalesced))
    }

    /// [`crate::Collectives::reduce_scatter_list`]: `inputs[r]` goes to rank r; the handle gives this rank's share.
    #[track_caller]
    fn reduce_scatter_list_async<T: Element>(&self, inputs: Vec<Vec<T>>, op: ReduceOp) -> TypedWork<Vec<T>> {
        let share = inputs.get(self.group().rank() as usize).map_or(0, Vec::len);
        let descriptor = reducing(Collective::ReduceScatter, T::DTYPE, share, op);
        let inputs = OwnedMemory::of_list(inputs, Division::Shares);
        separate(self, without_memory(descriptor), inputs, vector::<T>(share))
    }

    /// [`crate::Collectives::all_gather_list`]; the handle gives a vector for each rank.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CollectivesAsync, Solo};
    /// assert_eq!(Solo::new().all_gather_list_async(vec![7u8, 8]).wait()?, [[7, 8]]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn all_gather_list_async<T: Element>(&self, input: Vec<T>) -> TypedWork<Vec<Vec<T>>> {
        let (count, ranks) = (input.len(), self.group().size());
        let descriptor = Descriptor::new(Collective::AllGather, T::DTYPE, count as u64);
        let outputs = vectors::<T>((0..ranks).map(move |_| count), Division::Shares);
        separate(self, without_memory(descriptor), OwnedMemory::of(input), outputs)
    }

    /// [`crate::Collectives::reduce_scatter`]. `input` has p shares; the handle gives this rank's share of the
    /// reduction.
    #[track_caller]
    fn reduce_scatter_async<T: Element>(&self, input: Vec<T>, op: ReduceOp) -> TypedWork<Vec<T>> {
        match share_of(self, Collective::ReduceScatter, T::DTYPE, input.len(), "input") {
            Ok(share) => {
                let call = without_memory(reducing(Collective::ReduceScatter, T::DTYPE, share, op));
                separate(self, call, OwnedMemory::of(input), vector::<T>(share))
            }
            Err(error) => TypedWork::new(refused(OwnedMemory::of(input), error), output),
        }
    }

    /// [`crate::Collectives::reduce_scatter_in_place`]; the handle gives the buffer, in which share r is the result.
    #[track_caller]
    fn reduce_scatter_in_place_async<T: Element>(&self, buffer: Vec<T>, op: ReduceOp) -> TypedWork<Vec<T>> {
        match share_of(self, Collective::ReduceScatter, T::DTYPE, buffer.len(), "buffer") {
            Ok(share) => {
                let call = without_memory(reducing(Collective::ReduceScatter, T::DTYPE, share, op));
                in_place(self, call, OwnedMemory::of(buffer))
            }
            Err(error) => TypedWork::new(refused(OwnedMemory::of(buffer), error), output),
        }
    }

    /// [`crate::Collectives::all_gather_in_place`]; the handle gives the filled buffer.
    #[track_caller]
    fn all_gather_in_place_async<T: Element>(&self, buffer: Vec<T>) -> TypedWork<Vec<T>> {
        moved_in_place(self, Collective::AllGather, buffer)
    }

    /// [`crate::Collectives::all_gather`]; the handle gives all inputs in rank order.
    #[track_caller]
    fn all_gather_async<T: Element>(&self, input: Vec<T>) -> TypedWork<Vec<T>> {
        let output = input.len() * self.group().size() as usize;
        let call = without_memory(Descriptor::new(Collective::AllGather, T::DTYPE, input.len() as u64));
        separate(self, call, OwnedMemory::of(input), vector::<T>(output))
    }

    /// [`crate::Collectives::all_to_all`].
    #[track_caller]
    fn all_to_all_async<T: Element>(&self, input: Vec<T>) -> TypedWork<Vec<T>> {
        let elements = input.len();
        match share_of(self, Collective::AllToAll, T::DTYPE, elements, "input") {
            Ok(share) => {
                let descriptor = Descriptor::new(Collective::AllToAll, T::DTYPE, share as u64);
                separate(self, without_memory(descriptor), OwnedMemory::of(input), vector::<T>(elements))
            }
            Err(error) => TypedWork::new(refused(OwnedMemory::of(input), error), output),
        }
    }

    /// [`crate::Collectives::all_to_all_in_place`]; the handle gives the exchanged buffer.
    #[track_caller]
    fn all_to_all_in_place_async<T: Element>(&self, buffer: Vec<T>) -> TypedWork<Vec<T>> {
        moved_in_place(self, Collective::AllToAll, buffer)
    }

    /// [`crate::Collectives::broadcast`].
    #[track_caller]
    fn broadcast_async<T: Element>(&self, buffer: Vec<T>, root: u32) -> TypedWork<Vec<T>> {
        let descriptor = rooted(Collective::Broadcast, T::DTYPE, buffer.len(), root);
        in_place(self, without_memory(descriptor), OwnedMemory::of(buffer))
    }

    /// [`crate::Collectives::reduce`]; the handle gives the reduction at the root, an empty vector elsewhere.
    #[track_caller]
    fn reduce_async<T: Element>(&self, input: Vec<T>, op: ReduceOp, root: u32) -> TypedWork<Vec<T>> {
        let output = if self.group().rank() == root { input.len() } else { 0 };
        let descriptor = reducing_at(T::DTYPE, input.len(), op, root);
        separate(self, without_memory(descriptor), OwnedMemory::of(input), vector::<T>(output))
    }

    /// [`crate::Collectives::reduce_in_place`]; the handle gives the buffer, which is the reduction at the root.
    #[track_caller]
    fn reduce_in_place_async<T: Element>(
        &self,
        buffer: Vec<T>,
        op: ReduceOp,
        root: u32,
    ) -> TypedWork<Vec<T>> {
        let descriptor = reducing_at(T::DTYPE, buffer.len(), op, root);
        if self.group().rank() == root {
            return in_place(self, without_memory(descriptor), OwnedMemory::of(buffer));
        }
        let buffers = OwnedBuffers::Separate {
            input: OwnedMemory::of(buffer),
            output: OwnedMemory::of(Vec::<T>::new()),
        };
        TypedWork::new(submit(self, descriptor, buffers), input)
    }

    /// [`crate::Collectives::gather`]; the handle gives all inputs at the root, an empty vector elsewhere.
    #[track_caller]
    fn gather_async<T: Element>(&self, input: Vec<T>, root: u32) -> TypedWork<Vec<T>> {
        let ranks = if self.group().rank() == root { self.group().size() as usize } else { 0 };
        let output = input.len() * ranks;
        let call = without_memory(rooted(Collective::Gather, T::DTYPE, input.len(), root));
        separate(self, call, OwnedMemory::of(input), vector::<T>(output))
    }

    /// [`crate::Collectives::scatter`] of shares of `count` elements; `input` is empty except at the root.
    #[track_caller]
    fn scatter_async<T: Element>(&self, input: Vec<T>, count: usize, root: u32) -> TypedWork<Vec<T>> {
        let call = without_memory(rooted(Collective::Scatter, T::DTYPE, count, root));
        separate(self, call, OwnedMemory::of(input), vector::<T>(count))
    }

    /// [`crate::Collectives::barrier`].
    #[track_caller]
    fn barrier_async(&self) -> TypedWork<()> {
        let descriptor = Descriptor::new(Collective::Barrier, DType::U8, 0);
        TypedWork::new(submit(self, descriptor, OwnedBuffers::None), |_, _| ())
    }

    /// [`crate::Collectives::send`]; the handle gives the message back.
    #[track_caller]
    fn send_async<T: Element>(&self, message: Vec<T>, peer: impl Into<Peer>, tag: u32) -> TypedWork<Vec<T>> {
        let descriptor =
            message_descriptor(Operation::Send, T::DTYPE, message.len(), peer.into(), tag.into());
        let buffers = OwnedBuffers::Separate {
            input: OwnedMemory::of(message),
            output: OwnedMemory::of(Vec::<T>::new()),
        };
        TypedWork::new(submit(self, descriptor, buffers), input)
    }

    /// [`crate::Collectives::recv`]; the handle gives the buffer, and the source, tag and length of the message.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, CollectivesAsync, Peer, Solo};
    /// let comm = Solo::new();
    /// comm.send(&[1u8, 2], 0, 7)?;
    /// let (buffer, received) = comm.recv_async(vec![0u8; 4], Peer::Any, 7).wait()?;
    /// assert_eq!((received.source, &buffer[..received.count]), (Some(0), &[1, 2][..]));
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn recv_async<T: Element>(
        &self,
        buffer: Vec<T>,
        peer: impl Into<Peer>,
        tag: impl Into<Tag>,
    ) -> TypedWork<(Vec<T>, Received)> {
        let descriptor = message_descriptor(Operation::Recv, T::DTYPE, buffer.len(), peer.into(), tag.into());
        let buffers = OwnedBuffers::Separate {
            input: OwnedMemory::of(Vec::<T>::new()),
            output: OwnedMemory::of(buffer),
        };
        let take = |outcome: &Outcome, buffers| (output(outcome, buffers), Received::of(outcome, T::DTYPE));
        TypedWork::new(submit(self, descriptor, buffers), take)
    }

    /// [`crate::CollectivesOfObjects::recv_vec`]; the handle gives the message, and its source, tag and length.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{Collectives, CollectivesAsync, Peer, Solo};
    /// let comm = Solo::new();
    /// let work = comm.recv_vec_async::<u8>(Peer::Any, 7);
    /// comm.send(&[1u8, 2], 0, 7)?;
    /// assert_eq!(work.wait()?.0, [1, 2]);
    /// # Ok::<(), unisono::Error>(())
    /// ```
    #[track_caller]
    fn recv_vec_async<T: Element>(
        &self,
        peer: impl Into<Peer>,
        tag: impl Into<Tag>,
    ) -> TypedWork<(Vec<T>, Received)> {
        message_of_any_length(self, peer.into(), tag.into(), u64::MAX, CallOptions::new())
    }

    /// Any call, made by hand: lists, uneven counts, options, memory that stays where it is
    /// ([`OwnedBuffer::from_raw`]). The handle gives the error of a bad argument.
    fn start(&self, call: OwnedCall) -> Work {
        checked(self, call)
    }
}

impl<C: Communicator + ?Sized> CollectivesAsync for C {}

/// Starts a call that moves shares within one buffer.
#[track_caller]
fn moved_in_place<T: Element, C: Communicator + ?Sized>(
    comm: &C,
    collective: Collective,
    buffer: Vec<T>,
) -> TypedWork<Vec<T>> {
    match share_of(comm, collective, T::DTYPE, buffer.len(), "buffer") {
        Ok(share) => {
            let call = without_memory(Descriptor::new(collective, T::DTYPE, share as u64));
            in_place(comm, call, OwnedMemory::of(buffer))
        }
        Err(error) => TypedWork::new(refused(OwnedMemory::of(buffer), error), output),
    }
}

/// Starts a call on one buffer; `call` has no memory yet.
pub(super) fn in_place<R: FromMemory, C: Communicator + ?Sized>(
    comm: &C,
    call: OwnedCall,
    buffer: OwnedMemory,
) -> TypedWork<R> {
    let descriptor = Descriptor { place: Place::InPlace, ..call.descriptor };
    TypedWork::new(
        checked(comm, OwnedCall { descriptor, buffers: OwnedBuffers::InOut(buffer), ..call }),
        output,
    )
}

/// Starts a call from one buffer to another, which is `made` for it; `call` has no memory yet.
pub(super) fn separate<R: FromMemory, C: Communicator + ?Sized>(
    comm: &C,
    call: OwnedCall,
    input: OwnedMemory,
    made: impl FnOnce() -> Result<OwnedMemory>,
) -> TypedWork<R> {
    let work = match made() {
        Ok(output) => checked(comm, OwnedCall { buffers: OwnedBuffers::Separate { input, output }, ..call }),
        Err(shortage) => short_of_memory(comm, call, input, shortage),
    };
    TypedWork::new(work, output)
}

/// The end of a call that has no memory for its output.
fn short_of_memory<C: Communicator + ?Sized>(
    comm: &C,
    call: OwnedCall,
    input: OwnedMemory,
    shortage: Error,
) -> Work {
    let buffers = OwnedBuffers::Separate { input, output: OwnedMemory::of(Vec::<u8>::new()) };
    let mut call = OwnedCall { buffers, ..call };
    let error = match check(&call.borrow(), comm.group()) {
        Err(error) if !matches!(error, Error::InvalidArgument { argument: "output", .. }) => error,
        Ok(()) | Err(_) => end_everywhere(comm, &call.descriptor, &call.options, shortage),
    };
    Work::refused(call, error)
}

/// Elements in one vector, as the output of a call.
pub(super) fn vector<T: Element>(elements: usize) -> impl FnOnce() -> Result<OwnedMemory> {
    move || zeroed::<T>(elements).map(OwnedMemory::of)
}

/// A vector for each length, as the output of a call.
pub(super) fn vectors<T: Element>(
    lengths: impl IntoIterator<Item = usize>,
    division: Division,
) -> impl FnOnce() -> Result<OwnedMemory> {
    move || {
        let vectors = lengths.into_iter().map(zeroed::<T>).collect::<Result<Vec<_>>>()?;
        Ok(OwnedMemory::of_list(vectors, division))
    }
}

/// A call that has no memory yet.
#[track_caller]
pub(super) fn without_memory(descriptor: Descriptor) -> OwnedCall {
    OwnedCall::new(descriptor, OwnedBuffers::None)
}

/// A receive of a message of at most `bytes_max` bytes, whose memory is taken when the message is known.
#[track_caller]
pub(super) fn message_of_any_length<T: Element, C: Communicator + ?Sized>(
    comm: &C,
    peer: Peer,
    tag: Tag,
    bytes_max: u64,
    options: CallOptions,
) -> TypedWork<(Vec<T>, Received)> {
    let buffers = OwnedBuffers::Separate {
        input: OwnedMemory::of(Vec::<T>::new()),
        output: OwnedMemory::One(OwnedBuffer::for_message::<T>(bytes_max)),
    };
    let take = |outcome: &Outcome, buffers| {
        let received = Received::of(outcome, T::DTYPE);
        let mut message: Vec<T> = output(outcome, buffers);
        message.truncate(received.count);
        (message, received)
    };
    let descriptor = message_descriptor(Operation::Recv, T::DTYPE, 0, peer, tag);
    let call = OwnedCall { options, ..OwnedCall::new(descriptor, buffers) };
    TypedWork::new(checked(comm, call), take)
}

/// The handle of a call that was refused before it was made. Its memory comes back.
pub(super) fn refused(input: OwnedMemory, error: Error) -> Work {
    let buffers = Some(OwnedBuffers::Separate { input, output: OwnedMemory::of(Vec::<u8>::new()) });
    Work::finished(Finished { result: Err(error), buffers })
}

/// The input of a call that has ended.
pub(super) fn input<R: FromMemory>(_: &Outcome, buffers: Option<OwnedBuffers>) -> R {
    let memory = match buffers {
        Some(OwnedBuffers::InOut(memory) | OwnedBuffers::Separate { input: memory, .. }) => Some(memory),
        Some(OwnedBuffers::None) | None => None,
    };
    memory.and_then(R::from_memory).unwrap_or_default()
}

/// The output of a call that has ended, or the buffer that was input and output.
pub(super) fn output<R: FromMemory>(_: &Outcome, buffers: Option<OwnedBuffers>) -> R {
    let memory = match buffers {
        Some(OwnedBuffers::InOut(memory) | OwnedBuffers::Separate { output: memory, .. }) => Some(memory),
        Some(OwnedBuffers::None) | None => None,
    };
    memory.and_then(R::from_memory).unwrap_or_default()
}

/// Ends every call on every rank when this rank has no memory for its output, since the others would wait for it. Gives
/// the error of the call. A call that would be refused anyway ends nothing.
pub(super) fn end_everywhere<C: Communicator + ?Sized>(
    comm: &C,
    descriptor: &Descriptor,
    options: &CallOptions,
    shortage: Error,
) -> Error {
    if let Err(refused) = comm.supports(descriptor, options, MemoryKind::Host) {
        return refused;
    }
    match comm.revoke(shortage.clone()) {
        // The first cause, which may be an earlier error.
        Ok(()) => comm.with(CallOptions::new().needed()).barrier().err().unwrap_or(shortage),
        // `revoke` is not supported, so there is no other rank to tell.
        Err(_) => shortage,
    }
}

#[track_caller]
pub(super) fn submit<C: Communicator + ?Sized>(
    comm: &C,
    descriptor: Descriptor,
    buffers: OwnedBuffers,
) -> Work {
    checked(comm, OwnedCall::new(descriptor, buffers))
}

fn checked<C: Communicator + ?Sized>(comm: &C, mut call: OwnedCall) -> Work {
    call.descriptor.label = call.descriptor.label.or(call.options.label);
    match check(&call.borrow(), comm.group()).and_then(|()| check_dtype(&call)) {
        Ok(()) => match skip(comm, &call.descriptor, &call.options) {
            None => comm.submit(call),
            Some(result) => {
                let result = result.map_err(|error| error.in_call(&call));
                Work::finished(Finished { result, buffers: Some(call.buffers) })
            }
        },
        Err(error) => Work::refused(call, error),
    }
}

/// Refuses buffers of another element type than the descriptor's.
fn check_dtype(call: &OwnedCall) -> Result<()> {
    let dtype = call.descriptor.dtype;
    match call.buffers.other_dtype(dtype) {
        Some(other) => Err(Error::invalid("dtype", format!("{dtype}, but a buffer has elements of {other}"))),
        None => Ok(()),
    }
}
