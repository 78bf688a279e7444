//! Bruck's all-to-all: data travels by the binary digits of its distance. Fewest messages, each byte sent often.
//!
//! Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all communications in multiport
//! message-passing systems", 1997. An extent has one name wherever it is, so that nothing is rotated.

use crate::{Algorithm, Builder, Collective, Cost, Fraction, Requires, Shape, Totals};

/// ceil(log2 p) messages sent by each rank, each of about half of the input. Even counts and out of place only.
///
/// A rank passes on what others send each other, and of uneven counts it knows its own only. In place, what comes
/// would have to wait until what was there has left, several messages later.
pub(super) const ALL_TO_ALL: Algorithm = Algorithm {
    name: "bruck",
    collective: Collective::AllToAll,
    requires: Requires { even_counts: true, out_of_place: true, ..Requires::NOTHING },
    chunks: |shape| shape.ranks * shape.ranks,
    // What passes through.
    scratch_chunks: |shape| (1..shape.ranks).map(|distance| distance.count_ones() - 1).sum(),
    cost,
    canonical: false,
    build: |builder| {
        let digits = (0..).map(|round| 1_u32 << round).take_while(|digit| *digit < builder.ranks());
        for digit in digits.collect::<Vec<_>>() {
            exchange(builder, digit);
        }
        builder.deliver(builder.rank() * (builder.ranks() + 1));
    },
    source: "Bruck, Ho, Kipnis, Upfal, Weathersby 1997",
    summary: "in round k all data whose distance has binary digit k moves on by 2^k",
};

/// The round in which all data moves on by `digit` whose distance has it.
fn exchange(builder: &mut Builder, digit: u32) {
    let (rank, ranks) = (builder.rank(), builder.ranks());
    let moving: Vec<u32> = (digit..ranks).filter(|distance| distance & digit != 0).collect();
    // Data of that distance that is at `at` before the round has made the lower digits of its way.
    let extent = |at: u32, distance: u32| {
        let from = (at + ranks - distance % digit) % ranks;
        from * ranks + (from + distance) % ranks
    };
    let (to, from) = (builder.ahead(digit), builder.behind(digit));
    builder.send_all(to, moving.iter().map(|distance| extent(rank, *distance)));
    builder.recv_all(from, moving.iter().map(|distance| extent(from, *distance)));
}

fn cost(shape: &Shape) -> Cost {
    let ranks = u64::from(shape.ranks);
    let rounds = u64::from(shape.ranks.next_power_of_two().ilog2());
    let hops: u32 = (1..shape.ranks).map(u32::count_ones).sum();
    let moved = Fraction::new(u64::from(hops), ranks);
    // Ahead and behind, which meet where two digits, or one twice, make p.
    let met =
        if ranks > 1 && shape.ranks.count_ones() <= 2 { u64::from(shape.ranks.count_ones()) } else { 0 };
    Cost {
        // The most ones of a distance.
        rounds: u64::from(shape.ranks.ilog2()),
        messages: 2 * rounds,
        peers: 2 * rounds - met,
        sent: moved,
        received: moved,
        reduced: Fraction::ZERO,
        all: Totals::new(ranks * rounds, u64::from(hops), 0),
    }
}
