//! Nothing outlives a command in the shelter: no process, also none in a session of its own, and no temporary file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A command that leaves a process of its own session and a file, and says which, and how it goes on.
const LEAVES: &str = "setsid sleep 600 & echo $! > \"$TMPDIR/pid\"; echo \"$! $PPID $TMPDIR\"; ";

const WATCHDOG: Duration = Duration::from_secs(60);

struct Sheltered {
    outside: Child,
    /// The process in a session of its own, and the part of the shelter within.
    pids: [i32; 2],
    folder: PathBuf,
}

fn start(goes_on: &str) -> Sheltered {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["sheltered", "sh", "-c", &format!("{LEAVES}{goes_on}")]);
    let mut outside = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(outside.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let words: Vec<&str> = line.trim_end().splitn(3, ' ').collect();
    let pids = [words[0].parse().unwrap(), words[1].parse().unwrap()];
    let sheltered = Sheltered { outside, pids, folder: PathBuf::from(words[2]) };
    assert!(sheltered.folder.join("pid").exists() && exists(sheltered.pids[0]));
    sheltered
}

/// Whether a process runs. A zombie has ended.
fn exists(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

impl Sheltered {
    fn leaves_nothing(mut self) {
        let until = Instant::now() + WATCHDOG;
        while self.outside.try_wait().unwrap().is_none() || exists(self.pids[0]) || self.folder.exists() {
            assert!(Instant::now() < until, "{:?} or {} is left", self.pids, self.folder.display());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_shelter_leaves_nothing_however_it_ends() {
    let sheltered = start("while [ ! -e \"$TMPDIR/end\" ]; do sleep 0.01; done; exit 3");
    std::fs::write(sheltered.folder.join("end"), "").unwrap();
    sheltered.leaves_nothing();
    for signal in [Signal::TERM, Signal::KILL] {
        let sheltered = start("sleep 600");
        kill(sheltered.outside.id() as i32, signal);
        sheltered.leaves_nothing();
    }
    let sheltered = start("sleep 600");
    kill(sheltered.pids[1], Signal::KILL);
    sheltered.leaves_nothing();
}
