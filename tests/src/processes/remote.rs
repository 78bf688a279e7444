//! The process of a rank as the test sees it: what can be asked of it, and what it asks.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use unisono_communicator::{Error, Result, UserFunction};

use super::connection::{Answer, Connection, Ended};
use super::memory::LentByTest;
use super::messages::{Id, Request, Upcall};
use super::wire::{Bytes, Wire, decode, encode};
use super::work::WorkState;
use crate::world::panic_text;

/// The process of a rank.
pub(super) struct Remote {
    connection: Arc<Connection>,
    kept: Arc<Kept>,
    pid: u32,
}

/// What the test keeps for the process.
#[derive(Default)]
pub(super) struct Kept {
    last_id: AtomicU64,
    functions: Mutex<HashMap<Id, UserFunction>>,
    lent: Mutex<HashMap<Id, LentByTest>>,
    /// The handles whose end the process tells.
    works: Mutex<HashMap<Id, Arc<WorkState>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Remote {
    /// The process at the other end of `stream`.
    pub(super) fn new(stream: std::os::unix::net::UnixStream, pid: u32) -> Remote {
        let kept = Arc::<Kept>::default();
        Remote { connection: Connection::start(stream, kept.clone()), kept, pid }
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.connection.has_ended()
    }

    /// Asks for a value.
    ///
    /// # Errors
    /// When the process has ended.
    ///
    /// # Panics
    /// When it has panicked over the question.
    pub(super) fn ask<T: Wire>(&self, question: &Request) -> Result<T> {
        self.connection.ask(question).map_err(|Ended| self.gone())
    }

    /// Asks for a result.
    ///
    /// # Errors
    /// That of the result, or that the process has ended.
    ///
    /// # Panics
    /// As [`Remote::ask`].
    pub(super) fn result<T: Wire>(&self, question: &Request) -> Result<T> {
        self.ask::<Result<T>>(question)?
    }

    /// As [`Remote::ask`], for at most `timeout`.
    pub(super) fn ask_within<T: Wire>(&self, question: &Request, timeout: Duration) -> Option<T> {
        self.connection.ask_within(question, timeout).ok().flatten()
    }

    fn gone(&self) -> Error {
        Error::System {
            what: format!("the process of the rank, pid {}", self.pid),
            text: "has ended".to_owned(),
        }
    }

    /// Drops what is still kept for calls of a world that is gone.
    pub(super) fn forget(&self) {
        self.kept.forget();
    }

    /// Keeps a user's function, by a number.
    pub(super) fn keep_function(&self, function: &UserFunction) -> Id {
        let id = self.kept.next_id();
        lock(&self.kept.functions).insert(id, function.clone());
        id
    }

    /// No call can call it any more.
    pub(super) fn drop_function(&self, id: Id) {
        lock(&self.kept.functions).remove(&id);
    }

    /// Keeps lent memory until the process gives it back.
    pub(super) fn keep_lent(&self, lent: LentByTest) -> Id {
        let id = self.kept.next_id();
        lock(&self.kept.lent).insert(id, lent);
        id
    }

    /// Keeps a handle until the process tells its end.
    pub(super) fn keep_work(&self, id: Id, work: Arc<WorkState>) {
        lock(&self.kept.works).insert(id, work);
    }

    /// Its end has been told, or will not be.
    pub(super) fn drop_work(&self, id: Id) {
        lock(&self.kept.works).remove(&id);
    }
}

impl Kept {
    fn next_id(&self) -> Id {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn forget(&self) {
        lock(&self.functions).clear();
        let lent = std::mem::take(&mut *lock(&self.lent));
        drop(lent);
        let works = std::mem::take(&mut *lock(&self.works));
        works.into_values().for_each(|work| work.has_ended(Err(Error::closed())));
    }

    fn call(&self, function: Id, left: &[u8], right: &[u8], out_bytes: u64) -> Result<Bytes, String> {
        let function = lock(&self.functions).get(&function).cloned();
        let function = function.ok_or_else(|| "the function of a call that has ended".to_owned())?;
        let mut out = vec![0; out_bytes as usize];
        let called = catch_unwind(AssertUnwindSafe(|| function(left, right, &mut out)));
        called.map(|()| Bytes(out)).map_err(|panic| panic_text(&*panic))
    }
}

impl Answer for Kept {
    const KEEPS_THREADS: bool = false;

    fn answer(&self, _connection: &Arc<Connection>, question: &[u8]) -> Vec<u8> {
        match decode(question) {
            Upcall::Function { function, left, right, out_bytes } => {
                encode(&self.call(function, &left.0, &right.0, out_bytes))
            }
            Upcall::Ended { work, result } => {
                let work = lock(&self.works).remove(&work);
                if let Some(work) = work {
                    work.has_ended(result);
                }
                encode(&())
            }
            Upcall::Returned { lent, bytes } => {
                let lent = lock(&self.lent).remove(&lent);
                if let Some(lent) = lent {
                    lent.come_back(&bytes.0);
                }
                encode(&())
            }
        }
    }

    fn ended(&self) {
        self.forget();
    }
}
