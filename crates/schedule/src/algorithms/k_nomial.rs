//! The k-nomial tree: each base-k digit of a rank's distance from the root is one hop. With k = 2 it is binomial.
//!
//! Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005, for k = 2. A
//! larger radix has fewer rounds, and more messages at each inner rank; with k >= p the root sends to every rank
//! itself. Ranks are counted from the root, so any root has the same tree.

use std::ops::Range;

use crate::rooted::{self, Transfer};
use crate::{Algorithm, Builder, Collective, Cost, Fraction, Requires, Shape, Totals};

/// About log_k p rounds; about (k-1) log_k p messages of the whole vector leave the root.
pub(super) fn broadcast<const RADIX: u32>(name: &'static str) -> Algorithm {
    Algorithm::new(name, Collective::Broadcast, |builder| {
        rooted::broadcast(builder, &transfers::<RADIX>(builder))
    })
    .scratch_chunks(|_| 0)
    .cost(broadcast_cost::<RADIX>)
    .source("Thakur, Rabenseifner, Gropp 2005, section on broadcast; k-nomial as in MPICH and UCC")
    .summary("every rank that has the vector passes it to its children, the farthest first")
}

/// About log_k p rounds; about (k-1) log_k p messages of the whole vector reach the root.
pub(super) fn reduce<const RADIX: u32>(name: &'static str) -> Algorithm {
    Algorithm::new(name, Collective::Reduce, |builder| rooted::reduce(builder, &transfers::<RADIX>(builder)))
.requires(Requires::COMMUTATIVE)
.scratch_chunks(|shape| u32::from(shape.ranks > RADIX + 1))
.cost(|shape| rooted::reduce_cost(broadcast_cost::<RADIX>(shape)))
.source("Thakur, Rabenseifner, Gropp 2005, section on reduce (binomial tree); k-nomial as in MPICH and UCC")
.summary("every rank adds its children's sums, the nearest first, and passes the result to its parent")
}

/// About log_k p rounds; (p-1)/p of the result reaches the root.
pub(super) fn gather<const RADIX: u32>(name: &'static str) -> Algorithm {
    Algorithm::new(name, Collective::Gather, |builder| {
        let node = Node::<RADIX>::of(builder);
        for child in node.children() {
            let from = node.rank(child.start);
            builder.recv_all(from, child.map(|share| node.rank(share)));
        }
        match node.parent().map(|parent| node.rank(parent)) {
            Some(to) => builder.send_all(to, node.subtree().map(|share| node.rank(share))),
            None => builder.deliver(builder.rank()),
        }
    })
    .scratch_chunks(|shape| largest_subtree::<RADIX>(shape).saturating_sub(1))
    .cost(|shape| {
        let cost = scatter_cost::<RADIX>(shape);
        Cost { sent: cost.received, received: cost.sent, ..cost }
    })
    .source("Thakur, Rabenseifner, Gropp 2005, section on reduce (the gather of its long messages)")
    .summary("every rank passes the shares of its subtree to its parent")
}

/// About log_k p rounds; (p-1)/p of the input leaves the root.
pub(super) fn scatter<const RADIX: u32>(name: &'static str) -> Algorithm {
    Algorithm::new(name, Collective::Scatter, |builder| {
        let node = Node::<RADIX>::of(builder);
        if let Some(from) = node.parent().map(|parent| node.rank(parent)) {
            builder.recv_all(from, node.subtree().map(|share| node.rank(share)));
        }
        for child in node.children().into_iter().rev() {
            let to = node.rank(child.start);
            builder.send_all(to, child.map(|share| node.rank(share)));
        }
        builder.deliver(builder.rank());
    })
    .scratch_chunks(|shape| largest_subtree::<RADIX>(shape).saturating_sub(1))
    .cost(scatter_cost::<RADIX>)
    .source("Thakur, Rabenseifner, Gropp 2005, section on broadcast (the scatter of its long messages)")
    .summary("every rank passes on the shares of its children's subtrees, the largest subtree first")
}

/// A rank's place in the tree. `relative` is its distance from the root.
pub(super) struct Node<const RADIX: u32> {
    ranks: u32,
    root: u32,
    relative: u32,
}

impl<const RADIX: u32> Node<RADIX> {
    /// The root of a group whose root is rank 0.
    pub(super) fn root(ranks: u32) -> Self {
        Self { ranks, root: 0, relative: 0 }
    }

    pub(super) fn of(builder: &Builder) -> Self {
        Self { ranks: builder.ranks(), root: builder.root(), relative: builder.behind(builder.root()) }
    }

    /// The rank at this distance from the root.
    pub(super) fn rank(&self, relative: u32) -> u32 {
        (relative + self.root) % self.ranks
    }

    /// The place value of the lowest nonzero digit. The root has none, so it counts as larger than every place value.
    fn place(&self) -> u64 {
        let own = u64::from(self.relative);
        let is_zero = |place: &u64| own.is_multiple_of(place * u64::from(RADIX));
        if own == 0 { u64::MAX } else { places::<RADIX>().find(|place| !is_zero(place)).unwrap_or(1) }
    }

    pub(super) fn parent(&self) -> Option<u32> {
        let own = u64::from(self.relative);
        (own > 0).then(|| (own - own % (self.place() * u64::from(RADIX))) as u32)
    }

    /// The subtrees of the children, the nearest and smallest first. Each range starts with the child.
    pub(super) fn children(&self) -> Vec<Range<u32>> {
        let (own, ranks) = (u64::from(self.relative), u64::from(self.ranks));
        let places = places::<RADIX>().take_while(|place| *place < self.place() && own + place < ranks);
        let starts =
            places.flat_map(|place| (1..u64::from(RADIX)).map(move |digit| (own + digit * place, place)));
        let held = starts.filter(|(start, _)| *start < ranks);
        held.map(|(start, place)| start as u32..(start + place).min(ranks) as u32).collect()
    }

    /// This rank and all ranks below it.
    pub(super) fn subtree(&self) -> Range<u32> {
        self.relative..self.children().last().map_or(self.relative + 1, |child| child.end)
    }
}

/// One transfer from the parent, then one to each child, the farthest first.
pub(super) fn transfers<const RADIX: u32>(builder: &Builder) -> Vec<Transfer> {
    let node = Node::<RADIX>::of(builder);
    let from = node.parent().map(|parent| Transfer::recv(node.rank(parent), 0));
    let to = node.children().into_iter().rev().map(|child| Transfer::send(node.rank(child.start), 0));
    from.into_iter().chain(to).collect()
}

/// 1, k, k^2, ...
fn places<const RADIX: u32>() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(1), |place: &u64| place.checked_mul(u64::from(RADIX)))
}

/// The longest path: the most nonzero digits of a number below p. The smallest number with n nonzero digits is n ones.
pub(super) fn depth<const RADIX: u32>(ranks: u32) -> u64 {
    let ones = std::iter::successors(Some(1), |ones: &u64| Some(ones * u64::from(RADIX) + 1));
    ones.take_while(|ones| *ones < u64::from(ranks)).count() as u64
}

/// The number of children of the root: of numbers below p with one nonzero digit.
fn children<const RADIX: u32>(shape: &Shape) -> u64 {
    let others = u64::from(shape.ranks) - 1;
    let places = places::<RADIX>().take_while(|place| *place <= others);
    places.map(|place| (others / place).min(u64::from(RADIX) - 1)).sum()
}

pub(super) fn broadcast_cost<const RADIX: u32>(shape: &Shape) -> Cost {
    let children = children::<RADIX>(shape);
    Cost {
        rounds: depth::<RADIX>(shape.ranks),
        messages: children,
        peers: children,
        sent: Fraction::new(children, 1),
        received: Fraction::new(children.min(1), 1),
        reduced: Fraction::ZERO,
        all: Totals::whole(u64::from(shape.ranks) - 1, 0),
    }
}

pub(super) fn scatter_cost<const RADIX: u32>(shape: &Shape) -> Cost {
    let children = children::<RADIX>(shape);
    let part = |count: u32| Fraction::new(u64::from(count), u64::from(shape.ranks));
    // A share takes one hop for each nonzero digit of its owner's distance.
    let digits = |rank: u32| places::<RADIX>().map(move |place| u64::from(rank) / place);
    let hops =
        |rank| digits(rank).take_while(|rest| *rest > 0).filter(|rest| rest % u64::from(RADIX) > 0).count();
    let sent = Fraction::new((0..shape.ranks).map(hops).sum::<usize>() as u64, u64::from(shape.ranks));
    Cost {
        rounds: depth::<RADIX>(shape.ranks),
        messages: children,
        peers: children,
        sent: part(shape.ranks - 1),
        received: part(largest_subtree::<RADIX>(shape)),
        reduced: Fraction::ZERO,
        all: Totals { sent, ..Totals::whole(u64::from(shape.ranks) - 1, 0) },
    }
}

/// The size of the largest subtree below the root.
fn largest_subtree<const RADIX: u32>(shape: &Shape) -> u32 {
    let root = Node::<RADIX>::root(shape.ranks);
    root.children().iter().map(|child| child.end - child.start).max().unwrap_or(0)
}
