//! Two trees, each for half of the vector. An inner rank of one tree is a leaf of the other.
//!
//! Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009. In one binary
//! tree, half of the ranks are leaves that only receive, and the others send everything twice. With two trees every
//! rank sends and receives the vector once, in about log2 p rounds. Cut into pieces, each tree is a pipeline.

use crate::rooted::{self, Transfer};
use crate::{Algorithm, Builder, Collective, Cost, Fraction, Requires, Shape, Totals};

/// 2 floor(log2 p) rounds. Each half goes up and down its tree: the vector is sent and received twice.
pub(super) fn all_reduce() -> Algorithm {
    Algorithm::new("double_tree", Collective::AllReduce, |builder| {
        let trees = TreePair { members: builder.ranks() };
        let transfers = trees.transfers(builder.rank() + 1, |member| member.checked_sub(1));
        rooted::all_reduce(builder, &transfers);
    })
    .requires(Requires::COMMUTATIVE)
    .chunks(|_| 2)
    .scratch_chunks(|_| 0)
    .cost(|shape| {
        let (ranks, others) = (u64::from(shape.ranks), u64::from(shape.ranks) - 1);
        if others == 0 {
            return Cost::FREE;
        }
        // With 4 ranks or more, some rank below the top has two children in one tree and is a leaf of the other.
        let moved = Fraction::new(ranks.min(4), 2);
        Cost {
            rounds: 2 * u64::from(ranks.ilog2()),
            messages: 2 * ranks.min(4),
            peers: others.min(3) + u64::from(ranks >= 8),
            sent: moved,
            received: moved,
            reduced: Fraction::new(others.min(2), 2),
            all: Totals::new(4 * others, 2 * others, others),
        }
    })
    .source("Sanders, Speck, Traeff 2009; the double binary trees of NCCL 2.4")
    .summary("each half goes up and down its own tree; inner ranks of one are leaves of the other")
}

/// 1 + floor(log2(p-1)) rounds. The root sends the vector once; every other rank receives and sends it once.
pub(super) fn broadcast() -> Algorithm {
    Algorithm::new("double_tree", Collective::Broadcast, |builder| {
        let transfers = rooted_transfers(builder);
        rooted::broadcast(builder, &transfers);
    })
    .chunks(|_| 2)
    .scratch_chunks(|_| 0)
    .cost(broadcast_cost)
    .source("Sanders, Speck, Traeff 2009")
    .summary("the root sends each half down its own tree; inner ranks of one are leaves of the other")
}

/// 1 + floor(log2(p-1)) rounds. The root receives the vector once; every other rank sends and receives it once.
pub(super) fn reduce() -> Algorithm {
    Algorithm::new("double_tree", Collective::Reduce, |builder| {
        let transfers = rooted_transfers(builder);
        rooted::reduce(builder, &transfers);
    })
    .requires(Requires::COMMUTATIVE)
    .chunks(|_| 2)
    .scratch_chunks(|shape| u32::from(shape.ranks > 2))
    .cost(|shape| rooted::reduce_cost(broadcast_cost(shape)))
    .source("Sanders, Speck, Traeff 2009")
    .summary("each half is summed up its own tree to the root; inner ranks of one are leaves of the other")
}

/// Two binary trees over members 1 to n. Each tree numbers the members, and odd numbers are leaves. The first tree
/// gives member i number i. The second counts backwards if n is even; if n is odd, it gives member i number i - 1, and
/// member 1 number n. So the even members, inner in the first tree, are leaves of the second.
#[derive(Clone, Copy)]
struct TreePair {
    members: u32,
}

impl TreePair {
    fn number(self, tree: u32, member: u32) -> u32 {
        match (tree, self.members.is_multiple_of(2)) {
            (0, _) => member,
            (_, true) => self.members + 1 - member,
            (_, false) => (member + self.members - 2) % self.members + 1,
        }
    }

    fn member(self, tree: u32, number: u32) -> u32 {
        match (tree, self.members.is_multiple_of(2)) {
            (0, _) => number,
            (_, true) => self.members + 1 - number,
            (_, false) => number % self.members + 1,
        }
    }

    /// The number of the top: the largest power of two up to n.
    fn top(self) -> Option<u32> {
        self.members.checked_ilog2().map(|bit| 1 << bit)
    }

    /// The number of the parent; 0 for the top. A number with n trailing zero bits is n levels above the leaves.
    fn above(self, number: u32) -> u32 {
        let level = number & number.wrapping_neg();
        let rest = number - level;
        if rest | (2 * level) <= self.members { rest | (2 * level) } else { rest }
    }

    /// The numbers of the children, the lower one first. A right child beyond the last number is replaced by a lower
    /// one.
    fn below(self, number: u32) -> impl Iterator<Item = u32> {
        let level = number & number.wrapping_neg();
        let halves =
            std::iter::successors(Some(level / 2), |half| Some(half / 2)).take_while(|half| *half > 0);
        let right = halves.map(|half| number + half).find(|right| *right <= self.members);
        let left = (level > 1).then(|| number - level / 2);
        left.into_iter().chain(right)
    }

    /// A member's transfers from its parent and to its children: half 0 in the first tree, half 1 in the second. `rank`
    /// maps members to ranks; member 0 is the parent of the top.
    fn transfers(self, member: u32, rank: impl Fn(u32) -> Option<u32>) -> Vec<Transfer> {
        let mut made = Vec::new();
        for tree in 0..2 {
            let number = self.number(tree, member);
            let above = self.above(number);
            let from = if above == 0 { 0 } else { self.member(tree, above) };
            made.extend(rank(from).map(|from| Transfer::recv(from, tree)));
            let below = self.below(number).filter_map(|below| rank(self.member(tree, below)));
            made.extend(below.map(|to| Transfer::send(to, tree)));
        }
        made
    }
}

/// All ranks but the root are members, numbered by their distance from the root.
fn rooted_transfers(builder: &Builder) -> Vec<Transfer> {
    let (root, ranks) = (builder.root(), builder.ranks());
    let rank = |member: u32| Some((member + root) % ranks);
    let trees = TreePair { members: ranks - 1 };
    match builder.behind(root) {
        0 => {
            let tops = (0..2).filter_map(|tree| Some((tree, rank(trees.member(tree, trees.top()?))?)));
            tops.map(|(tree, to)| Transfer::send(to, tree)).collect()
        }
        member => trees.transfers(member, rank),
    }
}

fn broadcast_cost(shape: &Shape) -> Cost {
    let others = u64::from(shape.ranks) - 1;
    if others == 0 {
        return Cost::FREE;
    }
    // Two ranks have one link, on which both halves are one message.
    let halves = others.min(2);
    Cost {
        rounds: 1 + u64::from(others.ilog2()),
        messages: (2 * others - 1).min(4),
        peers: others.min(3) + u64::from(others >= 5),
        sent: Fraction::ONE,
        received: Fraction::ONE,
        reduced: Fraction::ZERO,
        all: Totals::new(halves * others, others, 0),
    }
}
