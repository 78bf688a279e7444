//! Handles of asynchronous calls: wait, poll, callbacks, `.await`, cancel.

pub(crate) mod ending;
pub(crate) mod many;
pub(crate) mod threaded;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::call::OwnedCall;
use crate::call::options::deadline_after;
use crate::call::outcome::Outcome;
use crate::elements::dtype::Element;
use crate::error::{Error, Result};
use crate::memory::owned::{OwnedBuffers, OwnedMemory};
use crate::work::ending::{DoneCallback, Ending, call_back};

/// The result and the buffers of an asynchronous call that has ended.
pub struct Finished {
    /// The call's result.
    pub result: Result<Outcome>,
    /// The buffers that moved in; `None` when a vendor library still holds them.
    pub buffers: Option<OwnedBuffers>,
}

/// A backend's side of a [`Work`]. An [`Ending`] for each call does most of it.
pub trait WorkSource: Send + Sync {
    /// Whether the call has ended. Never blocks; may advance the call. True in a forked child, where nothing goes on.
    fn is_done(&self) -> bool;
    /// Blocks until the call has ended or `is_enough`, at most until `until`. Several threads may wait at once.
    fn wait_until(&self, until: Option<Instant>, is_enough: &dyn Fn() -> bool);
    /// The number of the communicator whose calls a waiting thread moves together, and whose `is_enough` is asked when
    /// any of these has ended; 0 if there is no such communicator.
    fn mover(&self) -> usize {
        0
    }
    /// Wakes `waker` when the call has ended. The last waker replaces earlier ones.
    fn register(&self, waker: &Waker);
    /// Calls `callback` once, at the end of the call, on a thread that holds no lock.
    fn on_done(&self, callback: DoneCallback);
    /// The result, for any number of readers; `None` before the end. A thread that may not wait gets an error at once:
    /// a reduce function within a call, or a forked child.
    fn result(&self) -> Option<Result<Outcome>>;
    /// Takes the buffers, once, after the call has ended.
    fn take_buffers(&self) -> Option<OwnedBuffers>;
    /// Revokes the communicator with [`Error::Cancelled`], unless the call has ended.
    fn cancel(&self);
}

/// The handle of an asynchronous call.
///
/// Any number of threads may wait for it. A call whose handle is dropped goes on, and frees its buffers at its end.
/// [`Work::cancel`] revokes the communicator, since the other ranks cannot go on without this one.
///
/// ```
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
/// use std::time::Duration;
/// use unisono::{CollectivesAsync, Solo};
/// let work = Solo::new().send_async(vec![1u8, 2], 0, 7).into_work();
/// std::thread::scope(|scope| {
///     scope.spawn(|| assert_eq!(work.wait().unwrap().bytes, 2));
///     assert!(work.wait_timeout(Duration::from_secs(1)).is_some_and(|result| result.is_ok()));
/// });
/// let finished = work.finish();
/// assert!(finished.result.is_ok() && finished.buffers.is_some());
/// ```
#[must_use = "the call goes on without its handle, but its result and its errors come from `wait`"]
pub struct Work {
    source: Box<dyn WorkSource>,
}

impl Work {
    /// A handle for a backend's call.
    pub fn new(source: impl WorkSource + 'static) -> Work {
        Work { source: Box::new(source) }
    }

    /// The handle of a call that has already ended.
    pub fn finished(finished: Finished) -> Work {
        Work::new(Ready(Ending::ended(finished.result, finished.buffers)))
    }

    /// The handle of a refused call. `error` gets the name of the call; the memory comes back.
    pub fn refused(call: OwnedCall, error: Error) -> Work {
        Work::finished(Finished { result: Err(error.in_call(&call)), buffers: Some(call.buffers) })
    }

    /// Whether the call has ended. Does not block.
    pub fn is_done(&self) -> bool {
        self.source.is_done()
    }

    /// Blocks until the call has ended; the calling thread does the work. Every caller gets the same result.
    /// [`Work::finish`] gives the buffers.
    ///
    /// # Errors
    /// The call's error.
    pub fn wait(&self) -> Result<Outcome> {
        self.source.wait_until(None, &|| false);
        self.result()
    }

    /// As [`Work::wait`], for at most `timeout`. `None` when the call has not ended by then; the call goes on.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Result<Outcome>> {
        self.source.wait_until(Some(deadline_after(Instant::now(), timeout)), &|| false);
        self.source.result()
    }

    /// Blocks until the call has ended, and gives its buffers back.
    pub fn finish(self) -> Finished {
        self.source.wait_until(None, &|| false);
        self.take()
    }

    /// Calls `callback` with the result, once: on this thread if the call has ended, else at its end. It may make
    /// calls, because no lock of the communicator is held. Any number of callbacks may be given. A callback makes a
    /// progress thread move the call at once, instead of leaving it to waiting threads for a while.
    ///
    /// Few threads run the callbacks of all communicators of a world. A callback may block, also until a later one has
    /// run: another thread then goes on with the next. In a world of one, the thread that ends a call runs its
    /// callbacks. A panic is logged. A forked child runs no callbacks of its parent.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use std::sync::mpsc;
    /// use unisono::{CollectivesAsync, Solo};
    /// let (sender, received) = mpsc::channel();
    /// let work = Solo::new().barrier_async();
    /// work.as_work().on_done(move |result| sender.send(result.is_ok()).unwrap());
    /// assert_eq!(received.recv(), Ok(true));
    /// ```
    pub fn on_done(&self, callback: impl FnOnce(Result<Outcome>) + Send + 'static) {
        self.source.on_done(Box::new(callback));
    }

    /// Revokes the communicator unless the call has ended.
    pub fn cancel(&self) {
        self.source.cancel();
    }

    fn result(&self) -> Result<Outcome> {
        self.source.result().unwrap_or(Err(Error::closed()))
    }

    fn take(&self) -> Finished {
        Finished { result: self.result(), buffers: self.source.take_buffers() }
    }
}

impl Future for Work {
    type Output = Finished;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Finished> {
        // The waker is registered before the check, so a call that ends in between wakes it.
        self.source.register(context.waker());
        // This may advance the call. A thread that must not wait gets an error from `result`, although the call has not
        // ended.
        self.source.is_done();
        match self.source.result() {
            Some(result) => Poll::Ready(Finished { result, buffers: self.source.take_buffers() }),
            None => Poll::Pending,
        }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Work(done: {})", self.is_done())
    }
}

struct Ready(Ending);

impl WorkSource for Ready {
    fn is_done(&self) -> bool {
        true
    }

    fn wait_until(&self, _until: Option<Instant>, _is_enough: &dyn Fn() -> bool) {}

    fn register(&self, _waker: &Waker) {}

    fn on_done(&self, callback: DoneCallback) {
        if let Some((callback, result)) = self.0.on_done(callback) {
            call_back(callback, result);
        }
    }

    fn result(&self) -> Option<Result<Outcome>> {
        self.0.result()
    }

    fn take_buffers(&self) -> Option<OwnedBuffers> {
        self.0.take_buffers()
    }

    fn cancel(&self) {}
}

/// The memory of a [`TypedWork`]'s result: a vector of elements, or a list of vectors.
pub trait FromMemory: Default {
    /// Takes the value out of the memory; `None` when the memory holds another type.
    fn from_memory(memory: OwnedMemory) -> Option<Self>;
}

impl<T: Element> FromMemory for Vec<T> {
    fn from_memory(memory: OwnedMemory) -> Option<Vec<T>> {
        memory.into_vec()
    }
}

impl<T: Element> FromMemory for Vec<Vec<T>> {
    fn from_memory(memory: OwnedMemory) -> Option<Vec<Vec<T>>> {
        memory.into_list()
    }
}

/// A [`Work`] with a typed result: the vector that the call has written, or the message that it has sent.
///
/// [`TypedWork::wait`] and `.await` consume the handle, because they give the result. To wait without taking the
/// result, on any number of threads, use [`TypedWork::as_work`].
#[must_use = "the call goes on without its handle, but its result and its errors come from `wait`"]
pub struct TypedWork<R> {
    work: Work,
    take: fn(&Outcome, Option<OwnedBuffers>) -> R,
}

impl<R> TypedWork<R> {
    /// A handle whose result is `take` of the outcome and the buffers of `work`.
    pub fn new(work: Work, take: fn(&Outcome, Option<OwnedBuffers>) -> R) -> TypedWork<R> {
        TypedWork { work, take }
    }

    /// Whether the call has ended. Does not block.
    pub fn is_done(&self) -> bool {
        self.work.is_done()
    }

    /// Blocks until the call has ended.
    ///
    /// # Errors
    /// The call's error; the buffers are dropped then. [`TypedWork::into_work`] keeps them.
    pub fn wait(self) -> Result<R> {
        typed(self.work.finish(), self.take)
    }

    /// Revokes the communicator unless the call has ended.
    pub fn cancel(&self) {
        self.work.cancel();
    }

    /// The handle without the type, to wait without taking the result.
    pub fn as_work(&self) -> &Work {
        &self.work
    }

    /// The handle without the type. It gives the buffers back after an error too.
    pub fn into_work(self) -> Work {
        self.work
    }
}

impl<R> Future for TypedWork<R> {
    type Output = Result<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<R>> {
        let take = self.take;
        Pin::new(&mut self.work).poll(context).map(|finished| typed(finished, take))
    }
}

impl<R> fmt::Debug for TypedWork<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.work.fmt(f)
    }
}

fn typed<R>(finished: Finished, take: fn(&Outcome, Option<OwnedBuffers>) -> R) -> Result<R> {
    finished.result.map(|outcome| take(&outcome, finished.buffers))
}
