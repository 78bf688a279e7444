//! Runs the program under a watchdog.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use unisono::Collective;

/// Far above the needs of any test, so that only a hang reaches it.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(120);

/// A finished run.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A run of the program.
pub(crate) struct Running {
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
}

/// The names of all operations that the program measures.
pub(crate) fn operations() -> Vec<&'static str> {
    Collective::ALL.into_iter().map(Collective::name).chain(["sendrecv"]).collect()
}

/// The shell's command for a rank that runs `program`.
pub(crate) fn rank_command(program: &str) -> String {
    format!("exec env {}", unisono_tests::program::words(program).join(" "))
}

/// Starts the program, its two outputs read by threads.
pub(crate) fn start(arguments: &[&str]) -> Running {
    start_by(&["env"], arguments)
}

/// Starts the program through another one, as in `nohup unisono`.
pub(crate) fn start_by(by: &[&str], arguments: &[&str]) -> Running {
    let mut running = start_unread(by, arguments);
    running.read();
    running
}

/// Starts the program, and does not read its output.
pub(crate) fn start_unread(by: &[&str], arguments: &[&str]) -> Running {
    // The starter of the tests may have signals ignored, as `nohup` does.
    let child = Command::new("env")
        .arg("--default-signal")
        .args(by)
        .arg(env!("CARGO_BIN_EXE_unisono"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    Running { child, out: channel().1, err: channel().1 }
}

/// Runs the program to its end.
pub(crate) fn unisono(arguments: &[&str]) -> Finished {
    start(arguments).finish()
}

/// Runs a shell line in `ranks` ranks.
pub(crate) fn shell(ranks: &str, options: &[&str], line: &str) -> Finished {
    let arguments = [&["run", "-n", ranks], options, &["--", "sh", "-c", line]].concat();
    unisono(&arguments)
}

/// The lines, in an order that does not depend on which rank was faster.
pub(crate) fn sorted_lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Hands on all that can be read, by pieces that end as lines do, or as the lines of progress bars.
fn lines(source: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut piece = Vec::new();
        for byte in std::io::BufReader::new(source).bytes().map_while(Result::ok) {
            piece.push(byte);
            if byte == b'\n' || byte == b'\r' {
                let text = String::from_utf8_lossy(&std::mem::take(&mut piece)).into_owned();
                if sender.send(text).is_err() {
                    return;
                }
            }
        }
        let _ = sender.send(String::from_utf8_lossy(&piece).into_owned());
    });
    receiver
}

impl Running {
    /// Reads the output of the program from now on.
    pub(crate) fn read(&mut self) {
        self.out = lines(self.child.stdout.take().unwrap());
        self.err = lines(self.child.stderr.take().unwrap());
    }

    /// Waits until a line of standard output is printed, and gives it with its end.
    pub(crate) fn next_line(&mut self) -> String {
        self.out.recv_timeout(WATCHDOG).expect("a line of standard output")
    }

    /// The same of standard error.
    pub(crate) fn next_error_line(&mut self) -> String {
        self.err.recv_timeout(WATCHDOG).expect("a line of standard error")
    }

    /// The launcher's number.
    pub(crate) fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// To the launcher only.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end; at the watchdog's time kills the launcher and fails.
    pub(crate) fn finish(mut self) -> Finished {
        let deadline = Instant::now() + WATCHDOG;
        let out = self.read_all(deadline, |running| &running.out);
        let err = self.read_all(deadline, |running| &running.err);
        let status = self.child.wait().unwrap();
        Finished { status, out, err }
    }

    fn read_all(&mut self, deadline: Instant, side: impl Fn(&Running) -> &Receiver<String>) -> String {
        let mut text = String::new();
        loop {
            match side(self).recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => text.push_str(&line),
                Err(RecvTimeoutError::Disconnected) => return text,
                Err(RecvTimeoutError::Timeout) => panic!("the program hangs; so far it printed {text:?}"),
            }
        }
    }
}

impl Drop for Running {
    /// A test that has failed leaves nothing: when the launcher is killed, its guard ends the ranks.
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A process that a job leaves behind; it is ended with the test.
pub(crate) struct LeftBehind(pub(crate) String);

impl Drop for LeftBehind {
    fn drop(&mut self) {
        if exists(&self.0) {
            signal(&self.0, Signal::KILL);
        }
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: &str, signal: Signal) {
    kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), signal).unwrap();
}

/// The kernel's word about a process: its line `name`, as `State:`.
pub(crate) fn status_line(pid: &str, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}

/// Whether a process has been stopped.
pub(crate) fn is_stopped(pid: &str) -> bool {
    status_line(pid, "State:").starts_with('T')
}

/// Whether a process has that number.
pub(crate) fn exists(pid: &str) -> bool {
    // A zombie has ended; it only waits for the process that adopted it.
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

/// Waits until no process has any of the numbers.
pub(crate) fn wait_until_gone(pids: &[String]) {
    wait_until(&format!("{pids:?} are gone"), || !pids.iter().any(|pid| exists(pid)));
}

/// Waits until something holds.
pub(crate) fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + WATCHDOG;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
