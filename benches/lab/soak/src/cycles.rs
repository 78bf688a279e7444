//! Communicators that are made, used, failed and dropped, thousands of times: descriptors, threads and memory stay.

use std::fmt;
use std::io::Read;

use unisono::{Collectives, Communicator, Error, ReduceOp};

use crate::Problem;
use crate::job::Job;

const RANKS: u32 = 2;

/// Cycles before the first look: buffers and pools have their size by then.
const WARM_CYCLES: u32 = 500;

/// Sockets of the last cycles that may be on their way out at one look and not at the other.
const CLOSING_MAX: usize = 4;

/// What a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holdings {
    descriptors: usize,
    threads: usize,
    resident_kib: u64,
}

/// What a rank held early and late.
pub(crate) struct Flat {
    cycles: u32,
    early: Holdings,
    late: Holdings,
}

impl fmt::Display for Flat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Flat { cycles, early, late } = self;
        write!(
            formatter,
            "{cycles} cycles of create, use, fail, drop: \
             descriptors {} then {}, threads {} then {}, resident {} KiB then {} KiB",
            early.descriptors,
            late.descriptors,
            early.threads,
            late.threads,
            early.resident_kib,
            late.resident_kib
        )
    }
}

impl Holdings {
    fn now() -> Result<Holdings, Problem> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0u64)
        };
        let descriptors = std::fs::read_dir("/proc/self/fd")?.count();
        Ok(Holdings { descriptors, threads: number("Threads:") as usize, resident_kib: number("VmRSS:") })
    }

    fn parse(text: &str) -> Option<Holdings> {
        let mut words = text.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        Some(Holdings {
            descriptors: number()? as usize,
            threads: number()? as usize,
            resident_kib: number()?,
        })
    }
}

/// One rank: rank 1 fails every communicator, and both see it.
pub(crate) fn rank(cycles: u32) -> Result<(), Problem> {
    let world = unisono::init()?;
    let fails = world.rank() == 1;
    let cycle = |number: u32| {
        let communicator = world.duplicate()?;
        // The failure of rank 1 may reach the other before its call has returned.
        let error = use_and_fail(&*communicator, fails, number).err();
        match error.as_ref().map(Error::root_cause) {
            Some(Error::System { .. }) => Ok(()),
            _ => Err(Problem::Broken(format!("cycle {number}: {error:?}"))),
        }
    };
    (0..WARM_CYCLES).try_for_each(cycle)?;
    say("early")?;
    (WARM_CYCLES..WARM_CYCLES + cycles).try_for_each(cycle)?;
    say("late")?;
    // Both leave together.
    let _ = std::io::stdin().read(&mut [0]);
    Ok(())
}

fn use_and_fail(communicator: &dyn Communicator, fails: bool, cycle: u32) -> unisono::Result<()> {
    let mut values = [1u32; 100];
    communicator.all_reduce(&mut values, ReduceOp::Sum)?;
    assert_eq!(values, [RANKS; 100]);
    if fails {
        communicator.revoke(Error::System { what: "cycle".to_owned(), text: cycle.to_string() })?;
    }
    communicator.barrier()
}

fn say(when: &str) -> Result<(), Problem> {
    let Holdings { descriptors, threads, resident_kib } = Holdings::now()?;
    println!("{when} {descriptors} {threads} {resident_kib}");
    Ok(())
}

/// Runs the cycles, and fails when a rank held more threads at the end, more descriptors than can be closing,
/// or an eighth more memory.
pub(crate) fn measure(cycles: u32) -> Result<Flat, Problem> {
    let name = format!("soak-{}-cycles", std::process::id());
    let mut job = Job::start(RANKS, &name, &["cycles", &cycles.to_string()])?;
    let mut worst = None;
    for rank in &job.ranks {
        let hear = |when| {
            let line = rank.hear_within(when, crate::job::LONG)?;
            Holdings::parse(&line).ok_or_else(|| Problem::Broken(format!("not holdings: {line}")))
        };
        let (early, late) = (hear("early")?, hear("late")?);
        let flat = Flat { cycles, early, late };
        let grows = late.descriptors > early.descriptors + CLOSING_MAX
            || late.threads > early.threads
            || late.resident_kib > early.resident_kib + early.resident_kib / 8;
        if grows {
            return Err(Problem::Broken(flat.to_string()));
        }
        worst = Some(flat);
    }
    for rank in &mut job.ranks {
        rank.end()?;
    }
    worst.ok_or_else(|| Problem::Broken("no ranks".to_owned()))
}
