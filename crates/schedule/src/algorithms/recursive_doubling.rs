//! Recursive doubling: in round k every rank exchanges the whole vector with the rank at distance 2^k. Fewest rounds.
//!
//! Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005, on all-reduce.
//!
//! A prefix reduction doubles in one direction only: in round k every rank sends its sum to the rank 2^k above it, and
//! adds the sum of the rank 2^k below it on the left. Hillis, Steele, "Data parallel algorithms", 1986.

use crate::algorithm::BetweenHosts;
use crate::{Algorithm, Builder, Collective, Cost, Fold, Fraction, Own, Totals};

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
    .between_hosts(|shape| {
        let rounds = u64::from(shape.hosts.ilog2());
        BetweenHosts { rounds, sent: Fraction::new(rounds * u64::from(shape.ranks / shape.hosts), 1) }
    })
    .canonical()
    .source("Thakur, Rabenseifner, Gropp 2005, section on all-reduce")
    .summary("in round k every rank exchanges the whole vector with the rank at distance 2^k")
}

/// ceil(log2 p) rounds of the whole vector; each rank's sum reaches twice as far back after each. No contribution goes
/// through more than floor(log2 p) messages.
pub(super) fn scan() -> Algorithm {
    Algorithm::new("recursive_doubling", Collective::Scan, |builder| {
        double(builder, 0);
        builder.deliver(0);
    })
    .scratch_chunks(|_| 0)
    .cost(|shape| {
        let others = u64::from(shape.ranks) - 1;
        let most = Fraction::new(bits(others), 1);
        let messages = most_bits(others);
        let all = Totals::whole(doubled(others), doubled(others));
        Cost {
            rounds: longest_path(others),
            messages,
            peers: messages,
            sent: most,
            received: most,
            reduced: most,
            all,
        }
    })
    .source(
        "Hillis, Steele 1986; for messages as in Sanders, Traeff 2006, section on simultaneous binomial trees",
    )
    .summary("in round k every rank adds the sum of the rank 2^k below it to its own")
}

/// 1 + ceil(log2 (p-1)) rounds of the whole vector: one to the next rank, then the scan of the received vectors.
pub(super) fn exscan() -> Algorithm {
    Algorithm::new("recursive_doubling", Collective::Exscan, |builder| {
        let (rank, ranks) = (builder.rank(), builder.ranks());
        if rank + 1 < ranks {
            builder.send(rank + 1, 0);
        }
        if rank > 0 {
            builder.recv(rank - 1, 0);
            double(builder, 1);
        }
    })
    .scratch_chunks(|_| 0)
    .cost(|shape| {
        let shifted = u64::from(shape.ranks) - 1;
        if shifted == 0 {
            return Cost::FREE;
        }
        // The last rank of the scan is that many ranks behind its first, rank 1.
        let others = shifted - 1;
        let (rounds, sums) = (bits(others), doubled(others));
        let most = Fraction::new(1 + rounds, 1);
        Cost {
            rounds: 1 + longest_path(others),
            // The last rank receives from the rank before it twice without a pause, and sends nothing.
            messages: 1 + if others == 0 { 0 } else { 1 + most_bits(others) },
            // Rank 1 has only receivers in the scan, and its vector comes from rank 0.
            peers: most_bits(others).max(1 + rounds),
            sent: most,
            received: most,
            reduced: Fraction::new(rounds, 1),
            all: Totals::new(shifted + sums, shifted + sums, sums),
        }
    })
    .source(
        "Traeff, \"Communication round and computation efficient exclusive prefix-sums algorithms\", 2025: by a shift",
    )
    .summary("every rank passes its vector to the next rank; the received vectors are scanned by doubling")
}

/// The rounds of a scan of the newest values of the ranks from `first` on: 1, 2, 4, ... ranks back.
fn double(builder: &mut Builder, first: u32) {
    let (rank, ranks) = (builder.rank(), builder.ranks());
    let last = ranks - 1;
    for distance in (0..).map(|round| 1_u32 << round).take_while(|distance| *distance <= last - first) {
        if rank + distance < ranks {
            builder.send(rank + distance, 0);
        }
        if rank >= first + distance {
            // Only the last rank of a scan gets the contributions of all ranks, in its last round.
            let completes = first == 0 && rank == last && 2 * distance > last;
            builder.recv_reduce(rank - distance, 0, Own::Right, completes);
        }
    }
}

/// The number of binary digits: of distances 1, 2, 4, ... up to `count`.
fn bits(count: u64) -> u64 {
    u64::from(u64::BITS - count.leading_zeros())
}

/// The longest chain of messages among these ranks and `others` more behind the first: of k rounds in a row, it spans
/// 2^k - 1 ranks.
fn longest_path(others: u64) -> u64 {
    bits(others + 1) - 1
}

/// The messages of the doubling rounds of `others` + 1 ranks: all but 2^k of these ranks send in round k.
fn doubled(others: u64) -> u64 {
    (others + 1) * bits(others) - ((1 << bits(others)) - 1)
}

/// The most messages of one of these ranks, which are also its peers. A rank with `a` ranks before it and `b` behind
/// it, together `others`, receives and sends as many as `a` and `b` have digits. The fewest ranks with that many digits
/// before it are a power of two.
fn most_bits(others: u64) -> u64 {
    let powers = (0..bits(others)).map(|round| 1_u64 << round);
    powers.map(|before| bits(before) + bits(others - before)).max().unwrap_or(0)
}
