//! Notices that a network loses what ranks send: the kernel repairs it, so calls only get slow, and nobody says why.
//!
//! Only sockets to other hosts count. Within a host nothing is lost, but segments that overtake each other are sent
//! again too.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use unisono_communicator::{JobRank, LinkTime, Severity, log};

use super::command::Identity;

/// How often the sockets are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// At most one line about a rank in such a time.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The segments that were sent again, as far as they have been reported.
#[derive(Debug)]
pub(super) struct Retransmissions {
    next_look: Instant,
    reports: BTreeMap<JobRank, Report>,
}

#[derive(Clone, Copy, Debug)]
struct Report {
    /// How many there were when the last line was written.
    segments: u64,
    last_line: Option<Instant>,
}

impl Retransmissions {
    /// From `now` on.
    pub(super) fn new(now: Instant) -> Retransmissions {
        Retransmissions { next_look: now + LOOK_INTERVAL, reports: BTreeMap::new() }
    }

    /// When it is time, looks at the links, and warns of ranks to which something had to be sent again.
    pub(super) fn look(&mut self, identity: &Identity, links: impl Fn() -> Vec<LinkTime>, now: Instant) {
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_INTERVAL;
        let links = links().into_iter().filter(|link| !identity.is_here(link.rank));
        let totals = links.map(|link| (link.rank, link.retransmitted_segments));
        for (rank, segments) in self.note(totals, now) {
            let process = identity.processes.get(rank.index());
            let place = process.map(|known| format!(" ({})", known.process)).unwrap_or_default();
            let text = format_args!(
                "the network has lost data on the way to rank {rank}{place}, which makes calls slow: TCP segments \
                 sent again: {segments}"
            );
            log(Severity::Warn, Some(identity.rank.get()), text);
        }
    }

    /// Takes what the sockets to each rank have sent again so far, and gives the ranks that are to be reported, with
    /// how many segments there are since their last line.
    fn note(&mut self, totals: impl Iterator<Item = (JobRank, u64)>, now: Instant) -> Vec<(JobRank, u64)> {
        let mut found = Vec::new();
        for (rank, total) in totals {
            let report = self.reports.entry(rank).or_insert(Report { segments: 0, last_line: None });
            let is_quiet = report.last_line.is_some_and(|last| now < last + REPORT_INTERVAL);
            if total > report.segments && !is_quiet {
                found.push((rank, total - report.segments));
                *report = Report { segments: total, last_line: Some(now) };
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_reported_once_in_a_minute_with_what_is_new() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut all = Retransmissions::new(start);
        let mut note = |seconds, totals: &[(u32, u64)]| {
            let totals = totals.iter().map(|&(rank, total)| (JobRank::new(rank), total));
            let found = all.note(totals, at(seconds));
            found.into_iter().map(|(rank, new)| (rank.get(), new)).collect::<Vec<_>>()
        };
        assert_eq!(note(1, &[(1, 0), (2, 3)]), [(2, 3)]);
        assert_eq!(note(2, &[(1, 1), (2, 9)]), [(1, 1)]);
        assert_eq!(note(62, &[(1, 1), (2, 9)]), [(2, 6)]);
        assert_eq!(note(200, &[(1, 1), (2, 11)]), [(2, 2)]);
    }
}
