//! Trials in which a host of a job is cut off: who names it when, who goes on, and what its own ranks are told.
//!
//! The hosts are network namespaces, which need root and iproute2. Two ranks live on one host, two on hosts of their
//! own.

use std::io::Read;
use std::process::Command;
use std::time::Duration;

use unisono::{Collectives, Communicator, Error, ReduceOp};

use crate::Problem;
use crate::job::{Job, Process, now_ns};

#[path = "../../../../crates/job/tests/support/network.rs"]
mod network;

use network::{Cut, Network};

const RANKS: usize = 4;
const HOSTS: usize = 3;

/// Elements of the all-reduce of those who go on.
const ELEMENTS: usize = 1 << 18;

/// From the cut to the last survivor's error that names who is cut off, in each run; empty where there are no
/// namespaces.
#[derive(Default)]
pub(crate) struct CutTimes {
    /// The link was down.
    pub(crate) link_down: Vec<Duration>,
    /// The link was up, and all packets vanished.
    pub(crate) silence: Vec<Duration>,
    /// Routes led into a blackhole.
    pub(crate) blackhole: Vec<Duration>,
    /// Resets came in the place of answers.
    pub(crate) resets: Vec<Duration>,
}

/// One rank.
pub(crate) fn rank() -> Result<(), Problem> {
    let communicator = unisono::init()?;
    communicator.barrier()?;
    println!("ready");
    let error = until_failure(&*communicator);
    let named_ns = now_ns();
    match error.root_cause() {
        Error::PeerLost { certainty, .. } => {
            println!("named {named_ns} {certainty:?} {:?}", error.lost_ranks())
        }
        other => println!("failed otherwise: {other}"),
    }
    match communicator.shrink() {
        Ok(shrunk) => {
            let mine = 1u32 << communicator.rank();
            let mut values = vec![mine; ELEMENTS];
            shrunk.communicator.all_reduce(&mut values, ReduceOp::Sum)?;
            let is_uniform = values.iter().all(|value| *value == values[0]);
            println!("resumed {} {is_uniform}", values[0]);
        }
        Err(Error::NoQuorum { survivors, silent }) => println!("no quorum {survivors:?} {silent:?}"),
        Err(error) => println!("cannot shrink: {error}"),
    }
    // Nobody leaves before all have spoken: leaving would look like another failure.
    let _ = std::io::stdin().read(&mut [0]);
    Ok(())
}

fn until_failure(communicator: &dyn Communicator) -> Error {
    loop {
        if let Err(error) = communicator.all_reduce(&mut [1u64; 64], ReduceOp::Sum) {
            return error;
        }
    }
}

/// Makes so many runs of each kind of cut. The first broken promise ends it.
pub(crate) fn measure(runs: u32, seed: u64) -> Result<CutTimes, Problem> {
    let Some(network) = Network::or_skip(HOSTS) else { return Ok(CutTimes::default()) };
    let mut random = seed;
    let mut all = |cut| {
        let runs = 0..runs;
        runs.map(|run| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            one(&network, cut, random)
                .map_err(|problem| Problem::Broken(format!("{cut:?}, run {run} from seed {seed}: {problem}")))
        })
        .collect::<Result<Vec<_>, _>>()
    };
    Ok(CutTimes {
        link_down: all(Cut::LinkDown)?,
        silence: all(Cut::Silence)?,
        blackhole: all(Cut::Blackhole)?,
        resets: all(Cut::Resets)?,
    })
}

/// Who lives where, and which host is cut off.
struct Placement {
    hosts: [usize; RANKS],
    cut_off: usize,
}

impl Placement {
    fn choose(random: u64) -> Placement {
        let mut hosts = [0, 0, 1, 2];
        hosts.rotate_right((random >> 33) as usize % RANKS);
        Placement { hosts, cut_off: (random >> 36) as usize % HOSTS }
    }

    /// Those who go on, and the others. Of two halves the one with rank 0 goes on.
    fn sides(&self) -> (Vec<usize>, Vec<usize>) {
        let is_cut_off = |rank: &usize| self.hosts[*rank] == self.cut_off;
        let (inside, outside): (Vec<_>, Vec<_>) = (0..RANKS).partition(is_cut_off);
        if inside.len() == outside.len() && inside.contains(&0) {
            (inside, outside)
        } else {
            (outside, inside)
        }
    }
}

fn one(network: &Network, cut: Cut, random: u64) -> Result<Duration, Problem> {
    let placement = Placement::choose(random);
    let mut job = start(network, &placement)?;
    std::thread::sleep(Duration::from_micros((random >> 40) % 100_000));
    let since_ns = now_ns();
    network.cut(placement.cut_off, cut)?;
    let outcome = judge(&job, &placement, cut);
    network.heal(placement.cut_off, cut)?;
    let named_ns = outcome?;
    job.ranks.iter_mut().try_for_each(Process::end)?;
    Ok(Duration::from_nanos(named_ns.saturating_sub(since_ns)))
}

fn start(network: &Network, placement: &Placement) -> Result<Job, Problem> {
    let program = std::env::current_exe()?;
    let mut job = Job { ranks: Vec::new() };
    for (rank, host) in placement.hosts.iter().enumerate() {
        let mut command: Command = network.rank((*host, placement.hosts[0]), (rank, RANKS), &program);
        job.ranks.push(Process::start(command.arg("cut"))?);
    }
    for rank in &job.ranks {
        rank.hear("ready")?;
    }
    Ok(job)
}

/// Hears all ranks; when the last of those who go on has named the others.
fn judge(job: &Job, placement: &Placement, cut: Cut) -> Result<u64, Problem> {
    let (survivors, others) = placement.sides();
    let mut last_ns = 0;
    for rank in &survivors {
        last_ns = last_ns.max(named(job, *rank, &others, cut)?);
    }
    let sum: u32 = survivors.iter().map(|rank| 1 << rank).sum();
    for rank in &survivors {
        expect(job, *rank, "resumed", &format!("{sum} true"))?;
    }
    for rank in &others {
        named(job, *rank, &survivors, cut)?;
    }
    for rank in &others {
        expect(job, *rank, "no quorum", &format!("{others:?} {survivors:?}"))?;
    }
    Ok(last_ns)
}

/// When a rank has named some of the other side and nobody else.
fn named(job: &Job, rank: usize, other_side: &[usize], cut: Cut) -> Result<u64, Problem> {
    let line = job.ranks[rank].hear("named")?;
    let broken = || Problem::Broken(format!("rank {rank} named {line}, not some of {other_side:?}"));
    let evidence = match cut {
        Cut::LinkDown | Cut::Silence | Cut::Blackhole => " Suspected [",
        Cut::Resets => " Confirmed [",
    };
    let (at_ns, rest) = line.split_once(evidence).ok_or_else(broken)?;
    let mut list = rest.trim_end_matches(']').split(", ").map(str::parse);
    if list.all(|one| one.is_ok_and(|one| other_side.contains(&one))) {
        at_ns.parse().map_err(|_| broken())
    } else {
        Err(broken())
    }
}

fn expect(job: &Job, rank: usize, word: &str, expected: &str) -> Result<(), Problem> {
    let line = job.ranks[rank].hear(word)?;
    if line == expected {
        return Ok(());
    }
    Err(Problem::Broken(format!("rank {rank} {word} {line}, not {expected}")))
}
