//! The steps of survivors after a failure: they agree on a flag, and go on without the ranks that are lost.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use unisono_communicator::{Error, GroupRank, Result, deadline_after};

use crate::companion::Survivors;
use crate::control::{Agreed, Ask, Question};
use crate::gate::CallGate;
use crate::lock;

/// The number of agreements that a communicator has reached, for each question. A failed agreement keeps its number,
/// since other ranks may have reached it: the next attempt goes on with that number. A thread holds the lock during an
/// agreement, since agreements are ordered.
#[derive(Default)]
pub(crate) struct Agreements {
    flags: Mutex<u64>,
    survivors: Mutex<u64>,
    barriers: Mutex<u64>,
}

impl CallGate {
    /// The logical AND of all survivors' flags. This rank begins to ask at `now`.
    ///
    /// # Errors
    /// As [`unisono_communicator::Communicator::agree`].
    pub fn agree(&self, flag: bool, now: Instant) -> Result<bool> {
        let mut number = lock(&self.agreements.flags);
        let agreed = self.ask_survivors(Question::Flag, *number, flag, now)?;
        *number += 1;
        Ok(agreed.flag)
    }

    /// As [`CallGate::agree`], for ranks that begin: no rank may be missing, and the agreement fails after `timeout`.
    ///
    /// # Errors
    /// The first cause; as [`unisono_communicator::Communicator::agree`].
    pub fn agree_to_begin(&self, flag: bool, now: Instant, timeout: Duration) -> Result<bool> {
        let mut number = lock(&self.agreements.flags);
        let (question, deadline) = (Question::Flag, deadline_after(now, timeout));
        let ask = Ask { question, number: *number, flag, finished_calls: 0, deadline, heeds_cause: true };
        let agreed = self.control().agree(&ask)?;
        *number += 1;
        Ok(agreed.flag)
    }

    /// Waits until all ranks have called it. This rank begins to wait at `now`.
    ///
    /// # Errors
    /// As [`unisono_communicator::Communicator::monitored_barrier`].
    pub fn monitored_barrier(&self, timeout: Duration, now: Instant) -> Result<()> {
        self.check_caller(&"monitored_barrier")?;
        self.check_revoked()?;
        self.check_open(&"monitored_barrier")?;
        // Another thread waits for a time of its own.
        let Ok(mut number) = self.agreements.barriers.try_lock() else {
            return Err(Error::ConcurrentUse { call: "monitored_barrier".to_owned() });
        };
        let (question, deadline) = (Question::Barrier, deadline_after(now, timeout));
        let ask =
            Ask { question, number: *number, flag: true, finished_calls: 0, deadline, heeds_cause: true };
        let agreed = self.control().agree(&ask)?;
        *number += 1;
        // An agreement is one of the survivors, whether the others have come or not.
        match self.group().ranks().find(|rank| !agreed.survivors.contains(rank)) {
            None => Ok(()),
            Some(gone) => {
                let evidence = "it has left, and never came to monitored_barrier".to_owned();
                self.check_revoked().and(Err(self.peers().disconnected(gone, evidence, None)))
            }
        }
    }

    /// The communicator of the survivors. No rank has called anything on it yet. This rank begins to ask at `now`.
    ///
    /// # Errors
    /// As [`unisono_communicator::Communicator::shrink`].
    pub fn shrink(&self, now: Instant) -> Result<Survivors> {
        let mut number = lock(&self.agreements.survivors);
        let agreed = self.ask_survivors(Question::Survivors, *number, true, now)?;
        let companion = self.control().succeed(&agreed.survivors, *number)?;
        *number += 1;
        let new_rank = |old: GroupRank| agreed.survivors.binary_search(&old).ok().map(|new| new as u32);
        let new_ranks = self.group().ranks().map(new_rank).collect();
        Ok(Survivors { companion, new_ranks, last_common_call: agreed.finished_calls })
    }

    fn ask_survivors(&self, question: Question, number: u64, flag: bool, now: Instant) -> Result<Agreed> {
        self.check_caller(&"shrink or agree")?;
        self.check_open(&"shrink or agree")?;
        let deadline = deadline_after(now, self.timeout());
        let finished_calls = self.board().progress().finished();
        self.control().agree(&Ask { question, number, flag, finished_calls, deadline, heeds_cause: false })
    }
}
