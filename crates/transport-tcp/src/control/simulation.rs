//! Whole jobs in one thread: the control planes and communicators of all ranks, a clock, a queue of messages, ranks
//! that die or stop, and cuts between them. The same seed gives the same run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, bounded, unbounded};
use unisono_communicator::{Certainty, Group, Result};
use unisono_engine::{Agreed, Ask, Board, CallStatus};

use super::members::{Member, Members};
use super::plane::{Action, Intervals, Plane, Presence};
use crate::links::Mail;
use crate::wire::{CommunicatorKey, Message, News, Topic};

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const INTERVALS: Intervals =
    Intervals { beat: Duration::from_millis(100), suspect: Duration::from_secs(1) };

/// The communicator of all ranks.
pub(super) const WORLD: CommunicatorKey = CommunicatorKey { id: 0, epoch: 0 };

/// How long a rank that nobody answers for keeps dialling.
const DIAL_PATIENCE: Duration = Duration::from_secs(1);

/// A small generator for delays; the seed is in every failure message.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

enum Event {
    Message(u32, Message),
    Connected(u32),
    Reset(u32),
    /// A dial to that rank has failed, which says so much.
    Absent(u32, Certainty),
    Tick,
}

/// One rank.
struct Node {
    plane: Plane,
    members: Members,
    _inbox: Receiver<Mail>,
}

/// A job.
pub(super) struct Simulation {
    pub(super) now: Instant,
    nodes: Vec<Option<Node>>,
    /// Who does nothing until when.
    pub(super) stopped: BTreeMap<u32, Instant>,
    queue: BTreeMap<(Instant, u64), (u32, Event)>,
    last_arrival: BTreeMap<(u32, u32), Instant>,
    pub(super) links: BTreeSet<(u32, u32)>,
    /// The ranks on one side of a cut, and until when nothing passes it.
    cut: Option<(BTreeSet<u32>, Instant)>,
    count: u64,
    pub(super) messages: u64,
    pub(super) random: Random,
    pub(super) heard: Vec<Vec<News>>,
    pub(super) answers: Vec<(u32, u32, CallStatus)>,
}

impl Simulation {
    /// A job on one host.
    pub(super) fn new(size: u32, seed: u64) -> Simulation {
        Simulation::on_hosts(&vec![0; size as usize], seed)
    }

    /// A job whose rank r lies on host `hosts[r]`.
    pub(super) fn on_hosts(hosts: &[u32], seed: u64) -> Simulation {
        let (now, size) = (Instant::now(), hosts.len() as u32);
        let mut simulation = Simulation {
            now,
            nodes: (0..size).map(|rank| Some(Node::new(rank, hosts, now))).collect(),
            stopped: BTreeMap::new(),
            queue: BTreeMap::new(),
            last_arrival: BTreeMap::new(),
            links: BTreeSet::new(),
            cut: None,
            count: 0,
            messages: 0,
            random: Random(seed),
            heard: vec![vec![]; size as usize],
            answers: vec![],
        };
        for rank in 0..size {
            simulation.act(rank);
            simulation.push(rank, INTERVALS.beat, Event::Tick);
        }
        simulation
    }

    /// How many ranks there were at first.
    pub(super) fn size(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Whether a rank has not died.
    pub(super) fn is_alive(&self, rank: u32) -> bool {
        self.nodes[rank as usize].is_some()
    }

    /// Does something with the plane of a rank that lives.
    pub(super) fn with_plane(&mut self, rank: u32, body: impl FnOnce(&mut Plane, Instant)) {
        let now = self.now;
        if let Some(node) = &mut self.nodes[rank as usize] {
            body(&mut node.plane, now);
        }
        self.act(rank);
    }

    /// A rank tells everybody.
    pub(super) fn publish(&mut self, rank: u32, topic: Topic) {
        self.with_plane(rank, |plane, now| plane.publish(topic, now));
    }

    /// A rank that lives asks the survivors of the world. The answer comes while the simulation runs.
    pub(super) fn agree(&mut self, rank: u32, ask: Ask) -> Receiver<Result<Agreed>> {
        let (answer, answered) = bounded(1);
        let now = self.now;
        if let Some(node) = &mut self.nodes[rank as usize] {
            let topics = node.members.agree(WORLD, ask, answer, now);
            topics.into_iter().for_each(|topic| node.plane.publish(topic, now));
        }
        self.act(rank);
        answered
    }

    fn push(&mut self, to: u32, after: Duration, event: Event) {
        self.count += 1;
        self.queue.insert((self.now + after, self.count), (to, event));
    }

    /// Messages take up to 2 ms and keep their order per pair; what meets a cut waits for its end.
    fn deliver(&mut self, from: u32, to: u32, event: Event) {
        let delay = MS * self.random.below(3) as u32;
        let passes = self.cut.as_ref().filter(|cut| cut.0.contains(&from) != cut.0.contains(&to));
        let earliest = passes.map_or(self.now, |cut| cut.1.max(self.now)) + delay;
        let arrival = earliest.max(*self.last_arrival.entry((from, to)).or_insert(self.now));
        self.last_arrival.insert((from, to), arrival);
        self.push(to, arrival - self.now, event);
    }

    fn act(&mut self, rank: u32) {
        while let Some(node) = &mut self.nodes[rank as usize] {
            let actions = node.plane.take_actions();
            if actions.is_empty() {
                return;
            }
            actions.into_iter().for_each(|action| self.on_action(rank, action));
        }
    }

    fn on_action(&mut self, rank: u32, action: Action) {
        match action {
            Action::Connect(peer) => self.connect(rank, peer),
            Action::Send(peer, message) => {
                self.messages += 1;
                self.deliver(rank, peer, Event::Message(rank, message));
            }
            Action::Happened(news) => {
                let now = self.now;
                if let Some(node) = &mut self.nodes[rank as usize] {
                    let topics = node.members.happened(&news, now);
                    topics.into_iter().for_each(|topic| node.plane.publish(topic, now));
                }
                self.heard[rank as usize].push(news);
            }
            Action::Asked { from, key, number } => {
                let status = CallStatus::Forgotten;
                self.deliver(rank, from, Event::Message(rank, Message::Answer { key, number, status }));
            }
            Action::Answered { from, status, .. } => self.answers.push((rank, from, status)),
        }
    }

    fn connect(&mut self, rank: u32, peer: u32) {
        match &self.nodes[peer as usize] {
            None => self.push(rank, MS, Event::Absent(peer, Certainty::Confirmed)),
            // Whoever takes us for dead does not answer.
            Some(node) if node.plane.presence(rank) == Presence::Lost => {
                self.push(rank, DIAL_PATIENCE, Event::Absent(peer, Certainty::Suspected));
            }
            Some(_) => {
                self.links.insert((rank.min(peer), rank.max(peer)));
                self.deliver(peer, rank, Event::Connected(peer));
                self.deliver(rank, peer, Event::Connected(rank));
            }
        }
    }

    /// A rank dies; all that it has sent arrives.
    pub(super) fn kill(&mut self, rank: u32) {
        self.nodes[rank as usize] = None;
        let (cut, kept) = self.links.iter().partition(|link| link.0 == rank || link.1 == rank);
        self.links = kept;
        let cut: BTreeSet<(u32, u32)> = cut;
        for link in cut {
            let peer = if link.0 == rank { link.1 } else { link.0 };
            self.deliver(rank, peer, Event::Reset(rank));
        }
    }

    /// A rank dies, and on every connection it is chance how much of what it has sent lately still arrives.
    pub(super) fn crash(&mut self, rank: u32) {
        let until: Vec<Instant> =
            (0..self.size()).map(|_| self.now + MS * self.random.below(3) as u32).collect();
        self.queue.retain(|(at, _), (to, event)| {
            let is_from_victim = matches!(event, Event::Message(from, _) if *from == rank);
            !is_from_victim || *at <= until[*to as usize]
        });
        self.kill(rank);
    }

    /// Nothing passes between these ranks and the others for a while; what is under way arrives.
    pub(super) fn cut_off(&mut self, side: BTreeSet<u32>, span: Duration) {
        self.cut = Some((side, self.now + span));
    }

    /// Lets time pass.
    pub(super) fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= end) {
            let ((at, _), (rank, event)) = entry.remove_entry();
            self.now = at;
            if let Some(&until) = self.stopped.get(&rank).filter(|&&until| until > at) {
                self.push(rank, until - at, event);
                continue;
            }
            self.on_event(rank, event);
        }
        self.now = end;
    }

    fn on_event(&mut self, rank: u32, event: Event) {
        let at = self.now;
        let Some(node) = &mut self.nodes[rank as usize] else { return };
        let plane = &mut node.plane;
        match event {
            Event::Message(from, message) => plane.on_message(from, message, at),
            Event::Connected(peer) => plane.on_connected(peer, at),
            Event::Reset(peer) => plane.on_disconnected(peer, Certainty::Confirmed, "closed".into(), at),
            Event::Absent(peer, certainty) => plane.on_disconnected(peer, certainty, "absent".into(), at),
            Event::Tick => {
                plane.on_tick(at);
                node.members.on_time(at);
                self.push(rank, INTERVALS.beat, Event::Tick);
            }
        }
        self.act(rank);
    }

    /// Whom a rank has heard to be lost.
    pub(super) fn lost(&self, rank: u32) -> BTreeSet<u32> {
        let lost = |news: &News| match news.topic {
            Topic::Lost { rank, .. } => Some(rank),
            Topic::Revoked { .. }
            | Topic::Closed { .. }
            | Topic::Goodbye
            | Topic::Ballot { .. }
            | Topic::Decision { .. } => None,
        };
        self.heard[rank as usize].iter().filter_map(lost).collect()
    }

    /// Fails unless exactly these are lost, on every rank but some.
    pub(super) fn assert_lost(&self, expected: &[u32], except: &[u32], what: &str) {
        let expected: BTreeSet<u32> = expected.iter().copied().collect();
        for rank in (0..self.size()).filter(|rank| !except.contains(rank)) {
            assert_eq!(self.lost(rank), expected, "{what}: on rank {rank} of {}", self.size());
        }
    }
}

impl Node {
    fn new(rank: u32, hosts: &[u32], now: Instant) -> Node {
        let size = hosts.len() as u32;
        let board = Arc::new(Board::new(rank, size));
        let group = Group::new(rank, (0..size).collect(), hosts.into(), 0);
        let (outbox, inbox) = unbounded();
        let mut members = Members::default();
        members.add(Member::new(WORLD, group, board, (outbox, Arc::new(|| {}))), &[], now);
        Node { plane: Plane::new((rank, size), INTERVALS, now), members, _inbox: inbox }
    }
}
