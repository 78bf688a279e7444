//! The graph of events of all ranks, piece by piece, and an order in which it can be run.
//!
//! An event is one piece of a transfer, sending and receiving at once, or of a copy. It waits for the pieces that
//! its steps depend on, for the transfer before it on its link and direction, and, when it writes scratch, for
//! everybody who used that half of the window before. A cycle would be a deadlock.
//!
//! One kind of cycle is none: a rank that receives where it sends from, as in an exchange in place. Its receive
//! waits for its own *send* only, and what is sent is sent as soon as the link takes it, received or not. A group of
//! transfers whose mutual waits are all of this kind, over one extent, runs bit by bit: everybody sends an element,
//! then everybody receives one. So what is proved is: no deadlock if each link and direction holds one element.

use super::case::{Case, Checked};
use super::counterexample::{Event, Fault};
use super::matching::{ALONE, Matching};
use crate::{Action, Slot};

/// Marks a predecessor that is a send from the bytes that the event receives to.
const SOFT: u32 = 1 << 31;
/// No event.
const NONE: u32 = u32::MAX;

/// The events of a case when extent e has `pieces[e]` pieces.
pub(super) struct Graph<'a> {
    case: &'a Case<'a>,
    matching: &'a Matching,
    pub(super) pieces: &'a [u32],
    /// The first event of each step; a transfer's two steps share theirs.
    first_event: Vec<u32>,
    /// The step, of a transfer the sending one, of each event. Joins come after the events and are not here.
    pub(super) step_of: Vec<u32>,
    /// Where the predecessors of each node begin in the list.
    starts: Vec<u32>,
    predecessors: Vec<u32>,
}

/// Events in an order in which they can run; those with one group number run together.
pub(super) struct Order {
    pub(super) events: Vec<u32>,
    /// Where each group of events begins, and the end.
    pub(super) groups: Vec<u32>,
}

impl<'a> Graph<'a> {
    pub(super) fn new(case: &'a Case<'a>, matching: &'a Matching, pieces: &'a [u32]) -> Self {
        let (mut first_event, mut step_of) = (vec![NONE; case.steps() as usize], Vec::new());
        for step in 0..case.steps() {
            let (partner, pieces) =
                (matching.partner[step as usize], pieces[case.step(step).extent as usize]);
            let first = step_of.len() as u32;
            if pieces == 0 {
                // Without bytes nothing is transferred, but each end is done only once what it waits for is.
                step_of.push(step);
                first_event[step as usize] = first;
            } else if matching.begins(case, step) {
                step_of.resize(step_of.len() + pieces as usize, step);
                first_event[step as usize] = first;
                if partner != ALONE {
                    first_event[partner as usize] = first;
                }
            }
        }
        let (starts, predecessors) = (vec![0], Vec::new());
        let mut made = Self { case, matching, pieces, first_event, step_of, starts, predecessors };
        made.connect();
        made
    }

    /// The number of events.
    pub(super) fn events(&self) -> u32 {
        self.step_of.len() as u32
    }

    /// Which piece an event is.
    pub(super) fn piece(&self, event: u32) -> u32 {
        event - self.first_event[self.step_of[event as usize] as usize]
    }

    fn pieces_of(&self, step: u32) -> u32 {
        self.pieces[self.case.step(step).extent as usize]
    }

    /// The event of `step` that piece `piece` of another step waits for.
    fn event(&self, step: u32, piece: u32) -> u32 {
        self.first_event[step as usize] + piece.min(self.pieces_of(step).saturating_sub(1))
    }

    fn connect(&mut self) {
        let before = self.link_order();
        let (window_of, joins) = self.windows();
        for event in 0..self.events() {
            let step = self.step_of[event as usize];
            let (piece, pieces) = (self.piece(event), self.pieces_of(step));
            let partner = if pieces == 0 { ALONE } else { self.matching.partner[step as usize] };
            let [sender, receiver] = before[event as usize];
            let receiver = Some(receiver).filter(|receiver| *receiver != sender);
            let turns = [Some(sender), receiver].into_iter().flatten().filter(|earlier| *earlier != NONE);
            self.predecessors.extend(turns);
            if piece > 0 && partner == ALONE {
                self.predecessors.push(event - 1);
            }
            for side in [step, partner].into_iter().filter(|side| *side != ALONE) {
                self.depend(side, piece, pieces);
                let writes = self.case.step(side).action.writes();
                if let (Some(Slot::Scratch(scratch)), true) = (writes, piece >= 2) {
                    let window = window_of[self.case.rank_of(side) as usize] + scratch as usize;
                    self.predecessors.push(joins[window].1 + piece - 2);
                }
            }
            self.starts.push(self.predecessors.len() as u32);
        }
        self.join(&joins);
    }

    /// Adds what piece `piece` of `side` waits for by its declared dependencies.
    fn depend(&mut self, side: u32, piece: u32, pieces: u32) {
        let case = self.case;
        let (first, step) = (case.first(case.rank_of(side)), case.step(side));
        let receives = matches!(step.action, Action::Recv { .. } | Action::RecvReduce { .. });
        // Without bytes, a step waits until the others are done, to the last piece.
        let piece = if pieces == 0 { u32::MAX } else { piece };
        for dependency in case.dependencies(side) {
            let earlier = first + dependency;
            let other = case.step(earlier);
            let sent = matches!(other.action, Action::Send { .. });
            let soft = receives && sent && other.extent == step.extent;
            self.predecessors.push(self.event(earlier, piece) | if soft { SOFT } else { 0 });
        }
    }

    /// The event before each event on its link and direction, at the sender and at the receiver: pieces 0 in list
    /// order, then pieces 1, and so on. A step without bytes has its turn among the pieces 0 of each end.
    fn link_order(&self) -> Vec<[u32; 2]> {
        let mut before = vec![[NONE; 2]; self.step_of.len()];
        for link in self.matching.starts.windows(2) {
            let sends = &self.matching.sends[link[0] as usize..link[1] as usize];
            let most = sends.iter().map(|send| self.pieces_of(*send)).max().unwrap_or(0).max(1);
            let mut last = [NONE; 2];
            for piece in 0..most {
                for send in sends.iter().filter(|send| piece < self.pieces_of(**send).max(1)) {
                    let ends = [*send, self.matching.partner[*send as usize]];
                    let events = ends.map(|step| self.event(step, piece));
                    for (end, event) in events.into_iter().enumerate() {
                        before[event as usize][end] = last[end];
                    }
                    last = events;
                }
            }
        }
        before
    }

    /// Per rank the index of its first window; per window (rank, first join node, number of joins).
    ///
    /// Join k of a window comes after piece k of every step that touches the scratch chunk.
    fn windows(&self) -> (Vec<usize>, Vec<(u32, u32, u32)>) {
        let (mut window_of, mut joins, mut next) = (Vec::new(), Vec::new(), self.events());
        for (rank, schedule) in (0..).zip(self.case.schedules) {
            window_of.push(joins.len());
            for scratch in 0..schedule.scratch_chunks {
                let first = self.case.first(rank);
                let touching = schedule.scratch_steps(scratch).iter();
                let most = touching.map(|step| self.pieces_of(first + step)).max().unwrap_or(0);
                let count = most.saturating_sub(2);
                joins.push((rank, next, count));
                next += count;
            }
        }
        (window_of, joins)
    }

    /// Adds the predecessors of the join nodes.
    fn join(&mut self, joins: &[(u32, u32, u32)]) {
        let (mut rank_before, mut scratch) = (NONE, 0);
        for (rank, _, count) in joins {
            scratch = if *rank == rank_before { scratch + 1 } else { 0 };
            rank_before = *rank;
            let schedule = &self.case.schedules[*rank as usize];
            for piece in 0..*count {
                for step in schedule.scratch_steps(scratch) {
                    let event = self.event(self.case.first(*rank) + step, piece);
                    self.predecessors.push(event);
                }
                self.starts.push(self.predecessors.len() as u32);
            }
        }
    }

    fn predecessors(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.predecessors[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// An order of the events, or a deadlock.
    pub(super) fn order(&self) -> Checked<Order> {
        let nodes = self.starts.len() - 1;
        let mut search = Search::new(nodes);
        for node in 0..nodes as u32 {
            search.visit(node, |node| self.predecessors(node));
        }
        let mut order = Order { events: Vec::with_capacity(nodes), groups: vec![0] };
        for group in search.groups.windows(2) {
            let members = &search.order[group[0] as usize..group[1] as usize];
            if members.len() > 1 || self.predecessors(members[0]).contains(&members[0]) {
                self.must_be_soft(members, &search.component)?;
            }
            let events = members.iter().filter(|node| **node < self.events());
            order.events.extend(events);
            if order.groups.last() != Some(&(order.events.len() as u32)) {
                order.groups.push(order.events.len() as u32);
            }
        }
        Ok(order)
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
        let mut reached_from = vec![NONE; self.starts.len() - 1];
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
        let events = path.into_iter().filter(|node| *node < self.events());
        let event =
            |event| Event { place: self.case.place(self.step_of[event as usize]), piece: self.piece(event) };
        Fault::Deadlock { cycle: events.map(event).collect() }
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
