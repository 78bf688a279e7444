//! The kernel's figures about the connections to another rank.

use crate::group::rank::JobRank;

/// The work of the network between this rank and another, for data over TCP. All sums are since the start and never
/// fall: a caller subtracts two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTime {
    /// The other rank.
    pub rank: JobRank,
    /// Bytes that were sent there and acknowledged.
    pub acknowledged_bytes: u64,
    /// The time for which the network has held these bytes: at most as long as bytes were unacknowledged, and no longer
    /// than it takes at the rate at which the kernel has seen the network deliver. Bytes that arrive and wait for a
    /// busy receiver hardly count. Several connections at once may add up to more than the time that has passed.
    pub network_us: u64,
    /// The shortest round trip of the last minutes on one of the connections; 0 before the first. A busy host hardly
    /// changes it.
    pub min_round_trip_us: u32,
    /// TCP segments with data that were sent, those included that were sent again.
    pub sent_segments: u64,
    /// Segments that were sent again.
    pub retransmitted_segments: u64,
    /// Segments that the other side got twice. The network had not lost them: they were late, or a probe for a lost end
    /// of the data (RFC 8985, section 7) came too early.
    pub duplicate_segments: u64,
}

impl LinkTime {
    /// The work since an earlier reading of the same link.
    #[must_use]
    pub fn since(&self, earlier: Option<&LinkTime>) -> LinkTime {
        let Some(earlier) = earlier else { return *self };
        LinkTime {
            acknowledged_bytes: self.acknowledged_bytes.saturating_sub(earlier.acknowledged_bytes),
            network_us: self.network_us.saturating_sub(earlier.network_us),
            sent_segments: self.sent_segments.saturating_sub(earlier.sent_segments),
            retransmitted_segments: self
                .retransmitted_segments
                .saturating_sub(earlier.retransmitted_segments),
            duplicate_segments: self.duplicate_segments.saturating_sub(earlier.duplicate_segments),
            ..*self
        }
    }
}
