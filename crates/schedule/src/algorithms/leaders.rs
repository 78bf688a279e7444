//! Leaders: a few ranks add up for the others. Fewest messages, for ranks that share cores.
//!
//! With more ranks than cores every message costs somebody's time on a core, and fewest messages win, not fewest
//! rounds. With as many leaders as cores each core has one rank that adds.

use crate::{Algorithm, Collective, Cost, Fraction, Own, Requires, Shape, Totals};

/// 2(p-l) + l log2 l messages of the whole vector in all, with l leaders; 2 + log2 l rounds.
///
/// l is the largest power of two that is neither above `shape.leaders` nor above p/2.
pub(super) const ALL_REDUCE: Algorithm = Algorithm {
    name: "leaders",
    collective: Collective::AllReduce,
    requires: Requires::NOTHING,
    chunks: |_| 1,
    scratch_chunks: |_| 0,
    cost: |shape| {
        let (ranks, leaders) = (u64::from(shape.ranks), u64::from(leaders(shape)));
        let (rounds, followers) = (u64::from(leaders.ilog2()), ranks.div_ceil(leaders) - 1);
        let (apart, exchanged) = (ranks - leaders, leaders * rounds);
        let all = Totals::whole(2 * apart + exchanged, apart + exchanged);
        let peers = followers + rounds;
        let most = Fraction::new(peers, 1);
        let rounds = rounds + 2 * followers.min(1);
        Cost { rounds, messages: 2 * peers, peers, sent: most, received: most, reduced: most, all }
    },
    canonical: false,
    build: |builder| {
        let (rank, ranks, leaders) = (builder.rank(), builder.ranks(), leaders(builder.shape()));
        // Block b is ranks first(b) to first(b + 1); its first rank leads it.
        let first = |block: u32| (u64::from(block) * u64::from(ranks) / u64::from(leaders)) as u32;
        let own = (0..leaders).rev().find(|block| first(*block) <= rank).unwrap_or(0);
        let followers = first(own) + 1..first(own + 1);
        if rank != first(own) {
            builder.send(first(own), 0);
            builder.recv(first(own), 0);
            return;
        }
        for follower in followers.clone() {
            builder.recv_reduce(follower, 0, Own::Left, leaders == 1 && follower + 1 == ranks);
        }
        for round in 0..leaders.ilog2() {
            let other = own ^ (1 << round);
            let side = if own < other { Own::Left } else { Own::Right };
            builder.send(first(other), 0);
            builder.recv_reduce(first(other), 0, side, 2 << round == leaders);
        }
        for follower in followers {
            builder.send(follower, 0);
        }
        builder.deliver(0);
    },
    source: "folklore: the two-level all-reduce of MPICH and Open MPI, with the cores of one host as the nodes",
    summary: "blocks of ranks send everything to their leader, the leaders exchange, and send the sum back",
};

fn leaders(shape: &Shape) -> u32 {
    1 << shape.leaders.min(shape.ranks / 2).max(1).ilog2()
}
