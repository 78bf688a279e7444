//! What an idle call waits for, gathered by everything that is in progress.

use std::time::{Duration, Instant};

use unisono_communicator::GroupRank;

use crate::links::Interest;

/// Longest sleep without looking at the queue, against a wake-up lost in a transport.
pub(crate) const SLEEP_MAX: Duration = Duration::from_millis(100);

/// What an idle holder waits for.
#[derive(Default)]
pub(crate) struct Pause {
    pub(crate) interest: Vec<Interest>,
    /// The ranks that the call waits for, the next one first.
    pub(crate) awaited: Vec<GroupRank>,
    /// When something is due.
    pub(super) until: Option<Instant>,
}

impl Pause {
    /// A pause with memory for so many awaited ranks, so that no sleep allocates.
    pub(crate) fn for_ranks(ranks: u32) -> Pause {
        let (interest, awaited) = (Vec::with_capacity(ranks as usize), Vec::with_capacity(ranks as usize));
        Pause { interest, awaited, until: None }
    }

    /// The pause ends at `due` at the latest, if that is a time.
    pub(crate) fn end_by(&mut self, due: Option<Instant>) {
        self.until = self.until.into_iter().chain(due).min();
    }

    /// The same memory, with nothing to wait for.
    pub(super) fn emptied(mut self) -> Pause {
        self.interest.clear();
        self.awaited.clear();
        Pause { until: None, ..self }
    }
}
