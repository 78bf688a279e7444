//! Whole jobs with their engines in simulated trouble: every call's bits, every error's cause, and who goes on.
//!
//! `UNISONO_TEST_SEED` repeats one seed of every test, `UNISONO_TEST_CASES` sets how many seeds each test runs; see
//! `seeds`.

mod departures;
mod seeds;
mod times;
mod troubles;

use std::collections::{BTreeMap, BTreeSet};

use unisono_communicator::Error;

use super::simulation::job::SimulatedJob;
use super::simulation::links::GOODBYE_WAIT;
use super::simulation::program::Moment;
use seeds::{FOUND, run};
use troubles::{Case, Trouble};

impl Case {
    fn fails(&self, why: &str, stories: &Stories) -> ! {
        for (rank, story) in stories {
            eprintln!("rank {rank}: {story:#?}");
        }
        let Case { trouble, seed, program, victims, .. } = self;
        panic!("UNISONO_TEST_SEED={seed} ({trouble:?}): {why}; victims {victims:?}, {program:?}");
    }

    /// Checks the properties that hold after any event.
    fn check(&self, simulated_job: &SimulatedJob, stories: &Stories) {
        let hung = simulated_job.job().hung.clone();
        if !hung.is_empty() {
            self.fails(&format!("ranks {hung:?} hang"), stories);
        }
        let deviating = self.program.deviation.map(|deviation| deviation.step);
        for (rank, story) in stories {
            for moment in story {
                if let Moment::Done { step, is_right: false } = moment
                    && Some(*step) != deviating
                {
                    self.fails(&format!("rank {rank} has a wrong result of step {step}"), stories);
                }
            }
            for error in errors(story) {
                if let Some(why) = self.wrong_error(*rank, error) {
                    self.fails(&format!("rank {rank}: {error}: {why}"), stories);
                }
            }
        }
        stories.iter().for_each(|(rank, story)| self.check_order(*rank, story, stories));
        self.check_epochs(stories);
        self.check_agreements(stories);
        match self.trouble {
            Trouble::Deviation => {
                self.check_times(stories);
                self.check_deviation(stories);
            }
            Trouble::Calm
            | Trouble::Crash
            | Trouble::Crashes
            | Trouble::CutLink
            | Trouble::Interruptions
            | Trouble::Changes => {
                self.check_times(stories);
                self.check_all_survive(simulated_job, stories);
            }
            Trouble::Departure => {
                self.check_times(stories);
                let departure = self.program.departure;
                departure.into_iter().for_each(|departure| self.check_departure(departure, stories));
            }
            Trouble::SilentHosts => self.check_majority(stories),
            Trouble::Stop | Trouble::CutHosts | Trouble::ResetHosts => {}
        }
    }

    /// Why a rank must not get such an error; `None` when it may.
    fn wrong_error(&self, rank: u32, error: &Error) -> Option<String> {
        let host = |rank: u32| self.program.hosts[rank as usize];
        if let Some(departure) = self.program.departure {
            return self.wrong_error_of_departure(departure, error);
        }
        match (self.trouble, error.root_cause()) {
            (Trouble::Calm, _) => Some("nothing was wrong".to_owned()),
            (Trouble::CutHosts, _) if self.is_short => Some("the cut was short".to_owned()),
            (Trouble::Deviation, Error::Mismatch { .. }) => None,
            (
                Trouble::Crash | Trouble::Crashes | Trouble::Stop | Trouble::Interruptions | Trouble::Changes,
                Error::PeerLost { .. },
            ) => {
                let blamed = culprits(error);
                let is_one = self.trouble != Trouble::Crashes;
                let is_right = if is_one { blamed == self.victims } else { blamed.is_subset(&self.victims) };
                (!is_right).then(|| format!("blames {blamed:?}"))
            }
            (Trouble::Stop, Error::Evicted { .. }) => {
                (!self.victims.contains(&rank)).then(|| "it was never stopped".to_owned())
            }
            (Trouble::CutLink, Error::PeerLost { .. }) => {
                let blamed = culprits(error);
                (!blamed.is_subset(&self.victims)).then(|| format!("blames {blamed:?}"))
            }
            (Trouble::CutLink, Error::Timeout { .. }) => None,
            (Trouble::CutHosts | Trouble::ResetHosts, Error::PeerLost { reported_by, .. }) => {
                let blamed = culprits(error);
                let is_right = blamed.iter().all(|&culprit| host(culprit) != host(reported_by.get()));
                (!is_right).then(|| format!("blames {blamed:?} on its own side"))
            }
            (Trouble::SilentHosts, Error::PeerLost { reported_by, .. }) => {
                let blamed = culprits(error);
                let is_on_other_side =
                    |rank| self.victims.contains(rank) != self.victims.contains(&reported_by.get());
                (!blamed.iter().all(is_on_other_side)).then(|| format!("blames {blamed:?} on its own side"))
            }
            (
                Trouble::CutHosts | Trouble::ResetHosts | Trouble::SilentHosts,
                Error::Evicted { .. } | Error::NoQuorum { .. },
            ) => None,
            _ => Some("not what has happened".to_owned()),
        }
    }

    /// Calls return in order, and after a failure no call is left out.
    fn check_order(&self, rank: u32, story: &[Moment], stories: &Stories) {
        let (mut next, mut own_epoch) = (0, 0);
        for moment in story {
            let is_in_order = match moment {
                Moment::Done { step, .. } => {
                    next += 1;
                    *step == next - 1
                }
                Moment::Failed { epoch, step, .. } => (*epoch, *step) == (own_epoch, next),
                Moment::Shrunk { epoch, step, .. } => {
                    own_epoch += 1;
                    *epoch == own_epoch && *step <= std::mem::replace(&mut next, *step)
                }
                Moment::Closed(_) => next == self.program.steps,
                Moment::Ended(_) | Moment::Departed(_) => true,
            };
            if !is_in_order {
                self.fails(&format!("rank {rank}: {moment:?} at step {next}"), stories);
            }
        }
    }

    /// Ranks that go on together have agreed on their group and on the step; every other rank has ended.
    fn check_epochs(&self, stories: &Stories) {
        let mut agreed: BTreeMap<u32, (&Vec<u32>, u64)> = BTreeMap::new();
        for (rank, story) in stories.iter().filter(|(_, story)| has_finished(story)) {
            for moment in story {
                let Moment::Shrunk { epoch, members, step, .. } = moment else { continue };
                if *agreed.entry(*epoch).or_insert((members, *step)) != (members, *step) {
                    self.fails(&format!("rank {rank} goes on with others in epoch {epoch}"), stories);
                }
                if !members.contains(rank) {
                    self.fails(&format!("rank {rank} is not in its own epoch {epoch}"), stories);
                }
            }
        }
    }

    /// No rank that lives is left behind.
    fn check_all_survive(&self, simulated_job: &SimulatedJob, stories: &Stories) {
        for (rank, story) in stories {
            if simulated_job.job().simulation.is_alive(*rank) && !has_finished(story) {
                self.fails(&format!("rank {rank} lives and has not come to the end"), stories);
            }
        }
    }

    /// The greater side of a cut that does not end; of two sides alike, the side with the lowest rank.
    fn majority(&self) -> BTreeSet<u32> {
        let others: BTreeSet<u32> = (0..self.size()).filter(|rank| !self.victims.contains(rank)).collect();
        let key = |side: &BTreeSet<u32>| (side.len(), side.contains(&0));
        if key(&others) > key(&self.victims) { others } else { self.victims.clone() }
    }

    /// The greater side goes on, and loses nobody, unless some of its ranks have left before.
    fn check_majority(&self, stories: &Stories) {
        let has_left = |story: &Vec<Moment>| has_finished(story) && errors(story).next().is_none();
        if stories.values().any(has_left) {
            return;
        }
        let is_behind = |rank: &u32| !stories.get(rank).is_some_and(|story| has_finished(story));
        if let Some(rank) = self.majority().into_iter().find(is_behind) {
            self.fails(&format!("rank {rank} is of the majority, and has not come to the end"), stories);
        }
    }

    /// All ranks learn of the failure, but a rank that has waited in vain in its close before that. No call that needs
    /// something from every rank returns with a result, neither this one nor any later one. A rank that only sends, or
    /// needs nothing from the ranks that know, may go on for a call or two.
    fn check_deviation(&self, stories: &Stories) {
        let Some(deviation) = self.program.deviation else { return };
        let failures = stories.values().flatten().filter_map(|moment| match moment {
            Moment::Failed { at, .. } => Some(*at),
            _ => None,
        });
        let is_late = failures.min().is_some_and(|at| at > GOODBYE_WAIT);
        for (rank, story) in stories {
            let may_not_hear = is_late && matches!(story.last(), Some(Moment::Closed(Ok(()))));
            let is_mismatch = |error: &Error| matches!(error.root_cause(), Error::Mismatch { .. });
            if !may_not_hear && !errors(story).any(is_mismatch) {
                self.fails(&format!("rank {rank} never hears of the mismatch"), stories);
            }
            let is_too_late = |moment: &&Moment| match moment {
                Moment::Done { step, .. } if *step == deviation.step && *rank == deviation.rank => false,
                Moment::Done { step, .. } => *step >= deviation.step && self.program.needs_everybody(*step),
                Moment::Failed { .. }
                | Moment::Shrunk { .. }
                | Moment::Ended(_)
                | Moment::Closed(_)
                | Moment::Departed(_) => false,
            };
            if let Some(moment) = story.iter().find(is_too_late) {
                self.fails(&format!("rank {rank} goes on: {moment:?}"), stories);
            }
        }
    }
}

/// The stories of all ranks that have not died.
type Stories = BTreeMap<u32, Vec<Moment>>;

fn errors(story: &[Moment]) -> impl Iterator<Item = &Error> {
    story.iter().filter_map(|moment| match moment {
        Moment::Failed { error, .. } | Moment::Ended(error) | Moment::Closed(Err(error)) => Some(error),
        Moment::Done { .. } | Moment::Shrunk { .. } | Moment::Departed(_) | Moment::Closed(Ok(())) => None,
    })
}

fn culprits(error: &Error) -> BTreeSet<u32> {
    match error.root_cause() {
        Error::PeerLost { culprits, .. } => culprits.iter().map(|culprit| culprit.rank.get()).collect(),
        _ => BTreeSet::new(),
    }
}

fn has_finished(story: &[Moment]) -> bool {
    matches!(story.last(), Some(Moment::Closed(_)))
}

fn run_one(trouble: Trouble, seed: u64) -> Stories {
    let (case, simulated_job) = Case::new(trouble, seed);
    let ends = simulated_job.run(|rank| case.program.run(&simulated_job, rank));
    let stories: Stories = (0..).zip(ends).filter_map(|(rank, story)| Some((rank, story?))).collect();
    case.check(&simulated_job, &stories);
    stories
}

/// The number in a variable of the environment.
#[expect(clippy::disallowed_methods, reason = "variables of tests, no settings of the library")]
fn number(name: &str) -> Option<u64> {
    std::env::var_os(name).and_then(|text| text.into_string().ok()).map(|text| text.parse().unwrap())
}

#[test]
fn without_trouble_every_result_is_right() {
    run(Trouble::Calm);
}

#[test]
fn one_death_is_told_alike_and_the_others_go_on() {
    run(Trouble::Crash);
}

#[test]
fn several_deaths_leave_the_others_in_agreement() {
    run(Trouble::Crashes);
}

#[test]
fn a_stopped_rank_is_told_and_the_others_go_on() {
    run(Trouble::Stop);
}

#[test]
fn a_link_that_fails_costs_an_epoch() {
    run(Trouble::CutLink);
}

#[test]
fn one_side_of_a_cut_between_hosts_goes_on() {
    run(Trouble::CutHosts);
}

#[test]
fn one_side_of_a_cut_that_answers_with_resets_goes_on() {
    run(Trouble::ResetHosts);
}

#[test]
fn hosts_that_go_silently_are_lost_at_once() {
    run(Trouble::SilentHosts);
}

#[test]
fn every_rank_hears_of_a_mismatch() {
    run(Trouble::Deviation);
}

#[test]
fn control_connections_that_end_on_their_way_cost_nothing() {
    run(Trouble::Interruptions);
}

#[test]
fn control_messages_that_change_on_their_way_cost_nothing() {
    run(Trouble::Changes);
}

#[test]
fn a_departure_is_told_alike_also_when_everybody_ends_at_once() {
    run(Trouble::Departure);
}

/// Seeds beyond the seeds of every run.
#[test]
fn what_was_found_once_stays_right() {
    for (trouble, seed) in FOUND {
        drop(run_one(trouble, seed));
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for trouble in [Trouble::Crashes, Trouble::Stop, Trouble::Deviation] {
        for seed in 0..20 {
            let texts = [0, 1].map(|_| format!("{:?}", run_one(trouble, seed)));
            assert_eq!(texts[0], texts[1], "{trouble:?}, seed {seed}");
        }
    }
}
