//! `unisono run`: the effects of signals to the launcher.

use std::fs;
use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;

use crate::support::{
    Running, exists, is_stopped, signal, sorted_lines, start, start_by, status_line, wait_until,
    wait_until_gone,
};

/// Starts two ranks that sleep, each with a child; gives the numbers of all four processes.
fn sleepers() -> (Running, Vec<String>) {
    let line = "sleep 600 & echo $!; echo $$; wait";
    let mut running = start(&["run", "-n", "2", "--", "sh", "-c", line]);
    let pids: Vec<String> = (0..4).map(|_| running.next_line()[4..].trim_end().to_owned()).collect();
    assert!(pids.iter().all(|pid| exists(pid)), "{pids:?}");
    (running, pids)
}

#[test]
fn c12_signals_to_the_launcher_end_the_ranks() {
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let (running, pids) = sleepers();
        running.signal(signal);
        assert_eq!(running.finish().status.code(), Some(status));
        wait_until_gone(&pids);
    }
}

#[test]
fn c12_no_rank_outlives_a_killed_launcher() {
    let (running, pids) = sleepers();
    let secret_file = |pid: &String| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        let mut variables = environment.split(|&byte| byte == 0);
        let path = variables.find_map(|variable| variable.strip_prefix(b"UNISONO_SECRET_FILE="))?;
        Some(std::path::PathBuf::from(String::from_utf8_lossy(path).into_owned()))
    };
    // A process that is just being replaced by another program has none; not all four are.
    let secret = pids.iter().find_map(secret_file).unwrap();
    assert!(secret.exists());
    running.signal(Signal::KILL);
    assert_eq!(running.finish().status.signal(), Some(9));
    wait_until_gone(&pids);
    wait_until("the secret is removed", || !secret.exists());
}

/// The launchers within the job have guards of their own, which outlive them.
#[test]
fn no_rank_of_a_job_within_a_job_outlives_a_killed_launcher() {
    let inner = ["run", "-n", "2", "--", "sh", "-c", "echo $$; exec sleep 600"];
    let words = [&["run", "-n", "2", "--", env!("CARGO_BIN_EXE_unisono")][..], &inner].concat();
    let mut running = start(&words);
    let pids: Vec<String> = (0..4).map(|_| running.next_line()[8..].trim_end().to_owned()).collect();
    assert!(pids.iter().all(|pid| exists(pid)), "{pids:?}");
    running.signal(Signal::KILL);
    running.finish();
    wait_until_gone(&pids);
}

/// Starts two ranks that say which signals they get, and end with the signals that ask for it.
fn listeners() -> Running {
    let line = "for name in HUP INT TERM; do trap \"echo $name; exit 0\" $name; done
                for name in USR1 USR2; do trap \"echo $name\" $name; done
                echo ready; while :; do sleep 0.02; done";
    let mut running = start(&["run", "-n", "2", "--", "sh", "-c", line]);
    both_say(&mut running, "ready");
    running
}

fn both_say(running: &mut Running, word: &str) {
    let mut lines = [running.next_line(), running.next_line()];
    lines.sort_unstable();
    assert_eq!(lines, [format!("[0] {word}\n"), format!("[1] {word}\n")]);
}

#[test]
fn a_signal_that_ends_reaches_the_ranks_as_it_is() {
    for (signal, name, status) in
        [(Signal::INT, "INT", 130), (Signal::TERM, "TERM", 143), (Signal::HUP, "HUP", 129)]
    {
        let mut running = listeners();
        running.signal(signal);
        both_say(&mut running, name);
        assert_eq!(running.finish().status.code(), Some(status));
    }
}

#[test]
fn a_signal_of_the_users_own_reaches_the_ranks_and_ends_nothing() {
    let mut running = listeners();
    for (signal, name) in [(Signal::USR1, "USR1"), (Signal::USR2, "USR2"), (Signal::USR1, "USR1")] {
        running.signal(signal);
        both_say(&mut running, name);
    }
    running.signal(Signal::INT);
    both_say(&mut running, "INT");
    assert_eq!(running.finish().status.code(), Some(130));
}

#[test]
fn a_second_signal_kills_at_once() {
    let line = "trap 'echo asked' INT; echo ready; while :; do sleep 0.02; done";
    let mut running = start(&["run", "-n", "1", "--grace", "1000", "--", "sh", "-c", line]);
    assert_eq!(running.next_line(), "[0] ready\n");
    running.signal(Signal::INT);
    assert_eq!(running.next_line(), "[0] asked\n");
    running.signal(Signal::INT);
    assert_eq!(running.finish().status.code(), Some(130));
}

#[test]
fn a_job_under_nohup_survives_the_end_of_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let flag = folder.path().join("flag").display().to_string();
    let line = format!("echo $$; while [ ! -e {flag} ]; do sleep 0.02; done; echo survived");
    let mut running = start_by(&["nohup"], &["run", "-n", "2", "--", "sh", "-c", &line]);
    let pids = [running.next_line(), running.next_line()].map(|line| line[4..].trim_end().to_owned());
    running.signal(Signal::HUP);
    pids.iter().for_each(|pid| signal(pid, Signal::HUP));
    fs::write(&flag, "").unwrap();
    let done = running.finish();
    assert!(done.status.success(), "{}", done.err);
    assert_eq!(sorted_lines(&done.out), ["[0] survived", "[1] survived"]);
}

#[test]
fn a_stop_stops_the_ranks_and_the_launcher_until_they_are_continued() {
    let (running, pids) = sleepers();
    let everybody = [pids.clone(), vec![running.pid()]].concat();
    running.signal(Signal::TSTP);
    wait_until("all have been stopped", || everybody.iter().all(|pid| is_stopped(pid)));
    running.signal(Signal::CONT);
    wait_until("all go on", || !everybody.iter().any(|pid| is_stopped(pid)));
    running.signal(Signal::TSTP);
    wait_until("all have been stopped again", || everybody.iter().all(|pid| is_stopped(pid)));
    running.signal(Signal::KILL);
    assert_eq!(running.finish().status.signal(), Some(9));
    wait_until_gone(&pids);
}

#[test]
fn the_guard_outlives_signals_and_does_its_work() {
    let (running, pids) = sleepers();
    let launcher = running.pid();
    let children = fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap();
    let is_guard = |pid: &&str| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|&byte| byte == 0).any(|word| word == b"guard")
    };
    let guard = children.split_whitespace().find(is_guard).unwrap().to_owned();
    let signals = [Signal::HUP, Signal::INT, Signal::TERM, Signal::USR1, Signal::TSTP, Signal::CONT];
    // It takes one after the other; bit 0 is signal 1.
    let all = signals.iter().fold(0, |set, signal| set | 1u64 << (signal.as_raw() - 1));
    let is_ready =
        || u64::from_str_radix(&status_line(&guard, "SigCgt:"), 16).is_ok_and(|caught| caught & all == all);
    wait_until("the guard catches signals", is_ready);
    for name in signals {
        signal(&guard, name);
    }
    running.signal(Signal::KILL);
    running.finish();
    wait_until_gone(&pids);
}
