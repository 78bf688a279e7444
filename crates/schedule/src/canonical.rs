//! The canonical reduction trees: one tree for each number of ranks, for any root, size and algorithm. A prefix
//! reduction has another one than the other reductions.

use std::fmt;

/// Reduces any number of ranks to a power of two: the first `2 * remainder` ranks form pairs.
///
/// Ranks 2v and 2v+1 are pair v. The even rank takes part as virtual rank v, while the odd one waits; ranks after the
/// pairs take part alone. Virtual ranks keep the order of ranks, so operators need not commute (Thakur, Rabenseifner,
/// Gropp, "Optimization of collective communication operations in MPICH", 2005, section on all-reduce).
///
/// ```
/// let fold = unisono_schedule::Fold::new(6);
/// assert_eq!((fold.size(), fold.remainder()), (4, 2));
/// assert_eq!((fold.rank(1), fold.rank(2)), (2, 4));
/// assert_eq!((fold.partner(2), fold.partner(3), fold.partner(4)), (Some(3), Some(2), None));
/// assert_eq!((fold.virtual_rank(3), fold.virtual_rank(4)), (None, Some(2)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fold {
    size: u32,
    remainder: u32,
}

impl Fold {
    /// Folds `ranks` ranks, at least 1.
    pub const fn new(ranks: u32) -> Self {
        let size = 1 << ranks.ilog2();
        Self { size, remainder: ranks - size }
    }

    /// The number of virtual ranks: the largest power of two up to the number of ranks.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// The number of pairs.
    pub const fn remainder(&self) -> u32 {
        self.remainder
    }

    /// log2 of the number of virtual ranks.
    pub const fn rounds(&self) -> u32 {
        self.size.ilog2()
    }

    /// The longest chain of messages between two ranks: one for each round, one more if it starts at the odd rank of a
    /// pair, and one more if it also ends at one. The last needs two pairs whose virtual ranks differ in every bit.
    pub const fn longest_path(&self) -> u32 {
        self.rounds() + (self.remainder > 0) as u32 + (self.remainder > self.size / 2) as u32
    }

    /// The rank of a virtual rank.
    pub const fn rank(&self, virtual_rank: u32) -> u32 {
        if virtual_rank < self.remainder { 2 * virtual_rank } else { virtual_rank + self.remainder }
    }

    /// The virtual rank of a rank; `None` for the odd rank of a pair.
    pub const fn virtual_rank(&self, rank: u32) -> Option<u32> {
        if rank >= 2 * self.remainder {
            Some(rank - self.remainder)
        } else if rank.is_multiple_of(2) {
            Some(rank / 2)
        } else {
            None
        }
    }

    /// The other rank of the pair; `None` for a rank without one.
    pub const fn partner(&self, rank: u32) -> Option<u32> {
        if rank < 2 * self.remainder { Some(rank ^ 1) } else { None }
    }
}

/// A binary tree over the ranks, as a list of sums in an order in which they can be computed.
///
/// An operand below `ranks` is that rank's own value; operand `ranks + i` is the result of sum i.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReductionTree {
    /// The number of ranks.
    pub ranks: u32,
    /// (left, right) of each sum; the last sum is the result.
    pub sums: Vec<(u32, u32)>,
}

/// The canonical tree: pairs are summed first, then virtual ranks at distance 1, 2, 4, ..., the lower rank on the left.
///
/// If all results of an algorithm have this tree, their bits do not depend on size, piece size and transport.
///
/// ```
/// use unisono_schedule::canonical_tree;
/// assert_eq!(canonical_tree(4).to_string(), "((0 + 1) + (2 + 3))");
/// assert_eq!(canonical_tree(5).to_string(), "(((0 + 1) + 2) + (3 + 4))");
/// assert_eq!(canonical_tree(1).to_string(), "0");
/// ```
pub fn canonical_tree(ranks: u32) -> ReductionTree {
    let fold = Fold::new(ranks);
    let mut sums = Vec::with_capacity(ranks as usize - 1);
    let mut sum = |left, right| {
        sums.push((left, right));
        ranks + sums.len() as u32 - 1
    };
    let alone = 2 * fold.remainder()..ranks;
    let mut level: Vec<u32> =
        (0..fold.remainder()).map(|pair| sum(2 * pair, 2 * pair + 1)).chain(alone).collect();
    while level.len() > 1 {
        level = level.chunks_exact(2).map(|pair| sum(pair[0], pair[1])).collect();
    }
    ReductionTree { ranks, sums }
}

/// The canonical tree of a prefix reduction over `ranks` ranks, at least 1: from left to right, rank by rank.
///
/// The result of rank r in a scan has the tree of r + 1 ranks, in an exscan the tree of r ranks. Each tree contains the
/// tree of fewer ranks, so the bits of a rank's result do not depend on the ranks behind it either.
///
/// ```
/// use unisono_schedule::canonical_prefix_tree;
/// assert_eq!(canonical_prefix_tree(4).to_string(), "(((0 + 1) + 2) + 3)");
/// assert_eq!(canonical_prefix_tree(1).to_string(), "0");
/// ```
pub fn canonical_prefix_tree(ranks: u32) -> ReductionTree {
    // The result of sum i is operand `ranks + i`.
    let left = |rank: u32| if rank == 1 { 0 } else { ranks + rank - 2 };
    ReductionTree { ranks, sums: (1..ranks).map(|rank| (left(rank), rank)).collect() }
}

impl fmt::Display for ReductionTree {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut texts: Vec<String> = (0..self.ranks).map(|rank| rank.to_string()).collect();
        for (left, right) in &self.sums {
            texts.push(format!("({} + {})", texts[*left as usize], texts[*right as usize]));
        }
        formatter.write_str(texts.last().map_or("", String::as_str))
    }
}
