//! What was measured, as lines for people.

use std::fmt;
use std::time::Duration;

use crate::Problem;

/// The end of every verdict.
const KEPT: &str = "kept";
const BROKEN: &str = "NOT KEPT";

/// Promises that are not a row of times: printed as they are judged, and counted.
#[derive(Default)]
pub(crate) struct Verdicts {
    broken: u32,
}

impl Verdicts {
    /// Says what was measured, and whether that is what was promised.
    pub(crate) fn judge(&mut self, measured: impl fmt::Display, is_kept: bool) {
        self.broken += u32::from(!is_kept);
        println!("{measured}: {}", if is_kept { KEPT } else { BROKEN });
    }

    /// The same for what fails where a promise is broken.
    pub(crate) fn judge_outcome(&mut self, promise: &str, outcome: Result<impl fmt::Display, Problem>) {
        match outcome {
            Ok(measured) => self.judge(measured, true),
            Err(problem) => self.judge(format!("{promise}: {problem}"), false),
        }
    }

    /// An error if any promise was broken.
    pub(crate) fn end(self) -> Result<(), Problem> {
        match self.broken {
            0 => Ok(()),
            broken => Err(Problem::Broken(format!("{broken} promises are not kept"))),
        }
    }
}

/// What a promise bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// The 95th percentile.
    P95(Duration),
    /// The median and the 95th percentile.
    Both(Duration, Duration),
    /// The longest.
    Most(Duration),
    /// Only shown.
    Nothing,
}

/// One promise, and the times of all its runs.
pub(crate) struct Row {
    name: &'static str,
    sorted: Vec<Duration>,
    bound: Bound,
}

impl Row {
    /// The times come in any order.
    pub(crate) fn new(name: &'static str, mut times: Vec<Duration>, bound: Bound) -> Row {
        times.sort_unstable();
        Row { name, sorted: times, bound }
    }

    /// The time that so many of a hundred runs do not exceed.
    fn percentile(&self, percent: usize) -> Duration {
        let place = (self.sorted.len() * percent).div_ceil(100).saturating_sub(1);
        self.sorted.get(place).copied().unwrap_or_default()
    }

    fn verdict(&self) -> String {
        let judged =
            |is_kept: bool, bound: String| format!("{bound}: {}", if is_kept { KEPT } else { BROKEN });
        if self.sorted.is_empty() {
            return "not run".to_owned();
        }
        let (median, high, most) = (self.percentile(50), self.percentile(95), self.percentile(100));
        match self.bound {
            Bound::P95(limit) => judged(high <= limit, format!("p95 at most {}", text(limit))),
            Bound::Both(half, limit) => judged(
                median <= half && high <= limit,
                format!("p50 at most {}, p95 at most {}", text(half), text(limit)),
            ),
            Bound::Most(limit) => judged(most <= limit, format!("at most {}", text(limit))),
            Bound::Nothing => "no promise".to_owned(),
        }
    }
}

/// Prints all of them. Whether every promise is kept.
pub(crate) fn print(rows: &[Row]) -> bool {
    println!("| promise | runs | p50 | p95 | longest | |");
    println!("| --- | ---: | ---: | ---: | ---: | --- |");
    for row in rows {
        let [median, high, most] = [50, 95, 100].map(|percent| text(row.percentile(percent)));
        let (name, runs) = (row.name, row.sorted.len());
        println!("| {name} | {runs} | {median} | {high} | {most} | {} |", row.verdict());
    }
    rows.iter().all(|row| !row.verdict().ends_with(BROKEN))
}

fn text(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_verdicts() {
        let times = |most: u64| (1..=most).rev().map(Duration::from_millis).collect::<Vec<_>>();
        let row = |bound| Row::new("x", times(100), bound);
        let ms = Duration::from_millis;
        assert_eq!(
            [50, 95, 100].map(|percent| row(Bound::Nothing).percentile(percent)),
            [ms(50), ms(95), ms(100)]
        );
        assert!(row(Bound::P95(ms(95))).verdict().ends_with(": kept"));
        assert!(row(Bound::P95(ms(94))).verdict().ends_with("NOT KEPT"));
        assert!(row(Bound::Both(ms(49), ms(95))).verdict().ends_with("NOT KEPT"));
        assert!(row(Bound::Most(ms(99))).verdict().ends_with("NOT KEPT"));
    }
}
