//! The circulant graph: about log2 p rounds for any number of ranks, and the fewest bytes.
//!
//! Traeff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", 2024. The distances are p/2, p/4, ...,
//! each rounded up. All ranks do the same for any p, so no ranks fold into pairs.

use crate::{Algorithm, Builder, Collective, Cost, Fraction, Own, Requires, Shape, Totals};

/// 2 ceil(log2 p) messages sent by each rank; 2(p-1)/p of the vector sent and received, (p-1)/p reduced.
pub(super) fn all_reduce() -> Algorithm {
    Algorithm::new("circulant", Collective::AllReduce, |builder| {
        reduce_scatter_steps(builder);
        all_gather_steps(builder);
    })
    .requires(Requires::COMMUTATIVE)
    .chunks(|shape| shape.ranks)
    .scratch_chunks(|_| 0)
    .cost(|shape| {
        let once = half(shape);
        let (moved, reduced) = (once.sent + once.sent, once.sent);
        let others = u64::from(shape.ranks) - 1;
        let all = Totals::new(2 * once.all.messages, 2 * others, others);
        let (rounds, messages) = (2 * once.rounds, 2 * once.messages);
        Cost { rounds, messages, sent: moved, received: moved, reduced, all, ..once }
    })
    .source("Traeff 2024")
    .summary(
        "sums go to ranks at half the last distance, rounded up, until each chunk is at its owner; then back",
    )
}

/// ceil(log2 p) messages sent by each rank; (p-1)/p of the vector sent, received and reduced.
pub(super) fn reduce_scatter() -> Algorithm {
    Algorithm::new("circulant", Collective::ReduceScatter, reduce_scatter_steps)
        .requires(Requires::COMMUTATIVE)
        .scratch_chunks(|shape| (shape.ranks / 2).saturating_sub(1))
        .cost(|shape| {
            let once = half(shape);
            let all = Totals { reduced: once.all.sent, ..once.all };
            Cost { reduced: once.sent, all, ..once }
        })
        .source("Traeff 2024")
        .summary("sums go to ranks at half the last distance, rounded up, until each share is at its owner")
}

/// ceil(log2 p) messages sent by each rank; (p-1)/p of the result sent and received.
pub(super) fn all_gather() -> Algorithm {
    Algorithm::new("circulant", Collective::AllGather, all_gather_steps)
        .scratch_chunks(|_| 0)
        .cost(half)
        .source("Traeff 2024 (the second half of the all-reduce)")
        .summary("every rank sends all that is missing to ranks at about twice the last distance")
}

/// The rounds in order, as (d, s): of d chunks, the last d - s go to the rank s ahead, and s are left.
pub(super) fn rounds(ranks: u32) -> Vec<(u32, u32)> {
    let left = std::iter::successors(Some(ranks), |chunks| Some(chunks.div_ceil(2)));
    left.take_while(|chunks| *chunks > 1).map(|chunks| (chunks, chunks.div_ceil(2))).collect()
}

/// The longest chain of messages. A chunk that must move by i first moves by the largest distance that is at most i,
/// and then covers the rest in the same way. Only in the last rounds do chunks from near and far travel together.
pub(super) fn longest_path(ranks: u32) -> u64 {
    // The longest chain of the chunks below `below` in these rounds.
    fn longest(rounds: &[(u32, u32)], below: u32, all_below: &[u64]) -> u64 {
        let (mut below, mut hops, mut most) = (below, 0, 0);
        for (nth, (_, distance)) in rounds.iter().enumerate() {
            if below > *distance {
                most = most.max(hops + all_below[nth + 1]);
                (below, hops) = (below - distance, hops + 1);
            }
        }
        most.max(hops)
    }
    let rounds = rounds(ranks);
    let mut all_below = vec![0; rounds.len() + 1];
    for nth in (0..rounds.len()).rev() {
        all_below[nth] = longest(&rounds[nth..], rounds[nth].0, &all_below[nth..]);
    }
    all_below[0]
}

/// The cost of one half, without reductions.
fn half(shape: &Shape) -> Cost {
    let (ranks, others) = (u64::from(shape.ranks), u64::from(shape.ranks) - 1);
    let distances: Vec<u32> = rounds(shape.ranks).into_iter().map(|(_, distance)| distance).collect();
    let part = Fraction::new(others, ranks);
    let messages = distances.len() as u64;
    // Each distance has two peers: the rank ahead and the rank behind. Two peers are one rank if their distances add up
    // to p; the distances may be equal.
    let behind = distances.iter().filter(|distance| !distances.contains(&(shape.ranks - **distance)));
    let peers = messages + behind.count() as u64;
    Cost {
        rounds: longest_path(shape.ranks),
        messages: 2 * messages,
        peers,
        sent: part,
        received: part,
        reduced: Fraction::ZERO,
        all: Totals::new(messages * ranks, others, 0),
    }
}

/// Extent r + i, the i-th of rank r, is summed on its way to its owner, a rank ahead.
fn reduce_scatter_steps(builder: &mut Builder) {
    let (rank, ranks) = (builder.rank(), builder.ranks());
    let extent = |nth: u32| (rank + nth) % ranks;
    for (chunks, distance) in rounds(ranks) {
        builder.send_all(builder.ahead(distance), (distance..chunks).map(extent));
        let from = builder.behind(distance);
        for nth in 0..chunks - distance {
            builder.recv_reduce(from, extent(nth), Own::Right, distance == 1 && nth == 0);
        }
    }
    builder.deliver(rank);
}

/// The rounds of the reduce-scatter in reverse.
fn all_gather_steps(builder: &mut Builder) {
    let (rank, ranks) = (builder.rank(), builder.ranks());
    let extent = |nth: u32| (rank + nth) % ranks;
    for (chunks, distance) in rounds(ranks).into_iter().rev() {
        builder.send_all(builder.behind(distance), (0..chunks - distance).map(extent));
        builder.recv_all(builder.ahead(distance), (distance..chunks).map(extent));
    }
    builder.deliver(rank);
}
