//! The binomial tree: in round k everybody who has something passes it to the rank at distance 2^k from the root.
//!
//! Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005, section
//! on broadcast. Ranks are counted from the root, so that any root gives the same tree.

use std::ops::Range;

use crate::{Algorithm, Builder, Collective, Cost, Fold, Fraction, Own, Requires, Shape, Totals};

/// ceil(log2 p) messages of the whole vector leave the root.
pub(super) const BROADCAST: Algorithm = Algorithm {
    name: "binomial",
    collective: Collective::Broadcast,
    requires: Requires::NOTHING,
    chunks: |_| 1,
    scratch_chunks: |_| 0,
    cost: |shape| {
        let (depth, children) = (depth(shape), children(shape));
        let (sent, received) = (Fraction::new(children, 1), Fraction::new(children.min(1), 1));
        let all = Totals::whole(u64::from(shape.ranks) - 1, 0);
        Cost {
            rounds: depth,
            messages: children,
            peers: children,
            sent,
            received,
            reduced: Fraction::ZERO,
            all,
        }
    },
    canonical: false,
    build: |builder| {
        let node = Node::of(builder);
        if let Some(parent) = node.parent() {
            builder.recv(node.rank(parent), 0);
        }
        for child in node.children().into_iter().rev() {
            builder.send(node.rank(child.start), 0);
        }
    },
    source: "Thakur, Rabenseifner, Gropp 2005, section on broadcast",
    summary: "everybody who has the vector passes it on, farthest rank first",
};

/// ceil(log2 p) messages of the whole vector reach the root.
pub(super) const REDUCE: Algorithm = Algorithm {
    name: "binomial",
    collective: Collective::Reduce,
    requires: Requires::COMMUTATIVE,
    chunks: |_| 1,
    scratch_chunks: |shape| u32::from(shape.ranks >= 4),
    cost: |shape| {
        let (depth, children) = (depth(shape), children(shape));
        let (sent, received) = (Fraction::new(children.min(1), 1), Fraction::new(children, 1));
        let others = u64::from(shape.ranks) - 1;
        let all = Totals::whole(others, others);
        Cost { rounds: depth, messages: children, peers: children, sent, received, reduced: received, all }
    },
    canonical: false,
    build: |builder| {
        let node = Node::of(builder);
        let children = node.children();
        for (nth, child) in (1..).zip(&children) {
            let completes = node.relative == 0 && nth == children.len();
            builder.recv_reduce(node.rank(child.start), 0, Own::Left, completes);
        }
        match node.parent() {
            Some(parent) => builder.send_all(node.rank(parent), [0]),
            None => builder.deliver(0),
        }
    },
    source: "Thakur, Rabenseifner, Gropp 2005, section on reduce (binomial tree)",
    summary: "everybody adds its children's sums, nearest first, and passes the result to its parent",
};

/// floor(log2 p) rounds; (p-1)/p of the result reaches the root.
pub(super) const GATHER: Algorithm = Algorithm {
    name: "binomial",
    collective: Collective::Gather,
    requires: Requires::NOTHING,
    chunks: |shape| shape.ranks,
    scratch_chunks: |shape| largest_subtree(shape).saturating_sub(1),
    cost: |shape| {
        let (inner, root) = shares(shape);
        let (rounds, messages) = (depth(shape), children(shape));
        let all = passed_on(shape);
        Cost { rounds, messages, peers: messages, sent: inner, received: root, reduced: Fraction::ZERO, all }
    },
    canonical: false,
    build: |builder| {
        let node = Node::of(builder);
        for child in node.children() {
            let from = node.rank(child.start);
            builder.recv_all(from, child.map(|share| node.rank(share)));
        }
        match node.parent().map(|parent| node.rank(parent)) {
            Some(to) => builder.send_all(to, node.subtree().map(|share| node.rank(share))),
            None => builder.deliver(builder.rank()),
        }
    },
    source: "Thakur, Rabenseifner, Gropp 2005, section on reduce (the gather of its long messages)",
    summary: "everybody passes the shares of its subtree to its parent",
};

/// floor(log2 p) rounds; (p-1)/p of the input leaves the root.
pub(super) const SCATTER: Algorithm = Algorithm {
    name: "binomial",
    collective: Collective::Scatter,
    requires: Requires::NOTHING,
    chunks: |shape| shape.ranks,
    scratch_chunks: |shape| largest_subtree(shape).saturating_sub(1),
    cost: |shape| {
        let (inner, root) = shares(shape);
        let (rounds, messages) = (depth(shape), children(shape));
        let all = passed_on(shape);
        Cost { rounds, messages, peers: messages, sent: root, received: inner, reduced: Fraction::ZERO, all }
    },
    canonical: false,
    build: |builder| {
        let node = Node::of(builder);
        if let Some(from) = node.parent().map(|parent| node.rank(parent)) {
            builder.recv_all(from, node.subtree().map(|share| node.rank(share)));
        }
        for child in node.children().into_iter().rev() {
            let to = node.rank(child.start);
            builder.send_all(to, child.map(|share| node.rank(share)));
        }
        builder.deliver(builder.rank());
    },
    source: "Thakur, Rabenseifner, Gropp 2005, section on broadcast (the scatter of its long messages)",
    summary: "everybody passes on the shares of its children's subtrees, the largest subtree first",
};

/// One rank in the tree, counted from the root.
struct Node {
    ranks: u32,
    root: u32,
    relative: u32,
}

impl Node {
    fn of(builder: &Builder) -> Self {
        Self { ranks: builder.ranks(), root: builder.root(), relative: builder.behind(builder.root()) }
    }

    /// The rank of a relative one.
    fn rank(&self, relative: u32) -> u32 {
        (relative + self.root) % self.ranks
    }

    fn parent(&self) -> Option<u32> {
        self.relative.checked_sub(1).map(|below| self.relative & below)
    }

    /// The subtrees below this rank, nearest and smallest first; each starts with the child itself.
    fn children(&self) -> Vec<Range<u32>> {
        let bits = if self.relative == 0 { u32::BITS } else { self.relative.trailing_zeros() };
        let distances = (0..bits).map(|bit| 1_u32 << bit).take_while(|d| self.relative + d < self.ranks);
        distances.map(|d| self.relative + d..(self.relative + 2 * d).min(self.ranks)).collect()
    }

    /// This rank and all below it.
    fn subtree(&self) -> Range<u32> {
        self.relative..self.children().last().map_or(self.relative + 1, |child| child.end)
    }
}

/// The longest path: the most ones in the binary form of a number below p.
fn depth(shape: &Shape) -> u64 {
    u64::from(shape.ranks.ilog2())
}

/// All messages of a gather or scatter: a share makes as many hops as its owner's place in the tree is deep.
fn passed_on(shape: &Shape) -> Totals {
    let hops: u32 = (0..shape.ranks).map(u32::count_ones).sum();
    let sent = Fraction::new(u64::from(hops), u64::from(shape.ranks));
    Totals { sent, ..Totals::whole(u64::from(shape.ranks) - 1, 0) }
}

/// The number of the root's children: ceil(log2 p).
fn children(shape: &Shape) -> u64 {
    u64::from(shape.ranks.next_power_of_two().ilog2())
}

/// The most ranks below, and with, any rank but the root.
fn largest_subtree(shape: &Shape) -> u32 {
    let fold = Fold::new(shape.ranks);
    (fold.size() / 2).max(fold.remainder())
}

/// The shares that pass through the largest subtree's top, and through the root.
fn shares(shape: &Shape) -> (Fraction, Fraction) {
    let part = |count| Fraction::new(u64::from(count), u64::from(shape.ranks));
    (part(largest_subtree(shape)), part(shape.ranks - 1))
}
