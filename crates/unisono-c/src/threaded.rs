//! Compressed calls with handles: a thread makes the call, and the caller goes on when the call has its place in the
//! order of calls.

#![expect(unsafe_code, reason = "the memory of a caller goes to another thread")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::thread::Builder;
use std::time::{Duration, Instant};

use unisono::call::OwnedBuffers;
use unisono::extend::calls::{DoneCallback, Ending, WorkSource, call_back};
use unisono::{Communicator, Error, Outcome, Result, Work};

use crate::buffers::Release;
use crate::call::Request;
use crate::compressed::compressed;
use crate::handle::StateHandle;
use crate::sited::Sited;

/// The longest wait before the other goal of a waiting thread is looked at.
const PAUSE: Duration = Duration::from_millis(1);

/// A call that a thread makes.
struct Threaded {
    ending: Ending,
    lock: Mutex<()>,
    ended: Condvar,
    communicator: Arc<dyn Communicator>,
}

/// The call of the thread, with the caller's memory.
struct Job {
    request: Request,
    state: Arc<StateHandle>,
    release: Option<Arc<Release>>,
}

// SAFETY: the caller of `unisono_start` has promised that nobody else uses the memory until the call has ended, on any
// thread.
unsafe impl Send for Job {}

/// Starts a compressed call. Returns when the call has its turn, or has ended: so the calls of this rank keep their
/// order.
///
/// # Safety
/// Nobody writes the call's input, and nobody else uses its output, until the call has ended, or `release` is dropped.
pub(crate) unsafe fn start_compressed(
    communicator: &Arc<dyn Communicator>,
    state: Arc<StateHandle>,
    request: Request,
    release: Option<Arc<Release>>,
) -> Work {
    let (ending, lock, ended) = (Ending::default(), Mutex::new(()), Condvar::new());
    let threaded = Arc::new(Threaded { ending, lock, ended, communicator: communicator.clone() });
    let (opened, has_turn) = channel();
    let sited = Sited::new(communicator.clone(), request.site).that_tells(opened);
    let job = Job { request, state, release };
    let own = threaded.clone();
    let run = move || {
        let Job { request, state, release } = { job };
        // SAFETY: as the caller of this function promises.
        let call = || unsafe { compressed(&sited, &state, &request) };
        let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err(panicked()));
        let outcome = result.map(|()| Outcome::done(request.sides.output().bytes(), "compressed"));
        drop(release);
        own.end(outcome);
    };
    if let Err(error) = Builder::new().name("unisono-compress".to_owned()).spawn(run) {
        threaded.end(Err(Error::system("cannot start the thread of a compressed call", &error)));
        return Work::new(Handle(threaded));
    }
    // The thread says when its scope is open. A call that ends before drops its end of the channel.
    while let Err(RecvTimeoutError::Timeout) = has_turn.recv_timeout(PAUSE) {
        if threaded.ending.is_done() {
            break;
        }
    }
    Work::new(Handle(threaded))
}

fn panicked() -> Error {
    Error::System { what: "a bug of unisono".to_owned(), text: "a compressed call has panicked".to_owned() }
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
}

/// The handle's part.
struct Handle(Arc<Threaded>);

impl WorkSource for Handle {
    fn is_done(&self) -> bool {
        self.0.ending.is_done()
    }

    fn wait_until(&self, until: Option<Instant>, is_enough: &dyn Fn() -> bool) {
        let mut lock = self.0.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_done() && !is_enough() {
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                return;
            }
            let pause = until.map_or(PAUSE, |until| PAUSE.min(until.saturating_duration_since(now)));
            lock = self.0.ended.wait_timeout(lock, pause).unwrap_or_else(PoisonError::into_inner).0;
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
        if !self.is_done() {
            // The first cause, if there is one already, ends the call too.
            let _ = self.0.communicator.abort();
        }
    }
}
