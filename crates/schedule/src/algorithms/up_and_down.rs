//! Up a k-nomial tree to rank 0 and down again. All ranks together send 2(p-1) messages, which is the minimum.
//!
//! For short vectors and for ranks that share cores, where every message costs time on a core. With k >= p, rank 0
//! exchanges messages with all other ranks, in two rounds. A subtree is consecutive ranks, so sums keep their order.

use super::k_nomial::{Node, broadcast_cost, depth, scatter_cost, transfers};
use crate::{
    Action, Algorithm, Builder, Collective, Cost, Fraction, Own, Shape, Slot, StepIndex, Totals, rooted,
};

/// The reduce to rank 0, then the broadcast. 2(p-1) messages, the fewest of any all-reduce. Sums keep the rank order.
pub(super) fn all_reduce<const RADIX: u32>(name: &'static str) -> Algorithm {
    Algorithm::new(name, Collective::AllReduce, |builder| {
        rooted::all_reduce(builder, &transfers::<RADIX>(builder))
    })
    .scratch_chunks(|_| 0)
    .cost(|shape| {
        // The root has the most peers: another rank has a parent, but at least one child less.
        let once = broadcast_cost::<RADIX>(shape);
        let others = u64::from(shape.ranks) - 1;
        let (rounds, messages, most) = (2 * once.rounds, 2 * once.messages, once.sent);
        let all = Totals::whole(2 * others, others);
        Cost { rounds, messages, sent: most, received: most, reduced: most, all, ..once }
    })
    .source("folklore: the reduce and the broadcast of Thakur, Rabenseifner, Gropp 2005, one after the other")
    .summary("sums go up a tree to rank 0, the result comes back down")
}

/// 2(p-1) messages in all. Whole vectors go up, shares come down.
pub(super) fn reduce_scatter<const RADIX: u32>(name: &'static str) -> Algorithm {
    Algorithm::new(name, Collective::ReduceScatter, |builder| {
        let node = Node::<RADIX>::of(builder);
        for child in node.children() {
            for extent in 0..builder.ranks() {
                let is_last = builder.rank() == 0 && child.end == builder.ranks();
                builder.recv_reduce(child.start, extent, Own::Left, is_last);
            }
        }
        if let Some(parent) = node.parent() {
            builder.send_all(parent, 0..builder.ranks());
            builder.recv_all(parent, node.subtree());
        }
        for child in node.children().into_iter().rev() {
            builder.send_all(child.start, child);
        }
        builder.deliver(builder.rank());
    })
    .scratch_chunks(|shape| shape.ranks - 1)
    .cost(|shape| {
        let (up, down) = (rooted::reduce_cost(broadcast_cost::<RADIX>(shape)), scatter_cost::<RADIX>(shape));
        // The top of the largest subtree forwards all shares of that subtree but its own.
        let kept = Fraction::new(u64::from(shape.ranks > 1), u64::from(shape.ranks));
        let all = Totals { messages: 2 * up.all.messages, sent: up.all.sent + down.all.sent, ..up.all };
        let sent = up.sent + down.received.less(kept);
        Cost { rounds: 2 * up.rounds, messages: 2 * up.messages, sent, all, ..up }
    })
    .source("folklore: the reduce and the scatter of Thakur, Rabenseifner, Gropp 2005, one after the other")
    .summary("sums go up a tree to rank 0, shares come back down")
}

/// 2(p-1) messages in all. Shares go up; coming down, every rank receives the shares that it lacks.
pub(super) fn all_gather<const RADIX: u32>(name: &'static str) -> Algorithm {
    Algorithm::new(name, Collective::AllGather, |builder| {
        let node = Node::<RADIX>::of(builder);
        let ranks = builder.ranks();
        for child in node.children() {
            builder.recv_all(child.start, child);
        }
        if let Some(parent) = node.parent() {
            let own = node.subtree();
            builder.send_all(parent, own.clone());
            builder.recv_all(parent, (0..own.start).chain(own.end..ranks));
        }
        for child in node.children().into_iter().rev() {
            builder.send_all(child.start, (0..child.start).chain(child.end..ranks));
        }
        builder.deliver(builder.rank());
    })
    .scratch_chunks(|_| 0)
    .cost(|shape| {
        let (once, ranks) = (broadcast_cost::<RADIX>(shape), u64::from(shape.ranks));
        let (others, messages) = (ranks - 1, 2 * once.messages);
        // Rank 0 does not send a child the shares of the child's own subtree; these are p-1 shares in all.
        let sent = Fraction::new(once.messages * ranks - others, ranks);
        let (received, all) = (Fraction::new(others, ranks), Totals::new(2 * others, others, 0));
        Cost { rounds: longest_path::<RADIX>(shape), messages, sent, received, all, ..once }
    })
    .source("folklore: the gather and the broadcast of Thakur, Rabenseifner, Gropp 2005, one after the other")
    .summary("shares go up a tree to rank 0, what each subtree lacks comes back down")
}

/// 2(p-1) tokens in all.
pub(super) fn barrier<const RADIX: u32>(name: &'static str) -> Algorithm {
    Algorithm::new(name, Collective::Barrier, |builder| {
        let node = Node::<RADIX>::of(builder);
        let children: Vec<u32> = node.children().iter().map(|child| child.start).collect();
        let heard: Vec<StepIndex> = children.iter().map(|child| hear(builder, *child)).collect();
        let released = node.parent().map(|parent| {
            tell(builder, parent, heard.clone());
            hear(builder, parent)
        });
        for (child, own) in children.into_iter().zip(heard.clone()).rev() {
            // A child need not hear of its own arrival.
            let others = heard.iter().copied().filter(|other| *other != own);
            tell(builder, child, others.chain(released));
        }
    })
    .scratch_chunks(|shape| broadcast_cost::<RADIX>(shape).messages as u32)
    .cost(|shape| {
        let once = broadcast_cost::<RADIX>(shape);
        let all = Totals::whole(2 * once.all.messages, 0);
        let (rounds, messages) = (longest_path::<RADIX>(shape), 2 * once.messages);
        Cost { rounds, messages, received: once.sent, all, ..once }
    })
    .source("Mellor-Crummey, Scott, \"Algorithms for scalable synchronization\", 1991 (the tree barrier)")
    .summary("tokens go up a tree to rank 0, which releases all ranks down the tree")
}

/// The longest chain of messages of a share or a token: from the deepest rank below one child of the root to the
/// deepest rank below another child.
fn longest_path<const RADIX: u32>(shape: &Shape) -> u64 {
    let subtrees = Node::<RADIX>::root(shape.ranks).children();
    let size = |child: &std::ops::Range<u32>| child.end - child.start;
    let mut depths: Vec<u64> = subtrees.iter().map(|child| 1 + depth::<RADIX>(size(child))).collect();
    depths.sort_unstable();
    depths.iter().rev().take(2).sum()
}

/// Receives a token.
fn hear(builder: &mut Builder, peer: u32) -> StepIndex {
    let destination = builder.scratch();
    builder.push(0, Action::Recv { peer: Action::peer(peer), destination })
}

/// Sends a token once the steps `heard` are done.
fn tell(builder: &mut Builder, peer: u32, heard: impl IntoIterator<Item = StepIndex>) {
    let told = builder.push(0, Action::Send { peer: Action::peer(peer), source: Slot::Input });
    heard.into_iter().for_each(|earlier| builder.after(told, earlier));
}
