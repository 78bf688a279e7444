//! The control thread's loop: sockets and timers around the state machines.

mod delivery;
mod dialling;
mod leaving;
mod witness;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, channel};
use tokio::task::{AbortHandle, JoinSet};
use unisono_communicator::{Certainty, Error, JobRank, Severity, log};
use unisono_control::Failure;
use unisono_control::handshake::{Purpose, Verdict};
use unisono_control::hosts::Hosts;
use unisono_control::slots::{Placed, Slot, Slots};
use unisono_control::wire::{CommunicatorKey, ConnectionRole, Message, Topic, encode};
use unisono_control::{ControlPlane, DialFailure, Effect, Presence, Request};

use dialling::may_lie_within_host;
use leaving::Leaving;
use witness::ProcessEnd;

use super::command::{Command, Identity, Settings};
use super::engines::{Delivery, Engines};
use super::frames::FrameSender;
use super::handovers::Handovers;
use super::measurements::Measurements;
use super::process_watch::ProcessWatch;
use super::retransmissions::Retransmissions;
use super::tasks::{End, TaskResult, await_verdict, has_ended, keep, linger};
use crate::connecting::{Acceptor, Authenticated, Stream, Terms};
use crate::sockets::DataSocket;

/// The most events that wait for the loop. The readers of more events wait too, and then the other ranks.
pub(super) const EVENTS_MAX: usize = 4096;

/// How many events are taken before the actions that follow from them.
const EVENTS_AT_ONCE_MAX: usize = 1024;

/// How long a goodbye waits for the goodbyes of the other ranks.
const GOODBYE_WAIT: Duration = Duration::from_millis(100);

/// The writing side of a control connection, which ends when this is dropped.
struct ControlConnection {
    /// Distinguishes it from earlier connections between the same ranks.
    number: u64,
    frames: FrameSender,
    /// The other side has dialled again, and nothing has come on this connection since.
    is_doubted: bool,
}

struct Driver {
    identity: Identity,
    settings: Settings,
    control: ControlPlane,
    engines: Engines,
    slots: Slots<Stream>,
    /// The demands on ranks that dial.
    terms: Terms,
    control_connections: BTreeMap<JobRank, ControlConnection>,
    /// The watched processes on this host, and the ended ones.
    watches: BTreeMap<JobRank, ProcessWatch>,
    ended: BTreeMap<JobRank, ProcessEnd>,
    /// How many connections have been authenticated.
    connections: u64,
    measurements: Arc<Measurements>,
    retransmissions: Retransmissions,
    /// Whether the log has a line about data that does not go through memory.
    has_told_way: bool,
    /// Sockets that no communicator needs any more, kept until the bytes that were sent on them are acknowledged.
    lingering: JoinSet<()>,
    writing: JoinSet<()>,
    tasks: JoinSet<TaskResult>,
    handovers: Handovers,
    /// The tasks that wait for a verdict.
    judged: Vec<(Slot, AbortHandle)>,
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
            ended: BTreeMap::new(),
            slots: Slots::new(rank),
            terms,
            control_connections: BTreeMap::new(),
            connections: 0,
            measurements,
            retransmissions: Retransmissions::new(now),
            has_told_way: false,
            lingering: JoinSet::new(),
            writing: JoinSet::new(),
            tasks: JoinSet::new(),
            handovers: Handovers::default(),
            judged: Vec::new(),
            events,
            identity,
            settings,
        }
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        if self.control.plane.due() <= now {
            self.look_at_silent(now);
            self.slots.retain_parked(|stream| !has_ended(stream));
        }
        self.control.on_time(now);
        self.judge_ended(now);
        self.retransmissions.look(&self.identity, || self.measurements.link_times(), now);
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
                for (slot, placed) in self.slots.create(key) {
                    let number = self.count_connection();
                    self.on_placed((slot, number), placed);
                }
                self.slots.parked().into_iter().for_each(|slot| self.control.on_unknown(slot));
            }
            Command::Request(request) => {
                if let Request::Unregister { key, .. } = request {
                    self.unregister(key);
                }
                self.request(request);
            }
            Command::Dial { key, wanted } => {
                for (peer, role) in wanted {
                    let peer =
                        self.control.communicators.get(key).map(|communicator| communicator.job_rank(peer));
                    let slots = peer.into_iter().map(|peer| Slot { key, role, peer });
                    slots.for_each(|slot| self.control.want(slot, self.slots.is_taken(slot), Instant::now()));
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
            Command::Leave { .. } => {}
        }
    }

    /// Nothing of a communicator is wanted any more.
    fn unregister(&mut self, key: CommunicatorKey) {
        self.engines.remove(key);
        self.slots.remove(key);
        self.handovers.forget(key);
        // The other side parks a connection of a communicator, also of a dropped communicator, until the connection
        // ends.
        let of_key = |slot: &Slot| slot.role != ConnectionRole::Control && slot.key == key;
        self.judged.iter().filter(|one| of_key(&one.0)).for_each(|one| one.1.abort());
    }

    fn on_accepted(&mut self, accepted: Authenticated) {
        let Authenticated { stream, hello } = accepted;
        let Some(role) = ConnectionRole::from_code(hello.lane) else { return };
        let key = CommunicatorKey { id: hello.communicator, epoch: hello.epoch };
        let is_control = role == ConnectionRole::Control;
        let is_placed = stream.is_tcp() || may_lie_within_host(role);
        if is_control != (hello.purpose == Purpose::Control) || !is_placed {
            return;
        }
        let peer = JobRank::new(hello.from);
        let slot = if is_control { Slot::control(peer) } else { Slot { key, role, peer } };
        if is_control && self.slots.decides(slot) {
            self.doubt(peer);
        }
        self.on_proven(slot, stream);
    }

    /// A rank dials although its control connection exists as far as this rank knows. Either both have dialled at once,
    /// or the other rank has seen the connection end and this one has not. A message on the connection makes its end
    /// visible here; without that, the next dial of the other rank counts as the end.
    fn doubt(&mut self, peer: JobRank) {
        let Some(connection) = self.control_connections.get_mut(&peer) else { return };
        if std::mem::replace(&mut connection.is_doubted, true) {
            let reason = "its control connection ended: it dials again".to_owned();
            self.on_ended(peer, End::Closed(reason), Instant::now());
        } else {
            self.send(peer, &Message::Beat);
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
        let made = event.made();
        self.take_event(event);
        made.into_iter().for_each(|slot| self.handovers.end(slot));
    }

    fn take_event(&mut self, event: TaskResult) {
        let now = Instant::now();
        match event {
            TaskResult::Message { peer, message } => {
                if let Some(connection) = self.control_connections.get_mut(&peer) {
                    connection.is_doubted = false;
                }
                self.control.plane.on_message(peer, message, now);
            }
            TaskResult::Ended { peer, number, end } => {
                // Another may have taken its place before its end was noticed.
                if self.control_connections.get(&peer).is_some_and(|connection| connection.number == number) {
                    self.on_ended(peer, end, now);
                }
            }
            TaskResult::ProcessEnded { peer, reason } => self.on_process_ended(peer, reason, now),
            // The communicator is gone: nothing needs this connection.
            TaskResult::Dialled { slot, result: Ok(_) }
                if slot.role != ConnectionRole::Control
                    && self.control.communicators.get(slot.key).is_none() => {}
            TaskResult::Dialled { slot, result: Ok(stream) } => self.on_proven(slot, stream),
            TaskResult::Dialled { slot, result: Err(failure) } => self.on_attempt_failed(slot, failure),
            TaskResult::Judged { slot, number, result: Ok((stream, verdict)) } => match verdict {
                // This verdict is late: the lower rank has given the connection up, and a later one exists.
                Verdict::Keep if self.has_later_control(slot, number) => {}
                Verdict::Keep => {
                    let placed = self.slots.place(slot, stream, true);
                    self.on_placed((slot, number), placed);
                }
                // The other side may still have the connection that has ended here. It refuses no control connection:
                // such a word was changed on its way.
                Verdict::Drop | Verdict::Refuse(_) if slot.role == ConnectionRole::Control => {
                    let problem = "it has another connection".to_owned();
                    self.on_attempt_failed(slot, DialFailure::Transient(problem));
                }
                // The connection that is kept instead is on its way.
                Verdict::Drop => {}
                Verdict::Refuse(problem) if !self.slots.is_taken(slot) => {
                    self.control.fail(slot, Failure::Error(Error::Refused { problem }), now);
                }
                Verdict::Refuse(_) => {}
            },
            TaskResult::Judged { slot, result: Err(error), .. } => {
                self.on_attempt_failed(slot, DialFailure::Transient(error.to_string()));
            }
            TaskResult::Acknowledged { slot, number, result: Ok(stream) } => {
                self.deliver((slot, number), stream)
            }
            TaskResult::Acknowledged { slot, result: Err(error), .. } => {
                self.slots.release(slot);
                self.on_attempt_failed(slot, DialFailure::Transient(error.to_string()));
            }
        }
    }

    /// The control connection to a rank has ended.
    fn on_ended(&mut self, peer: JobRank, end: End, now: Instant) {
        self.control_connections.remove(&peer);
        let reason = match end {
            End::Closed(reason) => Some(reason),
            End::Changed => {
                let text = format_args!(
                    "a message of rank {peer} does not match its checksum: it was changed on its way, and the control \
                     connection is made again"
                );
                log(Severity::Warn, Some(self.identity.rank.get()), text);
                None
            }
            End::Nonsense(reason) | End::ProcessEnded(reason) => {
                return self.control.plane.on_disconnected(peer, Certainty::Confirmed, reason, now);
            }
        };
        self.slots.release(Slot::control(peer));
        if self.control.on_ended(peer, reason, now) {
            self.decide(peer, now);
        }
    }

    /// An authenticated connection, whichever side has dialled.
    fn on_proven(&mut self, slot: Slot, stream: Stream) {
        if self.control.plane.presence(slot.peer) == Presence::Lost {
            // A rank that counts as lost gets no new connections.
            return;
        }
        if slot.role != ConnectionRole::Control && self.control.communicators.get(slot.key).is_none() {
            self.control.on_unknown(slot);
        }
        let number = self.count_connection();
        if self.slots.decides(slot) {
            let placed = self.slots.place(slot, stream, false);
            self.on_placed((slot, number), placed);
        } else {
            self.judged.retain(|one| !one.1.is_finished());
            self.handovers.begin(slot);
            let rings = self.settings.rings.clone();
            let timeout = (slot.role == ConnectionRole::Control).then(|| self.control.attempt_timeout(slot));
            self.judged
                .push((slot, self.tasks.spawn(await_verdict((slot, number), (stream, rings), timeout))));
        }
    }

    fn count_connection(&mut self) -> u64 {
        self.connections += 1;
        self.connections
    }

    /// Whether the control connection to a rank is later than the one of this number.
    fn has_later_control(&self, slot: Slot, number: u64) -> bool {
        slot.role == ConnectionRole::Control
            && self.control_connections.get(&slot.peer).is_some_and(|connection| connection.number > number)
    }

    fn on_placed(&mut self, (slot, number): (Slot, u64), placed: Placed<Stream>) {
        match placed {
            Placed::Keep(stream) => {
                self.handovers.begin(slot);
                let rings = self.settings.rings.clone();
                drop(self.tasks.spawn(keep(
                    (slot, number),
                    (stream, rings),
                    self.control.attempt_timeout(slot),
                )))
            }
            // A new connection has room for a verdict. If it had none, closing it would tell the other side the same.
            Placed::Drop(stream) => drop(stream.try_write(&Verdict::Drop.encode())),
            Placed::Deliver(stream) => self.deliver((slot, number), stream),
            Placed::Close(stream) => drop(stream),
            Placed::Parked => {}
        }
    }

    /// Carries out what the control plane wants, until there is nothing left.
    fn act(&mut self) {
        loop {
            let effects = self.control.take_effects(Instant::now());
            if effects.is_empty() {
                break;
            }
            effects.into_iter().for_each(|effect| self.on_effect(effect));
        }
        for Slot { key, peer, .. } in self.handovers.take_complete() {
            self.control.communicators.left_completely(key, peer);
        }
    }

    fn on_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Dial { slot, pause, timeout } => self.dial(slot, pause, timeout),
            Effect::Send(peer, message) => self.send(peer, &message),
            Effect::Happened(news) => {
                if let Topic::Lost { rank, .. } = news.topic {
                    // The news of its loss was the last message to that rank. More would pile up, since it may not
                    // read.
                    self.control_connections.remove(&rank);
                    self.terms.count_as_lost(rank.get());
                    self.witness(rank);
                }
            }
            Effect::Measured(offset) => self.measurements.note_clock(offset),
            Effect::Wake(key) => self.engines.wake(key),
            Effect::Left(key, peer) => {
                self.handovers.leave(Slot { key, role: ConnectionRole::PointToPoint, peer });
            }
            Effect::NotConnected(key, error) => self.engines.deliver(key, Delivery::Failed(error)),
            Effect::Agreed(caller, result) => self.engines.agreed(caller, result),
            Effect::Closed(caller, result) => self.engines.closed(caller, result),
        }
    }

    fn send(&mut self, peer: JobRank, message: &Message) {
        if let Some(connection) = self.control_connections.get(&peer) {
            let mut bytes = Vec::new();
            encode(message, &mut bytes);
            if connection.frames.send(bytes).is_err() {
                let reason = "its control connection was closed here: it does not read".to_owned();
                self.on_ended(peer, End::Closed(reason), Instant::now());
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
