//! Reduce in the canonical tree: the same bits for every root.

use crate::{Algorithm, Collective, Cost, Fold, Fraction, Own, Totals};

/// log2 p rounds of the whole vector to rank 0, then one hop to the root.
pub(super) fn reduce() -> Algorithm {
    Algorithm::new("canonical", Collective::Reduce, |builder| {
        let (rank, root, fold) = (builder.rank(), builder.root(), Fold::new(builder.ranks()));
        match fold.virtual_rank(rank) {
            None => builder.send_all(rank - 1, [0]),
            Some(own) => {
                if let Some(partner) = fold.partner(rank) {
                    builder.recv_reduce(partner, 0, Own::Left, false);
                }
                let below = if own == 0 { fold.rounds() } else { own.trailing_zeros() };
                for round in 0..below {
                    let completes = own == 0 && round + 1 == below;
                    builder.recv_reduce(fold.rank(own + (1 << round)), 0, Own::Left, completes);
                }
                if let Some(lower) = own.checked_sub(1) {
                    builder.send(fold.rank(own & lower), 0);
                }
            }
        }
        match (rank, root) {
            (0, 0) => builder.deliver(0),
            (0, _) => builder.send_all(root, [0]),
            _ if rank == root => builder.recv_all(0, [0]),
            _ => {}
        }
    })
    .scratch_chunks(|shape| u32::from(shape.ranks >= 4 || shape.root != 0))
    .cost(|shape| {
        let fold = Fold::new(shape.ranks);
        let inwards = u64::from(fold.rounds() + u32::from(fold.remainder() > 0));
        let (rounds, hop) = (u64::from(fold.rounds()), u64::from(shape.root != 0));
        let (sent, received) = (Fraction::new(inwards.min(1), 1), Fraction::new(inwards, 1));
        let others = u64::from(shape.ranks) - 1;
        let all = Totals::whole(others + hop, others);
        // Rank 0 has these peers: the ranks whose values it adds, and the root, which may be one of these ranks.
        let added = fold.virtual_rank(shape.root).map_or(shape.root == 1, u32::is_power_of_two);
        let peers = inwards + if added { 0 } else { hop };
        Cost { rounds: rounds + hop, messages: inwards + hop, peers, sent, received, reduced: received, all }
    })
    .canonical()
    .source("Thakur, Rabenseifner, Gropp 2005, section on reduce (binomial tree), on absolute ranks")
    .summary("the canonical tree on absolute ranks, then one hop from rank 0 to the root")
}
