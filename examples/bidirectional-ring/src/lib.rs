//! An all-reduce from outside the library: a ring whose contributions travel both ways round, each half of the way.
//!
//! In the ring of the library, every chunk passes all ranks in one direction, so a call takes 2(p-1) rounds. Here a
//! chunk's owner gets the sum of the ranks on either side of it from that side, and its result goes out both ways. That
//! is as many messages and as many bytes, in half of the rounds, still between neighbours only. In every round the
//! cables to both neighbours carry bytes in both directions.
//!
//! The other ring that goes by this name sends one half of the data all the way round in one direction and the other
//! half in the other. It has the rounds and bytes of the plain ring and twice its messages, so a cost model that
//! counts the bytes of a rank never prefers it. Where every direction of every cable is a link of its own it is faster
//! than the plain ring, and so is this one.

#![forbid(unsafe_code)]

use std::sync::Arc;

use unisono_schedule::{Algorithm, Builder, Collective, Cost, Fraction, Own, Requires, Shape, Totals};

/// 2 * floor(p/2) rounds; 2(p-1)/p of the vector sent and received, (p-1)/p reduced.
pub fn bidirectional_ring() -> Arc<Algorithm> {
    let ring = Algorithm::new("bidirectional_ring", Collective::AllReduce, |builder| {
        to_owners(builder);
        from_owners(builder);
    });
    let ring = ring
        // A sum begins far from its owner and wraps around, so it is not in the order of the ranks.
        .requires(Requires::COMMUTATIVE)
        .chunks(|shape| shape.ranks)
        .scratch_chunks(|_| 0)
        .cost(cost)
        .source("two chains to each owner, as in a torus with both of its directions in use")
        .summary("each chunk is summed from both sides and gathered both ways, half of the way around each");
    Arc::new(ring)
}

/// The number of ranks that a chunk passes on its way forwards (to higher ranks), and on its way backwards.
fn ways(ranks: u32) -> (u32, u32) {
    (ranks / 2, (ranks - 1) / 2)
}

fn cost(shape: &Shape) -> Cost {
    let (ranks, (forwards, backwards)) = (u64::from(shape.ranks), ways(shape.ranks));
    let (others, part) = (ranks - 1, Fraction::new(ranks - 1, ranks));
    let sent = part + part;
    let all = Totals {
        messages: 2 * others * ranks,
        sent: Fraction::new(2 * others, 1),
        reduced: Fraction::new(others, 1),
    };
    let peers = u64::from(forwards.min(1) + backwards.min(1));
    Cost {
        rounds: 2 * u64::from(forwards),
        messages: 4 * others,
        peers,
        sent,
        received: sent,
        reduced: part,
        all,
    }
}

/// Chunk c ends, summed, at rank c. One sum comes from the ranks below it and one from those above.
fn to_owners(builder: &mut Builder) {
    let (next, previous, (forwards, backwards)) =
        (builder.ahead(1), builder.behind(1), ways(builder.ranks()));
    // The distance that is left after the hop.
    for left in (0..forwards).rev() {
        builder.send(next, builder.ahead(left + 1));
        if left < backwards {
            builder.send(previous, builder.behind(left + 1));
        }
        let completes = left == 0 && backwards == 0;
        builder.recv_reduce(previous, builder.ahead(left), Own::Right, completes);
        if left < backwards {
            builder.recv_reduce(next, builder.behind(left), Own::Left, left == 0);
        }
    }
    if builder.ranks() == 1 {
        builder.deliver(0);
    }
}

/// Rank c passes chunk c on in both directions.
fn from_owners(builder: &mut Builder) {
    let (next, previous, (forwards, backwards)) =
        (builder.ahead(1), builder.behind(1), ways(builder.ranks()));
    for hop in 0..forwards {
        builder.send(next, builder.behind(hop));
        if hop < backwards {
            builder.send(previous, builder.ahead(hop));
        }
        builder.recv(previous, builder.behind(hop + 1));
        if hop < backwards {
            builder.recv(next, builder.ahead(hop + 1));
        }
    }
}

/// Wrong: every rank passes a sum on only when the sum from behind has come, and nobody begins.
pub fn deadlocks() -> Arc<Algorithm> {
    let wrong = Algorithm::new("deadlocks", Collective::AllReduce, |builder| {
        let received = builder.recv_reduce(builder.behind(1), 0, Own::Right, true);
        let sent = builder.send(builder.ahead(1), 0);
        builder.after(sent, received);
    });
    Arc::new(wrong.requires(Requires::COMMUTATIVE))
}

/// Wrong: the first half of the ring is the whole of it, so that the ranks beyond are left out.
pub fn forgets() -> Arc<Algorithm> {
    let wrong = Algorithm::new("forgets", Collective::AllReduce, |builder| {
        let (next, previous) = (builder.ahead(1), builder.behind(1));
        for left in (0..builder.ranks() / 2).rev() {
            builder.send(next, builder.ahead(left + 1));
            builder.recv_reduce(previous, builder.ahead(left), Own::Right, left == 0);
        }
        from_owners(builder);
    });
    Arc::new(wrong.requires(Requires::COMMUTATIVE).chunks(|shape| shape.ranks))
}
