//! Recursive doubling: in round k every rank exchanges the whole vector with the rank at distance 2^k. Fewest rounds.
//!
//! Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005, on all-reduce.

use crate::{Algorithm, Collective, Cost, Fold, Fraction, Own, Totals};

/// log2 p rounds of the whole vector. If p is no power of two, one more round folds, and one more unfolds ([`Fold`]).
pub(super) fn all_reduce() -> Algorithm {
    Algorithm::new("recursive_doubling", Collective::AllReduce, |builder| {
        let (rank, fold) = (builder.rank(), Fold::new(builder.ranks()));
        let Some(own) = fold.virtual_rank(rank) else {
            builder.send(rank - 1, 0);
            builder.recv(rank - 1, 0);
            return;
        };
        if let Some(partner) = fold.partner(rank) {
            builder.recv_reduce(partner, 0, Own::Left, false);
        }
        for round in 0..fold.rounds() {
            let other = own ^ (1 << round);
            let side = if own < other { Own::Left } else { Own::Right };
            builder.send(fold.rank(other), 0);
            builder.recv_reduce(fold.rank(other), 0, side, round + 1 == fold.rounds());
        }
        if let Some(partner) = fold.partner(rank) {
            builder.send(partner, 0);
        }
        builder.deliver(0);
    })
    .scratch_chunks(|_| 0)
    .cost(|shape| {
        let fold = Fold::new(shape.ranks);
        let (rounds, folded) = (u64::from(fold.rounds()), u64::from(fold.remainder() > 0));
        let (pairs, exchanged) = (u64::from(fold.remainder()), rounds * u64::from(fold.size()));
        let all = Totals::whole(2 * pairs + exchanged, pairs + exchanged);
        // The even rank of a pair sums once more at the start, and sends once more at the end.
        let most = Fraction::new(rounds + folded, 1);
        let peers = rounds + folded;
        let rounds = u64::from(fold.longest_path());
        Cost { rounds, messages: 2 * peers, peers, sent: most, received: most, reduced: most, all }
    })
    .canonical()
    .source("Thakur, Rabenseifner, Gropp 2005, section on all-reduce")
    .summary("in round k every rank exchanges the whole vector with the rank at distance 2^k")
}
