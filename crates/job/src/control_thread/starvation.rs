//! Whether the control thread of another rank on this host waits for a processor.
//!
//! Where hundreds of ranks share two cores, a control thread with much to do may get no turn for a second, while the
//! threads that watch it sleep, and are woken in time. Such a rank is silent, but it is not stopped and does not hang.

use std::fs;
use std::path::Path;

use crate::rendezvous::{ProcessBirth, RankProcess, process_start_ticks};

/// Whether the thread of this name in the process of `other` could run now, as far as `own` can see. False for a
/// process of another pid namespace, for a process that has ended, also if its pid is in use again, and for this one.
pub(super) fn is_starving(thread: &str, own: &RankProcess, other: &RankProcess) -> bool {
    let (Some(ours), Some(theirs)): (Option<ProcessBirth>, Option<ProcessBirth>) = (own.birth, other.birth)
    else {
        return false;
    };
    let pid = other.process.pid;
    ours.pid_namespace == theirs.pid_namespace
        && pid != own.process.pid
        && process_start_ticks(pid) == Some(theirs.start_ticks)
        && is_runnable(pid, thread)
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
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::rendezvous::own_process;

    /// The longest that the kernel may take to show what a thread does.
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
        assert!(!is_starving(name, &own_process(), &own_process()), "no rank judges itself");
    }
}
