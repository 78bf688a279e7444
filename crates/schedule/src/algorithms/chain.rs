//! The chain: every rank passes the vector on to the next rank while it receives it, in a prefix reduction with its own
//! contribution added.
//!
//! Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory, practice, and experience", 2007. The
//! prefix reductions are the linear ones of Sanders, Traeff, "Parallel prefix (scan) algorithms for MPI", 2006: long
//! vectors take the time of one hop, as the engine cuts them into pieces.

use crate::{Algorithm, Collective, Cost, Fraction, Own, Totals};

/// p-1 rounds; the vector is sent and received once. The engine cuts it into pieces, so the hops overlap.
pub(super) fn broadcast() -> Algorithm {
    Algorithm::new("chain", Collective::Broadcast, |builder| {
        let position = builder.behind(builder.root());
        if position > 0 {
            builder.recv(builder.behind(1), 0);
        }
        if position + 1 < builder.ranks() {
            builder.send(builder.ahead(1), 0);
        }
    })
    .scratch_chunks(|_| 0)
    .cost(|shape| {
        let hops = u64::from(shape.ranks) - 1;
        let once = Fraction::new(hops.min(1), 1);
        let peers = hops.min(2);
        Cost {
            rounds: hops,
            messages: peers,
            peers,
            sent: once,
            received: once,
            reduced: Fraction::ZERO,
            all: Totals::whole(hops, 0),
        }
    })
    .source("Chan, Heimlich, Purkayastha, van de Geijn 2007, section on pipelined algorithms")
    .summary("each rank passes the vector to the next one while it receives it")
}

/// p-1 rounds; the vector is sent, received and reduced once, from left to right.
pub(super) fn scan() -> Algorithm {
    Algorithm::new("chain", Collective::Scan, |builder| {
        let (rank, is_last) = (builder.rank(), builder.rank() + 1 == builder.ranks());
        if rank > 0 {
            builder.recv_reduce(rank - 1, 0, Own::Right, is_last);
        }
        if !is_last {
            builder.send(rank + 1, 0);
        }
        builder.deliver(0);
    })
    .scratch_chunks(|_| 0)
    .cost(|shape| {
        let hops = u64::from(shape.ranks) - 1;
        let once = Fraction::new(hops.min(1), 1);
        let peers = hops.min(2);
        let all = Totals::whole(hops, hops);
        Cost { rounds: hops, messages: peers, peers, sent: once, received: once, reduced: once, all }
    })
    .canonical()
    .source("Sanders, Traeff 2006, section on the linear pipeline")
    .summary("each rank adds its vector to the sum of the ranks before it and passes the result on")
}

/// p-1 rounds; each rank sends and receives two vectors, from left to right.
///
/// A rank needs the sum of the ranks before it, and the next rank needs this sum with the vector of this rank added. A
/// step reduces only a value that it receives, so the next rank receives both operands and adds them itself.
pub(super) fn exscan() -> Algorithm {
    Algorithm::new("chain", Collective::Exscan, |builder| {
        let (rank, is_last) = (builder.rank(), builder.rank() + 1 == builder.ranks());
        if !is_last {
            builder.send(rank + 1, 0);
        }
        if rank > 0 {
            builder.recv(rank - 1, 0);
        }
        if rank > 1 {
            builder.recv_reduce(rank - 1, 0, Own::Right, false);
        }
        if rank > 0 && !is_last {
            builder.send(rank + 1, 0);
        }
    })
    .scratch_chunks(|_| 0)
    .cost(|shape| {
        let hops = u64::from(shape.ranks) - 1;
        let sums = hops.saturating_sub(1);
        let moved = Fraction::new(hops.min(2), 1);
        // A rank between two others sends its vector, receives twice without a pause, and sends its sum.
        let messages = hops.min(1) + 2 * sums.min(1);
        Cost {
            rounds: hops,
            messages,
            peers: hops.min(2),
            sent: moved,
            received: moved,
            reduced: Fraction::new(sums.min(1), 1),
            all: Totals::new(hops + sums, hops + sums, sums),
        }
    })
    .canonical()
    .source("Sanders, Traeff 2006, section on the linear pipeline, on the vectors of the ranks one below")
    .summary("each rank passes on its vector and its sum, and the next rank adds the two")
}
