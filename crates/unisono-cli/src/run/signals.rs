//! The signals that the launcher gets, and what they mean for the ranks.

use std::io;
use std::sync::mpsc::Sender;
use std::thread;

use rustix::process::Signal;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::rank::Event;

/// Every signal that the launcher heeds, unless whoever started it has had it ignored.
const HEEDED: [i32; 8] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT];

/// What a signal to the launcher asks for. The ranks get the signal first in each case: they are process groups of
/// their own, so neither the terminal nor a batch system reaches them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// End the job.
    End,
    /// Stop the launcher too, until it is continued.
    Stop,
    /// Nothing more.
    PassOn,
}

impl Request {
    pub(super) fn of(signal: Signal) -> Request {
        match signal {
            Signal::TSTP => Request::Stop,
            Signal::USR1 | Signal::USR2 | Signal::CONT => Request::PassOn,
            _ => Request::End,
        }
    }
}

/// Reports signals as [`Event::Signal`] from now on. A signal that this process was started to ignore, as `nohup` and
/// shells without job control do, stays ignored, here and in the ranks.
pub(super) fn watch(events: Sender<Event>) -> io::Result<()> {
    let ignored = ignored(&std::fs::read_to_string("/proc/self/status")?)?;
    let mut signals = Signals::new(HEEDED.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0))?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever().filter_map(Signal::from_named_raw) {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// Stops this process until it gets SIGCONT.
pub(super) fn stop() {
    // It fails only for a signal that does not exist.
    let _ = emulate_default_handler(SIGTSTP);
}

/// Keeps this process alive whatever signal it gets that can be caught.
pub(super) fn survive() -> io::Result<()> {
    for signal in HEEDED {
        // A handler, not an ignored signal, though there is nothing to do: that needs no unsafe code.
        signal_hook::flag::register(signal, std::sync::Arc::default())?;
    }
    Ok(())
}

/// The set of ignored signals in the kernel's description of a process: bit 0 is signal 1.
fn ignored(status: &str) -> io::Result<u64> {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.ok_or_else(|| io::Error::other("no SigIgn line in /proc/self/status"))
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
        assert_eq!(requests, [End, End, End, End, PassOn, PassOn, Stop, PassOn]);
    }
}
