//! `unisono run`: what the ranks find, how their output is passed on, and that they end together.

use std::os::unix::process::ExitStatusExt;

use crate::support::{Finished, Running, exists, start, unisono, wait_until, wait_until_gone};
use rustix::process::{Pid, Signal, kill_process};

/// Runs a shell line in `ranks` ranks.
fn shell(ranks: &str, options: &[&str], line: &str) -> Finished {
    let arguments = [&["run", "-n", ranks], options, &["--", "sh", "-c", line]].concat();
    unisono(&arguments)
}

fn sorted_lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn c1_every_rank_finds_its_place_in_the_environment() {
    let done = shell("3", &[], "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR");
    assert!(done.status.success(), "{}", done.err);
    assert_eq!(
        sorted_lines(&done.out),
        ["[0] 0 3 0 3 127.0.0.1", "[1] 1 3 1 3 127.0.0.1", "[2] 2 3 2 3 127.0.0.1"]
    );
    let done = shell("2", &[], "echo $MASTER_PORT");
    let ports: Vec<u16> = done.out.lines().map(|line| line[4..].parse().unwrap()).collect();
    assert!(ports.len() == 2 && ports[0] == ports[1] && ports[0] >= 1024, "{ports:?}");
}

#[test]
fn c12_ranks_get_a_store_and_a_fresh_private_secret_that_goes_with_the_job() {
    let line = "echo $UNISONO_STORE $UNISONO_SECRET_FILE $(stat -c '%a %s' $UNISONO_SECRET_FILE)";
    let mut folders = Vec::new();
    for _ in 0..2 {
        let done = shell("2", &[], line);
        let words: Vec<_> = done.out.lines().map(|line| line[4..].split(' ').collect::<Vec<_>>()).collect();
        assert!(words.len() == 2 && words[0] == words[1] && words[0][2..] == ["600", "32"], "{words:?}");
        assert!(words[0][0].starts_with("127.0.0.1:"), "{words:?}");
        let file = std::path::Path::new(words[0][1]);
        assert!(!file.parent().unwrap().exists(), "{words:?}");
        folders.push(file.to_owned());
    }
    assert_ne!(folders[0], folders[1]);
}

#[test]
fn c12_a_launcher_inside_a_job_hides_the_outer_one() {
    let inner = format!("{} run -n 2 -- env", env!("CARGO_BIN_EXE_unisono"));
    let done = shell("1", &[], &format!("UNISONO_RANK=5 UNISONO_WORLD_SIZE=9 {inner}"));
    assert!(done.status.success(), "{}", done.err);
    assert!(done.out.contains("[0] [1] RANK=1") && done.out.contains("[0] [1] WORLD_SIZE=2"), "{}", done.out);
    assert!(!done.out.contains("UNISONO_RANK") && !done.out.contains("UNISONO_WORLD_SIZE"), "{}", done.out);
}

#[test]
fn c12_lines_are_whole_prefixed_and_stay_on_their_stream() {
    let line = r#"printf 'a b\n\nlast of %s' $RANK; printf 'bad %s' $RANK >&2"#;
    let done = shell("2", &[], line);
    assert!(done.status.success());
    let out = ["[0] ", "[0] a b", "[0] last of 0", "[1] ", "[1] a b", "[1] last of 1"];
    assert_eq!(sorted_lines(&done.out), out);
    assert_eq!(sorted_lines(&done.err), ["[0] bad 0", "[1] bad 1"]);
}

#[test]
fn c12_lines_of_many_ranks_do_not_mix() {
    let done = shell("8", &[], "for i in 1 2 3 4 5 6 7 8 9; do echo $RANK$RANK$RANK$RANK; done");
    assert_eq!(done.out.lines().count(), 72);
    for line in done.out.lines() {
        let rank = &line[1..2];
        assert_eq!(line, format!("[{rank}] {rank}{rank}{rank}{rank}"));
    }
}

#[test]
fn c12_a_failing_rank_is_named_and_ends_the_others() {
    let done = shell("3", &[], "if [ $RANK = 1 ]; then exit 7; fi; sleep 600");
    assert_eq!(done.status.code(), Some(7));
    assert!(done.err.contains("rank 1 exited with status 7"), "{}", done.err);
    assert_eq!(done.err.lines().count(), 1, "the ranks that were ended are not to blame: {}", done.err);
}

/// The others fail as soon as the connection to the first ends, as ranks of a job do: one reads from a pipe whose only
/// writer is the rank that dies.
#[test]
fn c12_the_rank_that_failed_first_is_named_not_those_that_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe").display().to_string();
    let line = format!(
        "mkfifo {pipe} 2>/dev/null; while [ ! -p {pipe} ]; do sleep 0.01; done
         if [ $RANK = 1 ]; then exec 3>{pipe}; sleep 0.2; kill -KILL $$; else read line <{pipe}; exit 4; fi"
    );
    let done = shell("2", &[], &line);
    assert_eq!(done.status.code(), Some(137), "{}", done.err);
    assert!(done.err.contains("rank 1 was ended by signal 9 (SIGKILL)"), "{}", done.err);
}

#[test]
fn c12_a_rank_ended_by_a_signal_gives_128_and_the_signal() {
    let done = shell("2", &[], "if [ $RANK = 0 ]; then kill -SEGV $$; fi; sleep 600");
    assert_eq!(done.status.code(), Some(139));
    assert!(done.err.contains("rank 0 was ended by signal 11 (SIGSEGV)"), "{}", done.err);
}

#[test]
fn c12_keep_going_lets_the_others_finish_and_still_fails() {
    let done = shell("3", &["--keep-going"], "if [ $RANK = 2 ]; then exit 5; fi; sleep 0.3; echo survived");
    assert_eq!(done.status.code(), Some(5));
    assert_eq!(sorted_lines(&done.out), ["[0] survived", "[1] survived"]);
    assert!(done.err.contains("rank 2 exited with status 5"), "{}", done.err);
}

#[test]
fn c12_the_whole_tree_of_a_rank_ends_with_it_however_stubborn() {
    // Each rank prints its own number and that of a child, and neither hears SIGTERM.
    let line = r#"trap '' TERM; trap 'exit 3' USR1; sh -c 'while :; do sleep 0.1; done' & echo $RANK $$ $!
                  while :; do sleep 0.1; done"#;
    let mut running = start(&["run", "-n", "2", "--grace", "1", "--", "sh", "-c", line]);
    let lines: Vec<String> = (0..2).map(|_| running.next_line()).collect();
    let numbers = |line: &String| line.split_whitespace().skip(2).map(str::to_owned).collect::<Vec<_>>();
    let pids: Vec<String> = lines.iter().flat_map(numbers).collect();
    assert!(pids.len() == 4 && pids.iter().all(|pid| exists(pid)), "{lines:?}");
    let of_rank_1 = lines.iter().find(|line| line.starts_with("[1]")).unwrap();
    signal(&numbers(of_rank_1)[0], Signal::USR1);
    assert_eq!(running.finish().status.code(), Some(3));
    wait_until_gone(&pids);
}

fn signal(pid: &str, signal: Signal) {
    kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), signal).unwrap();
}

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
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130)] {
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
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
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

#[test]
fn c12_output_held_open_by_a_runaway_does_not_hold_the_launcher() {
    let folder = tempfile::tempdir().unwrap();
    let flag = folder.path().join("away").display().to_string();
    let line = format!(
        "setsid sh -c 'touch {flag}; exec sleep 60' & while [ ! -e {flag} ]; do sleep 0.01; done; echo $!"
    );
    let done = shell("1", &[], &line);
    assert!(done.status.success() && done.out.starts_with("[0] "), "{}", done.out);
    signal(done.out[4..].trim_end(), Signal::KILL);
}

#[test]
fn a_program_that_cannot_be_started_is_named() {
    let done = unisono(&["run", "-n", "2", "--", "no-such-program"]);
    assert_eq!((done.status.code(), done.err.lines().count()), (Some(127), 1), "{}", done.err);
    assert!(done.err.contains("no-such-program"), "{}", done.err);
}
