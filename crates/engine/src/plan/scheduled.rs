//! Schedules for an executor that moves the bytes itself, such as a vendor's library: in rounds, bound to a call's
//! sizes.

use std::sync::{Arc, Mutex};

use unisono_backend::{BoundExtent, ScheduledCall};
use unisono_communicator::{CallOptions, Collective, Counts, Descriptor, Determinism, Error, Group, Result};
use unisono_schedule::{Choice, Rounds, Schedule, rounds};

use crate::lock;
use crate::plan::Identity;
use crate::plan::offset_table::OffsetTable;
use crate::plan::selector::Selector;

/// The most steps, of all ranks together, that may be cut into rounds. Each rank builds the steps of all ranks, so more
/// would take too long.
const ROUNDS_STEPS_MAX: u64 = 10_000_000;

/// The number of rounds that are kept, over all algorithms and shapes.
const ROUNDS_KEPT_MAX: usize = 64;

/// The cache of rounds.
#[derive(Default)]
pub(crate) struct KeptRounds(Mutex<Vec<Kept>>);

struct Kept {
    choice: Choice,
    schedule: Arc<Schedule>,
    rounds: Arc<Rounds>,
}

impl KeptRounds {
    /// The schedule and the rounds of `rank`.
    ///
    /// # Errors
    /// [`Error::AlgorithmRefused`].
    fn of(&self, choice: &Choice, rank: u32) -> Result<(Arc<Schedule>, Arc<Rounds>)> {
        let mut kept = lock(&self.0);
        if let Some(known) = kept.iter().find(|kept| kept.choice == *choice) {
            return Ok((known.schedule.clone(), known.rounds.clone()));
        }
        let made = rounds(&choice.algorithm, &choice.shape, rank, ROUNDS_STEPS_MAX);
        let (schedule, rounds) = made.map_err(Error::refused)?;
        let (schedule, rounds) = (Arc::new(schedule), Arc::new(rounds));
        if kept.len() == ROUNDS_KEPT_MAX {
            kept.remove(0);
        }
        kept.push(Kept { choice: choice.clone(), schedule: schedule.clone(), rounds: rounds.clone() });
        Ok((schedule, rounds))
    }
}

impl Selector {
    /// Whether a call needs an algorithm of this library: because the call names an algorithm, because the options of
    /// the group name an algorithm of this collective, or because the order of a sum must be fixed, which no library of
    /// a vendor promises, or because no such library has a prefix reduction.
    pub(crate) fn is_asked_for(
        &self,
        collective: Collective,
        descriptor: &Descriptor,
        options: &CallOptions,
    ) -> bool {
        let is_fixed = options.determinism == Determinism::Fixed && descriptor.op.is_some();
        options.algorithm.is_some() || is_fixed || collective.is_prefix() || self.has_forced(collective)
    }

    /// The schedule of a call.
    ///
    /// # Errors
    /// As [`Selector::choose`]; [`Error::AlgorithmRefused`] when the group is too large.
    pub(crate) fn scheduled(
        &self,
        (collective, descriptor): (Collective, &Descriptor),
        counts: &Counts,
        options: &CallOptions,
        group: &Group,
    ) -> Result<ScheduledCall> {
        let (choice, facts) = self.choose(collective, descriptor, counts, options)?;
        let (algorithm, schedules) = Identity::of(&choice, facts.digest)?.named();
        let (schedule, rounds) = self.rounds.of(&choice, group.rank())?;
        let offsets = OffsetTable::new(collective, descriptor, counts, group, schedule.chunks);
        let bytes = |elements: u64| elements as usize * descriptor.dtype.bytes();
        let bound = |extent| BoundExtent {
            bytes: bytes(offsets.length(extent)),
            input_at: bytes(offsets.input_offset(extent)),
            output_at: bytes(offsets.output_offset(extent)),
        };
        let extents = schedule.steps.iter().map(|step| bound(step.extent)).collect();
        Ok(ScheduledCall { algorithm, schedules, schedule, rounds, extents })
    }
}
