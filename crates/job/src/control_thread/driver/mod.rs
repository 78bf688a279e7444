//! The control thread's loop: sockets and timers around the state machines.

mod connecting;
mod delivery;
mod leaving;
mod witness;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, channel};
use tokio::task::{AbortHandle, JoinSet};
use unisono_communicator::{JobRank, Severity, log};
use unisono_control::hosts::Hosts;
use unisono_control::slots::Slot;
use unisono_control::wire::{Message, Topic, encode};
use unisono_control::{ConnectionNumber, ControlPlane, Effect, End, Presence, Request};

use leaving::Leaving;

use super::command::{Command, Identity, Settings};
use super::engines::{Delivery, Engines};
use super::frames::FrameSender;
use super::measurements::Measurements;
use super::process_watch::ProcessWatch;
use super::retransmissions::Retransmissions;
use super::tasks::{TaskResult, has_ended, linger};
use crate::connecting::{Acceptor, Stream, Terms};
use crate::sockets::DataSocket;

/// The most events that wait for the loop. The readers of more events wait too, and then the other ranks.
pub(super) const EVENTS_MAX: usize = 4096;

/// The number of events that are taken before the actions that follow from them.
const EVENTS_AT_ONCE_MAX: usize = 1024;

/// The time that a goodbye waits for the goodbyes of the other ranks.
const GOODBYE_WAIT: Duration = Duration::from_millis(100);

/// The writing side of a control connection, which ends when this is dropped.
struct ControlConnection {
    number: ConnectionNumber,
    frames: FrameSender,
}

struct Driver {
    identity: Identity,
    settings: Settings,
    control: ControlPlane,
    engines: Engines,
    /// The connections whose two sides have proven their identity, until they are used or closed.
    streams: BTreeMap<ConnectionNumber, Stream>,
    /// The demands on ranks that dial.
    terms: Terms,
    control_connections: BTreeMap<JobRank, ControlConnection>,
    /// The watched processes on this host.
    watches: BTreeMap<JobRank, ProcessWatch>,
    measurements: Arc<Measurements>,
    retransmissions: Retransmissions,
    /// Whether the log has a line about data that does not go through memory.
    has_told_way: bool,
    /// Sockets that no communicator needs any more, kept until the bytes that were sent on them are acknowledged.
    lingering: JoinSet<()>,
    writing: JoinSet<()>,
    tasks: JoinSet<TaskResult>,
    /// The tasks that wait for an answer of the other side of a connection, and have its stream.
    waiting: BTreeMap<ConnectionNumber, AbortHandle>,
    events: Sender<TaskResult>,
}

/// Runs until [`Command::Leave`], and until this rank has left.
pub(super) async fn run(
    identity: Identity,
    mut acceptor: Acceptor,
    settings: Settings,
    mut commands: UnboundedReceiver<Command>,
    measurements: Arc<Measurements>,
) {
    let (events, mut received) = channel(EVENTS_MAX);
    acceptor.begin(identity.secret.clone(), identity.expected());
    let mut driver = Driver::new(identity, acceptor.terms(), settings, measurements, events);
    driver.watch_processes();
    driver.act();
    let mut leaving = Leaving::No;
    while leaving != Leaving::Over {
        let due =
            leaving.due(Instant::now()).map_or(driver.control.due(), |due| due.min(driver.control.due()));
        tokio::select! {
            Some(command) = commands.recv() => match command {
                Command::Leave { finishes } if leaving == Leaving::No => {
                    leaving = driver.begin_to_leave(finishes, Instant::now());
                }
                Command::Revoke { .. } if leaving.hides_failures() => {}
                command => driver.on_command(command),
            },
            Some(event) = received.recv() => driver.on_events(event, &mut received),
            Some(Ok(event)) = driver.tasks.join_next() => driver.on_event(event),
            accepted = acceptor.next() => driver.on_accepted(accepted),
            () = tokio::time::sleep_until(due.into()) => driver.on_time(),
        }
        driver.act();
        leaving = driver.leave_on(leaving, Instant::now());
    }
    // Nobody waits for this rank to read.
    let drained = async {
        while received.recv().await.is_some() {}
        std::future::pending().await
    };
    tokio::select! { () = driver.leave() => {}, () = drained => {} }
}

impl Driver {
    fn new(
        identity: Identity,
        terms: Terms,
        settings: Settings,
        measurements: Arc<Measurements>,
        events: Sender<TaskResult>,
    ) -> Driver {
        let (rank, hosts, now) = (identity.rank, Hosts::new(identity.hosts.clone()), Instant::now());
        let times = (settings.intervals, settings.dial_timeouts);
        Driver {
            control: ControlPlane::new(rank, hosts.clone(), times, now),
            engines: Engines::default(),
            watches: ProcessWatch::open_all(rank, &hosts, &identity.processes).into_iter().collect(),
            streams: BTreeMap::new(),
            terms,
            control_connections: BTreeMap::new(),
            measurements,
            retransmissions: Retransmissions::new(now),
            has_told_way: false,
            lingering: JoinSet::new(),
            writing: JoinSet::new(),
            tasks: JoinSet::new(),
            waiting: BTreeMap::new(),
            events,
            identity,
            settings,
        }
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        if self.control.plane.due() <= now {
            self.look_at_silent(now);
            self.close_ended();
        }
        self.control.on_time(now);
        self.retransmissions.look(&self.identity, || self.measurements.link_times(), now);
    }

    /// Closes the connections that wait for their communicator and have ended on the other side.
    fn close_ended(&mut self) {
        let ended = |number: &ConnectionNumber| self.streams.get(number).is_none_or(has_ended);
        let ended: Vec<ConnectionNumber> = self.control.parked().filter(ended).collect();
        for number in ended {
            self.control.unpark(number);
            self.streams.remove(&number);
        }
    }

    fn request(&mut self, request: Request) {
        self.control.request(request, Instant::now());
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Register(communicator, mailbox) => {
                let key = communicator.key();
                self.engines.add(key, mailbox);
                self.request(Request::Register(communicator));
            }
            Command::Request(request) => {
                if let Request::Unregister { key, .. } = request {
                    self.engines.remove(key);
                }
                self.request(request);
            }
            Command::Dial { key, wanted } => {
                for (peer, role) in wanted {
                    let peer =
                        self.control.communicators.get(key).map(|communicator| communicator.job_rank(peer));
                    let slots = peer.into_iter().map(|peer| Slot { key, role, peer });
                    slots.for_each(|slot| self.control.want(slot, Instant::now()));
                }
            }
            Command::Revoke { key, members, cause, handed_over } => {
                self.request(Request::Revoke { key, members, cause });
                self.act();
                for connection in self.control_connections.values() {
                    connection.frames.mark(handed_over.clone());
                }
            }
            Command::Linger { sockets } => self.linger(sockets),
            Command::Agree { key, ask, answer } => {
                let caller = self.engines.agreeing(answer);
                self.request(Request::Agree { key, ask, caller });
            }
            Command::Close { key, ours, deadline, answer } => {
                let caller = self.engines.closing(answer);
                // Counts from now on: this command may have waited behind many others.
                let deadline = deadline.min(Instant::now() + GOODBYE_WAIT);
                self.request(Request::Close { key, ours, deadline, caller });
            }
            Command::Store { call, answer } => {
                let caller = self.engines.storing(answer);
                self.request(Request::Store { call, caller });
            }
            Command::Leave { .. } => {}
        }
    }

    /// Takes messages that have come together, so that the same news of several origins goes on as one message.
    fn on_events(&mut self, mut event: TaskResult, received: &mut Receiver<TaskResult>) {
        for _ in 1..EVENTS_AT_ONCE_MAX {
            self.on_event(event);
            let Ok(next) = received.try_recv() else { return };
            event = next;
            if !matches!(event, TaskResult::Message { .. }) {
                self.act();
            }
        }
        self.on_event(event);
    }

    fn on_event(&mut self, event: TaskResult) {
        let now = Instant::now();
        match event {
            TaskResult::Message { peer, number, message } => {
                self.control.on_message(peer, number, *message, now);
            }
            TaskResult::Ended { peer, number, end } => self.on_ended(peer, number, end, now),
            TaskResult::ProcessEnded { peer, reason } => self.control.on_process_ended(peer, reason, now),
            TaskResult::Dialled { slot, result: Ok(stream) } => {
                let number = self.control.on_dialled(slot, now);
                self.hold(number, stream);
            }
            TaskResult::Dialled { slot, result: Err(failure) } => {
                self.control.on_dial_failed(slot, failure, now);
            }
            // The control plane has closed a connection while its task ended.
            TaskResult::Judged { number, .. } | TaskResult::Acknowledged { number, .. }
                if self.waiting.remove(&number).is_none() => {}
            TaskResult::Judged { number, result } => {
                let verdict = result.map(|(stream, verdict)| {
                    self.hold(Some(number), stream);
                    verdict
                });
                self.control.on_verdict(number, verdict.map_err(|error| error.to_string()), now);
            }
            TaskResult::Acknowledged { number, result } => {
                let acknowledged = result.map(|stream| self.hold(Some(number), stream));
                self.control.on_acknowledged(number, acknowledged.map_err(|error| error.to_string()), now);
            }
        }
    }

    fn on_ended(&mut self, peer: JobRank, number: ConnectionNumber, end: End, now: Instant) {
        if let End::Changed = end {
            let text = format_args!(
                "a message of rank {peer} does not match its checksum: it was changed on its way, and the control \
                 connection is made again"
            );
            log(Severity::Warn, Some(self.identity.rank.get()), text);
        }
        self.control.on_ended(peer, number, end, now);
    }

    /// Carries out the effects that the control plane wants, until there is nothing left.
    fn act(&mut self) {
        loop {
            let effects = self.control.take_effects(Instant::now());
            if effects.is_empty() {
                break;
            }
            effects.into_iter().for_each(|effect| self.on_effect(effect));
        }
    }

    fn on_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Dial { slot, pause, timeout } => self.dial(slot, pause, timeout),
            Effect::Connection { slot, number, step } => self.on_step(slot, number, step),
            Effect::Send(peer, message) => self.send(peer, &message),
            Effect::FindAbsent(peer) => self.find_absent(peer),
            Effect::Happened(news) => {
                if let Topic::Lost { rank, .. } = news.topic {
                    self.terms.count_as_lost(rank.get());
                }
            }
            Effect::Measured(offset) => self.measurements.note_clock(offset),
            Effect::Wake(key) => self.engines.wake(key),
            Effect::Left(key, peer) => self.control.communicators.left_completely(key, peer),
            Effect::NotConnected(key, error) => self.engines.deliver(key, Delivery::Failed(error)),
            Effect::Agreed(caller, result) => self.engines.agreed(caller, result),
            Effect::Closed(caller, result) => self.engines.closed(caller, result),
            Effect::StoreCalled(caller, result) => self.engines.stored(caller, result),
        }
    }

    fn send(&mut self, peer: JobRank, message: &Message) {
        if let Some(connection) = self.control_connections.get(&peer) {
            let mut bytes = Vec::new();
            encode(message, &mut bytes);
            if connection.frames.send(bytes).is_err() {
                let reason = "its control connection was closed here: it does not read".to_owned();
                self.control.on_ended(peer, connection.number, End::Closed(reason), Instant::now());
            }
        }
    }

    /// Ends the outgoing halves of sockets, and holds them until the sent bytes have been acknowledged.
    fn linger(&mut self, sockets: Vec<Arc<DataSocket>>) {
        while self.lingering.try_join_next().is_some() {}
        let of_others =
            |socket: &Arc<DataSocket>| self.control.plane.presence(socket.peer()) != Presence::Lost;
        let sockets: Vec<_> = sockets.into_iter().filter(of_others).collect();
        if !sockets.is_empty() {
            self.lingering.spawn(linger(sockets, self.settings.drop_timeout));
        }
    }
}
