//! Trials in which one rank of four dies or stops: who names it when, and when the others go on.

use std::time::Duration;

use rustix::process::Signal;

use crate::Problem;
use crate::job::Job;

const RANKS: usize = 4;

/// What happens to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RankFault {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT when the others have gone on.
    Stop,
}

/// One kind of trial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    pub(crate) fault: RankFault,
    /// Mebibytes that every rank holds.
    pub(crate) resident_mib: usize,
    pub(crate) runs: u32,
    pub(crate) seed: u64,
}

/// From the signal to the last survivor, in each run.
#[derive(Default)]
pub(crate) struct RecoveryTimes {
    /// Until the error that names the rank.
    pub(crate) named: Vec<Duration>,
    /// Until the end of `shrink`.
    pub(crate) shrunk: Vec<Duration>,
    /// Until the end of the all-reduce after that.
    pub(crate) resumed: Vec<Duration>,
}

/// Makes all runs of a trial. The first broken promise ends it.
pub(crate) fn measure(trial: &Trial) -> Result<RecoveryTimes, Problem> {
    let mut times = RecoveryTimes::default();
    // The multiplier and the increment of Knuth's MMIX.
    let mut random = trial.seed;
    for run in 0..trial.runs {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (victim, delay_us) = ((random >> 33) as usize % RANKS, (random >> 40) % 20_000);
        let [named, shrunk, resumed] =
            one(trial, run, victim, Duration::from_micros(delay_us)).map_err(|problem| {
                Problem::Broken(format!("{trial:?}, run {run}, victim {victim}: {problem}"))
            })?;
        times.named.push(named);
        times.shrunk.push(shrunk);
        times.resumed.push(resumed);
    }
    Ok(times)
}

fn one(trial: &Trial, run: u32, victim: usize, delay: Duration) -> Result<[Duration; 3], Problem> {
    let name = format!("soak-{}-{:?}-{}-{run}", std::process::id(), trial.fault, trial.resident_mib);
    let mut job = Job::start(RANKS as u32, &name, &["rank", &trial.resident_mib.to_string()])?;
    for rank in &job.ranks {
        rank.hear("ready")?;
    }
    std::thread::sleep(delay);
    let (signal, certainty) = match trial.fault {
        RankFault::Kill => (Signal::KILL, "Confirmed"),
        RankFault::Stop => (Signal::STOP, "Suspected"),
    };
    let since_ns = job.ranks[victim].signal(signal)?;
    let survivors = || (0..RANKS).filter(|rank| *rank != victim);
    let [mut named_ns, mut shrunk_ns, mut resumed_ns] = [0; 3];
    for rank in survivors() {
        named_ns = named_ns.max(hear(&job, rank, "named", &format!("[{victim}] {certainty}"))?);
    }
    let new_ranks: Vec<Option<usize>> =
        (0..RANKS).map(|rank| (rank != victim).then(|| rank - usize::from(rank > victim))).collect();
    for rank in survivors() {
        shrunk_ns = shrunk_ns.max(hear(&job, rank, "shrunk", &format!("{new_ranks:?}"))?);
    }
    let sum: u32 = survivors().map(|rank| 1 << rank).sum();
    for rank in survivors() {
        resumed_ns = resumed_ns.max(hear(&job, rank, "resumed", &format!("{sum} true"))?);
    }
    if trial.fault == RankFault::Stop {
        job.ranks[victim].signal(Signal::CONT)?;
        job.ranks[victim].hear("evicted")?;
        job.ranks[victim].hear("stays out")?;
        job.ranks[victim].end()?;
    }
    for rank in survivors() {
        job.ranks[rank].end()?;
    }
    let since = |ns: u64| Duration::from_nanos(ns.saturating_sub(since_ns));
    Ok([named_ns, shrunk_ns, resumed_ns].map(since))
}

/// A line `word NANOSECONDS rest` of a rank: its time.
fn hear(job: &Job, rank: usize, word: &str, expected: &str) -> Result<u64, Problem> {
    let line = job.ranks[rank].hear(word)?;
    let (at_ns, rest) = line.split_once(' ').unwrap_or((&line, ""));
    match at_ns.parse() {
        Ok(at_ns) if rest == expected => Ok(at_ns),
        _ => Err(Problem::Broken(format!("rank {rank} {word} {line}, not {expected}"))),
    }
}
