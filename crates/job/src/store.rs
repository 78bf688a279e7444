//! Calls of the key-value stores of a job, which its control threads answer; and the stores of a world of one, which
//! has no such thread.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use unisono_communicator::{Culprit, Error, Group, JobRank, Result};
use unisono_control::store::{StoreAction, StoreCall, StorePlane, StoreReply};

use crate::answers::{NoAnswer, await_answer, await_control};
use crate::control_thread::Command;
use crate::job::Job;

impl Job {
    /// Calls a store, and waits for the answer of the rank that holds it, at most until the deadline. The control
    /// thread of that rank answers, also while its program does nothing for the job.
    ///
    /// Cost: one message each way over the control connection of the two ranks, which the first call makes.
    ///
    /// # Errors
    /// As [`StoreCall::check`]; [`Error::StoreTimeout`] at the deadline; [`Error::StoreFull`] when the store
    /// or the list of this rank's calls has no room; [`Error::InvalidArgument`] for a sum of a value that is no number,
    /// or beyond 64 bits; [`Error::PeerLost`] when the holder is lost or has left; [`Error::Evicted`] when this rank
    /// counts as lost; [`Error::Closed`] when it leaves the job; [`Error::Forked`] in a forked child.
    pub fn call_store(&self, call: StoreCall) -> Result<StoreReply> {
        call.check()?;
        self.commands().check_process()?;
        let (answer, answered) = bounded(1);
        let (title, deadline) = (call.title(), call.deadline);
        self.commands().send(Command::Store { call: Box::new(call), answer });
        match await_control(&answered, deadline) {
            Ok(result) => result.map_err(|error| self.with_processes(error)),
            Err(NoAnswer::Gone) => Err(Error::closed().in_call(&title)),
            Err(missing) => Err(missing.error(self.group().own_job_rank()).in_call(&title)),
        }
    }

    /// The deadline of calls in a group of the job.
    pub fn call_timeout(&self, group: &Group) -> Duration {
        self.options(group).timeout
    }

    /// The error with the processes of lost ranks, which the control plane does not know.
    fn with_processes(&self, mut error: Error) -> Error {
        if let Error::PeerLost { culprits, .. } = &mut error {
            for Culprit { rank, process, .. } in culprits {
                *process = self.group().process(*rank).cloned();
            }
        }
        error
    }
}

/// The stores of a world of one.
pub struct LocalStore {
    rank: JobRank,
    own: Mutex<OwnStores>,
}

/// The stores, and the threads that wait for answers.
struct OwnStores {
    plane: StorePlane,
    callers: BTreeMap<u64, Sender<Result<StoreReply>>>,
    count: u64,
}

impl LocalStore {
    /// Empty stores, which this rank holds.
    pub fn new(rank: JobRank) -> LocalStore {
        let own = OwnStores { plane: StorePlane::new(rank), callers: BTreeMap::new(), count: 0 };
        LocalStore { rank, own: Mutex::new(own) }
    }

    /// As [`Job::call_store`].
    ///
    /// # Errors
    /// As [`Job::call_store`], but for the errors about other ranks.
    pub fn call(&self, call: StoreCall) -> Result<StoreReply> {
        call.check()?;
        let (title, deadline) = (call.title(), call.deadline);
        let answered = self.lock().begin(call);
        match await_answer(&answered, deadline) {
            Ok(result) => result,
            Err(NoAnswer::Interrupted) => Err(Error::Aborted { by: self.rank }.in_call(&title)),
            Err(NoAnswer::Late | NoAnswer::Gone) => {
                // The deadline has passed, so the call ends here if it has not ended before.
                self.lock().on_time();
                answered.try_recv().unwrap_or_else(|_| Err(Error::closed().in_call(&title)))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, OwnStores> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OwnStores {
    fn begin(&mut self, call: StoreCall) -> Receiver<Result<StoreReply>> {
        let (answer, answered) = bounded(1);
        self.count += 1;
        self.callers.insert(self.count, answer);
        self.plane.call(self.count, call, Instant::now());
        self.act();
        answered
    }

    fn on_time(&mut self) {
        self.plane.on_time(Instant::now());
        self.act();
    }

    fn act(&mut self) {
        for action in self.plane.take_actions() {
            match action {
                StoreAction::End(caller, result) => {
                    // A thread that has panicked takes no answer.
                    let _ = self.callers.remove(&caller).map(|answer| answer.send(result));
                }
                // There is no other rank.
                StoreAction::Ask(..) | StoreAction::Answer(..) => {}
            }
        }
    }
}
