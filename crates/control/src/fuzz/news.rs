//! Fuzzed news, for the target `control`.

use unisono_backend::{CallHistory, Question};
use unisono_communicator::{Certainty, Error, GroupRank, JobRank};

use super::input::Input;
use crate::wire::{AgreementKey, Ballot, CommunicatorKey, Departure, Fate, Fates, Topic};

/// The size of the job: this rank, and the ranks whose bytes the fuzzer makes.
pub(super) const SIZE: u32 = 5;

/// A rank of the job, or a rank that the job does not have.
pub(super) fn rank(input: &mut Input<'_>) -> JobRank {
    JobRank::new(input.below(SIZE as u8 + 1).into())
}

/// News as another rank could publish it.
pub(super) fn topic(input: &mut Input<'_>) -> Topic {
    let id = u64::from(input.below(8) / 7);
    let key = CommunicatorKey { id, epoch: 0 };
    match input.below(6) {
        0 => {
            let members = JobRank::all(SIZE).filter(|rank| id == 0 || rank.get() > 1).collect();
            Topic::Revoked { key, members, cause: cause(input) }
        }
        1 => {
            let certainty = [Certainty::Confirmed, Certainty::Suspected][usize::from(input.below(2))];
            Topic::Lost { rank: rank(input), certainty, reason: "r".into() }
        }
        2 => {
            let history = CallHistory { calls: input.below(4).into(), digest: input.below(2).into() };
            let in_progress = input.below(2).into();
            let members = JobRank::all(SIZE).filter(|rank| id == 0 || rank.get() > 1).collect();
            let departure = Departure { history, by_close: true, in_progress, messages: 0, last: None };
            Topic::Closed { key, members, departure }
        }
        3 => Topic::Goodbye,
        kind => {
            let question = [Question::Flag, Question::Survivors][usize::from(input.below(2))];
            let number = u64::from(input.below(4));
            let agreement = AgreementKey { communicator: key, question, number };
            let ranks = SIZE - u32::from(input.below(16) == 15) + u32::from(input.below(16) == 15);
            let bits = input.u16();
            let fate = |rank: GroupRank| match bits >> (2 * rank.get()) & 3 {
                2 => Some((rank, Fate::Gone)),
                3 => Some((rank, Fate::Unproven)),
                _ => None,
            };
            let mut fates = Fates::all_live(ranks);
            GroupRank::all(ranks).filter_map(fate).for_each(|(rank, fate)| fates.note(rank, fate));
            let ballot = Ballot { flag: input.below(4) > 0, finished_calls: input.below(3).into(), fates };
            if kind == 4 {
                Topic::Ballot { agreement, ballot }
            } else {
                Topic::Decision { agreement, ballot }
            }
        }
    }
}

fn cause(input: &mut Input<'_>) -> Error {
    match input.below(4) {
        0 => Error::closed(),
        1 => Error::Evicted { reported_by: JobRank::new(0), evidence: "r".into() },
        2 => Error::Corrupted { from: JobRank::new(0), to: JobRank::new(2), call: None, reason: "r".into() },
        _ => Error::Refused { problem: "p".into() },
    }
}
