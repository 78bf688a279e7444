//! Direct exchange: every rank exchanges messages with all others at once. One or two rounds, and the most messages.
//!
//! For networks in which every pair of ranks has its own path. The all-reduce of two phases is also called two-shot.

use crate::{Algorithm, Builder, Collective, Cost, Fraction, Own, Requires, Shape, Totals};

/// 2 rounds; 2(p-1)/p of the vector sent and received, (p-1)/p reduced.
pub(super) fn all_reduce() -> Algorithm {
    Algorithm::new("direct", Collective::AllReduce, |builder| {
        reduce_scatter_steps(builder);
        all_gather_steps(builder);
    })
    .chunks(|shape| shape.ranks)
    .scratch_chunks(|_| 0)
    .cost(|shape| {
        let (others, part) = others(shape);
        let messages = 2 * others;
        let (rounds, all) = (messages.min(2), Totals::new(messages * (others + 1), messages, others));
        Cost {
            rounds,
            messages: 2 * messages,
            peers: others,
            sent: part + part,
            received: part + part,
            reduced: part,
            all,
        }
    })
    .source("Thakur, Rabenseifner, Gropp 2005, section on all-reduce, with direct exchange in both halves")
    .summary("every rank sums one chunk of all ranks, then sends the sum to all of them")
}

/// 1 round; (p-1)/p of the vector sent, received and reduced.
pub(super) fn reduce_scatter() -> Algorithm {
    Algorithm::new("direct", Collective::ReduceScatter, reduce_scatter_steps)
        .scratch_chunks(|_| 0)
        .cost(|shape| {
            let (others, part) = others(shape);
            let (rounds, messages) = (others.min(1), others);
            let all = Totals::new(others * (others + 1), others, others);
            Cost {
                rounds,
                messages: 2 * messages,
                peers: others,
                sent: part,
                received: part,
                reduced: part,
                all,
            }
        })
        .source("Thakur, Rabenseifner, Gropp 2005, section on reduce-scatter (pairwise exchange)")
        .summary("every rank sends each share directly to its owner")
}

/// 1 round; (p-1)/p of the result sent and received.
pub(super) fn all_gather() -> Algorithm {
    Algorithm::new("direct", Collective::AllGather, all_gather_steps)
        .scratch_chunks(|_| 0)
        .cost(|shape| {
            let (others, part) = others(shape);
            let (rounds, messages, reduced) = (others.min(1), others, Fraction::ZERO);
            let all = Totals::new(others * (others + 1), others, 0);
            Cost { rounds, messages: 2 * messages, peers: others, sent: part, received: part, reduced, all }
        })
        .source("folklore; the \"direct\" all-gather of Open MPI's tuned module")
        .summary("every rank sends its share to every other rank")
}

/// 1 round; (p-1)/p of the input sent. Out of place only: receives do not wait for sends, so they could overwrite
/// unsent bytes.
pub(super) fn all_to_all() -> Algorithm {
    Algorithm::new("direct", Collective::AllToAll, |builder| {
        let (rank, ranks) = (builder.rank(), builder.ranks());
        for distance in 1..ranks {
            let to = builder.ahead(distance);
            builder.send(to, rank * ranks + to);
        }
        for distance in 1..ranks {
            let from = builder.behind(distance);
            builder.recv(from, from * ranks + rank);
        }
        builder.deliver(rank * ranks + rank);
    })
    .requires(Requires { out_of_place: true, ..Requires::NOTHING })
    .scratch_chunks(|_| 0)
    .cost(|shape| {
        let (others, part) = others(shape);
        let (rounds, messages, reduced) = (others.min(1), others, Fraction::ZERO);
        let all = Totals::new(others * (others + 1), others, 0);
        Cost { rounds, messages: 2 * messages, peers: others, sent: part, received: part, reduced, all }
    })
    .source("Thakur, Rabenseifner, Gropp 2005, section on all-to-all (long messages)")
    .summary("every rank sends each other rank its part, all at once, the nearest rank first")
}

fn others(shape: &Shape) -> (u64, Fraction) {
    let others = u64::from(shape.ranks) - 1;
    (others, Fraction::new(others, u64::from(shape.ranks)))
}

/// Extent c is summed at rank c. To keep the order of ranks, the sum grows outwards from the owner, first to the lower
/// ranks: `(0 + (1 + 2)) + 3` at rank 2 of 4.
fn reduce_scatter_steps(builder: &mut Builder) {
    let (rank, ranks) = (builder.rank(), builder.ranks());
    // The first send goes to the rank that receives from this rank first.
    for peer in (rank + 1..ranks).chain((0..rank).rev()) {
        builder.send(peer, peer);
    }
    let others = ranks - 1;
    let peers = (0..rank).rev().map(|below| (below, Own::Right));
    let peers = peers.chain((rank + 1..ranks).map(|above| (above, Own::Left)));
    for (nth, (peer, own)) in (1..).zip(peers) {
        builder.recv_reduce(peer, rank, own, nth == others);
    }
    builder.deliver(rank);
}

/// Extent c goes from rank c to all others, nearest first.
fn all_gather_steps(builder: &mut Builder) {
    let rank = builder.rank();
    for distance in 1..builder.ranks() {
        builder.send(builder.ahead(distance), rank);
    }
    for distance in 1..builder.ranks() {
        let from = builder.behind(distance);
        builder.recv(from, from);
    }
    builder.deliver(rank);
}
