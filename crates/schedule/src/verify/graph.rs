//! The graph of one piece of every step of all ranks, and the proof that it speaks for all counts and piece sizes.
//!
//! A node is a transfer, its send and its receive together, or a copy. It waits for what both of its steps depend
//! on and for the transfer before it on its link and direction. A cycle would be a deadlock.
//!
//! # Soft groups
//! One kind of cycle is none: a rank that receives where it sends from, as in an exchange in place. Its receive
//! waits for its own *send* only, and byte by byte, since both have one extent. A strongly connected part of the
//! graph is a soft group when all waits inside it are of this kind; anything else is refused. All transfers of a
//! soft group have one extent: the two ends of a transfer do, and a soft wait joins steps of one extent.
//!
//! # Why nobody waits for ever
//! Let an extent have any number of pieces, and none if it is empty; a step of an empty extent counts as piece 0.
//! The events of a call are the pieces of the nodes. Order them by (piece, position), where a position is the place
//! of a node in the order that [`Graph::order`] finds; a soft group has one position. Everything that piece k of a
//! node waits for comes earlier in this order:
//! * *Itself*: its own piece k - 1 has a lower piece.
//! * *Link order*: a direction serves piece k of its steps in list order, behind all pieces k - 1. The events before
//!   this one have a lower piece, or this piece and a lower position, because neighbours on a link are joined here.
//!   Both ends agree on it, because matched steps have one extent.
//! * *Dependencies*: of a step with n pieces it waits for piece min(k, n - 1), which is k or lower; its position is
//!   lower, because dependencies are edges here, or the same within a soft group.
//! * *Empty steps*: they wait for piece 0 of what they depend on, which is the line above with k = 0.
//! * *Windows*: a write to scratch waits for pieces k - 2 and lower of all other steps on the chunk: a lower piece,
//!   wherever these steps stand. So windows need no edges here.
//! * *Headers*: the first receive of a link waits for the header, which the first send of the link carries. Both are
//!   in one event. An empty transfer is two halves in the engine, a send that ends with its header and a receive
//!   that needs it: this wait stays inside the node, and each half waits for less than the node does.
//!
//! Suppose nothing can move and take the first event in this order that is not over. All it waits for is over, so its
//! links hold nothing older and both ends have it next. A copy can then go on, an empty transfer too, and any other
//! sends while its link takes bytes and receives what came. In a soft group every transfer may send. Take the one
//! whose receiver has stored least: the sends on that receiver's rank are at least one element further, or at their
//! end, and so is the one at the other end, if a link holds a header and an element. So it may store that element,
//! and something can move after all.
//!
//! This needs of a link that each direction holds a header and one element unread, and of the engine that an element
//! is not longer than a piece and than what one receive may take; both are checked there. That the bytes are right as
//! well is proved in `races`.

use super::case::{Case, Checked, StepNumber};
use super::counterexample::Fault;
use super::matching::Matching;
use crate::Action;

/// Marks a predecessor that is a send from the bytes that the node receives to.
const SOFT: u32 = 1 << 31;
/// No node.
const NONE: u32 = u32::MAX;

/// What each node waits for.
pub(super) struct Graph<'a> {
    case: &'a Case<'a>,
    /// The node of each step; a transfer's two steps share theirs.
    node_of: Vec<u32>,
    /// The step, of a transfer the sending one, of each node.
    step_of: Vec<StepNumber>,
    /// Where the predecessors of each node begin in the list.
    starts: Vec<u32>,
    predecessors: Vec<u32>,
}

/// Sends, each standing for its transfer, and copies, in an order in which they can run.
pub(super) struct Order {
    pub(super) steps: Vec<StepNumber>,
    /// Where each group of steps that run together begins, and the end.
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

    /// Adds what `side` waits for by its declared dependencies.
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

    /// The transfer before each one on its link and direction.
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

    /// An order of the nodes, or a deadlock.
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

    /// Members of a cycle may only wait for sends from the bytes that they receive to.
    fn must_be_soft(&self, members: &[u32], component: &[u32]) -> Checked<()> {
        let inside = |node: u32| component[node as usize] == component[members[0] as usize];
        for node in members {
            for predecessor in self.predecessors(*node) {
                if predecessor & SOFT == 0 && inside(*predecessor) {
                    return Err(self.deadlock(*node, *predecessor, &inside));
                }
            }
        }
        Ok(())
    }

    /// The shortest cycle in which `node` waits for `predecessor`.
    fn deadlock(&self, node: u32, predecessor: u32, inside: &dyn Fn(u32) -> bool) -> Fault {
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
        // `path` runs against the waits: node ... predecessor; turned around, each waits for the next.
        path.reverse();
        let place = |node: u32| self.case.place(self.step_of[node as usize]);
        Fault::Deadlock { cycle: path.into_iter().map(place).collect() }
    }
}

/// Tarjan's search for strongly connected components, without recursion. Predecessors come out first.
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

    fn enter(&mut self, node: u32) {
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
        self.enter(start);
        while let Some((node, tried)) = self.path.last_mut() {
            let (node, nth) = (*node, *tried as usize);
            if let Some(other) = predecessors(node).get(nth) {
                *tried += 1;
                let other = other & !SOFT;
                if self.index[other as usize] == NONE {
                    self.enter(other);
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

    /// `root` is the first node of a finished component: everything above it on the stack.
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
