//! A handle in the process of a rank.

use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use unisono_communicator::{Finished, Outcome, Result, Work};

use super::connection::Connection;
use super::memory::owned_parts;
use super::messages::{FinishedMessage, Id, Upcall};

/// A handle. Those who wait share it; who fetches the end takes it, when all others have seen the end too.
pub(super) struct HeldWork {
    work: RwLock<Option<Work>>,
    /// Which of its host buffers are lent.
    lent: Vec<bool>,
}

impl HeldWork {
    pub(super) fn new(work: Work, lent: Vec<bool>) -> HeldWork {
        HeldWork { work: RwLock::new(Some(work)), lent }
    }

    fn with<R>(&self, fetched: R, ask: impl FnOnce(&Work) -> R) -> R {
        let work = self.work.read().unwrap_or_else(PoisonError::into_inner);
        work.as_ref().map_or(fetched, ask)
    }

    /// Whether the call has ended.
    pub(super) fn is_done(&self) -> bool {
        self.with(true, Work::is_done)
    }

    /// Whether the call has ended after this time.
    pub(super) fn wait(&self, timeout: Duration) -> bool {
        self.with(true, |work| work.wait_timeout(timeout).is_some())
    }

    /// Revokes the communicator unless the call has ended.
    pub(super) fn cancel(&self) {
        self.with((), Work::cancel);
    }

    /// Tells the test the end. What calls functions at the end waits until those of the test have returned.
    pub(super) fn notify(&self, id: Id, connection: &Arc<Connection>) -> bool {
        let (connection, installer) = (connection.clone(), thread::current().id());
        let tell = move |result: Result<Outcome>| {
            let tell = move || {
                // When the test has ended there is nobody to tell.
                let _ = connection.ask::<()>(&Upcall::Ended { work: id, result });
            };
            // The test waits for the answer of this thread before its functions can run.
            if thread::current().id() == installer { drop(thread::spawn(tell)) } else { tell() }
        };
        self.with(false, |work| {
            work.on_done(tell);
            true
        })
    }

    /// Takes the result and the buffers of a call that has ended.
    pub(super) fn finish(&self) -> FinishedMessage {
        let work = self.work.write().unwrap_or_else(PoisonError::into_inner).take();
        let Finished { result, buffers } = work.unwrap().finish();
        let parts = buffers.map(|mut buffers| owned_parts(&mut buffers, &self.lent));
        FinishedMessage { result, parts }
    }
}
