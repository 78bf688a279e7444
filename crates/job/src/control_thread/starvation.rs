//! Why another rank on this host is silent: its control thread waits for a processor, or its process is stopped.
//!
//! Where hundreds of ranks share two cores, a control thread with much to do may get no turn for a second, while the
//! threads that watch it sleep, and are woken in time. Such a rank is silent, but it is not stopped and does not hang.

use std::fs;
use std::path::Path;

use crate::rendezvous::{ProcessBirth, RankProcess, process_start_ticks};

/// The visible state of a silent process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Its control thread could run now.
    Starving,
    /// A signal has stopped it.
    Stopped,
    /// It stands still for a debugger.
    Traced,
}

/// The state of the process of `other`, and of its thread of this name, as far as `own` can see anything: nothing of a
/// process of another pid namespace, of a process that has ended, also if its pid is in use again, and of this one.
pub(super) fn state_of(thread: &str, own: &RankProcess, other: &RankProcess) -> Option<Seen> {
    let (ours, theirs): (ProcessBirth, ProcessBirth) = (own.birth?, other.birth?);
    let pid = other.process.pid;
    let is_there = ours.pid_namespace == theirs.pid_namespace
        && pid != own.process.pid
        && process_start_ticks(pid) == Some(theirs.start_ticks);
    match is_there.then(|| state(Path::new(&format!("/proc/{pid}"))))?? {
        'T' => Some(Seen::Stopped),
        't' => Some(Seen::Traced),
        _ => is_runnable(pid, thread).then_some(Seen::Starving),
    }
}

/// Whether a thread of this name in a process runs, or waits for a processor and for nothing else.
fn is_runnable(pid: u32, name: &str) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.map(|thread| thread.path()).any(|thread| has_name(&thread, name) && state(&thread) == Some('R'))
}

fn has_name(thread: &Path, name: &str) -> bool {
    fs::read_to_string(thread.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
}

/// The state behind the name, which is in parentheses and may contain some.
fn state(thread: &Path) -> Option<char> {
    let stat = fs::read_to_string(thread.join("stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;
    use crate::rendezvous::own_process;

    /// The longest that the kernel may take to show the state of a thread.
    const SHOWN_WITHIN: Duration = Duration::from_secs(60);

    #[test]
    fn a_thread_that_spins_is_runnable_and_one_that_sleeps_is_not() {
        let (name, spins, ends) = ("unisono-starved", AtomicBool::new(true), AtomicBool::new(false));
        let becomes = |wanted: bool| {
            let until = Instant::now() + SHOWN_WITHIN;
            while is_runnable(std::process::id(), name) != wanted {
                assert!(Instant::now() < until, "it never becomes {wanted}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        std::thread::scope(|threads| {
            let body = || {
                // It ends also when the test fails.
                let until = Instant::now() + 2 * SHOWN_WITHIN;
                while spins.load(Ordering::Relaxed) && Instant::now() < until {
                    std::hint::spin_loop();
                }
                while !ends.load(Ordering::Relaxed) && Instant::now() < until {
                    std::thread::park_timeout(SHOWN_WITHIN);
                }
            };
            let thread =
                std::thread::Builder::new().name(name.to_owned()).spawn_scoped(threads, body).unwrap();
            becomes(true);
            spins.store(false, Ordering::Relaxed);
            becomes(false);
            ends.store(true, Ordering::Relaxed);
            thread.thread().unpark();
        });
        assert_eq!(state_of(name, &own_process(), &own_process()), None, "no rank judges itself");
    }

    #[test]
    fn a_process_that_is_stopped_is_seen_to_be() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let (own, mut other) = (own_process(), own_process());
        other.process.pid = child.id();
        let birth = other.birth.unwrap();
        other.birth = Some(ProcessBirth { start_ticks: process_start_ticks(child.id()).unwrap(), ..birth });
        let becomes = |wanted| {
            let until = Instant::now() + SHOWN_WITHIN;
            while state_of("cat", &own, &other) != wanted {
                assert!(Instant::now() < until, "it never becomes {wanted:?}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        // It reads input that never comes.
        becomes(None);
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::STOP).unwrap();
        becomes(Some(Seen::Stopped));
        kill_process(pid, Signal::CONT).unwrap();
        becomes(None);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(state_of("cat", &own, &other), None, "it is gone");
    }
}
