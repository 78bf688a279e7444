//! The chain: every rank passes the vector on to the next rank while it receives it.
//!
//! Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory, practice, and experience", 2007.

use crate::{Algorithm, Collective, Cost, Fraction, Totals};

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
