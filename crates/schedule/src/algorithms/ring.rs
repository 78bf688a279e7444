//! The ring: every rank exchanges messages only with its two neighbours. Fewest bytes, most rounds.
//!
//! Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.

use crate::{Algorithm, Builder, Collective, Cost, Fraction, Own, Requires, Shape, Totals};

/// 2(p-1) rounds; 2(p-1)/p of the vector sent and received, (p-1)/p reduced.
pub(super) fn all_reduce() -> Algorithm {
    Algorithm::new("ring", Collective::AllReduce, |builder| {
        reduce_scatter_steps(builder);
        all_gather_steps(builder);
    })
    .requires(Requires::COMMUTATIVE)
    .chunks(|shape| shape.ranks)
    .scratch_chunks(|_| 0)
    .cost(|shape| {
        let (hops, part) = hops(shape);
        let (rounds, peers) = (2 * hops, hops.min(2));
        let all = Totals::new(rounds * (hops + 1), rounds, hops);
        Cost {
            rounds,
            messages: 2 * rounds,
            peers,
            sent: part + part,
            received: part + part,
            reduced: part,
            all,
        }
    })
    .source("Patarasuk, Yuan 2009")
    .summary("each chunk travels once around the ring to be summed and once more to be gathered")
}

/// p-1 rounds; (p-1)/p of the vector sent, received and reduced.
pub(super) fn reduce_scatter() -> Algorithm {
    Algorithm::new("ring", Collective::ReduceScatter, reduce_scatter_steps)
        .requires(Requires::COMMUTATIVE)
        .scratch_chunks(|shape| shape.ranks.saturating_sub(2))
        .cost(|shape| {
            let (hops, part) = hops(shape);
            let (peers, all) = (hops.min(2), Totals::new(hops * (hops + 1), hops, hops));
            Cost { rounds: hops, messages: 2 * hops, peers, sent: part, received: part, reduced: part, all }
        })
        .source("Patarasuk, Yuan 2009")
        .summary("each share travels once around the ring and ends, summed, at its owner")
}

/// p-1 rounds; (p-1)/p of the result sent and received.
pub(super) fn all_gather() -> Algorithm {
    Algorithm::new("ring", Collective::AllGather, all_gather_steps)
        .scratch_chunks(|_| 0)
        .cost(|shape| {
            let (hops, part) = hops(shape);
            let (peers, reduced) = (hops.min(2), Fraction::ZERO);
            let all = Totals::new(hops * (hops + 1), hops, 0);
            Cost { rounds: hops, messages: 2 * hops, peers, sent: part, received: part, reduced, all }
        })
        .source("Patarasuk, Yuan 2009")
        .summary("each share travels once around the ring")
}

fn hops(shape: &Shape) -> (u64, Fraction) {
    let hops = u64::from(shape.ranks) - 1;
    (hops, Fraction::new(hops, u64::from(shape.ranks)))
}

/// Extent c starts at rank c + 1 and ends, summed over all ranks, at rank c.
fn reduce_scatter_steps(builder: &mut Builder) {
    let (next, previous) = (builder.ahead(1), builder.behind(1));
    for hop in 1..builder.ranks() {
        builder.send(next, builder.behind(hop));
        let completes = hop + 1 == builder.ranks();
        builder.recv_reduce(previous, builder.behind(hop + 1), Own::Right, completes);
    }
    if builder.ranks() == 1 {
        builder.deliver(0);
    }
}

/// Extent c starts at rank c and visits all other ranks.
fn all_gather_steps(builder: &mut Builder) {
    let (next, previous) = (builder.ahead(1), builder.behind(1));
    for hop in 1..builder.ranks() {
        builder.send(next, builder.behind(hop - 1));
        builder.recv(previous, builder.behind(hop));
    }
    builder.deliver(builder.rank());
}
