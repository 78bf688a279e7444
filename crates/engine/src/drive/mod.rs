//! From an admitted call to its end: who may move calls, and the loop that moves them.
//!
//! | file | contents |
//! | --- | --- |
//! | `issue` | admits calls, takes their turn, runs or queues them |
//! | `behind_gate` | the same for calls that something else runs |
//! | `blocking` | blocking sends and receives on the memory of their callers |
//! | `batch` | batches of these |
//! | `goodbye` | the end of a communicator's messages |
//! | `links_guard` | the links while a thread holds them |
//! | `drive_loop` | the loop and its `Task` |
//! | `pending` | the task that moves all asynchronous calls |
//! | `probe` | the search for a message that has arrived |
//! | `short` | blocking calls that end within a few microseconds |
//! | `prepare` | plans that are kept for their calls |
//! | `handle` | the handle of an asynchronous call |
//! | `progress` | moves calls that no other thread moves |

mod batch;
mod behind_gate;
mod blocking;
pub(crate) mod drive_loop;
mod goodbye;
pub(crate) mod handle;
pub(crate) mod issue;
pub(crate) mod links_guard;
pub(crate) mod pending;
mod prepare;
mod probe;
pub(crate) mod progress;
pub(crate) mod short;

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use unisono_backend::{CallGate, Failing, ScopeTurn, Waker};
use unisono_communicator::{CallOptions, Error, Holding, ParentCall, Result, deadline_after};

use crate::calls::call::Engine;
use crate::calls::monitor::Monitor;
use crate::calls::progress_threads::Dropped;
use crate::calls::queue::Queue;
use crate::links::Links;
use crate::lock;
use crate::options::EngineOptions;
use crate::plan::header::context_of;
use crate::plan::selector::Selector;
use crate::point_to_point::PointToPoint;

pub(crate) use drive_loop::Task;
pub(crate) use links_guard::LinksGuard;
use prepare::Unprepared;

/// The state that all handles and threads of one communicator share.
pub(crate) struct Shared<L: Links + 'static> {
    pub(crate) gate: CallGate,
    pub(crate) options: EngineOptions,
    /// The choice of each call's algorithm: known without the lock on the links, which a running call holds.
    selector: Mutex<Arc<Selector>>,
    pub(crate) queue: Queue,
    pub(crate) messages: Mutex<PointToPoint>,
    /// Whether the messages must be looked at: set at every post, so that calls without messages take no lock.
    pub(crate) has_messages: AtomicBool,
    /// Set when a rank has closed the communicator, until the sends and receives have taken note of it.
    pub(crate) news_of_closing: Arc<AtomicBool>,
    unprepared: Unprepared,
    pub(crate) monitor: Arc<Monitor>,
    /// Set when the last handle goes while calls are unfinished.
    dropped: OnceLock<Dropped>,
    pub(crate) wake: Waker,
    engine: Mutex<Engine<L>>,
}

impl<L: Links + 'static> Shared<L> {
    pub(crate) fn new(
        gate: CallGate,
        options: EngineOptions,
        selector: Arc<Selector>,
        messages: PointToPoint,
        engine: Engine<L>,
    ) -> Arc<Shared<L>> {
        let monitor = Monitor::with(options.progress.pool().clone());
        let wake = engine.links.waker();
        gate.board().first_cause().on_revoke(wake.clone());
        let shared = Arc::new(Shared {
            gate,
            options,
            selector: Mutex::new(selector),
            queue: Queue::default(),
            messages: Mutex::new(messages),
            has_messages: AtomicBool::new(false),
            news_of_closing: Arc::default(),
            unprepared: Unprepared::default(),
            monitor: Arc::new(monitor),
            dropped: OnceLock::new(),
            wake,
            engine: Mutex::new(engine),
        });
        shared.watch_for_closing();
        shared
    }

    /// The choice of each call's algorithm. No call waits for this lock: they have a selector of their own.
    pub(crate) fn selector(&self) -> Arc<Selector> {
        lock(&self.selector).clone()
    }

    pub(crate) fn set_selector(&self, selector: Arc<Selector>) {
        *lock(&self.selector) = selector;
    }

    /// Admits a call, or says why not.
    ///
    /// # Errors
    /// As [`CallGate::admit`].
    pub(crate) fn admit(&self, call: &dyn Display) -> Result<()> {
        self.gate.admit(call).inspect_err(|error| {
            if self.gate.is_owner() && self.gate.board().first_cause().is_revoked() {
                self.give_up(error);
            }
        })
    }

    /// The turn of a scope for the calls that `parent` is made of.
    ///
    /// # Errors
    /// As [`unisono_communicator::Communicator::scope`].
    pub(crate) fn open_scope(&self, parent: ParentCall, options: &CallOptions) -> Result<ScopeTurn> {
        let parent = parent.labelled(options)?;
        self.admit(&parent)?;
        let context = context_of(&parent);
        let mut turn = self.gate.open_scope(parent, context, options)?;
        self.finish_queue(&mut self.lock_links())?;
        turn.begin();
        Ok(turn)
    }

    /// Ends this rank's outgoing streams because of the first cause, if nothing is in progress: a rank that waits for
    /// this one learns from the end of a stream that nothing more comes. Calls in progress may still succeed; when the
    /// first of them fails, it ends the streams.
    pub(crate) fn give_up(&self, cause: &Error) {
        if let Some(mut guard) = self.try_lock_links()
            && self.queue.is_empty()
            && !self.has_messages.load(Ordering::SeqCst)
        {
            guard.fail_pending(cause);
        }
    }

    /// The last handle is gone. Its unfinished calls are left to the progress threads; if these have too many of such
    /// communicators, this thread finishes the calls itself, for at most `drop_timeout`.
    pub(crate) fn drop_handle(&self) {
        if Holding::is_here() || !self.has_pending() {
            return;
        }
        let (dropped, are_too_many) = self.options.progress.note_dropped();
        // A handle goes once.
        let _ = self.dropped.set(dropped);
        if are_too_many {
            let mut guard = self.lock_links();
            let until = deadline_after(guard.links.now(), self.options.drop_timeout);
            self.drive_pending(&mut guard, Some(until), || false);
        }
    }

    /// The time by the links' clock.
    pub(crate) fn now(&self) -> Instant {
        self.lock_links().links.now()
    }
}

impl<L: Links + 'static> Failing for LinksGuard<'_, L> {
    fn now(&self) -> Instant {
        self.links.now()
    }

    fn wait_for_news(&mut self, until: Instant) {
        self.links.wait(&[], until);
    }

    fn fail_pending(&mut self, error: &Error) {
        // First of all: links may still read the memory that the calls give back.
        self.links.shut_down();
        if self.shared.has_pending() {
            // The threads that wait for these calls get the cause with them.
            self.shared.gate.board().first_cause().note_returned();
        }
        self.shared.queue.drain().iter().for_each(|call| call.request.fail(error.clone()));
        lock(&self.shared.messages).fail(error);
    }

    fn end_epoch(&mut self) {
        self.links.close();
        lock(&self.shared.messages).fail(&Error::closed());
    }
}

impl<L: Links + 'static> Drop for Shared<L> {
    fn drop(&mut self) {
        // A forked child must not touch its parent's streams, nor wait for a lock of a thread that it does not have.
        if !self.gate.is_owner() {
            return;
        }
        self.monitor.withdraw(true);
        // A rank that panics does not close in good order.
        if !std::thread::panicking() {
            self.see_off();
        }
        let pending = self.queue.drain();
        if !pending.is_empty() {
            // Links may still read the memory that the calls give back.
            self.lock_links().links.shut_down();
        }
        pending.iter().for_each(|call| call.request.fail(Error::closed()));
        lock(&self.messages).fail(&Error::closed());
    }
}
