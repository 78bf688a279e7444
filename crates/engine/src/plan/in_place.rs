//! The calls whose long messages are faster if the receiver reads them from where they lie, in the sender's process.
//!
//! Through memory a message is copied twice, by two cores at the same time. A message that is read in place is copied
//! once, while the sender's core does other work: it reads the other's message, or copies a part of its own buffer.
//! Where it has no such work, two copies at the same time are as fast or faster. The sender must also wait until the
//! other rank has read the message, which takes a switch between ranks if they share a core. Measured on two cores with
//! two and four ranks: benches/lab/measurements.md.

use unisono_communicator::Collective;

/// The fewest bytes of a message that is read faster in place than it is copied twice.
const BYTES_MIN: u64 = 16 << 10;

/// The same where ranks share cores.
const CROWDED_BYTES_MIN: u64 = 64 << 10;

/// The fewest bytes of a message of this operation that is faster in place.
pub(super) fn in_place_bytes_min(collective: Collective, is_crowded: bool) -> u64 {
    match collective {
        Collective::AllGather | Collective::AllToAll | Collective::Scatter if is_crowded => CROWDED_BYTES_MIN,
        Collective::AllGather | Collective::AllToAll | Collective::Scatter => BYTES_MIN,
        // Partial sums are passed on.
        Collective::ReduceScatter if is_crowded => u64::MAX,
        Collective::ReduceScatter => BYTES_MIN,
        // A rank either sends or receives; or, in all-reduce, overwrites the bytes that it sends.
        Collective::AllReduce
        | Collective::Reduce
        | Collective::Broadcast
        | Collective::Gather
        | Collective::Barrier
        | Collective::Scan
        | Collective::Exscan => u64::MAX,
    }
}
