//! `unisono run` with ranks that are lost, panic or sleep: its words about them. The ranks are this test program again:
//! each of them runs one of the programs below.

#![allow(clippy::print_stdout, reason = "the tests read the output of their ranks")]

use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use unisono::{Collectives, ReduceOp, World};

use crate::support::{Finished, rank_command, start_by};

/// Starts three ranks that run `program`, with these options.
fn run(options: &[&str], program: &str) -> Finished {
    let line = rank_command(program);
    let arguments = [&["run", "-n", "3"], options, &["--", "sh", "-c", &line]].concat();
    start_by(&["env", "RUST_BACKTRACE=0"], &arguments).finish()
}

fn last_line(done: &Finished) -> &str {
    done.err.lines().last().unwrap_or_default()
}

fn world() -> World {
    let world = unisono::init().unwrap();
    world.all_reduce(&mut [1u32; 4], ReduceOp::Sum).unwrap();
    world
}

/// Rank 2 stands still; the others go on without it and end well.
pub(crate) fn rank_2_is_stopped() {
    let world = world();
    if world.rank() == 2 {
        kill_process(getpid(), Signal::STOP).unwrap();
        // Another thread may have taken the signal, and this one runs until it is stopped too.
        std::thread::sleep(Duration::from_secs(600));
    }
    let error = world.all_reduce(&mut [1u32; 4], ReduceOp::Sum).unwrap_err();
    assert_eq!(error.lost_ranks().len(), 1, "{error}");
    eprintln!("{error}");
    let survivors = world.shrink().unwrap().communicator;
    survivors.all_reduce(&mut [1u32; 4], ReduceOp::Sum).unwrap();
    survivors.close().unwrap();
}

#[test]
fn a_stopped_rank_that_the_others_have_gone_on_without_is_ended() {
    let done = run(&["--keep-going", "--grace", "60"], "rank_2_is_stopped");
    assert!(done.status.success(), "{}", done.err);
    for rank in ["[0] ", "[1] "] {
        let is_error = |line: &&str| line.starts_with(rank) && line.contains("lost rank 2 (pid ");
        let error = done.err.lines().find(is_error).unwrap_or_else(|| panic!("{}", done.err));
        let why = " ms, its process is stopped (as by SIGSTOP); UNISONO_SUSPECT_AFTER_MS=800 allows no more";
        assert!(error.contains("(Suspected: silent for ") && error.contains(why), "{error}");
    }
    let told = "unisono: rank 2 still runs, or stands still; the other ranks have ended, and have gone on without: \
                SIGTERM now, SIGKILL after 60 s (--grace)";
    assert!(done.err.lines().any(|line| line == told), "{}", done.err);
    let end = "unisono: 1 of 3 ranks were lost: rank 2 was ended by signal 15 (SIGTERM)";
    assert_eq!(last_line(&done), end, "{}", done.err);
}

pub(crate) fn rank_1_panics() {
    let world = world();
    assert!(world.rank() != 1, "a bug of the program");
    let _ = world.all_reduce(&mut [1u32; 4], ReduceOp::Sum);
    eprintln!("the others say more");
    std::process::exit(4);
}

#[test]
fn the_text_of_a_panic_is_in_the_last_line() {
    for options in [&[][..], &["--comms"]] {
        let done = run(options, "rank_1_panics");
        let last = last_line(&done);
        let start = "unisono: first failure: rank 1 exited with status 101: panicked at crates/unisono-cli/";
        assert!(last.starts_with(start) && last.ends_with(": a bug of the program"), "{}", done.err);
    }
}

/// Rank 0 prints the table of its calls behind its own words.
pub(crate) fn rank_0_says_why_it_exits() {
    let world = world();
    if world.rank() == 0 {
        eprintln!("no data");
        drop(world);
        std::process::exit(3);
    }
    let _ = world.all_reduce(&mut [1u32; 4], ReduceOp::Sum);
}

#[test]
fn the_table_of_calls_is_not_why_a_rank_ends() {
    let done = run(&["--comms"], "rank_0_says_why_it_exits");
    assert!(done.err.contains("calls of this rank by size"), "{}", done.err);
    let end = "unisono: first failure: rank 0 exited with status 3; its last line: no data";
    assert_eq!(last_line(&done), end, "{}", done.err);
}

/// Rank 1 leaves; rank 0 hears of it from a call; rank 2 sleeps, and no call has told it anything.
pub(crate) fn rank_1_exits_while_rank_2_sleeps() {
    let world = world();
    match world.rank() {
        1 => std::process::exit(3),
        2 => std::thread::sleep(Duration::from_secs(600)),
        _ => {
            let error = world.all_reduce(&mut [1u32; 4], ReduceOp::Sum).unwrap_err();
            // The control thread of rank 2 has heard of it meanwhile.
            std::thread::sleep(Duration::from_millis(500));
            eprintln!("{error}");
            std::process::exit(4);
        }
    }
}

#[test]
fn a_rank_that_sleeps_reports_nothing() {
    let done = run(&[], "rank_1_exits_while_rank_2_sleeps");
    let [.., report, last] = done.err.lines().collect::<Vec<_>>()[..] else { panic!("{}", done.err) };
    assert!(report.starts_with("unisono: rank 0 reports: lost rank 1 (pid "), "{}", done.err);
    assert_eq!(last, "unisono: first failure: rank 1 exited with status 3", "{}", done.err);
}
