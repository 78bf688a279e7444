//! Programs of a user: this test program once more, running one of its programs.

#[path = "../../../../tests/src/program.rs"]
mod program;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

pub(crate) use program::run;

/// Far longer than any test needs, so that only a hang reaches it.
const WATCHDOG: Duration = Duration::from_secs(120);

/// A program that runs. It is killed when this goes.
pub(crate) struct Program {
    child: Child,
    input: Option<ChildStdin>,
    errors: Receiver<String>,
    heard: Vec<String>,
}

/// A folder of one test, which is removed with it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("unisono-programs-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Left over, it harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Starts `program` with these variables and none of ours besides.
pub(crate) fn start(program: &str, variables: &[(&str, &str)]) -> Program {
    start_by(&[], program, variables)
}

/// Starts it through another program, as in `nohup program`.
pub(crate) fn start_by(by: &[&str], program: &str, variables: &[(&str, &str)]) -> Program {
    let words = [by, &["env"]].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(program::words(program));
    let inherited = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in inherited.filter(|name| name.starts_with("UNISONO_")) {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    let (sender, errors) = channel();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    std::thread::spawn(move || {
        lines.map_while(Result::ok).take_while(|line| sender.send(line.clone()).is_ok()).for_each(drop);
    });
    Program { input: child.stdin.take(), child, errors, heard: Vec::new() }
}

/// Starts all ranks of a job on this host, which meet as ranks started by hand do.
pub(crate) fn start_ranks(program: &str, job: &str, ranks: u32, variables: &[(&str, &str)]) -> Vec<Program> {
    let (size, job) = (ranks.to_string(), format!("{job} {}", std::process::id()));
    let start = |rank: u32| {
        let rank = rank.to_string();
        let own = [
            ("UNISONO_RANK", rank.as_str()),
            ("UNISONO_WORLD_SIZE", &size),
            ("UNISONO_JOB", &job),
            ("UNISONO_JOIN_TIMEOUT_S", "60"),
        ];
        start(program, &[&own[..], variables].concat())
    };
    (0..ranks).map(start).collect()
}

impl Program {
    /// Waits for a line of standard error with `text` in it, and gives it.
    pub(crate) fn hear(&mut self, text: &str) -> String {
        let deadline = Instant::now() + WATCHDOG;
        loop {
            match self.next_line(deadline) {
                Some(line) if line.contains(text) => return line,
                Some(_) => {}
                None => panic!("{text:?} is in none of {:?}", self.heard),
            }
        }
    }

    /// Sends a line to its standard input.
    pub(crate) fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{line}").and_then(|()| input.flush()).unwrap();
    }

    /// Waits for its end, and gives whether it succeeded and all lines of its standard error.
    pub(crate) fn end(mut self) -> (bool, Vec<String>) {
        let deadline = Instant::now() + WATCHDOG;
        while self.next_line(deadline).is_some() {}
        let status = self.child.wait().unwrap();
        (status.success(), std::mem::take(&mut self.heard))
    }

    fn next_line(&mut self, deadline: Instant) -> Option<String> {
        match self.errors.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                self.heard.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("a program hangs after {:?}", self.heard),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.input.take());
        // A process that has ended does not mind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
