//! Bruck's all-to-all: data travels by the binary digits of its distance. Fewest messages, but each byte is sent
//! several times.
//!
//! Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all communications in multiport
//! message-passing systems", 1997. Extents keep their names on all ranks, so the paper's rotations are not needed.

use crate::{Algorithm, Builder, Collective, Cost, Fraction, Requires, Shape, Totals};

/// ceil(log2 p) messages sent by each rank, each of about half of the input. For even counts and out of place only.
///
/// With uneven counts, ranks would not know the lengths of the data that they forward. In place, arriving data would
/// have to wait until the bytes at its place have left, in one of several messages.
pub(super) fn all_to_all() -> Algorithm {
    Algorithm::new("bruck", Collective::AllToAll, |builder| {
        let digits = (0..).map(|round| 1_u32 << round).take_while(|digit| *digit < builder.ranks());
        for digit in digits.collect::<Vec<_>>() {
            exchange(builder, digit);
        }
        builder.deliver(builder.rank() * (builder.ranks() + 1));
    })
    .requires(Requires { even_counts: true, out_of_place: true, ..Requires::NOTHING })
    // One for each hop of data that this rank forwards.
    .scratch_chunks(|shape| (1..shape.ranks).map(|distance| distance.count_ones() - 1).sum())
    .cost(cost)
    .source("Bruck, Ho, Kipnis, Upfal, Weathersby 1997")
    .summary("in round k all data moves on by 2^k if its distance has binary digit k")
}

/// One round: all data whose distance contains `digit` moves on by `digit`.
fn exchange(builder: &mut Builder, digit: u32) {
    let (rank, ranks) = (builder.rank(), builder.ranks());
    let moving: Vec<u32> = (digit..ranks).filter(|distance| distance & digit != 0).collect();
    // Before this round, data has moved by the lower digits of its distance; this is the extent that is now at rank
    // `at`.
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
    // Each digit has two peers: the rank ahead and the rank behind. Two peers are one rank if their digits add up to p;
    // the digits may be equal.
    let met =
        if ranks > 1 && shape.ranks.count_ones() <= 2 { u64::from(shape.ranks.count_ones()) } else { 0 };
    Cost {
        // The largest number of ones in a distance.
        rounds: u64::from(shape.ranks.ilog2()),
        messages: 2 * rounds,
        peers: 2 * rounds - met,
        sent: moved,
        received: moved,
        reduced: Fraction::ZERO,
        all: Totals::new(ranks * rounds, u64::from(hops), 0),
    }
}
