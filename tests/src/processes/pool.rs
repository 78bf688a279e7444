//! Processes of ranks: started when they are needed, kept for the next world, ended with the test binary.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::remote::Remote;
use crate::watchdog::WatchedProcess;

/// How a process of a rank is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Program {
    /// The file.
    pub(super) path: &'static str,
    /// Its only argument.
    pub(super) argument: &'static str,
    /// What is added to its environment.
    pub(super) environment: Environment,
}

/// Variables and their values.
pub type Environment = &'static [(&'static str, OsString)];

/// The process of a rank. It is killed when this is dropped.
pub(super) struct Process {
    pub(super) remote: Arc<Remote>,
    child: Mutex<Child>,
    /// Whether it may serve another world.
    is_clean: AtomicBool,
    _watched: WatchedProcess,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    fn start(program: Program) -> Process {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut command = Command::new(program.path);
        // Standard output is that of the test harness, which nobody else may write to.
        command.envs(program.environment.iter().map(|(name, value)| (name, value)));
        command.arg(program.argument).stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("{program:?}: {error}"));
        let remote = Arc::new(Remote::new(ours, child.id()));
        let watched = WatchedProcess::new(child.id());
        Process { remote, child: Mutex::new(child), is_clean: AtomicBool::new(true), _watched: watched }
    }

    /// Says whether it may serve another world.
    pub(super) fn set_clean(&self, is_clean: bool) {
        self.is_clean.store(is_clean, Ordering::SeqCst);
    }

    /// Ends it at once.
    pub(super) fn kill(&self) {
        let mut child = lock(&self.child);
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Sends a signal, such as `STOP` or `CONT`.
    pub(super) fn signal(&self, name: &str) {
        // A shell has the command built in, whatever else is installed.
        let command = format!("kill -{name} {}", self.remote.pid());
        assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What is there between two worlds.
#[derive(Default)]
struct Idle {
    processes: HashMap<Program, Vec<Process>>,
    worlds: u32,
}

static IDLE: Mutex<Option<Idle>> = Mutex::new(None);
static LEFT: Condvar = Condvar::new();

/// Processes for the ranks of one world. They go back when this is dropped.
pub(super) struct Lease {
    program: Program,
    pub(super) processes: Vec<Arc<Process>>,
}

impl Lease {
    /// Takes processes for so many ranks, when there are fewer than `worlds_max` other worlds.
    pub(super) fn take(program: Program, ranks: u32, worlds_max: u32) -> Lease {
        let full = |idle: &mut Option<Idle>| idle.get_or_insert_default().worlds >= worlds_max;
        let mut idle = LEFT.wait_while(lock(&IDLE), full).unwrap_or_else(PoisonError::into_inner);
        let idle_now = idle.get_or_insert_default();
        idle_now.worlds += 1;
        let kept = idle_now.processes.entry(program).or_default();
        let mut processes = kept.split_off(kept.len().saturating_sub(ranks as usize));
        drop(idle);
        processes.retain(|process| !process.remote.has_ended());
        while processes.len() < ranks as usize {
            processes.push(Process::start(program));
        }
        Lease { program, processes: processes.into_iter().map(Arc::new).collect() }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let processes = std::mem::take(&mut self.processes).into_iter().filter_map(Arc::into_inner);
        let (clean, spoilt): (Vec<_>, Vec<_>) =
            processes.partition(|process| process.is_clean.load(Ordering::SeqCst));
        drop(spoilt);
        let mut idle = lock(&IDLE);
        let idle = idle.get_or_insert_default();
        idle.processes.entry(self.program).or_default().extend(clean);
        idle.worlds -= 1;
        LEFT.notify_all();
    }
}
