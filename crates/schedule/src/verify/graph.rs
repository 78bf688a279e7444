//! The graph of one piece of every step of all ranks, and the proof that this suffices for all counts and piece sizes.
//!
//! A node is a copy, or a transfer: a send with its receive. A node waits for the dependencies of its steps, and for
//! the previous transfer on its link and direction. A cycle is a deadlock, with one exception.
//!
//! # Soft groups
//! The exception is a rank that receives into the bytes from which it sends, as in an exchange in place. Such a receive
//! waits for its rank's *send* byte by byte, because both have one extent. This is a soft wait. A strongly connected
//! component is a soft group if all waits inside it are soft; any other cycle is refused. All transfers of a soft group
//! have one extent: both ends of a transfer have the same extent, and so have both steps of a soft wait.
//!
//! A link may keep the bytes of a send until the peer has received them. In a soft group, every receive would then wait
//! for the receives of its peers. So the sends on which soft waits depend must be buffered
//! ([`Schedule::is_buffered`](crate::Schedule::is_buffered)): links copy their bytes.
//!
//! # Why no event waits for ever
//! The proof. An extent has any number of pieces; an empty extent counts as one piece, piece 0. An event is a piece of
//! a node. The position of a node is its place in the order of [`Graph::order`]; nodes of a soft group share a
//! position. Order the events by (piece, position). Everything that piece k of a node waits for comes earlier in this
//! order:
//! * *Itself*: its own piece k - 1 has a lower piece.
//! * *Link order*: a direction of a link serves piece k of its steps in list order, after all pieces k - 1. The earlier
//!   events have a lower piece, or the same piece and a lower position, because edges join neighbours on a link. Both
//!   ends agree on this order, because matched steps have the same extent.
//! * *Dependencies*: a step waits for piece min(k, n - 1) of a step with n pieces, which is piece k or lower. The
//!   position is lower, because dependencies are edges, or equal within a soft group.
//! * *Empty steps*: they wait for piece 0 of their dependencies, which is the previous case with k = 0.
//! * *Windows*: a write to scratch waits for pieces up to k - 2 of the other steps on the chunk. These pieces are
//!   lower, at any position. So windows need no edges.
//! * *Late releases*: a send has finished a piece when its link has released the bytes, at the latest when the peer has
//!   received them. Links release in order. So a release waits for the receiving half of its own event and for earlier
//!   events of its link; in a soft group, only for the latter.
//! * *Headers*: the first receive of a link waits for the header, which comes with the first send of the link, in the
//!   same event. An empty transfer has two halves: a send that ends with its header, and a receive that needs the
//!   header. This wait stays inside the node, and each half waits for no more than the node does.
//!
//! Suppose that nothing can move. Take the first event in this order that has not finished: everything it waits for has
//! finished. So its link carries nothing older that is unread or unreleased, and both ends are at this event. A copy or
//! an empty transfer can then go on. Any other transfer outside a soft group can send as long as its link takes bytes,
//! receive arrived bytes, and release received bytes. In a soft group every transfer may send, and its bytes are
//! released once the link has taken them. Take the transfer of the group whose receiver has stored the least. The sends
//! on that rank are at least one element ahead of it, or have ended. So is the send at the other end, because a link
//! holds at least a header and an element. So the receiver may store that element: something can move after all.
//!
//! The proof assumes of each link direction that it holds a header and one unread element, and that it releases
//! received bytes without further help from the peer. It also assumes that an element fits into a piece and into one
//! receive; the engine checks both. `races` proves that the bytes are right as well.

use super::case::{Case, Checked, StepNumber};
use super::counterexample::{Fault, StepPlace};
use super::matching::Matching;
use crate::Action;

/// Marks a soft wait: the predecessor sends from the bytes into which the node receives.
const SOFT: u32 = 1 << 31;
/// No node.
const NONE: u32 = u32::MAX;

/// The nodes, and the nodes that each waits for.
pub(super) struct Graph<'a> {
    case: &'a Case<'a>,
    /// The node of each step; the two steps of a transfer share one.
    node_of: Vec<u32>,
    /// The step of each node; of a transfer, the send.
    step_of: Vec<StepNumber>,
    /// The place where each node's predecessors begin in `predecessors`.
    starts: Vec<u32>,
    predecessors: Vec<u32>,
}

/// Copies and sends, which stand for their transfers, in an order in which they can run.
pub(super) struct Order {
    pub(super) steps: Vec<StepNumber>,
    /// The start of each group of steps that run together, and the end of the last group.
    pub(super) groups: Vec<u32>,
}

impl Order {
    /// The groups, in order.
    pub(super) fn groups(&self) -> impl Iterator<Item = &[StepNumber]> {
        self.groups.windows(2).map(|group| &self.steps[group[0] as usize..group[1] as usize])
    }
}

impl<'a> Graph<'a> {
    pub(super) fn new(case: &'a Case<'a>, matching: &Matching) -> Self {
        let (mut node_of, mut step_of) = (vec![NONE; case.steps_len()], Vec::new());
        for step in case.steps().filter(|step| matching.begins(case, *step)) {
            for side in [Some(step), matching.partner(step)].into_iter().flatten() {
                node_of[side.as_usize()] = step_of.len() as u32;
            }
            step_of.push(step);
        }
        let (starts, predecessors) = (vec![0], Vec::new());
        let mut made = Self { case, node_of, step_of, starts, predecessors };
        made.connect(matching);
        made
    }

    fn nodes(&self) -> u32 {
        self.step_of.len() as u32
    }

    fn connect(&mut self, matching: &Matching) {
        let before = self.link_order(matching);
        for node in 0..self.nodes() {
            let step = self.step_of[node as usize];
            self.predecessors.extend(Some(before[node as usize]).filter(|before| *before != NONE));
            for side in [Some(step), matching.partner(step)].into_iter().flatten() {
                self.depend(side);
            }
            self.starts.push(self.predecessors.len() as u32);
        }
    }

    /// Adds the declared dependencies of `side`.
    fn depend(&mut self, side: StepNumber) {
        let case = self.case;
        let step = case.step(side);
        let receives = matches!(step.action, Action::Recv { .. } | Action::RecvReduce { .. });
        for dependency in case.dependencies(side) {
            let other = case.step(dependency);
            let sent = matches!(other.action, Action::Send { .. });
            let soft = receives && sent && other.extent == step.extent;
            let node = self.node_of[dependency.as_usize()];
            self.predecessors.push(node | if soft { SOFT } else { 0 });
        }
    }

    /// For each transfer, the previous one on its link and direction.
    fn link_order(&self, matching: &Matching) -> Vec<u32> {
        let mut before = vec![NONE; self.step_of.len()];
        for sends in matching.links() {
            for pair in sends.windows(2) {
                before[self.node_of[pair[1].as_usize()] as usize] = self.node_of[pair[0].as_usize()];
            }
        }
        before
    }

    fn predecessors(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.predecessors[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// An order in which the nodes can run, or a deadlock.
    pub(super) fn order(&self) -> Checked<Order> {
        let mut search = Search::new(self.step_of.len());
        for node in 0..self.nodes() {
            search.visit(node, |node| self.predecessors(node));
        }
        for group in search.groups.windows(2) {
            let members = &search.order[group[0] as usize..group[1] as usize];
            if members.len() > 1 {
                self.must_be_soft(members, &search.component)?;
            }
        }
        let steps = search.order.into_iter().map(|node| self.step_of[node as usize]).collect();
        Ok(Order { steps, groups: search.groups })
    }

    /// Checks a strongly connected component: all waits inside must be soft, and for buffered sends.
    fn must_be_soft(&self, members: &[u32], component: &[u32]) -> Checked<()> {
        let inside = |node: u32| component[node as usize] == component[members[0] as usize];
        let mut unbuffered = None;
        for &node in members {
            for &predecessor in self.predecessors(node) {
                let earlier = predecessor & !SOFT;
                if !inside(earlier) {
                    continue;
                }
                if predecessor & SOFT == 0 {
                    return Err(Fault::Deadlock { cycle: self.cycle(node, earlier, &inside) });
                }
                if !self.case.is_buffered(self.step_of[earlier as usize]) {
                    unbuffered = unbuffered.or(Some((node, earlier)));
                }
            }
        }
        match unbuffered {
            Some((node, earlier)) => Err(Fault::Unbuffered { cycle: self.cycle(node, earlier, &inside) }),
            None => Ok(()),
        }
    }

    /// The shortest cycle in which `node` waits for `predecessor`.
    fn cycle(&self, node: u32, predecessor: u32, inside: &dyn Fn(u32) -> bool) -> Vec<StepPlace> {
        let mut reached_from = vec![NONE; self.step_of.len()];
        let mut queue = std::collections::VecDeque::from([predecessor]);
        while let Some(from) = queue.pop_front() {
            if from == node {
                break;
            }
            for to in self.predecessors(from).iter().map(|to| to & !SOFT).filter(|to| inside(*to)) {
                if reached_from[to as usize] == NONE && to != predecessor {
                    reached_from[to as usize] = from;
                    queue.push_back(to);
                }
            }
        }
        let mut path = vec![node];
        while let Some(last) = path.last().filter(|last| **last != predecessor) {
            path.push(reached_from[*last as usize]);
        }
        // `path` runs against the direction of waiting. Reversed, each node waits for the next.
        path.reverse();
        let place = |node: u32| self.case.place(self.step_of[node as usize]);
        path.into_iter().map(place).collect()
    }
}

/// Tarjan's algorithm for strongly connected components, without recursion. Predecessors come out first.
struct Search {
    index: Vec<u32>,
    low: Vec<u32>,
    component: Vec<u32>,
    stack: Vec<u32>,
    path: Vec<(u32, u32)>,
    order: Vec<u32>,
    groups: Vec<u32>,
    next: u32,
}

impl Search {
    fn new(nodes: usize) -> Self {
        let none = vec![NONE; nodes];
        let (low, component) = (none.clone(), none.clone());
        let (stack, path, order) = (Vec::new(), Vec::new(), Vec::with_capacity(nodes));
        Self { index: none, low, component, stack, path, order, groups: vec![0], next: 0 }
    }

    fn begin(&mut self, node: u32) {
        self.index[node as usize] = self.next;
        self.low[node as usize] = self.next;
        self.next += 1;
        self.stack.push(node);
        self.path.push((node, 0));
    }

    fn visit<'g>(&mut self, start: u32, predecessors: impl Fn(u32) -> &'g [u32]) {
        if self.index[start as usize] != NONE {
            return;
        }
        self.begin(start);
        while let Some((node, tried)) = self.path.last_mut() {
            let (node, nth) = (*node, *tried as usize);
            if let Some(other) = predecessors(node).get(nth) {
                *tried += 1;
                let other = other & !SOFT;
                if self.index[other as usize] == NONE {
                    self.begin(other);
                } else if self.component[other as usize] == NONE {
                    self.low[node as usize] = self.low[node as usize].min(self.index[other as usize]);
                }
                continue;
            }
            self.path.pop();
            if let Some((parent, _)) = self.path.last() {
                self.low[*parent as usize] = self.low[*parent as usize].min(self.low[node as usize]);
            }
            if self.low[node as usize] == self.index[node as usize] {
                self.leave(node);
            }
        }
    }

    /// Takes the finished component off the stack: everything from its first node `root` to the top.
    fn leave(&mut self, root: u32) {
        let component = self.groups.len() as u32;
        while let Some(node) = self.stack.pop() {
            self.component[node as usize] = component;
            self.order.push(node);
            if node == root {
                break;
            }
        }
        self.groups.push(self.order.len() as u32);
    }
}
