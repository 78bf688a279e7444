//! What the kernel tells about the connections to another rank.

use unisono_communicator::JobRank;

/// The work of the network between this rank and another, for data over TCP. All sums are since the start and never
/// fall: a caller subtracts two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTime {
    /// The other rank.
    pub rank: JobRank,
    /// Bytes that were sent there and acknowledged.
    pub acknowledged_bytes: u64,
    /// How long the network has held these bytes: at most as long as bytes were unacknowledged, and no longer than it
    /// takes at the rate at which the kernel has seen the network deliver. Bytes that arrive and wait for a busy
    /// receiver hardly count. Several connections at once may add up to more than the time that has passed.
    pub network_us: u64,
    /// The shortest round trip of the last minutes on one of the connections; 0 before the first. A busy host hardly
    /// changes it.
    pub min_round_trip_us: u32,
    /// Segments that were sent again.
    pub retransmitted_segments: u64,
}
