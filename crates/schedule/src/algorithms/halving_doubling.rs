//! Recursive halving and doubling: round by round, the distance doubles and the exchanged data halves; then in reverse.
//!
//! Few rounds and few bytes. Distance 1 comes first, so that every chunk is summed in the canonical tree. Thakur,
//! Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005.

use crate::algorithm::BetweenHosts;
use crate::{Algorithm, Builder, Collective, Cost, Fold, Fraction, Own, Shape, Totals};

/// 2 log2 p rounds; 2(p-1)/p of the vector sent and received. If p is no power of two, the ranks of a pair exchange the
/// vector once more, to fold and to unfold ([`Fold`]).
pub(super) fn all_reduce() -> Algorithm {
    Algorithm::new("halving_doubling", Collective::AllReduce, |builder| {
        let fold = Fold::new(builder.ranks());
        // Chunks have bit-reversed order, so that each exchange moves contiguous bytes.
        let owned =
            |v: u32| vec![if fold.rounds() == 0 { 0 } else { v.reverse_bits() >> (32 - fold.rounds()) }];
        let rank = builder.rank();
        let Some(own) = fold.virtual_rank(rank) else {
            builder.send_all(rank - 1, 0..builder.chunks());
            builder.recv_all(rank - 1, arrivals(&fold, rank / 2, &owned));
            return;
        };
        fold_in(builder, &fold);
        halve(builder, &fold, own, &owned);
        double(builder, &fold, own, &owned);
        if let Some(partner) = fold.partner(rank) {
            builder.send_all(partner, arrivals(&fold, own, &owned));
        }
        builder.deliver(0);
    })
    .chunks(|shape| Fold::new(shape.ranks).size())
    .scratch_chunks(|_| 0)
    .cost(|shape| {
        let fold = Fold::new(shape.ranks);
        let (rounds, folded) = (u64::from(fold.rounds()), u64::from(fold.remainder() > 0));
        let size = u64::from(fold.size());
        let (part, whole) = (Fraction::new(size - 1, size), Fraction::new(folded, 1));
        let (moved, reduced) = (part + part + whole, part + whole);
        let (messages, peers) = (4 * rounds + 2 * folded, rounds + folded);
        let pairs = u64::from(fold.remainder());
        let all = Totals::new(2 * (pairs + rounds * size), 2 * (pairs + size - 1), pairs + size - 1);
        Cost { rounds: 2 * peers, messages, peers, sent: moved, received: moved, reduced, all }
    })
    .between_hosts(|shape| {
        let BetweenHosts { rounds, sent } = half_between_hosts(shape);
        BetweenHosts { rounds: 2 * rounds, sent: sent + sent }
    })
    .canonical()
    .source("Thakur, Rabenseifner, Gropp 2005, section on all-reduce (Rabenseifner's algorithm)")
    .summary("recursive halving sums the chunks, recursive doubling gathers them")
}

/// log2 p rounds; (p-1)/p of the vector sent, received and reduced. If p is no power of two, folding takes more
/// messages.
pub(super) fn reduce_scatter() -> Algorithm {
    Algorithm::new("halving", Collective::ReduceScatter, |builder| {
        let (rank, fold) = (builder.rank(), Fold::new(builder.ranks()));
        let Some(own) = fold.virtual_rank(rank) else {
            builder.send_all(rank - 1, 0..builder.ranks());
            builder.recv(rank - 1, rank);
            return;
        };
        fold_in(builder, &fold);
        halve(builder, &fold, own, &|v| shares(&fold, v));
        if let Some(partner) = fold.partner(rank) {
            builder.send(partner, partner);
        }
        builder.deliver(rank);
    })
    .scratch_chunks(|shape| match Fold::new(shape.ranks).remainder() {
        0 => (shape.ranks / 2).saturating_sub(1),
        _ => shape.ranks - 1,
    })
    .cost(|shape| {
        let (fold, ranks) = (Fold::new(shape.ranks), u64::from(shape.ranks));
        let (rounds, folded) = (u64::from(fold.rounds()), u64::from(fold.remainder() > 0));
        let received = Fraction::new(folded * ranks + exchanged(&fold), ranks);
        let sent = Fraction::new(ranks - 1 + folded, ranks);
        let peers = rounds + folded;
        let (pairs, size) = (u64::from(fold.remainder()), u64::from(fold.size()));
        let all_sent = Fraction::new(ranks - 1, 1) + Fraction::new(pairs, ranks);
        let all = Totals { sent: all_sent, ..Totals::new(2 * pairs + rounds * size, 0, ranks - 1) };
        let rounds = u64::from(fold.longest_path());
        Cost { rounds, messages: 2 * peers, peers, sent, received, reduced: received, all }
    })
    .between_hosts(half_between_hosts)
    .canonical()
    .source(
        "Thakur, Rabenseifner, Gropp 2005, section on reduce-scatter (recursive halving), distance 1 first",
    )
    .summary("in round k every rank sends the rank at distance 2^k the half of the shares that it collects")
}

/// log2 p rounds; (p-1)/p of the result sent and received. If p is no power of two, folding takes more messages.
pub(super) fn all_gather() -> Algorithm {
    Algorithm::new("doubling", Collective::AllGather, |builder| {
        let (rank, fold) = (builder.rank(), Fold::new(builder.ranks()));
        let Some(own) = fold.virtual_rank(rank) else {
            builder.send(rank - 1, rank);
            let others = arrivals(&fold, rank / 2, &|v| shares(&fold, v)).into_iter();
            builder.recv_all(rank - 1, others.filter(|extent| *extent != rank));
            builder.deliver(rank);
            return;
        };
        if let Some(partner) = fold.partner(rank) {
            builder.recv(partner, partner);
        }
        double(builder, &fold, own, &|v| shares(&fold, v));
        if let Some(partner) = fold.partner(rank) {
            let others = arrivals(&fold, own, &|v| shares(&fold, v)).into_iter();
            builder.send_all(partner, others.filter(|extent| *extent != partner));
        }
        builder.deliver(rank);
    })
    .scratch_chunks(|_| 0)
    .cost(|shape| {
        let (fold, ranks) = (Fold::new(shape.ranks), u64::from(shape.ranks));
        let (rounds, folded) = (u64::from(fold.rounds()), u64::from(fold.remainder() > 0));
        let sent = Fraction::new(exchanged(&fold) + folded * (ranks - 1), ranks);
        let received = Fraction::new(ranks - 1, ranks);
        let peers = rounds + folded;
        let (pairs, size) = (u64::from(fold.remainder()), u64::from(fold.size()));
        let all = Totals::new(2 * pairs + rounds * size, ranks - 1, 0);
        let rounds = u64::from(fold.longest_path());
        Cost { rounds, messages: 2 * peers, peers, sent, received, reduced: Fraction::ZERO, all }
    })
    .between_hosts(half_between_hosts)
    .source("Thakur, Rabenseifner, Gropp 2005, section on all-gather (recursive doubling)")
    .summary("in each round every rank exchanges all it has with the rank at half the last distance")
}

/// Halving or doubling between hosts. Ranks of a host sum or share everything among themselves, so each byte of the
/// vector leaves a host once for each other host, divided by the number of hosts.
fn half_between_hosts(shape: &Shape) -> BetweenHosts {
    let hosts = u64::from(shape.hosts);
    BetweenHosts { rounds: u64::from(shape.hosts.ilog2()), sent: Fraction::new(hosts - 1, hosts) }
}

/// The shares of a virtual rank: of its rank, and of the other rank of the pair.
fn shares(fold: &Fold, virtual_rank: u32) -> Vec<u32> {
    let rank = fold.rank(virtual_rank);
    fold.partner(rank).map_or_else(|| vec![rank], |partner| vec![rank, partner])
}

/// The most shares that a rank receives in recursive halving, or sends in recursive doubling. It is the number of
/// virtual rank 0, whose classes modulo 2, 4, ... contain the most pairs.
fn exchanged(fold: &Fold) -> u64 {
    let classes = (1..=fold.rounds()).map(|round| 1_u32 << round);
    classes.map(|class| u64::from(fold.size() / class + fold.remainder().div_ceil(class))).sum()
}

/// The even rank of a pair adds the whole vector of the odd rank.
fn fold_in(builder: &mut Builder, fold: &Fold) {
    if let Some(partner) = fold.partner(builder.rank()) {
        for extent in 0..builder.chunks() {
            builder.recv_reduce(partner, extent, Own::Left, false);
        }
    }
}

/// The shares of the virtual ranks that equal `like` modulo `class`, ascending.
fn class(fold: &Fold, like: u32, class: u32, owned: &dyn Fn(u32) -> Vec<u32>) -> Vec<u32> {
    let members = (like % class..fold.size()).step_by(class as usize);
    let mut extents: Vec<u32> = members.flat_map(owned).collect();
    extents.sort_unstable();
    extents
}

/// Recursive halving: every virtual rank ends with the sums of its own extents.
fn halve(builder: &mut Builder, fold: &Fold, own: u32, owned: &dyn Fn(u32) -> Vec<u32>) {
    for round in 0..fold.rounds() {
        let other = own ^ (1 << round);
        let (peer, side) = (fold.rank(other), if own < other { Own::Left } else { Own::Right });
        builder.send_all(peer, class(fold, other, 2 << round, owned));
        for extent in class(fold, own, 2 << round, owned) {
            builder.recv_reduce(peer, extent, side, round + 1 == fold.rounds());
        }
    }
}

/// Recursive doubling: every virtual rank starts with its own extents and ends with all.
fn double(builder: &mut Builder, fold: &Fold, own: u32, owned: &dyn Fn(u32) -> Vec<u32>) {
    for round in (0..fold.rounds()).rev() {
        let other = own ^ (1 << round);
        builder.send_all(fold.rank(other), class(fold, own, 2 << round, owned));
        builder.recv_all(fold.rank(other), class(fold, other, 2 << round, owned));
    }
}

/// All extents in the order in which recursive doubling brings them to a virtual rank, which is the order to pass them
/// on.
fn arrivals(fold: &Fold, own: u32, owned: &dyn Fn(u32) -> Vec<u32>) -> Vec<u32> {
    let rounds = (0..fold.rounds()).rev();
    let received = rounds.flat_map(|round| class(fold, own ^ (1 << round), 2 << round, owned));
    owned(own).into_iter().chain(received).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_of_the_all_reduce_is_contiguous() {
        let schedule = all_reduce().schedule(&Shape::new(8), 5);
        let sent = schedule.steps.iter().filter(|step| step.action.link().is_some_and(|(_, sends)| sends));
        let sent: Vec<u32> = sent.map(|step| step.extent).collect();
        assert_eq!(sent, [0, 1, 2, 3, 6, 7, 4, 5, 4, 5, 4, 5, 6, 7][..].to_vec());
    }
}
