//! The handle of a blocking call that a thread of its own makes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::thread::Builder;
use std::time::{Duration, Instant};

use crate::call::outcome::Outcome;
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::interrupt::interrupt_check;
use crate::memory::owned::OwnedBuffers;
use crate::work::ending::{DoneCallback, Ending, call_back};
use crate::work::{Work, WorkSource};

/// The longest wait before the other goals of a waiting thread are looked at.
const PAUSE: Duration = Duration::from_millis(1);

struct Threaded {
    ending: Ending,
    lock: Mutex<()>,
    ended: Condvar,
    communicator: Arc<dyn Communicator>,
}

impl Work {
    /// Makes a blocking call that has a scope, on a thread of its own. `call` says through the channel when its scope
    /// is open. This function returns then, or when the call has ended, so that the calls of this rank keep their
    /// order. The call ends after `call` has dropped its values. [`Work::cancel`] aborts `communicator`.
    pub fn on_thread(
        communicator: Arc<dyn Communicator>,
        call: impl FnOnce(Sender<()>) -> Result<Outcome> + Send + 'static,
    ) -> Work {
        let (ending, lock, ended) = (Ending::default(), Mutex::new(()), Condvar::new());
        let threaded = Arc::new(Threaded { ending, lock, ended, communicator });
        let (opened, has_turn) = channel();
        let own = threaded.clone();
        let run = move || {
            let result = catch_unwind(AssertUnwindSafe(|| call(opened)));
            own.end(result.unwrap_or_else(|_| Err(panicked())));
        };
        if let Err(error) = Builder::new().name("unisono-call".to_owned()).spawn(run) {
            threaded.end(Err(Error::system("cannot start the thread of a call", &error)));
            return Work::new(Handle(threaded));
        }
        // A call that ends without a scope drops its end of the channel.
        while let Err(RecvTimeoutError::Timeout) = has_turn.recv_timeout(PAUSE) {
            if threaded.ending.is_done() {
                break;
            }
            threaded.abort_if_interrupted(Instant::now());
        }
        Work::new(Handle(threaded))
    }
}

fn panicked() -> Error {
    Error::System { what: "a bug of unisono".to_owned(), text: "a call on a thread has panicked".to_owned() }
}

impl Threaded {
    fn end(&self, result: Result<Outcome>) {
        let after_end = self.ending.end(result, None);
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.ended.notify_all();
        if let Some(after_end) = after_end {
            after_end.run();
        }
    }

    fn abort(&self) {
        if !self.ending.is_done() {
            // The first cause, if there is one already, ends the call too.
            let _ = self.communicator.abort();
        }
    }

    fn abort_if_interrupted(&self, now: Instant) {
        if interrupt_check(now).is_some_and(|must_end| must_end()) {
            self.abort();
        }
    }
}

/// The handle's part.
struct Handle(Arc<Threaded>);

impl WorkSource for Handle {
    fn is_done(&self) -> bool {
        self.0.ending.is_done()
    }

    fn wait_until(&self, until: Option<Instant>, is_enough: &dyn Fn() -> bool) {
        while !self.is_done() && !is_enough() {
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return;
            }
            self.0.abort_if_interrupted(now);
            let pause = until.map_or(PAUSE, |until| PAUSE.min(until.saturating_duration_since(now)));
            let lock = self.0.lock.lock().unwrap_or_else(PoisonError::into_inner);
            if !self.is_done() {
                drop(self.0.ended.wait_timeout(lock, pause).unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    fn register(&self, waker: &Waker) {
        self.0.ending.register(waker);
    }

    fn on_done(&self, callback: DoneCallback) {
        if let Some((callback, result)) = self.0.ending.on_done(callback) {
            call_back(callback, result);
        }
    }

    fn result(&self) -> Option<Result<Outcome>> {
        self.0.ending.result()
    }

    fn take_buffers(&self) -> Option<OwnedBuffers> {
        None
    }

    fn cancel(&self) {
        self.0.abort();
    }
}
