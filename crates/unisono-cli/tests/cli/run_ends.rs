//! `unisono run`: the end of a job, and the lines about it.

use std::path::Path;

use rustix::process::Signal;

use crate::support::{LeftBehind, exists, shell, signal, sorted_lines, start, unisono, wait_until_gone};

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
fn c12_keep_going_lets_the_others_finish_and_names_who_was_lost() {
    let line = "case $RANK in 2) echo dry >&2; exit 5;; 3) kill -KILL $$;; esac; sleep 0.3; echo survived";
    let done = shell("4", &["--keep-going"], line);
    assert!(done.status.success(), "{}", done.err);
    assert_eq!(sorted_lines(&done.out), ["[0] survived", "[1] survived"]);
    let (told, last) = (done.err.as_str(), done.err.lines().last().unwrap());
    assert!(told.contains("unisono: rank 2 exited with status 5; the others go on"), "{told}");
    assert!(last.starts_with("unisono: 2 of 4 ranks were lost: "), "{told}");
    assert!(last.contains("rank 2 exited with status 5; its last line: dry"), "{told}");
    assert!(last.contains("rank 3 was ended by signal 9 (SIGKILL)"), "{told}");
}

#[test]
fn c12_keep_going_has_the_status_of_the_first_failure_when_no_rank_succeeds() {
    let done = shell("3", &["--keep-going"], "[ $RANK = 1 ] && exit 5; sleep 0.3; exit 6");
    assert_eq!(done.status.code(), Some(5), "{}", done.err);
    let last = done.err.lines().last().unwrap();
    assert_eq!(last, "unisono: first failure: rank 1 exited with status 5");
    let done = shell("2", &["--keep-going"], "exit 0");
    assert!(done.status.success() && done.err.is_empty(), "{}", done.err);
}

#[test]
fn c12_the_whole_tree_of_a_rank_ends_with_it_however_stubborn() {
    // Each rank prints its own number and the number of a child, and neither hears SIGTERM.
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

/// A line for a rank that starts a child in a session of its own, and prints the child's number.
fn with_runaway(folder: &Path, child: &str, then: &str) -> String {
    let flag = folder.join("away").display().to_string();
    format!(
        "setsid sh -c 'touch {flag}; {child}' & while [ ! -e {flag} ]; do sleep 0.01; done; echo $!; {then}"
    )
}

#[test]
fn c12_output_held_open_by_a_runaway_does_not_hold_the_launcher() {
    for child in ["exec sleep 60", "exec yes"] {
        let folder = tempfile::tempdir().unwrap();
        let done = shell("1", &[], &with_runaway(folder.path(), child, ""));
        assert!(done.status.success(), "{child}: {}", done.err);
        let is_number = |line: &&str| line[4..].parse::<u32>().is_ok();
        let left = LeftBehind(done.out.lines().find(is_number).unwrap()[4..].to_owned());
        let outlives = child.contains("sleep");
        assert!(!outlives || exists(&left.0), "what a rank leaves behind on purpose outlives the job");
    }
}

#[test]
fn what_a_rank_leaves_behind_is_heard_for_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let done = shell("1", &[], &with_runaway(folder.path(), "sleep 0.3; echo heard", ""));
    assert!(done.status.success() && done.out.ends_with("[0] heard\n"), "{}", done.out);
}

#[test]
fn what_a_rank_leaves_behind_ends_with_a_job_that_fails() {
    let folder = tempfile::tempdir().unwrap();
    let done = shell("1", &[], &with_runaway(folder.path(), "exec sleep 60", "exit 3"));
    assert_eq!(done.status.code(), Some(3), "{}", done.err);
    let left = LeftBehind(done.out[4..].trim_end().to_owned());
    assert!(!exists(&left.0), "{}", left.0);
}

/// The lines of ranks on their way to the end come before that line.
#[test]
fn the_last_line_names_the_first_rank_that_failed_with_its_last_words() {
    let line = "case $RANK in
        1) echo progress >&2; printf '\\033[31mno data\\033[0m\\n\\n' >&2; exit 7;;
        *) trap 'sleep 0.1; echo ended >&2; exit 1' TERM; while :; do sleep 0.02; done;; esac";
    let done = shell("3", &[], line);
    assert_eq!(done.status.code(), Some(7), "{}", done.err);
    let last = done.err.lines().last().unwrap();
    assert_eq!(
        last, "unisono: first failure: rank 1 exited with status 7; its last line: no data",
        "{}",
        done.err
    );
    assert_eq!(done.err.matches("ended").count(), 2, "{}", done.err);
}

#[test]
fn the_last_line_stands_below_a_progress_bar() {
    let done = shell("1", &[], "printf '50%%\\r' >&2; exit 3");
    assert_eq!(done.err, "[0] 50%\r\nunisono: first failure: rank 0 exited with status 3\n");
}

/// Only the words of a line tell an error from the rest of a program's output.
#[test]
fn the_last_line_quotes_an_error_before_anything_else_and_no_warning() {
    let python =
        "Traceback (most recent call last):\\n  File \"a.py\", line 1\\nValueError: no data\\nbye\\n";
    for (printed, quoted) in [
        ("Error: no data\\nclosing files\\n", ": Error: no data"),
        (python, ": ValueError: no data"),
        ("warning: the cache is cold\\n", ""),
        ("2026-01-01T00:00:00Z  WARN cache: it is cold\\n", ""),
        ("no data\\nunisono: rank 0: a warning\\n", "; its last line: no data"),
    ] {
        let done = shell("1", &[], &format!("printf '{printed}' >&2; exit 3"));
        let last = done.err.lines().last().unwrap();
        assert_eq!(
            last,
            format!("unisono: first failure: rank 0 exited with status 3{quoted}"),
            "{}",
            done.err
        );
    }
}

/// Rank 1 says why it fails, and rank 0, which heard of that, is the first to end.
#[test]
fn a_rank_that_ends_before_the_one_that_it_noticed_is_not_blamed() {
    let folder = tempfile::tempdir().unwrap();
    let flag = folder.path().join("goodbye").display().to_string();
    let line = format!(
        "if [ $RANK = 1 ]; then echo cause >&2; sleep 0.05; touch {flag}; sleep 0.05; exit 3; fi
         while [ ! -e {flag} ]; do sleep 0.01; done; echo rank 1 has left >&2; exit 4"
    );
    let done = shell("2", &[], &line);
    let last = done.err.lines().last().unwrap();
    assert_eq!(
        last, "unisono: first failure: rank 1 exited with status 3; its last line: cause",
        "{}",
        done.err
    );
    assert_eq!(done.status.code(), Some(3));
}

/// The output of ranks is for people: the launcher finds the first failure by the ends and the reports of ranks.
#[test]
fn a_rank_is_not_blamed_because_another_one_prints_its_number() {
    let done = shell("2", &[], "[ $RANK = 0 ] && { sleep 0.1; exit 5; }; echo lost rank 0 >&2; exit 4");
    let last = done.err.lines().last().unwrap();
    assert_eq!(
        last, "unisono: first failure: rank 1 exited with status 4; its last line: lost rank 0",
        "{}",
        done.err
    );
}

#[test]
fn a_job_that_takes_too_long_is_ended_and_says_which_ranks_had_not() {
    let options = ["--timeout", "0.5", "--grace", "0.1"];
    let done = shell("4", &options, "[ $RANK = 2 ] && exit 0; trap '' TERM; while :; do sleep 0.05; done");
    assert_eq!(done.status.code(), Some(124), "{}", done.err);
    let told = "unisono: the job was ended after 0.5 s (--timeout); these ranks had not ended: 0, 1, 3\n";
    assert_eq!(done.err, told);
    let done = shell("2", &["--timeout", "100"], "echo done");
    assert!(done.status.success() && done.err.is_empty(), "{}", done.err);
}

#[test]
fn ranks_that_end_at_once_are_a_job() {
    for (line, status) in [("exit 0", 0), ("exit 9", 9), ("kill -TERM $$", 143)] {
        let done = shell("5", &[], line);
        assert_eq!(done.status.code(), Some(status), "{}", done.err);
        assert_eq!(done.err.lines().count(), usize::from(status > 0), "{}", done.err);
    }
    let done = unisono(&["run", "-n", "1", "true"]);
    assert!(done.status.success() && done.out.is_empty() && done.err.is_empty());
}
