//! Leaders: a few ranks add up the vectors of the others. Few messages, for ranks that share cores.
//!
//! With more ranks than cores, messages cost time on a core, so few messages matter more than few rounds. As many
//! leaders as cores give each core one rank that adds.

use crate::{Algorithm, Builder, Collective, Cost, Fold, Fraction, Own, Shape, Totals};

pub(crate) const NAME: &str = "leaders";

/// With l leaders: 2(p-l) + l log2 l messages of the whole vector in all, in 2 + log2 l rounds. If l is no power of
/// two, the leaders fold ([`Fold`]).
///
/// l is `shape.leaders`, at most [`Shape::leaders_max`].
pub(super) fn all_reduce() -> Algorithm {
    Algorithm::new(NAME, Collective::AllReduce, |builder| {
        let (rank, blocks) = (builder.rank(), Blocks::of(builder.shape()));
        let fold = Fold::new(blocks.leaders);
        let own = blocks.block(rank);
        let (leader, followers) = (blocks.first(own), blocks.first(own) + 1..blocks.first(own + 1));
        if rank != leader {
            builder.send(leader, 0);
            builder.recv(leader, 0);
            return;
        }
        for follower in followers.clone() {
            builder.recv_reduce(follower, 0, Own::Left, follower + 1 == blocks.ranks && blocks.leaders == 1);
        }
        exchange(builder, &blocks, &fold, own);
        for follower in followers {
            builder.send(follower, 0);
        }
        builder.deliver(0);
    })
    .scratch_chunks(|_| 0)
    .cost(cost)
    .source(
        "folklore: the two-level all-reduce of MPICH and Open MPI, with the cores of one host as the nodes",
    )
    .summary("blocks of ranks send everything to their leader, the leaders exchange, and send the sum back")
}

/// Blocks of consecutive ranks, of about equal size. The first rank of a block is its leader.
struct Blocks {
    ranks: u32,
    leaders: u32,
}

impl Blocks {
    fn of(shape: &Shape) -> Self {
        Self { ranks: shape.ranks, leaders: shape.leaders.clamp(1, shape.leaders_max()) }
    }

    /// The first rank of a block.
    fn first(&self, block: u32) -> u32 {
        (u64::from(block) * u64::from(self.ranks) / u64::from(self.leaders)) as u32
    }

    fn block(&self, rank: u32) -> u32 {
        (0..self.leaders).rev().find(|block| self.first(*block) <= rank).unwrap_or(0)
    }
}

/// Recursive doubling between the leaders.
fn exchange(builder: &mut Builder, blocks: &Blocks, fold: &Fold, own: u32) {
    let partner = fold.partner(own).map(|partner| blocks.first(partner));
    let Some(virtual_rank) = fold.virtual_rank(own) else {
        if let Some(partner) = partner {
            builder.send(partner, 0);
            builder.recv(partner, 0);
        }
        return;
    };
    if let Some(partner) = partner {
        builder.recv_reduce(partner, 0, Own::Left, false);
    }
    for round in 0..fold.rounds() {
        let other = virtual_rank ^ (1 << round);
        let side = if virtual_rank < other { Own::Left } else { Own::Right };
        let peer = blocks.first(fold.rank(other));
        builder.send(peer, 0);
        builder.recv_reduce(peer, 0, side, round + 1 == fold.rounds());
    }
    if let Some(partner) = partner {
        builder.send(partner, 0);
    }
}

fn cost(shape: &Shape) -> Cost {
    let blocks = Blocks::of(shape);
    let fold = Fold::new(blocks.leaders);
    let (ranks, leaders) = (u64::from(shape.ranks), u64::from(blocks.leaders));
    // For a leader: the number of its peers, and of the vectors that it reduces.
    let load = |block: u32| {
        let followers = u64::from(blocks.first(block + 1) - blocks.first(block) - 1);
        let partners = u64::from(fold.partner(block).is_some());
        let rounds = u64::from(fold.virtual_rank(block).map_or(0, |_| fold.rounds()));
        let reduced = if fold.virtual_rank(block).is_some() { partners + rounds } else { 0 };
        (followers + partners + rounds, followers + reduced)
    };
    let peers = (0..blocks.leaders).map(|block| load(block).0).max().unwrap_or(0);
    let reduced = (0..blocks.leaders).map(|block| load(block).1).max().unwrap_or(0);
    let (pairs, apart) = (u64::from(fold.remainder()), ranks - leaders);
    let exchanged = u64::from(fold.rounds() * fold.size());
    let all = Totals::whole(2 * (apart + pairs) + exchanged, apart + pairs + exchanged);
    let (moved, reduced) = (Fraction::new(peers, 1), Fraction::new(reduced, 1));
    let rounds = u64::from(fold.longest_path()) + 2 * apart.min(1);
    Cost { rounds, messages: 2 * peers, peers, sent: moved, received: moved, reduced, all }
}
