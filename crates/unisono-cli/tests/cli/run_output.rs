//! `unisono run`: nothing that ranks print is lost, however slowly it is read.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::ioctl_fionread;
use rustix::process::Signal;

use crate::support::{Running, start_unread, wait_until, wait_until_gone};

/// The number of lines of each rank of [`talkers`] on each of its streams: more than its pipes hold.
const LINES: usize = 9000;
/// A pipe that holds so much has no room for a line of the same length.
const PIPE_FULL: u64 = 60 << 10;
/// Longer than the launcher hears processes that outlive its ranks.
const PAUSE: Duration = Duration::from_millis(1500);

/// Starts two ranks that print, each on both streams, and then write their numbers into files and end with a status.
/// Nobody reads the launcher's output.
fn talkers(folder: &Path, options: &[&str], status: &str) -> Running {
    let line = format!(
        "seq {LINES}; seq {LINES} >&2; echo the cause >&2; echo $$ >{0}/new-$RANK; mv {0}/new-$RANK {0}/$RANK; \
         exit {status}",
        folder.display()
    );
    let arguments = [&["run", "-n", "2"], options, &["--", "sh", "-c", &line]].concat();
    start_unread(&["env"], &arguments)
}

/// Waits until both ranks have ended.
fn wait_for_talkers(folder: &Path) {
    let files = ["0", "1"].map(|rank| folder.join(rank));
    wait_until("the ranks have printed", || files.iter().all(|file| file.exists()));
    wait_until_gone(&files.map(|file| fs::read_to_string(file).unwrap().trim_end().to_owned()));
}

#[test]
fn a_reader_who_pauses_gets_everything() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = talkers(folder.path(), &[], "0");
    wait_for_talkers(folder.path());
    thread::sleep(PAUSE);
    running.read();
    let done = running.finish();
    assert!(done.status.success(), "{}", done.err);
    assert_eq!((done.out.lines().count(), done.err.lines().count()), (2 * LINES, 2 * LINES + 2));
}

#[test]
fn the_last_words_are_those_of_the_end_for_a_reader_who_pauses() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = talkers(folder.path(), &[], "3");
    wait_for_talkers(folder.path());
    thread::sleep(PAUSE);
    running.read();
    let done = running.finish();
    assert_eq!((done.status.code(), done.err.lines().count()), (Some(3), 2 * LINES + 3));
    let last = done.err.lines().last().unwrap();
    assert!(
        last.starts_with("unisono: first failure: ") && last.ends_with("status 3; its last line: the cause"),
        "{last}"
    );
}

#[test]
fn files_are_whole_before_anybody_has_read_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    let mut running = talkers(folder.path(), &["--log-dir", logs.to_str().unwrap()], "0");
    for rank in [0, 1] {
        let log = logs.join(format!("rank-{rank}.log"));
        wait_until("the file is whole", || {
            fs::read_to_string(&log).is_ok_and(|text| text.lines().count() == 2 * LINES + 1)
        });
    }
    running.read();
    assert!(running.finish().status.success());
}

/// The launcher does not wait for its reader when it is asked to end.
#[test]
fn a_reader_who_never_reads_holds_neither_the_job_nor_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = talkers(folder.path(), &[], "3");
    wait_for_talkers(folder.path());
    thread::sleep(PAUSE);
    running.signal(Signal::TERM);
    wait_until_gone(&[running.pid()]);
    running.read();
    assert_eq!(running.finish().status.code(), Some(143));
}

/// As a program leaves a terminal that it shares with the launcher.
#[test]
fn output_that_is_set_not_to_block_is_waited_for() {
    let (reading, writing) = rustix::pipe::pipe().unwrap();
    fcntl_setfl(&writing, fcntl_getfl(&writing).unwrap() | OFlags::NONBLOCK).unwrap();
    let mut launcher = Command::new(env!("CARGO_BIN_EXE_unisono"));
    launcher.args(["run", "-n", "2", "--", "seq", &(2 * LINES).to_string()]).stdout(writing);
    let running = launcher.spawn().unwrap();
    drop(launcher);
    wait_until("the pipe is full", || ioctl_fionread(&reading).unwrap() >= PIPE_FULL);
    let out = std::io::read_to_string(File::from(reading)).unwrap();
    assert!(running.wait_with_output().unwrap().status.success());
    assert_eq!(out.lines().count(), 4 * LINES);
}
