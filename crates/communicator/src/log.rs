//! Log lines: to the program's `tracing` subscriber, or to standard error if it has none.
//!
//! A library must not install a subscriber, because the program could then install none. So each line checks for one.
//!
//! A subscriber is the program's code: it may take locks and make calls. Standard error may be a pipe that nobody
//! reads. So a thread that holds links or locks uses neither: it passes its lines to another thread.

use std::cell::Cell;
use std::fmt;
use std::io::Write;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tracing::Dispatch;

use crate::aside::{Aside, NotTaken};

/// More lines of [`Holding`] threads do not wait to be told.
const LINES_WAITING_MAX: usize = 1024;

/// The severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something is wrong, or may be: a call makes no progress, a rank is late.
    Warn,
    /// A result that the user has asked for, such as a line about each call. Only the level `off` hides it.
    Requested,
    /// News that a user may want once: the place of rendezvous, the backend that works.
    Info,
    /// A reason for a decision of the library.
    Debug,
}

/// The lines that reach standard error while the program has no `tracing` subscriber: the value of `UNISONO_LOG`. A
/// subscriber decides for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// None.
    Off,
    /// Warnings.
    #[default]
    Warn,
    /// Warnings and infos.
    Info,
    /// All lines.
    Debug,
}

impl LogLevel {
    /// The values of `UNISONO_LOG`.
    pub const NAMES: [&str; 4] = ["off", "warn", "info", "debug"];

    const ALL: [LogLevel; 4] = [LogLevel::Off, LogLevel::Warn, LogLevel::Info, LogLevel::Debug];

    fn shows(self, severity: Severity) -> bool {
        let least = match severity {
            Severity::Warn | Severity::Requested => LogLevel::Warn,
            Severity::Info => LogLevel::Info,
            Severity::Debug => LogLevel::Debug,
        };
        self >= least
    }
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<LogLevel, String> {
        let place = LogLevel::NAMES.iter().position(|name| *name == text);
        let none = || format!("{text:?} is none of {}", LogLevel::NAMES.join(", "));
        place.map(|place| LogLevel::ALL[place]).ok_or_else(none)
    }
}

/// The level of this process, as its place in [`LogLevel::ALL`].
static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Warn as u8);

/// Sets the level of this process.
pub fn set_log_level(level: LogLevel) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Whether a line would be shown. Ask before a line whose text is costly.
pub fn is_logged(severity: Severity) -> bool {
    tracing::dispatcher::has_been_set()
        || LogLevel::ALL[usize::from(LEVEL.load(Ordering::Relaxed))].shows(severity)
}

/// Writes one line about the rank of this process, if it has a rank yet.
///
/// ```
/// use unisono_communicator::{Severity, log};
/// log(Severity::Info, Some(2), format_args!("joined a job of {} ranks", 4));
/// ```
pub fn log(severity: Severity, rank: Option<u32>, text: fmt::Arguments<'_>) {
    if !is_logged(severity) {
        return;
    }
    // This thread may have another subscriber than the process.
    let subscriber =
        tracing::dispatcher::has_been_set().then(|| tracing::dispatcher::get_default(Dispatch::clone));
    if HOLDINGS.get() == 0 {
        return tell(subscriber.as_ref(), severity, rank, text);
    }
    let line = text.to_string();
    let handed_over = TELLER.hand_over(move || {
        tell(subscriber.as_ref(), severity, rank, format_args!("{line}"));
        let lost = LOST.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let text =
                format_args!("{lost} lines are missing here: the lines before them were taken too slowly");
            tell(subscriber.as_ref(), Severity::Warn, None, text);
        }
    });
    match handed_over {
        Ok(()) => {}
        Err(NotTaken::Full) => _ = LOST.fetch_add(1, Ordering::Relaxed),
        Err(NotTaken::NoThread) => write_line(rank, text),
    }
}

fn tell(subscriber: Option<&Dispatch>, severity: Severity, rank: Option<u32>, text: fmt::Arguments<'_>) {
    match subscriber {
        Some(subscriber) => {
            tracing::dispatcher::with_default(subscriber, || tell_subscriber(severity, rank, text));
        }
        None => write_line(rank, text),
    }
}

fn tell_subscriber(severity: Severity, rank: Option<u32>, text: fmt::Arguments<'_>) {
    match severity {
        Severity::Warn => tracing::warn!(rank, "{text}"),
        Severity::Requested | Severity::Info => tracing::info!(rank, "{text}"),
        Severity::Debug => tracing::debug!(rank, "{text}"),
    }
}

fn write_line(rank: Option<u32>, text: fmt::Arguments<'_>) {
    let rank = rank.map(|rank| format!(" rank {rank}:")).unwrap_or_default();
    // One write, so that lines of several threads and processes do not mix. A failed write is ignored: the job goes on.
    let _ = std::io::stderr().lock().write_all(format!("unisono:{rank} {text}\n").as_bytes());
}

thread_local! {
    /// The number of [`Holding`] values of this thread.
    static HOLDINGS: Cell<u32> = const { Cell::new(0) };
}

/// While it exists, its thread holds something that calls need, such as a lock. The thread runs no subscriber, and its
/// lines wait for their reader on another thread.
#[derive(Debug)]
pub struct Holding {
    of_this_thread: PhantomData<*const ()>,
}

impl Holding {
    /// Begins for the calling thread.
    #[inline]
    pub fn begin() -> Holding {
        HOLDINGS.set(HOLDINGS.get() + 1);
        Holding { of_this_thread: PhantomData }
    }

    /// Whether the calling thread holds something that calls need, so that it must not wait for a call.
    pub fn is_here() -> bool {
        HOLDINGS.get() > 0
    }
}

impl Drop for Holding {
    #[inline]
    fn drop(&mut self) {
        HOLDINGS.set(HOLDINGS.get() - 1);
    }
}

/// Writes the lines of [`Holding`] threads.
static TELLER: Aside = Aside::new("unisono-log", LINES_WAITING_MAX);

/// The number of lines that found too many others waiting.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Waits until all lines so far have been told, at most for `longest`. For the end of the process.
pub fn flush_log(longest: Duration) {
    TELLER.flush(longest);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    struct Slow(Arc<AtomicU32>);

    impl Subscriber for Slow {
        fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _span: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _span: &Id, _values: &Record<'_>) {}

        fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

        fn event(&self, _event: &Event<'_>) {
            std::thread::sleep(Duration::from_millis(20));
            self.0.fetch_add(1, Ordering::SeqCst);
        }

        fn enter(&self, _span: &Id) {}

        fn exit(&self, _span: &Id) {}
    }

    #[test]
    fn the_lines_of_a_thread_that_holds_something_are_told_before_the_end() {
        let events = Arc::new(AtomicU32::new(0));
        tracing::subscriber::with_default(Slow(events.clone()), || {
            let _holding = Holding::begin();
            (0..3).for_each(|line| log(Severity::Warn, None, format_args!("line {line}")));
        });
        flush_log(Duration::from_secs(60));
        assert_eq!(events.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn every_level_has_its_name_and_shows_what_is_more_severe() {
        for (name, level) in LogLevel::NAMES.iter().zip(LogLevel::ALL) {
            assert_eq!(name.parse(), Ok(level));
        }
        let shown =
            |level: LogLevel| [Severity::Warn, Severity::Info, Severity::Debug].map(|one| level.shows(one));
        assert_eq!(shown(LogLevel::Off), [false; 3]);
        assert_eq!(shown(LogLevel::Warn), [true, false, false]);
        assert_eq!(shown(LogLevel::Info), [true, true, false]);
        assert_eq!(shown(LogLevel::Debug), [true; 3]);
        assert_eq!("loud".parse::<LogLevel>(), Err("\"loud\" is none of off, warn, info, debug".into()));
    }
}
