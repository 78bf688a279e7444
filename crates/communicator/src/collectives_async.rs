//! The asynchronous operations: they take owned buffers and return a handle.

use unisono_schedule::Collective;

use crate::allocation::zeroed;
use crate::buffer::{OwnedBuffer, OwnedBuffers};
use crate::call::{CallOptions, Counts, OwnedCall};
use crate::check::check;
use crate::collectives::{point_to_point, reducing, rooted, share_of};
use crate::communicator::Communicator;
use crate::descriptor::{Descriptor, Peer, Place};
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::operation::Operation;
use crate::reduce_op::ReduceOp;
use crate::site::Site;
use crate::work::{Finished, TypedWork, Work};

/// Operations that return at once. The vector moves in and comes back from the handle, so that no call works on
/// memory that its caller may free.
///
/// Asynchronous and blocking calls happen in the order of issue.
pub trait CollectivesAsync: Communicator {
    /// [`crate::Collectives::all_reduce`]; the handle gives the reduced vector.
    ///
    /// ```
    /// use unisono_communicator::{CollectivesAsync, ReduceOp, Solo};
    /// let work = Solo::new().all_reduce_async(vec![1.0f32, 2.0], ReduceOp::Sum);
    /// assert_eq!(work.wait()?, [1.0, 2.0]);
    /// # Ok::<(), unisono_communicator::Error>(())
    /// ```
    #[track_caller]
    fn all_reduce_async<T: Element>(&self, buffer: Vec<T>, op: ReduceOp) -> TypedWork<T> {
        in_place(self, reducing(Collective::AllReduce, T::DTYPE, buffer.len(), op), buffer)
    }

    /// [`crate::Collectives::reduce_scatter`]; `input` has p shares, the handle gives this rank's.
    #[track_caller]
    fn reduce_scatter_async<T: Element>(&self, input: Vec<T>, op: ReduceOp) -> Result<TypedWork<T>> {
        let share = share_of(self, input.len(), "input")?;
        Ok(separate(self, reducing(Collective::ReduceScatter, T::DTYPE, share, op), input, share))
    }

    /// [`crate::Collectives::all_gather`]; the handle gives all inputs in rank order.
    #[track_caller]
    fn all_gather_async<T: Element>(&self, input: Vec<T>) -> TypedWork<T> {
        let output = input.len() * self.group().size() as usize;
        separate(self, Descriptor::new(Collective::AllGather, T::DTYPE, input.len() as u64), input, output)
    }

    /// [`crate::Collectives::all_to_all`].
    #[track_caller]
    fn all_to_all_async<T: Element>(&self, input: Vec<T>) -> Result<TypedWork<T>> {
        let share = share_of(self, input.len(), "input")?;
        let output = input.len();
        Ok(separate(self, Descriptor::new(Collective::AllToAll, T::DTYPE, share as u64), input, output))
    }

    /// [`crate::Collectives::broadcast`].
    #[track_caller]
    fn broadcast_async<T: Element>(&self, buffer: Vec<T>, root: u32) -> TypedWork<T> {
        in_place(self, rooted(Collective::Broadcast, T::DTYPE, buffer.len(), root), buffer)
    }

    /// [`crate::Collectives::reduce`]; the handle gives the reduction at the root, an empty vector elsewhere.
    #[track_caller]
    fn reduce_async<T: Element>(&self, input: Vec<T>, op: ReduceOp, root: u32) -> TypedWork<T> {
        let output = if self.group().rank() == root { input.len() } else { 0 };
        let descriptor =
            Descriptor { op: Some(op), ..rooted(Collective::Reduce, T::DTYPE, input.len(), root) };
        separate(self, descriptor, input, output)
    }

    /// [`crate::Collectives::gather`]; the handle gives all inputs at the root, an empty vector elsewhere.
    #[track_caller]
    fn gather_async<T: Element>(&self, input: Vec<T>, root: u32) -> TypedWork<T> {
        let ranks = if self.group().rank() == root { self.group().size() as usize } else { 0 };
        let output = input.len() * ranks;
        separate(self, rooted(Collective::Gather, T::DTYPE, input.len(), root), input, output)
    }

    /// [`crate::Collectives::scatter`] of shares of `count` elements; `input` is empty except at the root.
    #[track_caller]
    fn scatter_async<T: Element>(&self, input: Vec<T>, count: usize, root: u32) -> TypedWork<T> {
        separate(self, rooted(Collective::Scatter, T::DTYPE, count, root), input, count)
    }

    /// [`crate::Collectives::barrier`].
    #[track_caller]
    fn barrier_async(&self) -> Work {
        let descriptor = Descriptor::new(Collective::Barrier, DType::U8, 0);
        submit(self, descriptor, OwnedBuffers::None)
    }

    /// [`crate::Collectives::send`]; the handle gives the message back.
    #[track_caller]
    fn send_async<T: Element>(&self, message: Vec<T>, peer: u32, tag: u32) -> Work {
        let descriptor = point_to_point(Operation::Send, T::DTYPE, message.len(), Peer::Rank(peer), tag);
        let buffers = OwnedBuffers::Separate {
            input: OwnedBuffer::new(message),
            output: OwnedBuffer::new(Vec::<T>::new()),
        };
        submit(self, descriptor, buffers)
    }

    /// [`crate::Collectives::recv`]; the outcome in [`Finished`] has source, tag and bytes.
    #[track_caller]
    fn recv_async<T: Element>(&self, buffer: Vec<T>, peer: Peer, tag: u32) -> Work {
        let descriptor = point_to_point(Operation::Recv, T::DTYPE, buffer.len(), peer, tag);
        let buffers = OwnedBuffers::Separate {
            input: OwnedBuffer::new(Vec::<T>::new()),
            output: OwnedBuffer::new(buffer),
        };
        submit(self, descriptor, buffers)
    }
}

impl<C: Communicator + ?Sized> CollectivesAsync for C {}

#[track_caller]
fn in_place<T: Element, C: Communicator + ?Sized>(
    comm: &C,
    descriptor: Descriptor,
    buffer: Vec<T>,
) -> TypedWork<T> {
    let descriptor = Descriptor { place: Place::InPlace, ..descriptor };
    TypedWork::new(submit(comm, descriptor, OwnedBuffers::InOut(OwnedBuffer::new(buffer))))
}

#[track_caller]
fn separate<T: Element, C: Communicator + ?Sized>(
    comm: &C,
    descriptor: Descriptor,
    input: Vec<T>,
    output_elements: usize,
) -> TypedWork<T> {
    let buffers =
        |output| OwnedBuffers::Separate { input: OwnedBuffer::new(input), output: OwnedBuffer::new(output) };
    TypedWork::new(match zeroed::<T>(output_elements) {
        Ok(output) => submit(comm, descriptor, buffers(output)),
        Err(error) => Work::finished(Finished { result: Err(error), buffers: Some(buffers(Vec::new())) }),
    })
}

#[track_caller]
fn submit<C: Communicator + ?Sized>(comm: &C, descriptor: Descriptor, buffers: OwnedBuffers) -> Work {
    let mut call = OwnedCall {
        descriptor,
        buffers,
        counts: Counts::Even,
        options: CallOptions::default(),
        user_function: None,
        site: Site::caller(),
    };
    match check(&call.borrow(), comm.group()) {
        Ok(()) => comm.submit(call),
        Err(error) => Work::finished(Finished { result: Err(error), buffers: Some(call.buffers) }),
    }
}
