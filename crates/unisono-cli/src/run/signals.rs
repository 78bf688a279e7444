//! The signals that the launcher gets, and their meanings for the ranks.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;

use nix::sys::signal::SigSet;
use rustix::process::Signal;
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGXFSZ,
};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::orphans;
use super::rank::Event;
use crate::problem::{Problem, Result};

/// Every signal that the launcher heeds, unless its starter has had it ignored.
const HEEDED: [i32; 8] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT];

/// The request of a signal to the launcher. The ranks get the signal first in each case: they are process groups of
/// their own, so neither the terminal nor a batch system reaches them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// End the job.
    End,
    /// Stop the launcher too, until it is continued.
    Stop,
    /// Nothing more.
    PassOn,
    /// Reap the processes that have ended.
    Reap,
}

impl Request {
    pub(super) fn of(signal: Signal) -> Request {
        match signal {
            Signal::TSTP => Request::Stop,
            Signal::CHILD => Request::Reap,
            Signal::USR1 | Signal::USR2 | Signal::CONT => Request::PassOn,
            _ => Request::End,
        }
    }
}

/// The kernel's description of this process.
const STATUS_FILE: &str = "/proc/self/status";

/// Reports signals as [`Event::Signal`] from now on. A signal that this process was started to ignore, as `nohup` and
/// shells without job control do, stays ignored, here and in the ranks.
///
/// A launcher may have been started with signals that it cannot do without: blocked ones would never reach it or its
/// ranks, and without SIGCHLD the kernel would not keep the status of a rank for it. A file that may not grow is an
/// error of a write, which is told, and no signal that would end the launcher. A program gets the default
/// dispositions of signals that have a handler here.
pub(super) fn watch<R: Send + 'static>(events: Sender<Event<R>>) -> Result<()> {
    let failed = |error| Problem::failed("catching signals", error);
    let status = std::fs::read_to_string(STATUS_FILE).map_err(|error| Problem::failed(STATUS_FILE, error))?;
    let ignored = ignored(&status).map_err(failed)?;
    let is_heeded = |signal: &i32| ignored >> (signal - 1) & 1 == 0;
    survive([SIGCHLD]).and_then(|()| survive([SIGXFSZ].into_iter().filter(is_heeded))).map_err(failed)?;
    let heeded = HEEDED.into_iter().filter(is_heeded).chain(orphans::are_ours().then_some(SIGCHLD));
    let mut signals = Signals::new(heeded).map_err(failed)?;
    SigSet::empty().thread_set_mask().map_err(|error| failed(error.into()))?;
    let report = move || {
        for signal in signals.forever().filter_map(Signal::from_named_raw) {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(report).map(drop).map_err(failed)
}

/// Stops this process until it gets SIGCONT.
pub(super) fn stop() {
    // It fails only for a signal that does not exist.
    let _ = emulate_default_handler(SIGTSTP);
}

/// Lets the guard outlive every signal that can be caught.
pub(super) fn survive_all() -> io::Result<()> {
    survive(HEEDED)
}

/// These signals end this process no longer.
fn survive(signals: impl IntoIterator<Item = i32>) -> io::Result<()> {
    // A handler, not an ignored signal, though there is nothing to do: that needs no unsafe code.
    signals.into_iter().try_for_each(|signal| signal_hook::flag::register(signal, Arc::default()).map(drop))
}

/// The set of ignored signals in the kernel's description of a process: bit 0 is signal 1.
fn ignored(status: &str) -> io::Result<u64> {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.ok_or_else(|| io::Error::other(format!("no SigIgn line in {STATUS_FILE}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_kernel() {
        let status = "Name:\tcat\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        assert_eq!(ignored(status).unwrap(), 1 << 12 | 1);
        assert!(ignored("Name:\tcat\n").is_err());
    }

    #[test]
    fn every_heeded_signal_asks_for_something() {
        let requests = HEEDED.map(|signal| Request::of(Signal::from_named_raw(signal).unwrap()));
        use Request::{End, PassOn, Stop};
        assert_eq!(Request::of(Signal::CHILD), Request::Reap);
        assert_eq!(requests, [End, End, End, End, PassOn, PassOn, Stop, PassOn]);
    }
}
