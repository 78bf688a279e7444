//! The ends of ranks, and the first failure among them. When one dies, the others notice and fail too.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Instant;

use rustix::process::Signal;

use super::last_words::{LineKind, Words};
use super::reports::Reports;

/// A shell adds this to a signal's number.
pub(crate) const SIGNAL_STATUS: i32 = 128;
/// The status of a process whose own status is lost.
const STATUS_LOST: u8 = 255;

/// The end of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) rank: u32,
    /// When the launcher learned of it.
    pub(crate) at: Instant,
    /// Its end in words.
    pub(crate) how: String,
    /// The status that a shell would report: its own, or 128 plus the signal that ended it.
    pub(crate) status: u8,
    /// Whether something from outside or a fault of its own struck the rank down: a signal, but not the signal of
    /// `abort`, with which a program may end as well because of an error that another rank has caused.
    is_struck: bool,
    /// Whether the launcher had asked it to end before.
    is_asked: bool,
}

impl End {
    /// The end of a rank that may have been asked to end.
    pub(crate) fn new(rank: u32, at: Instant, ended: io::Result<ExitStatus>, is_asked: bool) -> End {
        let signal = ended.as_ref().ok().and_then(ExitStatus::signal);
        let (how, status) = match (&ended, signal) {
            (Err(error), _) => (format!("ended, its status is lost: {error}"), i32::from(STATUS_LOST)),
            (Ok(_), Some(signal)) => {
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("unknown");
                (format!("was ended by signal {signal} ({name})"), SIGNAL_STATUS + signal)
            }
            (Ok(status), None) => {
                let code = status.code().unwrap_or_default();
                (format!("exited with status {code}"), code)
            }
        };
        let status = u8::try_from(status).unwrap_or(STATUS_LOST);
        let is_struck = signal.is_some_and(|signal| signal != Signal::ABORT.as_raw());
        End { rank, at, how, status, is_struck, is_asked }
    }

    pub(crate) fn is_success(&self) -> bool {
        self.status == 0
    }

    /// Whether it wrote to a pipe that nobody reads.
    pub(crate) fn is_by_broken_pipe(&self) -> bool {
        i32::from(self.status) == SIGNAL_STATUS + Signal::PIPE.as_raw()
    }

    /// The end in words, with the last words of the rank. A line that does not call itself an error may be about
    /// anything.
    pub(crate) fn told(&self, words: Option<&Words>) -> String {
        let End { rank, how, .. } = self;
        match words {
            None => format!("rank {rank} {how}"),
            Some(Words { kind: LineKind::Line, text, .. }) => {
                format!("rank {rank} {how}; its last line: {text}")
            }
            Some(Words { text, .. }) => format!("rank {rank} {how}: {text}"),
        }
    }
}

/// The failure that most likely caused the others, which are given in the order of their ends.
///
/// A rank that holds another one responsible for its error is a victim, however it ended, if that one failed too. Of
/// the rest, a rank that was struck down did not react to another one. Without such a rank, the rank that ended first
/// need not be the rank that failed first: a rank that exits says goodbye before, and the others may end sooner when
/// they hear that. But it writes its last words before the goodbye. So if the first to end has said something, the rank
/// that spoke first failed first.
pub(crate) fn first<'e>(
    failures: &'e [End],
    reports: &Reports,
    words: impl Fn(&End) -> Option<Words>,
) -> Option<&'e End> {
    let is_blamed =
        |rank| failures.iter().any(|end| reports.blamed_by(end.rank).any(|blamed| blamed == rank));
    // A rank that was asked to end fails because of that, but not when another one has lost it before.
    let own: Vec<_> =
        failures.iter().filter(|end| !end.is_asked || !end.is_struck && is_blamed(end.rank)).collect();
    let failed = |rank| own.iter().any(|end| end.rank == rank);
    let mut causes = own.clone();
    causes.retain(|end| !reports.blamed_by(end.rank).any(failed));
    if causes.is_empty() {
        causes = own;
    }
    let first = *causes.iter().find(|end| end.is_struck).or(causes.first())?;
    let spoke = |end: &End| words(end).map(|words| words.at);
    if first.is_struck || spoke(first).is_none() {
        return Some(first);
    }
    causes.into_iter().filter(|end| spoke(end).is_some()).min_by_key(|end| spoke(end))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A wait status holds the exit code in its second byte, or the signal in its first.
    fn end(rank: u32, raw: i32, at: Instant) -> End {
        End::new(rank, at, Ok(ExitStatus::from_raw(raw)), false)
    }

    #[test]
    fn statuses_are_those_of_a_shell() {
        let now = Instant::now();
        let exited = end(0, 3 << 8, now);
        assert_eq!((exited.status, exited.how.as_str()), (3, "exited with status 3"));
        let killed = end(0, 9, now);
        assert_eq!((killed.status, killed.how.as_str()), (137, "was ended by signal 9 (SIGKILL)"));
        assert!(end(0, 0, now).is_success() && !killed.is_success());
        assert!(!End::new(0, now, Err(io::Error::other("gone")), false).is_success());
    }

    #[test]
    fn the_end_is_told_with_the_last_words() {
        let now = Instant::now();
        let words = |kind| Words { kind, text: "boom".into(), at: now };
        let told = |words: Option<&Words>| end(2, 1 << 8, now).told(words);
        assert_eq!(told(None), "rank 2 exited with status 1");
        assert_eq!(told(Some(&words(LineKind::Error))), "rank 2 exited with status 1: boom");
        assert_eq!(told(Some(&words(LineKind::Line))), "rank 2 exited with status 1; its last line: boom");
    }

    #[test]
    fn the_first_end_counts_before_it_the_first_words_and_before_these_a_signal() {
        const EXITED: i32 = 1 << 8;
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let first = |ends: &[(u32, i32, u64)], words: &[(u32, u64)]| {
            let ends: Vec<_> = ends.iter().map(|&(rank, raw, time)| end(rank, raw, at(time))).collect();
            let said = |end: &End| {
                let words = words.iter().find(|words| words.0 == end.rank)?;
                Some(Words { kind: LineKind::Line, text: String::new(), at: at(words.1) })
            };
            first(&ends, &Reports::default(), said).map(|end| end.rank)
        };
        let both = [(2, EXITED, 5000), (1, EXITED, 5010)];
        assert_eq!(first(&[], &[]), None);
        assert_eq!(first(&both, &[]), Some(2));
        assert_eq!(first(&both, &[(1, 4980), (2, 4990)]), Some(1), "it spoke first");
        assert_eq!(first(&both, &[(1, 4980)]), Some(2), "nobody knows when a silent rank failed");
        let killed = [(2, EXITED, 5000), (1, Signal::ABORT.as_raw(), 5000), (3, 9, 5020)];
        assert_eq!(first(&killed, &[(1, 4980), (2, 4990)]), Some(3));
        assert_eq!(first(&killed[..2], &[(1, 4995), (2, 4990)]), Some(2), "who aborts may have noticed");
    }

    #[test]
    fn who_has_lost_another_rank_that_failed_is_not_to_blame() {
        let now = Instant::now();
        let exited = |rank, is_asked| End::new(rank, now, Ok(ExitStatus::from_raw(1 << 8)), is_asked);
        let ended = |rank| End::new(rank, now, Ok(ExitStatus::from_raw(15)), true);
        let first = |ends: &[End], lost: &[(u32, u32)]| {
            let mut reports = Reports::default();
            lost.iter()
                .for_each(|&(rank, other)| reports.hear(crate::run::reports::tests::lost(rank, &[other])));
            first(ends, &reports, |_| None).map(|end| end.rank)
        };
        let [zero, one, two] = [0, 1, 2].map(|rank| exited(rank, false));
        let all = [zero.clone(), two.clone(), one.clone()];
        assert_eq!(first(&all, &[(0, 1), (2, 1)]), Some(1));
        assert_eq!(first(&all, &[(0, 1), (1, 2), (2, 0)]), Some(0), "somebody failed");
        let early = [zero, two];
        assert_eq!(first(&early, &[(0, 1), (2, 1)]), Some(0), "rank 1 has not failed");
        let late = [&early[..], &[exited(1, true)]].concat();
        assert_eq!(first(&late, &[(0, 1), (2, 1)]), Some(1), "it was leaving when it was asked to end");
        assert_eq!(first(&late, &[]), Some(0), "it ended because it was asked to");
        let by_us = [&early[..], &[ended(1)]].concat();
        assert_eq!(first(&by_us, &[(0, 1), (2, 1)]), Some(0), "the launcher's own signal is no cause");
        let crashed = End::new(0, now, Ok(ExitStatus::from_raw(11)), false);
        assert_eq!(first(&[crashed.clone(), one.clone()], &[(0, 1)]), Some(1), "it crashed while it gave up");
        assert_eq!(first(&[one, crashed], &[]), Some(0), "nobody made it crash");
    }
}
