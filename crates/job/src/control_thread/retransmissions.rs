//! Notices that a network loses segments of ranks: the kernel repairs it, so calls only get slow, and nobody says why.
//!
//! Only sockets to other hosts count. Within a host nothing is lost, but segments that overtake each other are sent
//! again too.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use unisono_communicator::{JobRank, LinkTime, Severity, log};

use super::command::Identity;

/// The pause between two looks at the sockets.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// At most one line about a rank in such a time.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// A network that loses fewer segments than one of so many is not blamed. At a loss of 1 in 10,000, with segments of
/// 1,448 bytes and round trips of 100 us, a connection still carries some 12 Gbit/s (Mathis et al., The macroscopic
/// behavior of the TCP congestion avoidance algorithm, 1997, formula 3).
const SEGMENTS_A_LOSS_MAX: u64 = 10_000;

/// The segments that networks have lost, as far as this rank knows.
#[derive(Debug)]
pub(super) struct Retransmissions {
    next_look: Instant,
    links: BTreeMap<JobRank, Link>,
}

/// A link at the last look.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    sent: u64,
    /// At the look before.
    sent_before: u64,
    retransmitted: u64,
    /// The number of segments that were lost, so far as it was known.
    lost: u64,
    last_line: Option<Instant>,
}

/// The segments that were lost on the way to a rank, of so many that were sent.
#[derive(Debug, PartialEq)]
struct Loss {
    rank: JobRank,
    lost: u64,
    sent: u64,
}

impl Retransmissions {
    /// From `now` on.
    pub(super) fn new(now: Instant) -> Retransmissions {
        Retransmissions { next_look: now + LOOK_INTERVAL, links: BTreeMap::new() }
    }

    /// When it is time, looks at the links, and warns of ranks on the way to which the network loses data.
    pub(super) fn look(&mut self, identity: &Identity, links: impl Fn() -> Vec<LinkTime>, now: Instant) {
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_INTERVAL;
        for link in links().into_iter().filter(|link| !identity.is_here(link.rank)) {
            let Some(Loss { rank, lost, sent }) = self.note(&link, now) else { continue };
            let process = identity.processes.get(rank.index());
            let place = process.map(|known| format!(" ({})", known.process)).unwrap_or_default();
            let text = format_args!(
                "the network has lost data on the way to rank {rank}{place}, which makes calls slow: TCP segments \
                 sent again: {lost} of {sent}"
            );
            log(Severity::Warn, Some(identity.rank.get()), text);
        }
    }

    /// Takes the counts of a link until now, and gives the loss since the last look if it is to be reported.
    fn note(&mut self, now: &LinkTime, at: Instant) -> Option<Loss> {
        let link = self.links.entry(now.rank).or_default();
        // A segment that was sent again just now may still turn out to be a duplicate. So a loss lies
        // between the two looks before, and so do the segments that are counted with it.
        let lost = link.retransmitted.saturating_sub(now.duplicate_segments).max(link.lost);
        let loss = Loss { rank: now.rank, lost: lost - link.lost, sent: link.sent - link.sent_before };
        let is_quiet = link.last_line.is_some_and(|last| at < last + REPORT_INTERVAL);
        let is_told = loss.lost > 0 && loss.lost * SEGMENTS_A_LOSS_MAX >= loss.sent && !is_quiet;
        let last_line = if is_told { Some(at) } else { link.last_line };
        *link = Link {
            sent: now.sent_segments,
            sent_before: link.sent,
            retransmitted: now.retransmitted_segments,
            lost,
            last_line,
        };
        is_told.then_some(loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at a link to rank 1 once a second: segments sent, sent again, and received twice. Gives the losses told.
    fn reports(looks: &[(u64, u64, u64)]) -> Vec<(usize, u64, u64)> {
        let start = Instant::now();
        let mut all = Retransmissions::new(start);
        let mut told = Vec::new();
        for (second, &(sent_segments, retransmitted_segments, duplicate_segments)) in looks.iter().enumerate()
        {
            let link = LinkTime {
                rank: JobRank::new(1),
                acknowledged_bytes: 0,
                network_us: 0,
                min_round_trip_us: 0,
                sent_segments,
                retransmitted_segments,
                duplicate_segments,
            };
            let loss = all.note(&link, start + Duration::from_secs(second as u64));
            told.extend(loss.map(|loss| (second, loss.lost, loss.sent)));
        }
        told
    }

    #[test]
    fn a_loss_is_reported_once_it_is_certain() {
        assert_eq!(reports(&[(50, 3, 0), (90, 3, 0), (99, 3, 0)]), [(1, 3, 50)]);
    }

    /// The last segments of a connection are sent again, and nothing behind them.
    #[test]
    fn a_loss_is_no_more_than_the_segments_that_were_sent() {
        assert_eq!(reports(&[(20, 0, 0), (23, 3, 0), (23, 3, 0)]), [(2, 3, 3)]);
    }

    #[test]
    fn a_segment_that_was_received_twice_was_not_lost() {
        assert_eq!(reports(&[(50, 1, 0), (90, 1, 1), (99, 1, 1)]), []);
        assert_eq!(reports(&[(50, 3, 1), (90, 3, 1), (99, 3, 1)]), [(1, 2, 50)]);
        // A network may double segments by itself.
        assert_eq!(reports(&[(50, 0, 9), (90, 0, 9), (99, 2, 9)]), []);
    }

    #[test]
    fn one_loss_among_very_many_segments_is_nothing() {
        assert_eq!(reports(&[(10_000, 1, 0), (10_000, 1, 0)]), [(1, 1, 10_000)]);
        assert_eq!(reports(&[(10_001, 1, 0), (10_001, 1, 0)]), []);
    }

    #[test]
    fn a_rank_is_reported_once_in_a_minute() {
        let looks: Vec<_> = (0..70).map(|second| (second * 100, second, 0)).collect();
        assert_eq!(reports(&looks), [(2, 1, 100), (62, 1, 100)]);
    }
}
