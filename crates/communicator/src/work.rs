//! Handles of asynchronous calls: to wait, to ask whether they have ended, to await, to cancel.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use crate::buffer::{OwnedBuffer, OwnedBuffers};
use crate::call::Outcome;
use crate::dtype::Element;
use crate::error::{Error, Result};

/// What a finished asynchronous call gives back.
pub struct Finished {
    /// The call's result.
    pub result: Result<Outcome>,
    /// The buffers that moved in; `None` when a vendor library still holds them.
    pub buffers: Option<OwnedBuffers>,
}

/// A backend's side of a [`Work`].
pub trait WorkSource: Send + Sync {
    /// Whether the call has ended, in success or failure. Never blocks; may advance the call.
    fn is_done(&self) -> bool;
    /// Blocks until the call has ended.
    fn wait(&self);
    /// Wakes `waker` when the call has ended. Only the last waker counts.
    fn register(&self, waker: &Waker);
    /// Takes the result, once, after the call has ended.
    fn take(&self) -> Option<Finished>;
    /// Revokes the communicator with [`Error::Cancelled`], unless the call has ended.
    fn cancel(&self);
}

/// The handle of an asynchronous call.
///
/// Dropping it detaches the call: it goes on, and its buffers are freed at its end. [`Work::cancel`] revokes the
/// communicator, since the other ranks cannot go on without this one.
pub struct Work {
    source: Box<dyn WorkSource>,
}

impl Work {
    /// A handle for a backend's call.
    pub fn new(source: impl WorkSource + 'static) -> Work {
        Work { source: Box::new(source) }
    }

    /// A call that ended before it was returned.
    pub fn finished(finished: Finished) -> Work {
        Work::new(Ready(Mutex::new(Some(finished))))
    }

    /// Whether the call has ended. Does not block.
    pub fn is_done(&self) -> bool {
        self.source.is_done()
    }

    /// Blocks until the call has ended; the calling thread does the work.
    pub fn wait(self) -> Finished {
        self.source.wait();
        self.take()
    }

    /// Revokes the communicator unless the call has ended.
    pub fn cancel(&self) {
        self.source.cancel();
    }

    fn take(&self) -> Finished {
        self.source.take().unwrap_or(Finished { result: Err(Error::Closed), buffers: None })
    }
}

impl Future for Work {
    type Output = Finished;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Finished> {
        // The waker is registered before the check: a call that ends between the two still wakes it.
        self.source.register(context.waker());
        if self.source.is_done() { Poll::Ready(self.take()) } else { Poll::Pending }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Work(done: {})", self.is_done())
    }
}

struct Ready(Mutex<Option<Finished>>);

impl WorkSource for Ready {
    fn is_done(&self) -> bool {
        true
    }

    fn wait(&self) {}

    fn register(&self, _waker: &Waker) {}

    fn take(&self) -> Option<Finished> {
        self.0.lock().ok().and_then(|mut finished| finished.take())
    }

    fn cancel(&self) {}
}

/// A [`Work`] whose result is a vector of `T`: the output, or the buffer that was input and output.
///
/// The vector comes back from [`TypedWork::wait`] and from `.await`.
#[derive(Debug)]
pub struct TypedWork<T> {
    work: Work,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> TypedWork<T> {
    /// Gives the buffers of `work` their element type.
    pub fn new(work: Work) -> TypedWork<T> {
        TypedWork { work, element: PhantomData }
    }

    /// Whether the call has ended. Does not block.
    pub fn is_done(&self) -> bool {
        self.work.is_done()
    }

    /// Blocks until the call has ended.
    ///
    /// # Errors
    /// The call's error; the buffer is dropped then. [`TypedWork::into_work`] keeps it.
    pub fn wait(self) -> Result<Vec<T>> {
        result_vec(self.work.wait())
    }

    /// Revokes the communicator unless the call has ended.
    pub fn cancel(&self) {
        self.work.cancel();
    }

    /// The handle without the type, which gives the buffers back after an error too.
    pub fn into_work(self) -> Work {
        self.work
    }
}

impl<T: Element> Future for TypedWork<T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Vec<T>>> {
        Pin::new(&mut self.work).poll(context).map(result_vec)
    }
}

fn result_vec<T: Element>(finished: Finished) -> Result<Vec<T>> {
    finished.result?;
    let buffer: Option<OwnedBuffer> = match finished.buffers {
        Some(OwnedBuffers::InOut(buffer)) => Some(buffer),
        Some(OwnedBuffers::Separate { output, .. }) => Some(output),
        Some(OwnedBuffers::None) | None => None,
    };
    Ok(buffer.and_then(OwnedBuffer::into_vec).unwrap_or_default())
}
