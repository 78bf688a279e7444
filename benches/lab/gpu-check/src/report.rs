//! What the program has found: for people, and as JSON.

use std::fmt;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::{measure, peer};

/// Everything.
#[derive(Serialize)]
pub(crate) struct Report {
    /// In UTC.
    pub(crate) date: String,
    pub(crate) card: String,
    pub(crate) capability: String,
    /// The version of CUDA that the driver has.
    pub(crate) cuda: String,
    /// What the driver says of itself.
    pub(crate) driver: String,
    /// Its version and its file, if it is there and asked for.
    pub(crate) nccl: Option<String>,
    /// Whether the card, the driver and NCCL are test doubles.
    pub(crate) double: bool,
    pub(crate) checks: Vec<Check>,
    /// What was left out, and why.
    pub(crate) left_out: Vec<String>,
    /// Nothing on a test double, which has no speed.
    pub(crate) overhead: Vec<Overhead>,
    /// The same.
    pub(crate) measured: Option<measure::Measured>,
    pub(crate) pytorch: Option<peer::Pytorch>,
}

/// What was checked, and what it came to.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Check {
    pub(crate) name: String,
    /// The first difference, if there is one.
    pub(crate) failure: Option<String>,
}

/// What a call costs its caller until it is enqueued, beside NCCL's own function; microseconds, as quartiles.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Overhead {
    pub(crate) ranks: u32,
    pub(crate) bytes: usize,
    pub(crate) calls: usize,
    pub(crate) nccl_us: [f64; 3],
    pub(crate) ours_us: [f64; 3],
    /// The difference of the medians.
    pub(crate) more_us: f64,
    /// 2 % of NCCL's median or 1 us, the larger.
    pub(crate) goal_us: f64,
    pub(crate) is_within: bool,
}

impl Overhead {
    /// Of so many calls each.
    pub(crate) fn new(ranks: u32, bytes: usize, calls: usize, nccl: [f64; 3], ours: [f64; 3]) -> Overhead {
        let (more_us, goal_us) = (ours[1] - nccl[1], (0.02 * nccl[1]).max(1.0));
        let is_within = more_us <= goal_us;
        Overhead { ranks, bytes, calls, nccl_us: nccl, ours_us: ours, more_us, goal_us, is_within }
    }
}

impl fmt::Display for Overhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([low, median, high], [own_low, own_median, own_high]) = (self.nccl_us, self.ours_us);
        write!(
            f,
            "all_reduce of {} B, {} ranks, {} calls: NCCL {median:.2} us ({low:.2} - {high:.2}), unisono \
             {own_median:.2} us ({own_low:.2} - {own_high:.2}), {:+.2} us: {} the goal of {:.2} us",
            self.bytes,
            self.ranks,
            self.calls,
            self.more_us,
            if self.is_within { "within" } else { "above" },
            self.goal_us
        )
    }
}

/// What a rank tells the process that has started it.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Line {
    Check(Check),
    Overhead(Overhead),
}

/// The result of `body`; a panic is a failure too.
pub(crate) fn check(name: String, body: impl FnOnce() -> Result<(), String>) -> Check {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            Some(text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panicked").to_owned())
        }
    };
    Check { name, failure }
}

/// Prints what has failed, and how many have not.
pub(crate) fn print(about: &str, checks: &[Check]) {
    let failed = checks.iter().filter_map(|check| Some((&check.name, check.failure.as_ref()?)));
    failed.clone().for_each(|(name, failure)| println!("{name} FAILED: {failure}"));
    println!("{about}: {} of {} checks passed", checks.len() - failed.count(), checks.len());
}

/// What the driver says of itself.
pub(crate) fn driver() -> String {
    let text = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

/// The date and the time.
pub(crate) fn date() -> String {
    let said = Command::new("date").args(["--utc", "+%Y-%m-%d %H:%M UTC"]).output();
    said.map_or_else(|_| "unknown".to_owned(), |said| String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure_with_its_words() {
        assert_eq!(check("a".to_owned(), || Ok(())).failure, None);
        assert_eq!(check("a".to_owned(), || panic!("it is {}", 3)).failure.as_deref(), Some("it is 3"));
    }

    #[test]
    fn the_goal_is_the_larger_of_both() {
        let short = Overhead::new(1, 8, 320, [4.0, 5.0, 6.0], [5.0, 5.9, 7.0]);
        assert_eq!((short.goal_us, short.is_within), (1.0, true));
        let long = Overhead::new(1, 8, 320, [90.0, 100.0, 110.0], [90.0, 103.0, 110.0]);
        assert_eq!((long.goal_us, long.is_within), (2.0, false));
        assert!(long.to_string().ends_with("+3.00 us: above the goal of 2.00 us"), "{long}");
    }
}
