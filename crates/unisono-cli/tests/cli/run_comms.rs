//! `unisono run --comms`: one table for a job, however its ranks end. The ranks are this test program again: each runs
//! one of the programs below.

#![allow(clippy::print_stdout, reason = "the tests read the output of their ranks")]

use std::time::Duration;

use rustix::process::Signal;
use unisono::{Collectives, ReduceOp, World};

use crate::support::{Finished, Running, rank_command, start_by, wait_until_gone};

const TITLE: &str = "unisono: rank 0: calls of this rank by size";

/// Name, ranks, size, count.
type Row = (String, String, String, String);

/// Starts ranks that run this shell line, with the options of `unisono run` and a variable.
fn start(ranks: &str, options: &[&str], variable: &str, line: &str) -> Running {
    let arguments = [&["run", "-n", ranks], options, &["--", "sh", "-c", line]].concat();
    start_by(&["env", variable], &arguments)
}

fn run(options: &[&str], program: &str) -> Finished {
    start("3", options, "LANG=C", &rank_command(program)).finish()
}

/// The lines of rank 0 on standard error.
fn of_rank_0(err: &str) -> Vec<&str> {
    err.lines().filter_map(|line| line.strip_prefix("[0] ")).collect()
}

/// The rows of the one table in there.
fn table(err: &str) -> Vec<Row> {
    assert_eq!(err.matches(TITLE).count(), 1, "{err}");
    let lines = of_rank_0(err);
    let title = lines.iter().position(|line| *line == TITLE).unwrap_or_else(|| panic!("not rank 0: {err}"));
    assert!(lines[title + 1].starts_with("operation  "), "{err}");
    // Columns are separated by two spaces at least.
    let cells = |line: &&str| -> Vec<String> {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    let width = cells(&lines[title + 1]).len();
    let rows = lines[title + 2..].iter().map(cells).take_while(|cells| cells.len() == width);
    rows.map(|cells| (cells[0].clone(), cells[1].clone(), cells[2].clone(), cells[3].clone())).collect()
}

/// The rows of [`calls`].
fn expected(ranks: &str) -> Vec<Row> {
    let rows = [("all_reduce", "1.00 KiB", "2"), ("barrier", "0 B", "1"), ("broadcast", "64 B", "1")];
    rows.map(|(name, size, count)| (name.into(), ranks.into(), size.into(), count.into())).into()
}

/// The calls of every program below.
fn calls() -> World {
    let world = unisono::init().unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1);
    });
    for _ in 0..2 {
        world.all_reduce(&mut [1.0f32; 256], ReduceOp::Sum).unwrap();
    }
    world.barrier().unwrap();
    world.broadcast(&mut [7u8; 64], 0).unwrap();
    world
}

pub(crate) fn rank_that_drops_everything() {
    drop(calls());
}

pub(crate) fn rank_that_exits() {
    let _world = calls();
    std::process::exit(0);
}

/// A world in a static is dropped by nobody.
pub(crate) fn rank_that_exits_in_another_thread() {
    let world = Box::leak(Box::new(calls()));
    let handle = world.clone();
    let _ = std::thread::spawn(move || {
        let _handle = handle;
        std::process::exit(0)
    })
    .join();
}

pub(crate) fn rank_that_panics() {
    let _world = calls();
    panic!("a bug of the program");
}

pub(crate) fn rank_that_sleeps() {
    let _world = calls();
    println!("pid {}", std::process::id());
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn i5_one_table_is_printed_however_the_ranks_end() {
    for program in ["rank_that_drops_everything", "rank_that_exits", "rank_that_exits_in_another_thread"] {
        let done = run(&["--comms"], program);
        assert!(done.status.success(), "{program}: {}", done.err);
        assert_eq!(table(&done.err), expected("3"), "{program}: {}", done.err);
        // Nothing but the table.
        assert_eq!(done.err.lines().count(), 5, "{program}: {}", done.err);
    }
}

#[test]
fn i5_a_program_that_panics_prints_the_table_of_its_calls() {
    let done = run(&["--comms"], "rank_that_panics");
    assert_eq!(done.status.code(), Some(101), "{}", done.err);
    assert!(done.err.contains("a bug of the program"), "{}", done.err);
    // The launcher ends the others when the first rank has failed; rank 0 may be one of them.
    if done.err.contains(TITLE) {
        assert_eq!(table(&done.err), expected("3"), "{}", done.err);
    }
    let alone = start("1", &["--comms"], "LANG=C", &rank_command("rank_that_panics")).finish();
    assert_eq!((alone.status.code(), table(&alone.err)), (Some(101), expected("1")), "{}", alone.err);
}

#[test]
fn i5_a_job_that_is_killed_does_not_hang() {
    let mut running = start("3", &["--comms"], "LANG=C", &rank_command("rank_that_sleeps"));
    let mut pids = Vec::new();
    while pids.len() < 3 {
        let line = running.next_line();
        pids.extend(line.split_once("pid ").map(|(_, pid)| pid.trim_end().to_owned()));
    }
    running.signal(Signal::TERM);
    let done = running.finish();
    assert_eq!(done.status.code(), Some(143), "{}", done.err);
    wait_until_gone(&pids);
    let options = ["--comms", "--timeout", "5", "--grace", "0.5"];
    let done = run(&options, "rank_that_sleeps");
    assert_eq!(done.status.code(), Some(124), "{}", done.err);
}

#[test]
fn i2_a_log_that_is_off_prints_nothing() {
    let off = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(off.path(), r#"{"comms_logger": {"enabled": false}}"#).unwrap();
    for value in ["off", off.path().to_str().unwrap()] {
        let variable = format!("UNISONO_COMMS_LOGGER={value}");
        let done = start("3", &[], &variable, &rank_command("rank_that_exits")).finish();
        assert!(done.status.success() && done.err.is_empty(), "{value}: {}", done.err);
    }
}

/// The option of the launcher is nearer to the job than the user's shell.
#[test]
fn i2_the_option_wins_over_the_variable() {
    let done =
        start("3", &["--comms"], "UNISONO_COMMS_LOGGER=off", &rank_command("rank_that_exits")).finish();
    assert!(done.status.success(), "{}", done.err);
    assert_eq!(table(&done.err), expected("3"), "{}", done.err);
}

/// Each rank is refused, and the launcher says so once more.
#[test]
fn i2_a_bad_file_ends_the_job_with_the_variable_and_the_reason() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), r#"{"enabled": true, "prof_opps": []}"#).unwrap();
    let path = file.path().to_str().unwrap();
    let variable = format!("UNISONO_COMMS_LOGGER={path}");
    // All ranks say it before the first one has ended.
    let line =
        rank_command("rank_that_exits").replacen("exec ", "", 1) + "; status=$?; sleep 1; exit $status";
    let done = start("3", &[], &variable, &line).finish();
    assert_eq!(done.status.code(), Some(1), "{}", done.err);
    for rank in 0..3 {
        let said = format!("[{rank}] UNISONO_COMMS_LOGGER={path}: ");
        let line = done.err.lines().find(|line| line.starts_with(&said));
        assert!(line.is_some_and(|line| line.contains("`prof_opps`")), "{}", done.err);
    }
}

/// A reader that ends harms neither the ranks nor the launcher.
#[test]
fn i5_a_table_that_nobody_reads_harms_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let ended = folder.path().join("ended").display().to_string();
    let program = rank_command("rank_that_exits").replacen("exec ", "", 1);
    let closed = start("2", &["--comms"], "LANG=C", &format!("{program} 2>&-")).finish();
    assert!(closed.status.success() && closed.err.is_empty(), "{}", closed.err);
    let line = format!("({program} 2>&1 >/dev/null; echo $? >{ended}-$RANK) | head -1");
    let piped = start("2", &["--comms"], "LANG=C", &line).finish();
    assert!(piped.status.success(), "{}", piped.err);
    for rank in 0..2 {
        assert_eq!(std::fs::read_to_string(format!("{ended}-{rank}")).unwrap(), "0\n", "rank {rank}");
    }
}
