//! Whole jobs in one thread: the control planes and communicators of all ranks, their clocks, a queue of messages,
//! ranks that die or stop, and network partitions between them (cuts). The same seed gives the same run. `job` adds the
//! engine.

mod clock;
mod connections;
pub(super) mod departure;
mod driver;
mod faults;
pub(super) mod job;
pub(super) mod links;
pub(super) mod pipe;
pub(super) mod program;

use clock::Clock;
use connections::{ConnectionEvent, SideIndex, SimulatedConnection};
pub(super) use faults::Cut;
use job::Outside;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use unisono_backend::{Agreed, Ask, Board, CallStatus, Waker};
use unisono_communicator::{ClockOffset, Error, Group, JobRank, Result};

use super::hosts::Hosts;
use super::intervals::Intervals;
use super::local_communicator::LocalCommunicator;
use super::slots::Slot;
use super::store::{StoreCall, StoreReply};
use super::wire::{CommunicatorKey, News, Topic};
use super::{
    Caller, ConnectionNumber, ControlPlane, DialFailure, DialTimeouts, Effect, Plane, Presence, Request,
};

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const INTERVALS: Intervals =
    Intervals { beat: Duration::from_millis(100), suspect: Duration::from_secs(1) };

/// Two patiences of the detector, with two heartbeats each.
pub(super) const TWO_PATIENCES: Duration = Duration::from_millis(2400);

/// The communicator of all ranks.
pub(super) const WORLD: CommunicatorKey = CommunicatorKey { id: 0, epoch: 0 };

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

enum SimulatedEvent {
    /// Something happens on this rank's side of a connection.
    Connection(SideIndex, ConnectionEvent),
    /// This rank dials for a connection, and each part of the attempt may take so long.
    Dial(Slot, Duration),
    /// A dial has failed.
    DialFailed(Slot, DialFailure),
    /// The process of that rank, on the same host, has ended.
    ProcessEnded(u32),
    Tick,
    /// An event that does not concern the control planes.
    Outside(Outside),
}

impl SimulatedEvent {
    /// Whether the event waits while its rank is stopped. The kernel's work goes on.
    fn needs_its_rank(&self) -> bool {
        match self {
            SimulatedEvent::Connection(..)
            | SimulatedEvent::Dial(..)
            | SimulatedEvent::DialFailed(..)
            | SimulatedEvent::ProcessEnded(_)
            | SimulatedEvent::Tick => true,
            SimulatedEvent::Outside(outside) => outside.needs_its_rank(),
        }
    }

    fn is_message(&self) -> bool {
        matches!(self, SimulatedEvent::Connection(_, ConnectionEvent::Message(_)))
    }
}

/// One rank.
struct SimulatedRank {
    control: ControlPlane,
    clock: Clock,
}

/// An engine's ends of the channels to its control thread.
pub(super) struct EngineSide {
    pub(super) not_connected: Sender<Error>,
    pub(super) waker: Waker,
}

/// A job.
pub(super) struct Simulation {
    pub(super) now: Instant,
    start: Instant,
    hosts: Hosts,
    nodes: Vec<Option<SimulatedRank>>,
    /// By rank. Communicators without an engine have none.
    pub(super) engines: BTreeMap<(u32, CommunicatorKey), EngineSide>,
    agreeing: BTreeMap<Caller, Sender<Result<Agreed>>>,
    closing: BTreeMap<Caller, Sender<Result<()>>>,
    storing: BTreeMap<Caller, Sender<Result<StoreReply>>>,
    callers: u64,
    /// The ranks that do nothing, and until when.
    stopped: BTreeMap<u32, Instant>,
    /// By time; with `is_measured` then by rank; then by when it was scheduled.
    queue: BTreeMap<(Instant, u32, u64), (u32, SimulatedEvent)>,
    connections: Vec<SimulatedConnection>,
    numbers: BTreeMap<(u32, ConnectionNumber), SideIndex>,
    /// The side of the control connection on which a rank sends to another one.
    open: BTreeMap<(u32, u32), SideIndex>,
    /// The number of messages that have been sent, and the bits that change in later messages.
    sent: u64,
    flips: BTreeMap<u64, u64>,
    /// The ranks on one side of a cut, until when it lasts, and its kind.
    cut: Option<(BTreeSet<u32>, Instant, Cut)>,
    count: u64,
    pub(super) messages: u64,
    pub(super) random: Random,
    pub(super) heard: Vec<Vec<News>>,
    /// Whether this is a measurement with many ranks. Then `heard` stays empty, since it would take gigabytes, and the
    /// messages of one moment to one rank follow each other, so that the rank takes them together.
    pub(super) is_measured: bool,
    pub(super) answers: Vec<(u32, u32, CallStatus)>,
    /// The last measurement of each rank's clock by another rank.
    pub(super) offsets: BTreeMap<(u32, JobRank), ClockOffset>,
}

impl Simulation {
    /// A job on one host.
    pub(super) fn new(size: u32, seed: u64) -> Simulation {
        Simulation::on_hosts(&vec![0; size as usize], seed)
    }

    /// A job whose rank r lies on host `hosts[r]`, and in which every rank has the communicator of all of them.
    pub(super) fn on_hosts(hosts: &[u32], seed: u64) -> Simulation {
        let mut simulation = Simulation::of_planes(hosts, seed, |_, start| Clock::exact(start));
        for rank in 0..simulation.size() {
            let group = Group::world_on(rank, hosts.into());
            let board = Arc::new(Board::new(group.own_rank(), group.size()));
            let communicator = LocalCommunicator::new(WORLD, group, board);
            simulation.request(rank, Request::Register(Box::new(communicator)));
        }
        simulation
    }

    /// A job without communicators, whose clocks differ: each began up to an hour before the others, and gains or
    /// loses up to so many nanoseconds in a millisecond.
    pub(super) fn skewed(hosts: &[u32], drift_max: u32, seed: u64) -> Simulation {
        Simulation::of_planes(hosts, seed, |random, start| Clock {
            start,
            ahead: MS * random.below(3_600_000) as u32,
            nanos_per_ms: 1_000_000 - drift_max + random.below(u64::from(2 * drift_max) + 1) as u32,
        })
    }

    fn of_planes(hosts: &[u32], seed: u64, clock: impl Fn(&mut Random, Instant) -> Clock) -> Simulation {
        let (now, mut random) = (Instant::now(), Random(seed));
        let (size, hosts) = (hosts.len() as u32, Hosts::new(hosts.into()));
        let mut simulation = Simulation {
            now,
            start: now,
            nodes: (0..size)
                .map(|rank| Some(SimulatedRank::new(rank, &hosts, clock(&mut random, now))))
                .collect(),
            hosts,
            engines: BTreeMap::new(),
            agreeing: BTreeMap::new(),
            closing: BTreeMap::new(),
            storing: BTreeMap::new(),
            callers: 0,
            stopped: BTreeMap::new(),
            queue: BTreeMap::new(),
            connections: vec![],
            numbers: BTreeMap::new(),
            open: BTreeMap::new(),
            sent: 0,
            flips: BTreeMap::new(),
            cut: None,
            count: 0,
            messages: 0,
            random,
            heard: vec![vec![]; size as usize],
            is_measured: false,
            answers: vec![],
            offsets: BTreeMap::new(),
        };
        for rank in 0..size {
            simulation.act(rank);
            simulation.push(rank, INTERVALS.beat, SimulatedEvent::Tick);
        }
        simulation
    }

    /// The number of ranks at first.
    pub(super) fn size(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Whether a rank has not died.
    pub(super) fn is_alive(&self, rank: u32) -> bool {
        self.nodes[rank as usize].is_some()
    }

    /// Calls `body` with the plane of a rank that lives.
    pub(super) fn with_plane(&mut self, rank: u32, body: impl FnOnce(&mut Plane, Instant)) {
        self.with_control(rank, |control, now| body(&mut control.plane, now));
    }

    /// Calls `body` with the control plane of a rank that lives.
    pub(super) fn with_control(&mut self, rank: u32, body: impl FnOnce(&mut ControlPlane, Instant)) {
        self.with_node(rank, body);
        self.act(rank);
    }

    /// As [`Simulation::with_control`]; the caller carries out the effects.
    fn with_node(&mut self, rank: u32, body: impl FnOnce(&mut ControlPlane, Instant)) {
        let now = self.now;
        if let Some(SimulatedRank { control, clock }) = &mut self.nodes[rank as usize] {
            body(control, clock.shows(now));
        }
    }

    /// An engine of a rank that lives asks for something.
    pub(super) fn request(&mut self, rank: u32, request: Request) {
        self.with_control(rank, |control, now| control.request(request, now));
    }

    /// The knowledge of a live rank about another one.
    pub(super) fn presence(&self, rank: u32, other: u32) -> Presence {
        self.nodes[rank as usize]
            .as_ref()
            .map_or(Presence::Lost, |node| node.control.plane.presence(JobRank::new(other)))
    }

    /// Whether a rank has every connection that it wants, or has died.
    pub(super) fn is_connected(&self, rank: u32) -> bool {
        self.nodes[rank as usize].as_ref().is_none_or(|node| node.control.plane.is_connected())
    }

    /// The clock of a rank that lives.
    pub(super) fn clock(&self, rank: u32) -> Clock {
        self.nodes[rank as usize].as_ref().map_or(Clock::exact(self.start), |node| node.clock)
    }

    /// A rank publishes a topic to all.
    pub(super) fn publish(&mut self, rank: u32, topic: Topic) {
        self.with_plane(rank, |plane, now| plane.publish(topic, now));
    }

    /// A rank that lives asks the survivors of the world. The answer comes while the simulation runs.
    pub(super) fn agree(&mut self, rank: u32, ask: Ask) -> Receiver<Result<Agreed>> {
        let (caller, answered) = self.agreeing();
        self.request(rank, Request::Agree { key: WORLD, ask, caller });
        answered
    }

    /// A caller that will wait for an agreement.
    pub(super) fn agreeing(&mut self) -> (Caller, Receiver<Result<Agreed>>) {
        let (answer, answered) = bounded(1);
        let caller = self.caller();
        self.agreeing.insert(caller, answer);
        (caller, answered)
    }

    /// A caller that will wait in its close.
    pub(super) fn closing(&mut self) -> (Caller, Receiver<Result<()>>) {
        let (answer, answered) = bounded(1);
        let caller = self.caller();
        self.closing.insert(caller, answer);
        (caller, answered)
    }

    /// A rank that lives calls a store. The answer comes while the simulation runs.
    pub(super) fn call_store(&mut self, rank: u32, call: StoreCall) -> Receiver<Result<StoreReply>> {
        let (answer, answered) = bounded(1);
        let caller = self.caller();
        self.storing.insert(caller, answer);
        self.request(rank, Request::Store { call: Box::new(call), caller });
        answered
    }

    fn caller(&mut self) -> Caller {
        self.callers += 1;
        Caller(self.callers)
    }

    /// Schedules an event at a rank, outside of its control plane.
    pub(super) fn schedule(&mut self, rank: u32, after: Duration, outside: Outside) {
        self.push(rank, after, SimulatedEvent::Outside(outside));
    }

    fn push(&mut self, to: u32, after: Duration, event: SimulatedEvent) {
        self.count += 1;
        let rank = if self.is_measured { to } else { 0 };
        self.queue.insert((self.now + after, rank, self.count), (to, event));
    }

    /// Carries out the effects that the control plane of a rank wants, until there is none left.
    fn act(&mut self, rank: u32) {
        loop {
            let now = self.now;
            let Some(SimulatedRank { control, clock }) = &mut self.nodes[rank as usize] else { return };
            let effects = control.take_effects(clock.shows(now));
            if effects.is_empty() {
                return;
            }
            effects.into_iter().for_each(|effect| self.on_effect(rank, effect));
        }
    }

    fn on_effect(&mut self, rank: u32, effect: Effect) {
        match effect {
            Effect::Dial { slot, pause, timeout } => {
                self.push(rank, pause, SimulatedEvent::Dial(slot, timeout));
            }
            Effect::Connection { number, step, .. } => self.on_step(rank, number, step),
            Effect::FindAbsent(lost) => self.find_absent(rank, lost.get()),
            Effect::Send(peer, message) => {
                self.messages += 1;
                self.send(rank, peer.get(), message);
            }
            Effect::Happened(news) => {
                if !self.is_measured {
                    self.heard[rank as usize].push(news);
                }
            }
            Effect::Wake(key) => {
                if let Some(engine) = self.engines.get(&(rank, key)) {
                    (engine.waker)();
                }
            }
            Effect::NotConnected(key, error) => {
                // An engine that ends takes nothing any more.
                if let Some(engine) = self.engines.get(&(rank, key))
                    && engine.not_connected.send(error).is_ok()
                {
                    (engine.waker)();
                }
            }
            Effect::Left(..) => {} // Simulated engines have no messages.
            Effect::Measured(offset) => drop(self.offsets.insert((rank, offset.rank), offset)),
            // A caller that has given up takes no answer.
            Effect::Agreed(caller, result) => {
                drop(self.agreeing.remove(&caller).map(|answer| answer.send(result)));
            }
            Effect::Closed(caller, result) => {
                drop(self.closing.remove(&caller).map(|answer| answer.send(result)));
            }
            Effect::StoreCalled(caller, result) => {
                drop(self.storing.remove(&caller).map(|answer| answer.send(result)));
            }
        }
    }

    /// Lets time pass.
    pub(super) fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.step(end).is_some() {}
        self.now = end;
    }

    /// Handles the next event, if it happens before `end`; an event outside of the control planes is returned.
    pub(super) fn step(&mut self, end: Instant) -> Option<Option<(u32, Outside)>> {
        let entry = self.queue.first_entry().filter(|entry| entry.key().0 <= end)?;
        let ((at, ..), (rank, event)) = entry.remove_entry();
        self.now = at;
        if let Some(until) = self.stopped_until(rank).filter(|_| event.needs_its_rank()) {
            self.push(rank, until - at, event);
            return Some(None);
        }
        match event {
            SimulatedEvent::Outside(outside) => Some(Some((rank, outside))),
            SimulatedEvent::Connection(..)
            | SimulatedEvent::Dial(..)
            | SimulatedEvent::DialFailed(..)
            | SimulatedEvent::ProcessEnded(_)
            | SimulatedEvent::Tick => {
                self.on_event(rank, event);
                Some(None)
            }
        }
    }

    /// Until when a rank does nothing, if it is stopped.
    pub(super) fn stopped_until(&self, rank: u32) -> Option<Instant> {
        self.stopped.get(&rank).copied().filter(|&until| until > self.now)
    }

    fn on_event(&mut self, rank: u32, event: SimulatedEvent) {
        if !self.is_alive(rank) {
            return;
        }
        let is_message = event.is_message();
        match event {
            SimulatedEvent::Connection(place, event) => self.on_connection_event(rank, place, event),
            SimulatedEvent::Dial(slot, timeout) => self.dial(rank, slot, timeout),
            SimulatedEvent::DialFailed(slot, failure) => {
                self.with_node(rank, |control, now| control.on_dial_failed(slot, failure, now));
            }
            SimulatedEvent::ProcessEnded(peer) => {
                let peer = JobRank::new(peer);
                self.with_node(rank, |control, now| control.on_process_ended(peer, "ended".into(), now));
            }
            SimulatedEvent::Tick => self.on_tick(rank),
            SimulatedEvent::Outside(_) => {}
        }
        if !is_message || !self.takes_next_message(rank) {
            self.act(rank);
        }
    }

    fn on_tick(&mut self, rank: u32) {
        self.unpark(rank);
        self.with_node(rank, ControlPlane::on_time);
        if let Some(node) = &self.nodes[rank as usize] {
            let due = node.clock.when(node.control.plane.due());
            self.push(rank, due - self.now, SimulatedEvent::Tick);
        }
    }

    /// Whether the next event is another message that comes to the rank at the same time: messages that have come
    /// together are taken together.
    fn takes_next_message(&self, rank: u32) -> bool {
        let is_next = |((at, ..), (to, event)): (&(Instant, u32, u64), &(u32, SimulatedEvent))| {
            *at <= self.now && *to == rank && event.is_message()
        };
        self.is_alive(rank)
            && self.stopped_until(rank).is_none()
            && self.queue.first_key_value().is_some_and(is_next)
    }

    /// The ranks that a rank counts as lost.
    pub(super) fn lost(&self, rank: u32) -> BTreeSet<u32> {
        let lost = |news: &News| match news.topic {
            Topic::Lost { rank, .. } => Some(rank.get()),
            _ => None,
        };
        self.heard[rank as usize].iter().filter_map(lost).collect()
    }

    /// Fails unless exactly these ranks are lost, on every rank except some.
    pub(super) fn assert_lost(&self, expected: &[u32], except: &[u32], what: &str) {
        let expected: BTreeSet<u32> = expected.iter().copied().collect();
        for rank in (0..self.size()).filter(|rank| !except.contains(rank)) {
            assert_eq!(self.lost(rank), expected, "{what}: on rank {rank} of {}", self.size());
        }
    }
}

impl SimulatedRank {
    fn new(rank: u32, hosts: &Hosts, clock: Clock) -> SimulatedRank {
        let (rank, start) = (JobRank::new(rank), clock.shows(clock.start));
        SimulatedRank {
            control: ControlPlane::new(rank, hosts.clone(), (INTERVALS, DialTimeouts::default()), start),
            clock,
        }
    }
}
