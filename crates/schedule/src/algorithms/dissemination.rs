//! The dissemination barrier: in round k every rank sends a token to the rank at distance 2^k.

use crate::{Action, Algorithm, Collective, Cost, Fraction, Slot, Totals};

/// ceil(log2 p) rounds of one token.
pub(super) fn barrier() -> Algorithm {
    Algorithm::new("dissemination", Collective::Barrier, |builder| {
        let mut heard = Vec::new();
        let distances = (0..).map(|round| 1_u32 << round).take_while(|d| *d < builder.ranks());
        for distance in distances.collect::<Vec<_>>() {
            let (to, from) = (builder.ahead(distance), builder.behind(distance));
            let told = builder.push(0, Action::Send { peer: Action::peer(to), source: Slot::Input });
            // The token of this round vouches for the tokens of earlier rounds.
            heard.iter().for_each(|earlier| builder.after(told, *earlier));
            let destination = builder.scratch();
            heard.push(builder.push(0, Action::Recv { peer: Action::peer(from), destination }));
        }
    })
.scratch_chunks(|shape| shape.ranks.next_power_of_two().ilog2())
.cost(|shape| {
        let rounds = u64::from(shape.ranks.next_power_of_two().ilog2());
        let tokens = Fraction::new(rounds, 1);
        // The peers are the ranks ahead and behind. They coincide where two distances, or one distance twice, add up to
        // p.
        let met = match shape.ranks.count_ones() {
            _ if shape.ranks == 1 => 0,
            ones @ 1..=2 => u64::from(ones),
            _ => 0,
        };
        let peers = 2 * rounds - met;
        let all = Totals::whole(rounds * u64::from(shape.ranks), 0);
        Cost {
            rounds,
            messages: 2 * rounds,
            peers,
            sent: tokens,
            received: tokens,
            reduced: Fraction::ZERO,
            all,
        }
    })
.source("Hensgen, Finkel, Manber, \"Two algorithms for barrier synchronization\", 1988")
.summary("in round k every rank sends a token to the rank at distance 2^k, once it has those of earlier rounds")
}
