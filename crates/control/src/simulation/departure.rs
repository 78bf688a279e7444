//! A program without recovery, in which one rank ends before the others are done, in any of the ways in which ranks can
//! end. Every other rank that gets an error ends at once: an ordinary program prints it and exits.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use unisono_communicator::{Communicator, Group};

use super::job::SimulatedJob;
use super::links::create;
use super::program::{Moment, Program, mixed};
use super::{Random, WORLD};

/// Longer than the deadline of any call of the others.
const LONGER_THAN_CALLS_MS: u64 = 10_000;

/// The end of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Way {
    /// Its thread panics, which drops its communicator. Its process may end with it or go on.
    Panic,
    /// It drops its communicator without closing it, and then its world.
    Drop,
    /// It closes its communicator too early, and stays.
    Close,
    /// It ends its process, and drops nothing.
    Exit,
    /// It is killed, in the middle of a call or between two.
    Death,
    /// It stays, but makes no call for longer than the others wait.
    Silence,
}

impl Way {
    pub(in super::super) const ALL: [Way; 6] =
        [Way::Panic, Way::Drop, Way::Close, Way::Exit, Way::Death, Way::Silence];

    /// Whether it leaves in good order.
    pub(in super::super) fn is_clean(self) -> bool {
        match self {
            Way::Drop | Way::Close | Way::Exit => true,
            Way::Panic | Way::Death | Way::Silence => false,
        }
    }
}

/// The rank that ends, the call before which it does, and the way.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct EarlyDeparture {
    pub(in super::super) rank: u32,
    pub(in super::super) step: u64,
    pub(in super::super) way: Way,
}

impl Program {
    /// The program of one rank of the job.
    pub(in super::super) fn run_with_departure(
        &self,
        departure: EarlyDeparture,
        simulated_job: &Arc<SimulatedJob>,
        rank: u32,
    ) -> Vec<Moment> {
        let mut story = Vec::new();
        let group = Group::world_on(rank, self.hosts.as_slice().into());
        let communicator = create(simulated_job, WORLD, group).communicator();
        let mut random = Random::new(mixed(self.seed, u64::from(rank)));
        for number in 0..self.steps {
            simulated_job.nap(rank, Duration::from_millis(2));
            if (departure.rank, departure.step) == (rank, number) {
                match departure.way {
                    Way::Panic => {
                        panic_with(communicator);
                        if random.below(2) == 0 {
                            simulated_job.leave(rank);
                        }
                        story.push(Moment::Departed(Ok(())));
                        return story;
                    }
                    Way::Drop => {
                        drop(communicator);
                        simulated_job.leave(rank);
                        story.push(Moment::Departed(Ok(())));
                        return story;
                    }
                    Way::Exit => {
                        simulated_job.leave(rank);
                        story.push(Moment::Departed(Ok(())));
                        return story;
                    }
                    Way::Close => {
                        story.push(Moment::Departed(communicator.close()));
                        // It holds its communicator for as long as another rank may need it.
                        simulated_job.sleep(rank, Duration::from_millis(2 * LONGER_THAN_CALLS_MS));
                        return story;
                    }
                    Way::Death => simulated_job.job().die_after(rank, random.below(40)),
                    Way::Silence => {
                        let span = Duration::from_millis(LONGER_THAN_CALLS_MS + random.below(3000));
                        simulated_job.sleep(rank, span);
                    }
                }
            }
            let (moment, failure) = self.make(simulated_job, &*communicator, number);
            story.push(moment);
            if failure.is_some() {
                end(simulated_job, rank, communicator, &mut random);
                return story;
            }
        }
        story.push(Moment::Closed(communicator.close()));
        end(simulated_job, rank, communicator, &mut random);
        story
    }
}

/// The process ends: its communicator is dropped before that, or is not dropped.
fn end(simulated_job: &SimulatedJob, rank: u32, communicator: Arc<dyn Communicator>, random: &mut Random) {
    let kept = (random.below(2) == 0).then_some(communicator);
    simulated_job.leave(rank);
    drop(kept);
}

/// Drops a communicator as a thread does that panics.
fn panic_with(communicator: Arc<dyn Communicator>) {
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _dropped = communicator;
        resume_unwind(Box::new("a panic of the program"));
    }));
    drop(unwound);
}
