//! The trouble of a seed: its kind, its victims, and the program that it meets.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use unisono_engine::EngineOptions;

use super::super::simulation::departure::{EarlyDeparture, Way};
use super::super::simulation::job::{CutLink, Job, Outside, SimulatedJob};
use super::super::simulation::program::{Deviation, Program, mixed};
use super::super::simulation::{Cut, MS, Random};
use super::seeds::PROGRAM_BITS;

/// Longer than the detector's patience on every clock.
const LONG_STOP_MS: u64 = 1600;

/// Shorter than that.
const SHORT_STOP_MS: u64 = 600;

/// When all control connections of a job exist.
const CONNECTED: Duration = Duration::from_millis(20);

/// Longer than every simulated job goes on.
const GONE: Duration = Duration::from_secs(3600);

/// Changed messages are drawn from so many: about as many as a job without a failure sends.
const MESSAGES_PER_RANK: u64 = 25;

/// The kinds of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
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
    /// Of several hosts, one or two go silently for good, or one rank stops for longer than the detector waits.
    SilentHosts,
}

/// One seed: the program, the trouble, and the results.
pub(super) struct Case {
    pub(super) trouble: Trouble,
    pub(super) seed: u64,
    pub(super) program: Program,
    /// The ranks that die, that stop for long, that are cut off for good, and whose link fails.
    pub(super) victims: BTreeSet<u32>,
    /// Whether it is random which side of a cut goes on, and whether one does.
    pub(super) is_short: bool,
}

impl Case {
    pub(super) fn new(trouble: Trouble, seed: u64) -> (Case, Arc<SimulatedJob>) {
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
            Trouble::SilentHosts => {
                let hosts = 3 + random.below(3) as u32;
                (0..hosts).flat_map(|host| vec![host; 1 + random.below(4) as usize]).collect()
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

    pub(super) fn size(&self) -> u32 {
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
            Trouble::CutHosts | Trouble::ResetHosts | Trouble::SilentHosts => {
                self.plan_cut(job, random, (victim, early, short_stop));
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

    /// Plans a cut between hosts, or a stop of the victim.
    fn plan_cut(
        &mut self,
        job: &mut Job,
        random: &mut Random,
        (victim, early, short_stop): (u32, Duration, Duration),
    ) {
        let hosts = &self.program.hosts;
        let ranks_on = |gone: &[u32]| -> BTreeSet<u32> {
            (0..).zip(hosts).filter(|(_, host)| gone.contains(host)).map(|(rank, _)| rank).collect()
        };
        let (at, side, span, cut) = match self.trouble {
            Trouble::SilentHosts if random.below(4) == 0 => {
                self.victims.insert(victim);
                let span = MS * (LONG_STOP_MS + random.below(3000)) as u32;
                return job.simulation.schedule(victim, early, Outside::Stop(span));
            }
            Trouble::SilentHosts => {
                let number = hosts.last().map_or(0, |last| u64::from(last + 1));
                self.victims = ranks_on(&[(); 2].map(|()| random.below(number) as u32));
                // Ranks that have never been heard are given more time than a call has here.
                (CONNECTED + early, self.victims.clone(), GONE, Cut::Silence)
            }
            Trouble::ResetHosts => (early, ranks_on(&[0]), MS * (1 + random.below(4000)) as u32, Cut::Resets),
            _ => {
                self.is_short = random.below(3) == 0;
                let long = |random: &mut Random| MS * (LONG_STOP_MS + random.below(4000)) as u32;
                let span = if self.is_short { short_stop } else { long(random) };
                (early, ranks_on(&[0]), span, Cut::Silence)
            }
        };
        job.simulation.schedule(0, at, Outside::Cut { side, span, cut });
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
}
