//! Lines for people: through `tracing` where the program has a subscriber, else on standard error.
//!
//! A library must not install a subscriber, because the program could then install none. So each line looks whether
//! there is one.

use std::fmt;
use std::io::Write;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something is wrong, or may be: a call makes no progress, a rank is late.
    Warn,
    /// What a user may want to know once: where the ranks have met, which backend works.
    Info,
    /// What explains a decision of the library.
    Debug,
}

/// Which lines reach standard error while the program has no `tracing` subscriber: the value of `UNISONO_LOG`. A
/// subscriber decides for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// None.
    Off,
    /// Warnings.
    #[default]
    Warn,
    /// And what a user may want to know once.
    Info,
    /// And what explains decisions.
    Debug,
}

impl LogLevel {
    /// The values of `UNISONO_LOG`.
    pub const NAMES: [&str; 4] = ["off", "warn", "info", "debug"];

    const ALL: [LogLevel; 4] = [LogLevel::Off, LogLevel::Warn, LogLevel::Info, LogLevel::Debug];

    fn shows(self, severity: Severity) -> bool {
        let least = match severity {
            Severity::Warn => LogLevel::Warn,
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

/// Whether a line would be shown: for lines that cost something to make.
pub fn is_logged(severity: Severity) -> bool {
    tracing::dispatcher::has_been_set()
        || LogLevel::ALL[usize::from(LEVEL.load(Ordering::Relaxed))].shows(severity)
}

/// Writes one line, which concerns the rank of this process, if it has one yet.
///
/// ```
/// use unisono_communicator::{Severity, log};
/// log(Severity::Info, Some(2), format_args!("joined a job of {} ranks", 4));
/// ```
pub fn log(severity: Severity, rank: Option<u32>, text: fmt::Arguments<'_>) {
    if !is_logged(severity) {
        return;
    }
    if tracing::dispatcher::has_been_set() {
        match severity {
            Severity::Warn => tracing::warn!(rank, "{text}"),
            Severity::Info => tracing::info!(rank, "{text}"),
            Severity::Debug => tracing::debug!(rank, "{text}"),
        }
        return;
    }
    let rank = rank.map(|rank| format!(" rank {rank}:")).unwrap_or_default();
    // One call, so that lines of several threads and processes do not mix. If nobody can be told, the job goes on.
    let _ = std::io::stderr().lock().write_all(format!("unisono:{rank} {text}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

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
