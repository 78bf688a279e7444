//! A broadcast that scatters shares and gathers them on all ranks; in reverse, a reduce. Few rounds and few bytes.
//!
//! Barnett, Gupta, Payne, Shuler, van de Geijn, Watts, "Interprocessor collective communication library", 1994; the
//! reduce is Rabenseifner's: Thakur, Rabenseifner, Gropp 2005. The all-gather leaves out shares that a rank got in the
//! scatter, so all ranks together move p-1 vectors, which is the minimum.

use crate::rooted::{self, Transfer};
use crate::{Algorithm, Builder, Collective, Cost, Fold, Fraction, Requires, Shape, Totals};

/// 2 log2 p - 1 rounds. The root sends twice the vector, less two shares. If p is no power of two, one more message
/// serves the remaining ranks.
pub(super) fn broadcast() -> Algorithm {
    Algorithm::new("scatter_all_gather", Collective::Broadcast, |builder| {
        let transfers = transfers(builder);
        rooted::broadcast(builder, &transfers);
    })
.chunks(|shape| Fold::new(shape.ranks).size())
.scratch_chunks(|_| 0)
.cost(cost)
.source("Barnett et al. 1994 (van de Geijn's broadcast); Thakur, Rabenseifner, Gropp 2005, section on broadcast")
.summary("the root's vector is scattered along a binomial tree and gathered everywhere by recursive doubling")
}

/// 2 log2 p - 1 rounds; the broadcast in reverse.
pub(super) fn reduce() -> Algorithm {
    Algorithm::new("reduce_scatter_gather", Collective::Reduce, |builder| {
        let transfers = transfers(builder);
        rooted::reduce(builder, &transfers);
    })
    .requires(Requires::COMMUTATIVE)
    .chunks(|shape| Fold::new(shape.ranks).size())
    .scratch_chunks(|shape| {
        let fold = Fold::new(shape.ranks);
        match fold.remainder() {
            0 => {
                if fold.size() > 2 {
                    fold.size() / 2
                } else {
                    0
                }
            }
            _ => fold.size(),
        }
    })
    .cost(|shape| rooted::reduce_cost(cost(shape)))
    .source("Thakur, Rabenseifner, Gropp 2005, section on reduce (Rabenseifner's algorithm)")
    .summary("recursive halving sums the shares, a binomial tree gathers them at the root")
}

/// Ranks are counted from the root. The first 2^k ranks have a share each. Rank 2^k + i gets all shares from rank 1 +
/// i, which forwards them as they arrive, because it has less to send than the root.
fn transfers(builder: &Builder) -> Vec<Transfer> {
    let (fold, own) = (Fold::new(builder.ranks()), builder.behind(builder.root()));
    let rank = |relative: u32| (builder.root() + relative) % builder.ranks();
    if let Some(nth) = own.checked_sub(fold.size()) {
        return arrivals(&fold, nth + 1).map(|share| Transfer::recv(rank(nth + 1), share)).collect();
    }
    let mut made = Vec::new();
    let level = if own == 0 { fold.rounds() } else { own.trailing_zeros() };
    if own > 0 {
        let above = rank(own & (own - 1));
        made.extend((own..own + (1 << level)).map(|share| Transfer::recv(above, share)));
    }
    for bit in (0..level).rev() {
        let below = own + (1 << bit);
        made.extend((below..below + (1 << bit)).map(|share| Transfer::send(rank(below), share)));
    }
    for bit in 0..fold.rounds() {
        let (distance, other) = (1 << bit, own ^ (1 << bit));
        let block = |of: u32| (of & !(distance - 1))..(of & !(distance - 1)) + distance;
        // The parent in the tree has this block already. The ranks below got theirs in the scatter.
        if bit != level {
            made.extend(block(own).map(|share| Transfer::send(rank(other), share)));
        }
        if bit >= level {
            made.extend(block(other).map(|share| Transfer::recv(rank(other), share)));
        }
    }
    if (1..=fold.remainder()).contains(&own) {
        let last = rank(fold.size() + own - 1);
        made.extend(arrivals(&fold, own).map(|share| Transfer::send(last, share)));
    }
    made
}

/// All shares in the order in which one of the first 2^k ranks receives them.
fn arrivals(fold: &Fold, own: u32) -> impl Iterator<Item = u32> {
    let level = own.trailing_zeros();
    let block = |of: u32, bit: u32| (of & !((1 << bit) - 1))..(of & !((1 << bit) - 1)) + (1 << bit);
    block(own, level).chain((level..fold.rounds()).flat_map(move |bit| block(own ^ (1 << bit), bit)))
}

fn cost(shape: &Shape) -> Cost {
    let (fold, others) = (Fold::new(shape.ranks), u64::from(shape.ranks) - 1);
    if others == 0 {
        return Cost::FREE;
    }
    let (size, rounds) = (u64::from(fold.size()), u64::from(fold.rounds()));
    let (pairs, folded) = (u64::from(fold.remainder()), u64::from(fold.remainder() > 0));
    Cost {
        rounds: 2 * rounds - 1 + folded,
        messages: 2 * rounds - 1 + folded,
        peers: rounds + folded,
        sent: Fraction::new(2 * (size - 1), size),
        received: Fraction::ONE,
        reduced: Fraction::ZERO,
        all: Totals::new(pairs + size * rounds - size / 2, others, 0),
    }
}
