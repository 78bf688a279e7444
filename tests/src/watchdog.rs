//! A deadline for every test: when it passes, what each rank is doing is printed and the process ends as a failure.

use std::io::{self, Read, Seek, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// What one rank is doing, for the watchdog to print.
#[derive(Debug)]
pub struct Seat {
    name: String,
    doing: Mutex<(String, Instant)>,
}

/// A process beside this one, whose stacks belong to the report.
#[derive(Debug)]
pub struct WatchedProcess(u32);

static PROCESSES: Mutex<Vec<u32>> = Mutex::new(Vec::new());

impl WatchedProcess {
    /// Watches the process with this id, until this is dropped.
    pub fn new(pid: u32) -> WatchedProcess {
        lock(&PROCESSES).push(pid);
        WatchedProcess(pid)
    }
}

impl Drop for WatchedProcess {
    fn drop(&mut self) {
        lock(&PROCESSES).retain(|pid| *pid != self.0);
    }
}

static SEATS: Mutex<Vec<Weak<Seat>>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seat {
    /// A seat that the watchdog sees until it is dropped.
    pub fn take(name: String) -> Arc<Seat> {
        let seat = Arc::new(Seat { name, doing: Mutex::new(("starts".to_owned(), Instant::now())) });
        let mut seats = lock(&SEATS);
        seats.retain(|seat| seat.strong_count() > 0);
        seats.push(Arc::downgrade(&seat));
        seat
    }

    /// Says what is done from now on.
    pub fn note(&self, doing: String) {
        *lock(&self.doing) = (doing, Instant::now());
    }
}

/// Runs a test with a deadline. `seconds` is for a busy machine: many times what the test takes.
pub fn watchdog<R>(seconds: u64, name: &str, test: impl FnOnce() -> R) -> R {
    let _alive = start(seconds, name.to_owned());
    test()
}

/// Ends the process after so many seconds, unless what it gives is dropped before. It is a function of its own because
/// a thread that starts within [`watchdog`] would be compiled anew for each test.
fn start(seconds: u64, name: String) -> Sender<()> {
    let (alive, ended) = channel();
    // The harness names the thread of a test as the test.
    let thread = std::thread::current();
    std::thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(seconds)) == Err(RecvTimeoutError::Timeout) {
            report(&name, thread.name().unwrap_or_default(), seconds);
            std::process::abort();
        }
    });
    alive
}

/// The time limit of the report of all stacks.
const STACKS_TIME_MAX: Duration = Duration::from_secs(120);

fn report(name: &str, test: &str, seconds: u64) {
    let mut text =
        format!("\nWATCHDOG: {name} has not ended after {seconds} s, in the test {test}\nRanks:\n");
    for seat in lock(&SEATS).iter().filter_map(Weak::upgrade) {
        let (doing, since) = &*lock(&seat.doing);
        text += &format!("  {}: {doing}, for {:?}\n", seat.name, since.elapsed());
    }
    say(&text);
    // Where there is a debugger, the stacks of all threads too, as far as the time goes: each process may take seconds.
    let until = Instant::now() + STACKS_TIME_MAX;
    let processes = std::iter::once(std::process::id()).chain(lock(&PROCESSES).clone());
    for pid in processes.take_while(|_| Instant::now() < until) {
        if let Ok(stacks) = stacks_of(pid) {
            say(&format!("\nprocess {pid}:\n{stacks}"));
        }
    }
}

/// The stacks of a process, this one too. It stands still meanwhile, so nobody would empty a pipe that the debugger
/// fills: its output goes to a file.
fn stacks_of(pid: u32) -> io::Result<String> {
    let mut file = tempfile::tempfile()?;
    let pid = pid.to_string();
    // On a busy machine it may take minutes to read the symbols. A debugger may ignore the first signal.
    let arguments =
        ["--kill-after=5", "60", "gdb", "-p", &pid, "-batch", "-ex", "thread apply all backtrace 16"];
    let mut gdb = Command::new("timeout");
    gdb.args(arguments).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(Stdio::null()).status()?;
    file.rewind()?;
    let mut stacks = Vec::new();
    file.read_to_end(&mut stacks)?;
    Ok(String::from_utf8_lossy(&stacks).into_owned())
}

/// Past the test harness, whose captured output is lost when the process aborts.
fn say(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_test_that_ends_is_left_alone_and_gives_its_result() {
        assert_eq!(watchdog(600, "quick", || 5), 5);
    }

    /// Tells the process to hang in its test.
    const HANGS: &str = "TEST_HANGS";

    /// The stacks are more than a pipe holds.
    #[test]
    fn a_test_that_hangs_ends_with_the_stacks_of_many_threads() {
        let test = "watchdog::tests::a_test_that_hangs_ends_with_the_stacks_of_many_threads";
        if std::env::var_os(HANGS).is_some() {
            (0..THREADS).for_each(|_| drop(std::thread::spawn(|| hang(16))));
            return watchdog(1, test, || hang(16));
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", test])
            .env(HANGS, "")
            .stdout(Stdio::null())
            .stderr(tempfile::tempfile().unwrap());
        let mut child = child.spawn().unwrap();
        let began = Instant::now();
        let ended = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            } else if began.elapsed() > Duration::from_secs(200) {
                break None;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        if ended.is_none() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(ended.expect("its watchdog hangs").signal(), Some(libc::SIGABRT));
    }

    const THREADS: usize = 200;

    #[inline(never)]
    fn hang(depth: u32) {
        if depth > 0 {
            hang(depth - 1);
        }
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn seats_are_listed_until_they_are_left() {
        let listed = |name: &str| lock(&SEATS).iter().filter_map(Weak::upgrade).any(|seat| seat.name == name);
        let seat = Seat::take("a seat of this test".to_owned());
        seat.note("waits".to_owned());
        assert!(listed("a seat of this test"));
        drop(seat);
        assert!(!listed("a seat of this test"));
    }
}
