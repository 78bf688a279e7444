//! The events that an idle holder of the links waits for. Every call in progress adds its own.

use std::time::{Duration, Instant};

use unisono_communicator::GroupRank;

use crate::links::Interest;

/// The longest sleep without a look at the queue, as a protection against a wake-up that a transport loses.
pub(crate) const SLEEP_MAX: Duration = Duration::from_millis(100);

/// The events that end a sleep.
#[derive(Default)]
pub(crate) struct Pause {
    pub(crate) interest: Vec<Interest>,
    /// The ranks that the call waits for, the next one first.
    pub(crate) awaited: Vec<GroupRank>,
    /// The next due time.
    pub(crate) until: Option<Instant>,
}

impl Pause {
    /// A pause with memory for this many awaited ranks, so that no sleep allocates.
    pub(crate) fn for_ranks(ranks: u32) -> Pause {
        let (interest, awaited) = (Vec::with_capacity(ranks as usize), Vec::with_capacity(ranks as usize));
        Pause { interest, awaited, until: None }
    }

    /// Ends the pause at `due` at the latest.
    pub(crate) fn end_by(&mut self, due: Option<Instant>) {
        self.until = self.until.into_iter().chain(due).min();
    }

    /// The same memory, without events.
    pub(crate) fn emptied(mut self) -> Pause {
        self.interest.clear();
        self.awaited.clear();
        Pause { until: None, ..self }
    }
}
