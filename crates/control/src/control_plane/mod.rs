//! The control plane of one rank as one state machine. Messages of other ranks, requests of this rank's engines, and
//! time go in; [`Effect`]s come out. It knows no socket, thread or clock, so the control thread, the simulated jobs and
//! the fuzzer drive the same code.

mod agreeing;
mod connecting;
#[cfg(test)]
mod node;
mod witness;

use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_backend::{Agreed, Ask, Asked, CallHistory};
use unisono_communicator::{ClockOffset, Error, GroupRank, JobRank, Result};

use super::connections::{ConnectionNumber, ConnectionStep, Connections};
use super::dials::{DialTimeouts, Dials};
use super::hosts::Hosts;
use super::intervals::Intervals;
use super::local_communicator::LocalCommunicator;
use super::local_communicators::LocalCommunicators;
use super::plane::{Action, Plane, Presence};
use super::process_ends::ProcessEnds;
use super::slots::Slot;
use super::store::{StoreAction, StoreCall, StorePlane, StoreReply};
use super::wire::{CommunicatorKey, Message, News, RankSet, Topic};

/// A caller that waits for one answer. The owner of the control plane numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller(pub u64);

/// The requests of this rank's engines. Ranks are ranks of the group.
pub enum Request {
    /// A communicator exists from now on.
    Register(Box<LocalCommunicator>),
    /// A thread that panics drops it; asynchronous calls may keep it for longer.
    Abandon {
        /// The communicator.
        key: CommunicatorKey,
    },
    /// It is gone.
    Unregister {
        /// The communicator.
        key: CommunicatorKey,
        /// After these collectives.
        ours: CallHistory,
    },
    /// Its engine found the first cause; its board is revoked.
    Revoke {
        /// The communicator.
        key: CommunicatorKey,
        /// All its ranks.
        members: RankSet,
        /// The first cause.
        cause: Arc<Error>,
    },
    /// The stream from that rank has ended in the middle of a call.
    StreamEnded {
        /// In which one.
        key: CommunicatorKey,
        /// The rank at the other end.
        peer: GroupRank,
    },
    /// Its call `number` waits for that rank.
    Ask {
        /// The communicator.
        key: CommunicatorKey,
        /// The rank.
        awaited: GroupRank,
        /// The call.
        number: u64,
    },
    /// Its survivors are to agree; see [`unisono_backend::Control::agree`].
    Agree {
        /// The communicator.
        key: CommunicatorKey,
        /// The question, and this rank's part of the answer.
        ask: Ask,
        /// The caller that waits.
        caller: Caller,
    },
    /// It closes; the answer says whether the others made the same calls.
    Close {
        /// The communicator.
        key: CommunicatorKey,
        /// After these collectives.
        ours: CallHistory,
        /// Until when the others may close.
        deadline: Instant,
        /// The caller that waits.
        caller: Caller,
    },
    /// The program calls a store.
    Store {
        /// The call, whose arguments were checked.
        call: Box<StoreCall>,
        /// The caller that waits.
        caller: Caller,
    },
}

/// The tasks of the owner, in this order.
#[derive(Debug)]
pub enum Effect {
    /// Dial a connection after this pause.
    Dial {
        /// The connection.
        slot: Slot,
        /// The time to wait before.
        pause: Duration,
        /// The time that each part of the attempt may take.
        timeout: Duration,
    },
    /// Do this with the connection of this number.
    Connection {
        /// Its place.
        slot: Slot,
        /// Its number.
        number: ConnectionNumber,
        /// Its next step.
        step: ConnectionStep,
    },
    /// Send this message on the control connection to that rank that is in use.
    Send(JobRank, Message),
    /// Find out whether the process of that rank on this host is gone, unless its end will show by itself.
    FindAbsent(JobRank),
    /// This has happened, here or elsewhere, and the communicators of this rank know it; each piece of news comes once.
    Happened(News),
    /// Wake the threads of that communicator: its board has changed.
    Wake(CommunicatorKey),
    /// That rank takes no part in that communicator any more, and every connection for messages from it was handed over
    /// before this effect. Tell the board ([`LocalCommunicators::left_completely`]).
    Left(CommunicatorKey, JobRank),
    /// Tell the engine of that communicator that a connection will never come.
    NotConnected(CommunicatorKey, Error),
    /// The answer to [`Request::Agree`]. Every caller gets one, unless this rank leaves the job before.
    Agreed(Caller, Result<Agreed>),
    /// The answer to [`Request::Close`]. Every caller gets one, unless this rank leaves the job before.
    Closed(Caller, Result<()>),
    /// The answer to [`Request::Store`]. Every caller gets one, unless this rank leaves the job before.
    StoreCalled(Caller, Result<StoreReply>),
    /// The clock of another host was measured.
    Measured(ClockOffset),
}

/// The control plane of one rank.
pub struct ControlPlane {
    /// The connections, the live ranks, and the news.
    pub plane: Plane,
    /// The communicators of this rank.
    pub communicators: LocalCommunicators,
    dials: Dials,
    connections: Connections,
    process_ends: ProcessEnds,
    stores: StorePlane,
    effects: Vec<Effect>,
}

impl ControlPlane {
    /// The control plane of `rank` in a job on these hosts. It has no communicators, and wants its first connections at
    /// once.
    pub fn new(
        rank: JobRank,
        hosts: Hosts,
        (intervals, timeouts): (Intervals, DialTimeouts),
        now: Instant,
    ) -> ControlPlane {
        let communicators = LocalCommunicators::new(hosts.clone());
        let dials = Dials::new(timeouts, intervals.suspect);
        ControlPlane {
            plane: Plane::new(rank, hosts, intervals, now),
            communicators,
            dials,
            connections: Connections::new(rank),
            process_ends: ProcessEnds::default(),
            stores: StorePlane::new(rank),
            effects: Vec::new(),
        }
    }

    /// Takes a request of an engine.
    pub fn request(&mut self, request: Request, now: Instant) {
        match request {
            Request::Register(communicator) => {
                let key = communicator.key();
                let news = self.plane.news_about(key);
                let topics = self.communicators.add(*communicator, &news, now);
                self.publish(topics, now);
                self.place_parked(key, now);
            }
            Request::Abandon { key } => {
                let topic = self.communicators.abandon(key);
                self.publish(topic, now);
            }
            Request::Unregister { key, ours } => {
                self.close_connections_of(key);
                let topic = self.communicators.leave(key, ours);
                self.publish(topic, now);
            }
            Request::Revoke { key, members, cause } => {
                self.communicators.note_deadlock(key);
                self.publish([Topic::Revoked { key, members, cause: Arc::unwrap_or_clone(cause) }], now);
            }
            Request::StreamEnded { key, peer } => {
                let topic = self.communicators.stream_ended(key, peer);
                self.publish(topic, now);
            }
            Request::Ask { key, awaited, number } => {
                let asked = self.communicators.asked(key, awaited, number);
                asked.into_iter().for_each(|asked| self.ask(asked, now));
            }
            Request::Agree { key, ask, caller } => {
                let topics = self.communicators.agree(key, ask, caller, now);
                self.publish(topics, now);
            }
            Request::Close { key, ours, deadline, caller } => {
                let topic = self.communicators.close(key, ours, (now, deadline), caller);
                self.publish(topic, now);
            }
            Request::Store { call, caller } => self.stores.call(caller.0, *call, now),
        }
    }

    /// Asks a rank of a communicator about a call, unless the answer is known.
    fn ask(&mut self, asked: Asked, now: Instant) {
        let Asked { rank, communicator: key, number, .. } = asked;
        let topic = self.communicators.before_asking(asked);
        if topic.is_some() {
            self.publish(topic, now);
        } else if rank == self.plane.rank() {
            // A rank that waits in another communicator may wait for this one.
            let status = self.communicators.status(key, number);
            let topic = self.communicators.answered(rank, key, number, &status);
            self.publish(topic, now);
        } else if self.plane.presence(rank) == Presence::Live {
            self.plane.ask(rank, key, number);
        }
    }

    /// A connection came for a communicator that is not there: perhaps this rank has made it for other ranks, or with
    /// other options.
    fn on_unknown(&mut self, slot: Slot) {
        if let Some(other) = self.communicators.other_group(slot) {
            self.plane.tell(slot.peer, Message::OtherGroup(other));
        }
    }

    /// When [`ControlPlane::on_time`] is due.
    pub fn due(&self) -> Instant {
        let others = [self.communicators.due(), self.stores.due()];
        others.into_iter().flatten().fold(self.plane.due(), Instant::min)
    }

    /// Time has passed.
    pub fn on_time(&mut self, now: Instant) {
        if self.plane.due() <= now {
            self.plane.on_tick(now);
        }
        let topics = self.communicators.on_time(now);
        self.publish(topics, now);
        self.judge_ended(now);
        self.stores.on_time(now);
    }

    /// As [`LocalCommunicators::fall_short`]. The ballots of communicators that fail here are withdrawn: with a late
    /// ballot the others would begin without this rank.
    pub fn fall_short(&mut self, error: &Error, unable: (Instant, Duration), now: Instant) {
        for topic in self.communicators.fall_short(error, unable, now) {
            topic.key().into_iter().for_each(|key| self.plane.withdraw_ballots(key));
            self.publish([topic], now);
        }
    }

    /// Publishes topics to all ranks.
    pub fn publish(&mut self, topics: impl IntoIterator<Item = Topic>, now: Instant) {
        topics.into_iter().for_each(|topic| self.plane.publish(topic, now));
    }

    /// This rank leaves the job, with the communicators that are still there.
    pub fn leave(&mut self, now: Instant) {
        let closed = self.communicators.leave_all();
        self.publish(closed, now);
        self.publish([Topic::Goodbye], now);
    }

    /// The effects since the last call.
    pub fn take_effects(&mut self, now: Instant) -> Vec<Effect> {
        loop {
            let questions = self.communicators.take_questions();
            let is_quiet = questions.is_empty();
            questions.into_iter().for_each(|question| self.ask(question, now));
            self.act_for_stores();
            let actions = self.plane.take_actions();
            if actions.is_empty() && is_quiet {
                self.take_effects_of_communicators();
                return std::mem::take(&mut self.effects);
            }
            actions.into_iter().for_each(|action| self.on_action(action, now));
        }
    }

    /// Sends the messages of stores, and ends their calls.
    fn act_for_stores(&mut self) {
        for action in self.stores.take_actions() {
            match action {
                StoreAction::Ask(holder, request) => {
                    self.plane.send(holder, Message::StoreRequest(request));
                }
                StoreAction::Answer(rank, answer) => self.plane.send(rank, Message::StoreAnswer(answer)),
                StoreAction::End(caller, result) => {
                    self.effects.push(Effect::StoreCalled(Caller(caller), result));
                }
            }
        }
    }

    /// The news that a rank has left a communicator waits for the connections from that rank.
    fn take_effects_of_communicators(&mut self) {
        for effect in self.communicators.take_effects() {
            match effect {
                Effect::Left(key, peer) => self.connections.leave(key, peer),
                effect => self.effects.push(effect),
            }
        }
        let complete = self.connections.take_complete().into_iter();
        self.effects.extend(complete.map(|slot| Effect::Left(slot.key, slot.peer)));
    }

    fn on_action(&mut self, action: Action, now: Instant) {
        match action {
            Action::Connect(peer) => self.begin_to_dial(Slot::control(peer), None, now),
            Action::Send(peer, message) => self.effects.push(Effect::Send(peer, message)),
            Action::Measured(offset) => self.effects.push(Effect::Measured(offset)),
            Action::Happened(news) => {
                let topics = self.communicators.happened(&news, now);
                self.publish(topics, now);
                match &news.topic {
                    Topic::Lost { rank, certainty, reason } => {
                        self.stores.on_gone_caller(*rank);
                        self.stores.on_gone_holder(*rank, news.origin, *certainty, reason);
                        self.on_lost(*rank, now);
                    }
                    Topic::Goodbye => {
                        self.stores.on_gone_caller(news.origin);
                        self.end_stores_of_left(news.origin);
                    }
                    Topic::Revoked { .. }
                    | Topic::Closed { .. }
                    | Topic::Ballot { .. }
                    | Topic::Decision { .. } => {}
                }
                self.effects.push(Effect::Happened(news));
            }
            Action::StoreAsked(from, request) => self.stores.on_request(from, request),
            Action::StoreAnswered(from, answer) => self.stores.on_answer(from, answer),
            Action::Differs(from, other) => {
                let topics = self.communicators.differs(from, &other);
                self.publish(topics, now);
            }
            Action::HadClosed(rank, key) => {
                let topic = self.communicators.had_closed(rank, key);
                self.publish(topic, now);
            }
            Action::Asked { from, key, number } => {
                let status = self.communicators.status(key, number);
                self.effects.push(Effect::Send(from, Message::Answer { key, number, status }));
            }
            Action::Answered { from, key, number, status } => {
                let topic = self.communicators.answered(from, key, number, &status);
                self.publish(topic, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use unisono_backend::{Board, Question};
    use unisono_communicator::Group;

    use super::*;

    const KEY: CommunicatorKey = CommunicatorKey { id: 0, epoch: 0 };

    /// The first connection of a rank that had none for too long.
    #[test]
    fn a_rank_that_falls_short_takes_its_ballot_back() {
        let (rank, other, now) = (JobRank::new(0), JobRank::new(1), Instant::now());
        let hosts: Arc<[u32]> = [0, 0].into();
        let group = Group::world_on(0, hosts.clone());
        let intervals = Intervals::default();
        let told = |falls_short: bool| {
            let mut control =
                ControlPlane::new(rank, Hosts::new(hosts.clone()), (intervals, DialTimeouts::default()), now);
            let board = Arc::new(Board::new(group.own_rank(), 2));
            let member = LocalCommunicator::new(KEY, group.clone(), board);
            control.request(Request::Register(Box::new(member)), now);
            let deadline = now + Duration::from_secs(9);
            let (question, flag, heeds_cause) = (Question::Flag, true, true);
            let ask = Ask { question, number: 0, flag, finished_calls: 0, deadline, heeds_cause };
            control.request(Request::Agree { key: KEY, ask, caller: Caller(1) }, now);
            if falls_short {
                let error = Error::System { what: "cannot connect".into(), text: "no descriptors".into() };
                control.fall_short(&error, (now, Duration::ZERO), now);
            }
            drop(control.take_effects(now));
            control.on_connected(Slot::control(other), now);
            let effects = control.take_effects(now);
            let news = effects.into_iter().filter_map(|effect| match effect {
                Effect::Send(_, Message::News(news)) => Some(news.topic),
                _ => None,
            });
            news.collect::<Vec<_>>()
        };
        let before = told(false);
        assert!(matches!(&before[..], [Topic::Ballot { .. }]), "{before:?}");
        let told = told(true);
        assert!(matches!(&told[..], [Topic::Revoked { key: KEY, .. }]), "{told:?}");
    }
}
