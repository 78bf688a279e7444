//! Whole jobs with their engines in simulated trouble: every call's bits, every error's cause, and who goes on.
//!
//! `UNISONO_TEST_SEED` repeats one seed of every test, `UNISONO_TEST_CASES` sets how many seeds each test runs; see
//! `seeds`.

mod departures;
mod seeds;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use unisono_communicator::Error;
use unisono_engine::EngineOptions;

use super::simulation::departure::{EarlyDeparture, Way};
use super::simulation::job::{CutLink, Job, Outside, SimulatedJob};
use super::simulation::links::GOODBYE_WAIT;
use super::simulation::program::{Deviation, Moment, Program, mixed};
use super::simulation::{Cut, MS, Random};
use seeds::{FOUND, PROGRAM_BITS, run};

/// Longer than the detector's patience on every clock.
const LONG_STOP_MS: u64 = 1600;

/// Shorter than that.
const SHORT_STOP_MS: u64 = 600;

/// How long the news of a failure may take, together with the time that a rank may wait for a better explanation.
const SPREAD_MAX: Duration = Duration::from_millis(300);

/// Changed messages are drawn from so many: about as many as a job without a failure sends.
const MESSAGES_PER_RANK: u64 = 25;

/// What happens to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// Nothing, but delays, skewed clocks and short stops.
    Calm,
    /// One rank dies.
    Crash,
    /// Several ranks die.
    Crashes,
    /// One rank stops for longer than the detector waits.
    Stop,
    /// Bytes of one link vanish, and it ends or does not.
    CutLink,
    /// A network partition separates two hosts for a while.
    CutHosts,
    /// A network partition separates two hosts for a while, and both get resets in the place of answers.
    ResetHosts,
    /// One rank makes a different call.
    Deviation,
    /// Control connections end on their way, and perhaps one rank dies.
    Interruptions,
    /// One rank ends in one of the ways in which ranks can end, and every rank that gets an error ends at once.
    Departure,
    /// Bits of control messages change on their way, and perhaps one rank dies.
    Changes,
}

/// One seed: the program, the trouble, and the results.
struct Case {
    trouble: Trouble,
    seed: u64,
    program: Program,
    /// The ranks that die, that stop for long, and whose link fails.
    victims: BTreeSet<u32>,
    /// Whether it is random which side of a cut goes on, and whether one does.
    is_short: bool,
}

impl Case {
    fn new(trouble: Trouble, seed: u64) -> (Case, Arc<SimulatedJob>) {
        let (program_seed, plan) = (seed & ((1 << PROGRAM_BITS) - 1), seed >> PROGRAM_BITS);
        let mut random = Random::new(mixed(program_seed, trouble as u64 ^ plan));
        (0..4).for_each(|_| {
            random.below(2);
        });
        let size = 2 + random.below(8) as u32;
        let hosts: Vec<u32> = match trouble {
            Trouble::CutHosts | Trouble::ResetHosts => {
                let below = 1 + random.below(u64::from(size) - 1) as u32;
                (0..size).map(|rank| u32::from(rank >= below)).collect()
            }
            Trouble::Departure if random.below(2) == 0 => {
                (0..size).map(|rank| u32::from(rank * 2 >= size)).collect()
            }
            _ => vec![0; size as usize],
        };
        let options = EngineOptions {
            timeout: Duration::from_secs(8),
            spin: Duration::ZERO,
            piece_bytes: (random.below(3) > 0).then(|| 8 << random.below(8)),
            ..EngineOptions::default()
        };
        let steps = 2 + random.below(5);
        let program =
            Program { seed: mixed(program_seed, 7), steps, hosts, deviation: None, departure: None };
        let simulated_job = SimulatedJob::new(&program.hosts, mixed(program_seed, 8), options);
        let mut case = Case { trouble, seed, program, victims: BTreeSet::new(), is_short: false };
        case.plan_trouble(&simulated_job, &mut random);
        (case, simulated_job)
    }

    fn size(&self) -> u32 {
        self.program.hosts.len() as u32
    }

    fn plan_trouble(&mut self, simulated_job: &SimulatedJob, random: &mut Random) {
        let size = u64::from(self.size());
        let job = &mut *simulated_job.job();
        let early = MS * random.below(12) as u32 + Duration::from_micros(random.below(1000));
        let victim = random.below(size) as u32;
        let short_stop = MS * random.below(SHORT_STOP_MS) as u32;
        match self.trouble {
            Trouble::Calm => job.simulation.schedule(victim, early, Outside::Stop(short_stop)),
            Trouble::Crash | Trouble::Crashes => {
                let deaths = if self.trouble == Trouble::Crash { 1 } else { 1 + random.below(size - 1) };
                for _ in 0..deaths {
                    // At least one rank is left.
                    let victim = random.below(if deaths == 1 { size } else { size - 1 }) as u32;
                    self.victims.insert(victim);
                    let later = MS * random.below(if deaths == 1 { 15 } else { 300 }) as u32;
                    match random.below(2) {
                        0 => job.die_after(victim, random.below(400)),
                        _ => job.simulation.schedule(victim, later, Outside::Crash),
                    }
                }
            }
            Trouble::Stop => {
                self.victims.insert(victim);
                let span = MS * (LONG_STOP_MS + random.below(3000)) as u32;
                job.simulation.schedule(victim, early, Outside::Stop(span));
            }
            Trouble::CutLink => {
                let other = (victim + 1 + random.below(size - 1) as u32) % size as u32;
                let (after_bytes, ends) = (random.below(2000), random.below(2) == 0);
                self.victims.extend([victim, other]);
                job.cut_link = Some(CutLink { from: victim, to: other, after_bytes, ends });
            }
            Trouble::CutHosts => {
                let below = self.program.hosts.iter().filter(|&&host| host == 0).count() as u32;
                self.is_short = random.below(3) == 0;
                let span =
                    if self.is_short { short_stop } else { MS * (LONG_STOP_MS + random.below(4000)) as u32 };
                job.simulation.schedule(0, early, Outside::Cut { below, span, cut: Cut::Silence });
            }
            Trouble::ResetHosts => {
                let below = self.program.hosts.iter().filter(|&&host| host == 0).count() as u32;
                let span = MS * (1 + random.below(4000)) as u32;
                job.simulation.schedule(0, early, Outside::Cut { below, span, cut: Cut::Resets });
            }
            Trouble::Deviation => {
                let step = random.below(self.program.steps);
                let others = self.program.others(step);
                let kind = others[random.below(others.len() as u64) as usize];
                self.program.deviation = Some(Deviation { rank: victim, step, kind });
            }
            Trouble::Interruptions | Trouble::Changes => {
                (0..1 + random.below(8)).for_each(|_| self.plan_disturbance(job, random));
                if random.below(2) == 0 {
                    self.victims.insert(victim);
                    job.simulation.schedule(victim, early, Outside::Crash);
                }
            }
            Trouble::Departure => {
                self.victims.insert(victim);
                let step = random.below(self.program.steps);
                let way = Way::ALL[random.below(Way::ALL.len() as u64) as usize];
                self.program.departure = Some(EarlyDeparture { rank: victim, step, way });
            }
        }
    }

    /// Plans the end of a control connection, or a change of a control message.
    fn plan_disturbance(&self, job: &mut Job, random: &mut Random) {
        let size = u64::from(self.size());
        let (rank, number) = (random.below(size) as u32, random.below(1000));
        let at = Duration::from_micros(random.below(15_000));
        if self.trouble == Trouble::Interruptions {
            job.simulation.schedule(rank, at, Outside::Break { number });
        } else {
            job.simulation.change_message(number % (MESSAGES_PER_RANK * size), random.below(4000));
        }
    }

    fn fails(&self, why: &str, stories: &Stories) -> ! {
        for (rank, story) in stories {
            eprintln!("rank {rank}: {story:#?}");
        }
        let Case { trouble, seed, program, victims, .. } = self;
        panic!("UNISONO_TEST_SEED={seed} ({trouble:?}): {why}; victims {victims:?}, {program:?}");
    }

    /// Checks what must hold whatever happens.
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
            (Trouble::CutHosts | Trouble::ResetHosts, Error::Evicted { .. } | Error::NoQuorum { .. }) => None,
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
                let Moment::Shrunk { epoch, members, step } = moment else { continue };
                if *agreed.entry(*epoch).or_insert((members, *step)) != (members, *step) {
                    self.fails(&format!("rank {rank} goes on with others in epoch {epoch}"), stories);
                }
                if !members.contains(rank) {
                    self.fails(&format!("rank {rank} is not in its own epoch {epoch}"), stories);
                }
            }
        }
    }

    /// No rank finds out by its own deadline what another rank has found out before. A call goes on after a failure as
    /// long as its bytes move, and over narrow and slow links that takes longer than the news.
    fn check_times(&self, stories: &Stories) {
        let mut first: BTreeMap<u32, Duration> = BTreeMap::new();
        // A rank that makes no call for long finds out when it calls.
        let late = self.program.departure.filter(|departure| departure.way == Way::Silence);
        let is_on_time = |entry: &(&u32, &Vec<Moment>)| late.is_none_or(|late| late.rank != *entry.0);
        let failures = || {
            stories.iter().filter(is_on_time).flat_map(|(_, story)| story).filter_map(|moment| match moment {
                Moment::Failed { epoch, at, still, .. } => Some((*epoch, *at, *still)),
                Moment::Done { .. }
                | Moment::Shrunk { .. }
                | Moment::Ended(_)
                | Moment::Closed(_)
                | Moment::Departed(_) => None,
            })
        };
        for (epoch, at, _) in failures() {
            let first = first.entry(epoch).or_insert(at);
            *first = at.min(*first);
        }
        let is_late =
            |(epoch, at, still): &(u32, Duration, Duration)| (*at - first[epoch]).min(*still) > SPREAD_MAX;
        if let Some((epoch, at, still)) = failures().find(is_late) {
            let since = first[&epoch];
            let text =
                format!("epoch {epoch} has failed after {since:?}, somewhere after {at:?}, {still:?} still");
            self.fails(&text, stories);
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

/// Seeds beyond those of every run.
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
