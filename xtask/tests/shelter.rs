//! Nothing outlives a command in the shelter: no process, also none in a session of its own, and no temporary file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A command that leaves a file and a process of its own session that must be killed, says which, and goes on.
const LEAVES: &str = "setsid sh -c 'trap : TERM; while :; do sleep 0.1; done' & echo $! > \"$TMPDIR/pid\"; \
                      echo \"$! $PPID $TMPDIR\"; ";

const WATCHDOG: Duration = Duration::from_secs(60);

struct Sheltered {
    outside: Child,
    output: BufReader<ChildStdout>,
    /// The process in a session of its own, and the part of the shelter within.
    pids: [i32; 2],
    folder: PathBuf,
}

fn start(goes_on: &str) -> Sheltered {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["sheltered", "sh", "-c", &format!("{LEAVES}{goes_on}")]);
    let mut outside = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(outside.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let words: Vec<&str> = line.trim_end().splitn(3, ' ').collect();
    let pids = [words[0].parse().unwrap(), words[1].parse().unwrap()];
    let sheltered = Sheltered { outside, output, pids, folder: PathBuf::from(words[2]) };
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
    /// The rest of its output.
    fn leaves_nothing(mut self) -> String {
        let until = Instant::now() + WATCHDOG;
        while self.outside.try_wait().unwrap().is_none() || exists(self.pids[0]) || self.folder.exists() {
            assert!(Instant::now() < until, "{:?} or {} is left", self.pids, self.folder.display());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!self.outside.wait().unwrap().success());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }
}

#[test]
fn a_shelter_leaves_nothing_however_it_ends() {
    // The process that is left behind is named, and a failure alone.
    let sheltered = start("while [ ! -e \"$TMPDIR/end\" ]; do sleep 0.01; done");
    std::fs::write(sheltered.folder.join("end"), "").unwrap();
    let named = format!("left behind by tests, and ended: {}: sh -c trap", sheltered.pids[0]);
    let output = sheltered.leaves_nothing();
    assert!(output.contains(&named), "{output}");
    for (signal, outside) in [(Signal::TERM, true), (Signal::KILL, true), (Signal::KILL, false)] {
        let sheltered = start("sleep 600");
        kill(if outside { sheltered.outside.id() as i32 } else { sheltered.pids[1] }, signal);
        sheltered.leaves_nothing();
    }
}

#[test]
fn a_command_that_fails_is_a_failure() {
    let code = |word: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(["sheltered", word]).status().unwrap().code()
    };
    assert_eq!([code("true"), code("false"), code("/none")], [Some(0), Some(1), Some(1)]);
}
