//! The analysis of stragglers on jobs of 8 processes in which one rank is slow in a known way (rows I6 and I13).
//!
//! `UNISONO_TEST_CASES` says how often each job runs, once by default.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use unisono_collectives::{Collectives, Stragglers};
use unisono_communicator::settings::environment;
use unisono_communicator::{Communicator, ReduceOp};
use unisono_job::Job;
use unisono_job::config::Config;

use super::measured::with_busy_machine;
use crate::TRANSPORT;
use crate::child::{Rank, say, words};
use crate::network::Network;

const RANKS: usize = 8;

/// The slow rank of a job.
const SLOW: usize = 5;

/// The time that a rank computes before each call.
const COMPUTE: Duration = Duration::from_millis(5);

/// By how much longer the slow rank does, and for how long it is stopped.
const LONGER_MS: u64 = 20;

/// The program of a rank.
pub(crate) fn one_rank() {
    let mut lines = std::io::stdin().lines().map_while(std::io::Result::ok);
    let task = lines.next().unwrap();
    let numbers: Vec<u64> = task.split(' ').map(|word| word.parse().unwrap()).collect();
    let [calls, elements, longer_ms] = numbers[..] else { panic!("{task}") };
    let world = Job::join(&Config::from_environment().unwrap(), &TRANSPORT).unwrap();
    let communicator = world.communicator().unwrap();
    let mut data = vec![1.0f32; elements as usize];
    communicator.barrier().unwrap();
    say("begins");
    for _ in 0..calls {
        std::thread::sleep(COMPUTE + Duration::from_millis(longer_ms));
        communicator.all_reduce(&mut data, ReduceOp::Avg).unwrap();
    }
    say("has computed");
    // Nobody is stopped any more.
    assert_eq!(lines.next().as_deref(), Some("analyse"));
    let report = communicator.group().comms_logger().stragglers(&*communicator).unwrap();
    if report.ranks.len() > 1 && communicator.rank() == 0 {
        eprintln!("{report}");
    }
    say(&report.verdict_text());
    drop(lines);
    communicator.close().unwrap();
}

/// A job whose ranks `command` starts; the verdict, on which they agree. `meanwhile` runs with the process of the
/// slow rank until all have made their calls.
fn verdict_of(
    command: impl Fn(usize) -> Command,
    (calls, elements, longer_ms): (u64, u64, u64),
    meanwhile: impl Fn(Pid, &AtomicBool) + Sync,
) -> String {
    let mut ranks: Vec<Rank> = (0..RANKS)
        .map(|rank| {
            let mut command = command(rank);
            command.args(words("stragglers")).env("UNISONO_COMMS_LOGGER", "on");
            let mut started = Rank::start(format!("rank {rank}"), &mut command);
            let longer_ms = if rank == SLOW { longer_ms } else { 0 };
            started.tell(&format!("{calls} {elements} {longer_ms}"));
            started
        })
        .collect();
    ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "begins"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let slow = Pid::from_raw(ranks[SLOW].id() as i32).unwrap();
        let (meanwhile, is_over) = (&meanwhile, &is_over);
        threads.spawn(move || meanwhile(slow, is_over));
        ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "has computed"));
        is_over.store(true, Ordering::SeqCst);
    });
    ranks.iter_mut().for_each(|rank| rank.tell("analyse"));
    let verdicts: Vec<String> = ranks.iter().map(Rank::hear).collect();
    assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "{verdicts:?}");
    ranks.into_iter().for_each(Rank::end);
    verdicts.into_iter().next().unwrap()
}

/// A rank of a job on this host.
fn here(run: u32) -> impl Fn(usize) -> Command {
    static JOBS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let job = format!("stragglers-{}-{run}-{}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
    move |rank| {
        let mut command = Command::new("env");
        command
            .env("UNISONO_RANK", rank.to_string())
            .env("UNISONO_WORLD_SIZE", RANKS.to_string())
            .env("UNISONO_JOB", &job);
        command
    }
}

fn runs() -> u32 {
    let set = environment().find(|(name, _)| name == "UNISONO_TEST_CASES");
    set.map_or(1, |(_, runs)| runs.parse().unwrap())
}

fn nothing(_: Pid, _: &AtomicBool) {}

/// Stops the slow rank again and again.
fn stop(slow: Pid, is_over: &AtomicBool) {
    while !is_over.load(Ordering::SeqCst) {
        kill_process(slow, Signal::STOP).unwrap();
        std::thread::sleep(Duration::from_millis(LONGER_MS));
        kill_process(slow, Signal::CONT).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn came_late() -> String {
    format!("rank {SLOW} came late: ")
}

#[test]
fn i13_a_rank_that_computes_longer_came_late() {
    for run in 0..runs() {
        let verdict = verdict_of(here(run), (60, 1024, LONGER_MS), nothing);
        assert!(verdict.starts_with(&came_late()), "run {run}: {verdict}");
    }
}

#[test]
fn i13_a_rank_that_is_stopped_is_found() {
    for run in 0..runs() {
        let verdict = verdict_of(here(run), (60, 1024, 0), stop);
        // It is stopped while it computes, and in calls.
        let slow = format!("rank {SLOW} is slow within calls");
        assert!(verdict.starts_with(&came_late()) || verdict.starts_with(&slow), "run {run}: {verdict}");
    }
}

#[test]
fn i13_the_bytes_of_a_slow_network_are_told_from_a_late_rank() {
    for run in 0..runs() {
        let Some(network) = Network::or_skip(RANKS) else { return };
        // A call takes far longer than ranks wait for a processor on a busy machine.
        network.shape_host(SLOW, 10_000_000).unwrap();
        let command = |rank| network.rank((rank, 0), (rank, RANKS), "env".as_ref());
        let verdict = verdict_of(command, (20, 32 << 10, 0), nothing);
        let slow = format!("the network from rank {SLOW} to rank");
        assert!(verdict.contains("moved slowly") && verdict.contains(&slow), "run {run}: {verdict}");
    }
}

#[test]
fn i13_a_machine_that_is_full_is_not_a_slow_network() {
    for run in 0..runs() {
        let network = Network::or_skip(RANKS);
        with_busy_machine(|| {
            let mut verdicts = vec![verdict_of(here(run), (40, 64 << 10, 0), nothing)];
            if let Some(network) = &network {
                let command = |rank| network.rank((rank, 0), (rank, RANKS), "env".as_ref());
                verdicts.push(verdict_of(command, (40, 64 << 10, 0), nothing));
            }
            assert!(
                verdicts.iter().all(|verdict| !verdict.contains("network from")),
                "run {run}: {verdicts:?}"
            );
        });
    }
}
