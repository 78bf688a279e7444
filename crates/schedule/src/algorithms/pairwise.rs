//! All-to-all that also works in place: in each pair, one rank receives into scratch first.

use crate::{Action, Algorithm, Collective, Cost, Fraction, Slot, Totals};

/// 1 round; (p-1)/p of the input sent. Out of place and in place.
///
/// In place, the data from a peer belongs where the data for that peer lies. Without buffers, two ranks that both send
/// before they receive would deadlock. So one rank of each pair receives into scratch, and copies when its own data has
/// left. The parity of the distance decides which rank, so every rank copies for half of its peers.
pub(super) fn all_to_all() -> Algorithm {
    Algorithm::new("pairwise", Collective::AllToAll, |builder| {
        let (rank, ranks) = (builder.rank(), builder.ranks());
        for distance in 1..ranks {
            let to = builder.ahead(distance);
            builder.send(to, rank * ranks + to);
        }
        let mut parked = Vec::new();
        for distance in 1..ranks {
            let from = builder.behind(distance);
            let extent = from * ranks + rank;
            if (rank < from) == (rank + from).is_multiple_of(2) {
                let destination = builder.scratch();
                builder.push(extent, Action::Recv { peer: Action::peer(from), destination });
                parked.push((extent, destination));
            } else {
                builder.recv(from, extent);
            }
        }
        for (extent, source) in parked {
            builder.push(extent, Action::Copy { source, destination: Slot::Output });
        }
        builder.deliver(rank * ranks + rank);
    })
    .scratch_chunks(|shape| shape.ranks / 2)
    .cost(|shape| {
        let (ranks, others) = (u64::from(shape.ranks), u64::from(shape.ranks) - 1);
        let part = Fraction::new(others, ranks);
        let (rounds, reduced) = (others.min(1), Fraction::ZERO);
        let all = Totals::new(others * ranks, others, 0);
        Cost { rounds, messages: 2 * others, peers: others, sent: part, received: part, reduced, all }
    })
    .source("Thakur, Rabenseifner, Gropp 2005, section on all-to-all (pairwise exchange)")
    .summary("every rank exchanges with every other; in each pair one receives into scratch first")
}
