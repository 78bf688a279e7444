//! `unisono run` with ranks that talk to each other. The ranks are this test program again: each of them runs one of
//! the programs below.

#![allow(clippy::print_stdout, reason = "the tests read the output of their ranks")]

use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use unisono::{Collectives, CollectivesAsync, Communicator, ReduceOp, World};

use crate::support::{Finished, Running, is_stopped, rank_command, start_by, wait_until};

/// Starts three ranks that run this shell line, with a variable.
fn start(variable: &str, line: &str) -> Running {
    start_by(&["env", variable], &["run", "-n", "3", "--", "sh", "-c", line])
}

fn run(line: &str) -> Finished {
    start("LANG=C", line).finish()
}

fn sum(comm: &dyn Communicator) -> unisono::Result<()> {
    comm.all_reduce(&mut [1u32; 100], ReduceOp::Sum)
}

/// Rank 1 leaves after some calls, the others call until that fails, and say why.
fn rank_1_leaves(leave: impl FnOnce()) {
    let comm = unisono::init().unwrap();
    for call in 0..1000 {
        if call == 10 && comm.rank() == 1 {
            return leave();
        }
        if let Err(error) = sum(&comm) {
            eprintln!("{error}");
            std::process::exit(4);
        }
    }
}

pub(crate) fn rank_1_says_why_it_exits() {
    rank_1_leaves(|| {
        eprintln!("no data");
        std::process::exit(3);
    });
}

pub(crate) fn rank_1_exits_silently() {
    rank_1_leaves(|| std::process::exit(3));
}

pub(crate) fn rank_1_aborts() {
    rank_1_leaves(|| std::process::abort());
}

/// The others say that they have lost rank 1, and crash while they give up.
pub(crate) fn rank_1_exits_and_the_others_crash() {
    let comm = unisono::init().unwrap();
    let error = loop {
        if comm.rank() == 1 {
            thread::sleep(Duration::from_millis(20));
            std::process::exit(3);
        }
        if let Err(error) = sum(&comm) {
            break error;
        }
    };
    eprintln!("{error}");
    // Until all have heard of rank 1.
    thread::sleep(Duration::from_millis(100));
    rustix::process::kill_process(rustix::process::getpid(), Signal::KILL).unwrap();
}

/// Says whether a child has the descriptor on which this rank reports.
#[expect(
    clippy::disallowed_methods,
    reason = "the name of a descriptor, which no setting of the library gives"
)]
pub(crate) fn a_child_has_no_report_pipe() {
    let pipe = std::env::var("UNISONO_REPORT_FD").unwrap();
    let (descriptor, inode) = pipe.split_once(':').unwrap();
    let comm = unisono::init().unwrap();
    let file = format!("/proc/self/fd/{descriptor}");
    assert_eq!(std::fs::read_link(&file).unwrap().to_str(), Some(&*format!("pipe:[{inode}]")));
    let child = std::process::Command::new("readlink").arg(&file).output().unwrap();
    println!("child has {:?}", String::from_utf8_lossy(&child.stdout));
    comm.close().unwrap();
}

pub(crate) fn twenty_slow_sums() {
    let comm = unisono::init().unwrap();
    for _ in 0..20 {
        sum(&comm).unwrap();
        println!("summed");
        if comm.rank() == 1 {
            thread::sleep(Duration::from_millis(50));
        }
    }
    comm.close().unwrap();
}

#[test]
fn the_rank_that_leaves_is_named_not_those_that_lose_it() {
    for (program, how, status) in [
        ("rank_1_says_why_it_exits", "exited with status 3; its last line: no data", 3),
        ("rank_1_exits_silently", "exited with status 3", 3),
        ("rank_1_aborts", "was ended by signal 6 (SIGABRT)", 134),
    ] {
        let done = run(&rank_command(program));
        let last = done.err.lines().last().unwrap();
        assert_eq!(last, format!("unisono: first failure: rank 1 {how}"), "{}", done.err);
        assert_eq!(done.status.code(), Some(status));
        // The reports of the others are one failure, told once and whole.
        let is_report = |line: &&str| line.starts_with("unisono: rank") && line.contains(" report");
        let told: Vec<&str> = done.err.lines().filter(is_report).collect();
        assert!(told.len() == 1 && told[0].contains("lost rank 1 (pid "), "{}", done.err);
    }
}

#[test]
fn ranks_that_crash_because_another_one_left_are_not_to_blame() {
    let done = run(&rank_command("rank_1_exits_and_the_others_crash"));
    let [.., report, last] = done.err.lines().collect::<Vec<_>>()[..] else { panic!("{}", done.err) };
    assert_eq!(last, "unisono: first failure: rank 1 exited with status 3", "{}", done.err);
    assert!(report.starts_with("unisono: ranks 0 and 2 report: lost rank 1 (pid "), "{}", done.err);
    assert_eq!(done.status.code(), Some(3));
}

#[test]
fn children_of_a_rank_do_not_hold_its_reports() {
    let done = run(&rank_command("a_child_has_no_report_pipe"));
    assert!(done.status.success(), "{}", done.err);
    assert_eq!(done.out.matches("child has \"\"").count(), 3, "{}", done.out);
}

/// A broadcast from two roots shares no message, so all calls succeed where no rank leaves before the last has ended.
pub(crate) fn two_roots() {
    let comm = unisono::init().unwrap();
    let others = comm.duplicate().unwrap();
    let root = comm.rank() % 2;
    comm.broadcast(&mut [root; 4], root).unwrap();
    others.barrier().unwrap();
}

#[test]
fn ranks_that_leave_after_different_calls_are_no_success() {
    let done = run(&rank_command("two_roots"));
    assert_eq!(done.status.code(), Some(1), "{}", done.err);
    let is_report = |line: &&str| line.starts_with("unisono: rank") && line.contains(" report");
    let told: Vec<&str> = done.err.lines().filter(is_report).collect();
    let is_whole = |line: &str| {
        ["communicator world was left after different calls", "root 0", "root 1"]
            .iter()
            .all(|part| line.contains(part))
    };
    assert!(!told.is_empty() && told.iter().all(|line| is_whole(line)), "{}", done.err);
}

/// Every rank drops the handle of a call that fails, and ends well.
pub(crate) fn dropped_handles() {
    let world = unisono::init().unwrap();
    match world.rank() {
        1 => drop(world.all_reduce_async(vec![1.0f32; 4], ReduceOp::Sum)),
        _ => drop(world.all_reduce_async(vec![1u64; 4], ReduceOp::Sum)),
    }
}

#[test]
fn failures_of_calls_whose_handles_were_dropped_are_no_success() {
    let done = run(&rank_command("dropped_handles"));
    assert_eq!(done.status.code(), Some(1), "{}", done.err);
    let is_told = |line: &str| line.starts_with("unisono: rank") && line.contains("dtype ");
    assert!(done.err.lines().any(is_told), "{}", done.err);
}

/// Every pair of ranks uses its connection, whose way shows in the log only.
pub(crate) fn sums_of_any_length() {
    let comm = unisono::init().unwrap();
    for length in [1, 500_000] {
        let mut sum = vec![comm.rank(); length];
        comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        assert!(sum.iter().all(|element| *element == 3));
    }
    comm.all_to_all(&[0u8; 3], &mut [0; 3]).unwrap();
}

/// Rows: D7, J4
#[test]
fn ranks_of_a_host_share_memory_unless_they_cannot_or_should_not() {
    let ways = |before: &str, log: &str| {
        let done = start(log, &format!("{before} {}", rank_command("sums_of_any_length"))).finish();
        assert!(done.status.success(), "{}", done.err);
        done.err
    };
    let shared = ways("", "UNISONO_LOG=debug");
    assert!(
        shared.contains("for data goes through memory") && !shared.contains("for data goes over"),
        "{shared}"
    );
    let off = ways("export UNISONO_SHM=0;", "UNISONO_LOG=debug");
    assert!(off.contains("for data goes over TCP") && !off.contains("memory"), "{off}");
    assert_eq!(ways("", "UNISONO_LOG=warn"), "");
    // Rank 1 may make no file that is so long; the pair without rank 1 shares memory.
    let limited = ways("[ \"$RANK\" != 1 ] || ulimit -f 8;", "UNISONO_LOG=debug");
    let told = "share no memory: one of the two has no descriptor or no memory left for it";
    assert!(limited.contains(told) && limited.contains("through memory"), "{limited}");
    assert!(
        limited.contains("for data goes over a Unix socket") && !limited.contains("goes over TCP"),
        "{limited}"
    );
}

/// A world in a static, and a handle that is leaked: the exit of the process says goodbye for both.
pub(crate) fn leaked_world() {
    static WORLD: OnceLock<World> = OnceLock::new();
    let world = WORLD.get_or_init(|| unisono::init().unwrap());
    std::mem::forget(world.clone());
    let mut sum = [world.rank()];
    world.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    assert_eq!(sum, [3]);
}

#[test]
fn a_world_that_is_never_dropped_says_goodbye_at_the_exit() {
    let done = run(&rank_command("leaked_world"));
    assert!(done.status.success() && done.err.is_empty(), "{}", done.err);
}

/// Ranks end well, but their reports on leaving are a failure of the job.
#[test]
fn what_a_rank_reports_at_exit_is_no_success() {
    // The message as `ErrorReport` writes it, in the escapes of printf: header, rank, communicator, kind, culprits, no
    // call, no code, text, and that the rank was leaving.
    let report = concat!(
        r"\377urp\101\000",
        r"\00$RANK\000\000\000",
        r"\005\000\000\000world",
        r"\010\000\000\000Mismatch",
        r"\002\000\000\000\000\000\000\000\001\000\000\000",
        r"\000\000\000\000",
        r"\000\000\000\000\000",
        r"\016\000\000\000numbers differ",
        r"\001",
    );
    let pipe = "/proc/self/fd/${UNISONO_REPORT_FD%:*}";
    let line = format!("[ $RANK = 2 ] || printf \"{report}\" >{pipe}");
    let done = run(&line);
    assert_eq!(done.status.code(), Some(1), "{}", done.err);
    assert_eq!(done.err, "unisono: ranks 0 and 1 report: numbers differ\n");
}

/// Without the launcher's word, they would wait for it until the deadline of joining, which is minutes away.
#[test]
fn ranks_do_not_wait_for_one_that_has_ended_before_it_joined() {
    for (end, status) in [("exit 0", 101), ("exit 9", 9)] {
        let done = run(&format!("[ $RANK = 1 ] && {end}; {}", rank_command("twenty_slow_sums")));
        assert_eq!(done.status.code(), Some(status), "{}", done.err);
        let named = format!("rank 1 ended before it had joined: it exited with status {}", &end[5..]);
        for rank in ["[0]", "[2]"] {
            let is_told = |line: &str| line.starts_with(rank) && line.contains(&named);
            assert!(done.err.lines().any(is_told), "{rank}: {}", done.err);
        }
    }
}

/// Stopped for longer than the deadline of a call and than the silence that heartbeats allow.
#[test]
fn a_job_that_was_stopped_goes_on() {
    let mut running = start("UNISONO_CALL_TIMEOUT_S=0.8", &rank_command("twenty_slow_sums"));
    while !running.next_line().contains("summed") {}
    running.signal(Signal::TSTP);
    let launcher = running.pid();
    wait_until("the launcher has been stopped", || is_stopped(&launcher));
    thread::sleep(Duration::from_millis(1600));
    running.signal(Signal::CONT);
    let done = running.finish();
    assert!(done.status.success(), "{}", done.err);
}
