//! Ranks that are processes of their own: this test program once more, heard line by line.

#![allow(dead_code, reason = "every test file uses its own part")]

#[path = "../../../../tests/src/program.rs"]
mod program;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;

pub(crate) use program::{run, words};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open};

use crate::support::TEST_TIME_MAX;

const MARK: &str = "rank says: ";

/// The variable that a process finds that runs one test alone.
const ALONE: &str = "TEST_IS_ALONE";

/// Runs a test in a process of its own, for its counts there: this program again, told to run `test` alone.
#[expect(clippy::disallowed_methods, reason = "variables of tests, no settings of the library")]
pub(crate) fn alone(test: &str, body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--nocapture"]).env(ALONE, "").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Says a line to the parent, past the test harness, which would collect it.
pub(crate) fn say(text: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "\n{MARK}{text}").and_then(|()| output.flush()).unwrap();
}

/// Starts a process that holds all sockets of this one, as the child of a fork without exec does, and that ends when
/// the input of this process does. An error says why this machine cannot.
pub(crate) fn leave_sockets_to_a_child() -> std::io::Result<()> {
    let own = pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    let mut copies = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let path = entry?.path();
        let is_socket = std::fs::read_link(&path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
        let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        if let Some(number) = number.filter(|_| is_socket) {
            let copy = pidfd_getfd(&own, number, PidfdGetfdFlags::empty())?;
            // The child of an exec has it too.
            fcntl_setfd(&copy, FdFlags::empty())?;
            copies.push(copy);
        }
    }
    assert!(!copies.is_empty(), "no sockets");
    Command::new("cat").stdin(Stdio::inherit()).stdout(Stdio::null()).spawn()?;
    Ok(())
}

/// One rank's process, which is killed when this goes.
pub(crate) struct Rank {
    name: String,
    process: Child,
    input: Option<ChildStdin>,
    output: mpsc::Receiver<String>,
}

impl Rank {
    /// Starts a program that has been given its words; `name` is for messages.
    pub(crate) fn start(name: impl Into<String>, command: &mut Command) -> Rank {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start a rank");
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || {
            let said = lines.map_while(std::io::Result::ok);
            said.filter_map(|line| line.strip_prefix(MARK).map(str::to_owned))
                .take_while(|text| sender.send(text.clone()).is_ok())
                .for_each(drop);
        });
        Rank { name: name.into(), input: process.stdin.take(), process, output }
    }

    /// This program again, which runs the program `program`.
    pub(crate) fn again(
        name: impl Into<String>,
        program: &str,
        variables: &[(&str, impl AsRef<OsStr>)],
    ) -> Rank {
        let mut command = Command::new("env");
        command.args(words(program));
        Rank::start(name, command.envs(variables.iter().map(|(name, value)| (name, value))))
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Its next line. Silence looks like a hang from here.
    pub(crate) fn hear(&self) -> String {
        match self.output.recv_timeout(TEST_TIME_MAX) {
            Ok(line) => line,
            Err(error) => panic!("{} says nothing: {error}", self.name),
        }
    }

    /// Its next line within a few seconds, if there is one.
    pub(crate) fn hear_soon(&self) -> Option<String> {
        self.output.recv_timeout(std::time::Duration::from_secs(5)).ok()
    }

    pub(crate) fn tell(&mut self, text: &str) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{text}").and_then(|()| input.flush()).unwrap();
    }

    /// Lets it end, and looks how it does.
    pub(crate) fn end(mut self) {
        drop(self.input.take());
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{} ended with {status}", self.name);
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        drop(self.input.take());
        // A stopped process does not end by itself; an ended process does not mind.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
