//! The properties of a job in which one rank ends, in any way, and every other rank that gets an error ends at once.

use std::time::Duration;

use unisono_backend::IDLE_AFTER_CAUSE_MAX;
use unisono_communicator::{Awaited, Error};

use super::super::simulation::departure::{EarlyDeparture, Way};
use super::super::simulation::program::Moment;
use super::{Case, Stories, culprits, errors};

/// The time for which nothing may move in a call after a failure, on the fastest clock.
const STILL_MIN: Duration = Duration::from_nanos(IDLE_AFTER_CAUSE_MAX.as_nanos() as u64 * 98 / 100);

impl Case {
    /// Why a rank must not get such an error: all get the same kind, about the rank that has ended and no other.
    pub(super) fn wrong_error_of_departure(
        &self,
        departure: EarlyDeparture,
        error: &Error,
    ) -> Option<String> {
        let EarlyDeparture { step, way, .. } = departure;
        match error {
            Error::PeerLost { evidence, .. } if way != Way::Silence => {
                let blamed = culprits(error);
                if blamed != self.victims {
                    return Some(format!("blames {blamed:?}"));
                }
                let left = match step.checked_sub(1) {
                    Some(last) => vec![format!("it left after call {last}")],
                    // The second one once the news has come that it leaves the job, too.
                    None => vec![
                        "it left this communicator unused".to_owned(),
                        "it left before its first call".to_owned(),
                    ],
                };
                (way.is_clean() && !left.contains(evidence)).then(|| "not how it has left".to_owned())
            }
            Error::Timeout { .. } if way == Way::Silence => None,
            // Both have closed: this rank, and the rank that did so too early.
            Error::Mismatch { .. } if way == Way::Close => None,
            _ => Some("not what has happened".to_owned()),
        }
    }

    /// A call whose result all other ranks have got has had all its bytes. And a rank that has closed early is told at
    /// most that others have closed after more calls.
    pub(super) fn check_departure(&self, departure: EarlyDeparture, stories: &Stories) {
        if departure.way == Way::Silence {
            self.check_timeouts(departure.rank, stories);
        }
        let has_done = |story: &[Moment], number: u64| {
            story.iter().any(|moment| matches!(moment, Moment::Done { step, .. } if *step == number))
        };
        for (rank, story) in stories {
            let others = || stories.iter().filter(|(other, _)| *other != rank);
            for moment in story {
                match moment {
                    Moment::Failed { error: Error::Mismatch { .. }, .. } => {
                        self.fails(&format!("rank {rank} has a mismatch and has not closed"), stories);
                    }
                    // A call that was refused at once has taken no part: its communicator was revoked before. A call in
                    // which nothing has moved for long does not go on after a failure.
                    Moment::Failed { step, waited, .. }
                        if departure.way != Way::Death
                            && !waited.is_zero()
                            && *waited < STILL_MIN
                            && others().all(|(_, story)| has_done(story, *step)) =>
                    {
                        self.fails(&format!("rank {rank} fails in {step}, which had all its bytes"), stories);
                    }
                    Moment::Departed(Err(error)) if !matches!(error, Error::Mismatch { .. }) => {
                        self.fails(&format!("rank {rank} has closed early and gets {error}"), stories);
                    }
                    Moment::Failed { .. }
                    | Moment::Departed(_)
                    | Moment::Done { .. }
                    | Moment::Shrunk { .. }
                    | Moment::Ended(_)
                    | Moment::Closed(_) => {}
                }
            }
            let is_over =
                matches!(story.last(), Some(Moment::Failed { .. } | Moment::Departed(_) | Moment::Closed(_)));
            if !is_over {
                self.fails(&format!("rank {rank} has not come to its end"), stories);
            }
        }
    }

    /// All ranks report the same deadline, at which only these had not called: the late rank, and the ranks that waited
    /// in an earlier call.
    fn check_timeouts(&self, late: u32, stories: &Stories) {
        let mut first = None;
        for (rank, story) in stories {
            for error in errors(story) {
                let Error::Timeout { call, not_arrived, .. } = error else { continue };
                let has_not_called = |one: &&Awaited| one.status.starts_with("has not called");
                let missing: Vec<u32> =
                    not_arrived.iter().filter(has_not_called).map(|one| one.rank.get()).collect();
                let was_waiting = |missing: &u32| {
                    let last = stories.get(missing).and_then(|story| story.last());
                    matches!(last, Some(Moment::Failed { step, .. }) if *step < call.number)
                };
                if missing.is_empty() || !missing.iter().all(|one| *one == late || was_waiting(one)) {
                    self.fails(&format!("rank {rank}: {error}: {missing:?} have not called"), stories);
                }
                if *first.get_or_insert(missing.clone()) != missing {
                    self.fails(&format!("rank {rank}: {error}: others are told {first:?}"), stories);
                }
            }
        }
    }
}
