//! What survivors do after a failure: agree on a flag, and go on without those that are gone.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use unisono_communicator::{Communicator, Error, Result, Shrunk, deadline_after};

use crate::baton::Shared;
use crate::control::{Agreed, Ask, Question};
use crate::job::lock;
use crate::links::Links;

/// How many agreements a communicator has reached. One that failed keeps its number: the next attempt goes on with it,
/// since others may have reached it.
#[derive(Default)]
pub(crate) struct Agreements {
    flags: Mutex<u64>,
    survivors: Mutex<u64>,
}

impl<L: Links + 'static> Shared<L> {
    /// The logical and of all survivors' flags.
    pub(crate) fn agree_on_flag(&self, flag: bool) -> Result<bool> {
        let mut number = lock(&self.agreed.flags);
        let agreed = self.ask_survivors(Question::Flag, *number, flag)?;
        *number += 1;
        Ok(agreed.flag)
    }

    /// The communicator of the survivors, in which nobody has called anything yet.
    pub(crate) fn shrink(&self) -> Result<Shrunk> {
        let mut number = lock(&self.agreed.survivors);
        let agreed = self.ask_survivors(Question::Survivors, *number, true)?;
        let communicator: Arc<dyn Communicator> = self.control.succeed(&agreed.survivors, *number)?;
        *number += 1;
        if self.board.revocation().is_some() {
            // Nobody may use the streams of an epoch that has ended.
            self.take_baton().links.close();
        }
        let new_rank = |old: u32| agreed.survivors.binary_search(&old).ok().map(|new| new as u32);
        let new_ranks = (0..self.group.size()).map(new_rank).collect();
        Ok(Shrunk { communicator, new_ranks, last_common_call: agreed.finished_calls })
    }

    fn ask_survivors(&self, question: Question, number: u64, flag: bool) -> Result<Agreed> {
        self.owner.check()?;
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::Closed);
        }
        let deadline = deadline_after(self.take_baton().links.now(), self.options.timeout);
        let finished_calls = self.board.finished();
        self.control.agree(&Ask { question, number, flag, finished_calls, deadline })
    }
}
