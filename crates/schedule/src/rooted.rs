//! A broadcast as a list of transfers, which run backwards as a reduce.
//!
//! Backwards, a rank collects the sums of all ranks to which it would have passed a chunk, then sends its own sum to
//! the rank from which it would have received it. Messages, bytes and rounds are the same; sent and received bytes
//! swap.

use crate::{Builder, Cost, Own, Totals};

/// One transfer of one chunk, as one of its two ranks sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) peer: u32,
    pub(crate) extent: u32,
    pub(crate) sends: bool,
}

impl Transfer {
    pub(crate) const fn send(peer: u32, extent: u32) -> Self {
        Self { peer, extent, sends: true }
    }

    pub(crate) const fn recv(peer: u32, extent: u32) -> Self {
        Self { peer, extent, sends: false }
    }
}

/// Adds the transfers in order.
pub(crate) fn broadcast(builder: &mut Builder, transfers: &[Transfer]) {
    for one in transfers {
        match one.sends {
            true => builder.send(one.peer, one.extent),
            false => builder.recv(one.peer, one.extent),
        };
    }
}

/// Adds the transfers backwards. In a group of one, the root only copies.
pub(crate) fn reduce(builder: &mut Builder, transfers: &[Transfer]) {
    backwards(builder, transfers);
    if builder.rank() == builder.root() {
        (0..builder.chunks()).for_each(|extent| builder.deliver(extent));
    }
}

/// Adds the transfers backwards, then forwards.
pub(crate) fn all_reduce(builder: &mut Builder, transfers: &[Transfer]) {
    backwards(builder, transfers);
    broadcast(builder, transfers);
    (0..builder.chunks()).for_each(|extent| builder.deliver(extent));
}

/// Adds the transfers backwards. The sum of an extent ends at the rank whose first transfer of it is a send.
fn backwards(builder: &mut Builder, transfers: &[Transfer]) {
    let mut unseen = vec![true; builder.chunks() as usize];
    let is_first = |one: &Transfer| std::mem::replace(&mut unseen[one.extent as usize], false);
    let are_first: Vec<bool> = transfers.iter().map(is_first).collect();
    for (one, is_first) in transfers.iter().zip(are_first).rev() {
        match one.sends {
            true => builder.recv_reduce(one.peer, one.extent, Own::Left, is_first),
            false => builder.send(one.peer, one.extent),
        };
    }
}

/// The cost of a reduce, from the cost of its broadcast.
pub(crate) fn reduce_cost(cost: Cost) -> Cost {
    let all = Totals { reduced: cost.all.sent, ..cost.all };
    Cost { sent: cost.received, received: cost.sent, reduced: cost.sent, all, ..cost }
}
