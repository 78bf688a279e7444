//! The control plane of one rank as a state machine: messages, connections and time go in, actions come out. It knows
//! the ranks that live, the connections that this rank needs, and the news that it must forward; it knows no socket,
//! thread or clock.

mod peer;
mod probing;
mod relinking;

use std::time::{Duration, Instant};

use unisono_backend::CallStatus;
use unisono_communicator::{Certainty, ClockOffset, JobRank, monotonic_ns};

use super::clocks::{ClockStep, Clocks};
use super::detector::Detector;
use super::flood::Flood;
use super::forwarding::Forwarding;
use super::hosts::Hosts;
use super::probes::Probes;
use super::topology::Topology;
use crate::intervals::Intervals;
use crate::store::{StoreAnswer, StoreRequest};
use crate::wire::{CommunicatorKey, JointNews, Message, News, OtherGroup, Publisher, Topic};
pub use peer::Presence;
use peer::{ConnectionState, Peer};

/// The tasks of the driver for the plane.
#[derive(Clone, Debug)]
pub enum Action {
    /// Connect to that rank.
    Connect(JobRank),
    /// Send this message to that rank.
    Send(JobRank, Message),
    /// This has happened, here or elsewhere; each piece of news comes once.
    Happened(News),
    /// That rank asks about our call; answer it.
    Asked {
        /// The rank that asks.
        from: JobRank,
        /// About which communicator.
        key: CommunicatorKey,
        /// And which call.
        number: u64,
    },
    /// That rank has answered our question.
    Answered {
        /// The rank that answers.
        from: JobRank,
        /// About which communicator.
        key: CommunicatorKey,
        /// And which call.
        number: u64,
        /// The answer.
        status: CallStatus,
    },
    /// That rank has made a communicator in the same way as this one, for other ranks.
    Differs(JobRank, OtherGroup),
    /// That rank, which counts as lost, had closed a communicator before. Its news comes too late to be heard here, but
    /// other ranks have heard it in time.
    HadClosed(JobRank, CommunicatorKey),
    /// The clock of another host was measured.
    Measured(ClockOffset),
    /// That rank, which takes part, asks a store that this rank holds.
    StoreAsked(JobRank, StoreRequest),
    /// That rank has answered our request to its store.
    StoreAnswered(JobRank, StoreAnswer),
}

/// The control plane of one rank.
#[derive(Debug)]
pub struct Plane {
    rank: JobRank,
    hosts: Hosts,
    /// Of all ranks, this one too.
    peers: Vec<Peer>,
    patience: Duration,
    /// The evidence about the ranks that the next tick may suspect.
    seen: Vec<(JobRank, &'static str)>,
    topology: Topology,
    /// Whether connections in the place of others are to be made at the next tick.
    is_relink_due: bool,
    /// Whether this rank is about to say goodbye, which must reach the ranks that stay.
    is_leaving: bool,
    detector: Detector,
    probes: Probes,
    flood: Flood,
    forwarding: Forwarding,
    clocks: Clocks,
    actions: Vec<Action>,
}

impl Plane {
    /// The plane of `rank` in a job on these hosts, which wants its first connections at once.
    pub fn new(rank: JobRank, hosts: Hosts, intervals: Intervals, now: Instant) -> Plane {
        let size = hosts.ranks();
        let mut plane = Plane {
            rank,
            hosts,
            peers: vec![Peer::default(); size as usize],
            patience: intervals.suspect,
            seen: Vec::new(),
            topology: Topology::new(rank, size),
            is_relink_due: false,
            is_leaving: false,
            detector: Detector::new(intervals.beat, intervals.suspect, now),
            probes: Probes::new(intervals.suspect),
            flood: Flood::new(rank, size),
            forwarding: Forwarding::default(),
            clocks: Clocks::default(),
            actions: Vec::new(),
        };
        plane.connect_wanted();
        plane
    }

    /// The actions that have become necessary since the last call, in order.
    pub fn take_actions(&mut self) -> Vec<Action> {
        self.forward();
        std::mem::take(&mut self.actions)
    }

    /// Adds an action, behind the news that came before.
    fn push(&mut self, action: Action) {
        self.forward();
        self.actions.push(action);
    }

    /// Sends the news that waits.
    fn forward(&mut self) {
        let peers = JobRank::all(self.hosts.ranks()).filter(|peer| self.peers[peer.index()].is_open());
        let messages = self.forwarding.take(peers);
        self.actions.extend(messages.into_iter().map(|(peer, message)| Action::Send(peer, message)));
    }

    /// This rank.
    pub(crate) fn rank(&self) -> JobRank {
        self.rank
    }

    /// The presence of a rank.
    pub fn presence(&self, rank: JobRank) -> Presence {
        self.peers.get(rank.index()).map_or(Presence::Lost, |peer| peer.presence)
    }

    /// Whether there is a connection to a rank.
    fn has_open(&self, peer: JobRank) -> bool {
        self.peers[peer.index()].is_open()
    }

    /// The news that a communicator must learn when it is made.
    pub fn news_about(&self, key: CommunicatorKey) -> Vec<News> {
        self.flood.about(key)
    }

    /// When [`Plane::on_tick`] is due.
    pub fn due(&self) -> Instant {
        self.detector.due()
    }

    /// Whether every connection that it needs exists. A rank that counts as lost needs none.
    pub fn is_connected(&self) -> bool {
        self.presence(self.rank) != Presence::Live
            || self.topology.wanted(self.rank).into_iter().all(|peer| self.has_open(peer))
    }

    /// Whether a rank to which there is a connection has not said goodbye.
    pub fn awaits_goodbyes(&self) -> bool {
        self.peers.iter().any(|peer| peer.is_open() && peer.presence == Presence::Live)
    }

    /// The connection to a rank is there.
    pub fn on_connected(&mut self, peer: JobRank, now: Instant) {
        self.peers[peer.index()].connection = ConnectionState::Open;
        // The first message. A connection that ends before it says nothing about the other side.
        self.push(Action::Send(peer, Message::Beat));
        // The news from before this connection existed.
        let mut known = Forwarding::default();
        self.flood.kept().for_each(|news| known.add(self.rank, news));
        let known = known.take(std::iter::once(peer)).into_iter().map(|(_, message)| message);
        let questions = self.peers[peer.index()].questions.iter().cloned();
        self.actions.extend(known.chain(questions).map(|message| Action::Send(peer, message)));
        self.watch(now);
    }

    /// The connection to a rank has ended. True when it is to be dialled again; that dial tells whether the rank is
    /// gone. A connection between two live ranks can end on its way too, and then only the messages under way are lost.
    pub fn on_ended(&mut self, peer: JobRank, now: Instant) -> bool {
        let is_wanted = self.presence(peer) == Presence::Live && self.presence(self.rank) == Presence::Live;
        self.peers[peer.index()].connection =
            if is_wanted { ConnectionState::Dialled } else { ConnectionState::None };
        self.watch(now);
        is_wanted
    }

    /// Whether anything has ever come from a rank. Such a rank says goodbye before it leaves.
    pub fn has_heard(&self, peer: JobRank) -> bool {
        self.peers[peer.index()].is_heard
    }

    /// There is no connection to a rank, and there will be none; `certainty` says how sure that makes its loss.
    pub fn on_disconnected(&mut self, peer: JobRank, certainty: Certainty, reason: String, now: Instant) {
        self.peers[peer.index()].connection = ConnectionState::None;
        self.lose(peer, certainty, reason, now);
    }

    /// This rank has seen that the process of a rank on its own host is gone, and has read everything that it had sent
    /// here. That is published also when others have reported the loss before: perhaps no other rank can prove it.
    pub fn on_process_gone(&mut self, rank: JobRank, reason: String, now: Instant) {
        if self.presence(self.rank) == Presence::Live && self.needs_proof(rank) {
            self.publish(Topic::Lost { rank, certainty: Certainty::Confirmed, reason }, now);
        }
    }

    /// Whether a rank is on the host of this one.
    pub(crate) fn is_on_this_host(&self, rank: JobRank) -> bool {
        self.hosts.are_same(self.rank, rank)
    }

    /// Whether it is not yet proven that a rank on our host is gone: it lives, or only other hosts have lost it.
    pub fn needs_proof(&self, rank: JobRank) -> bool {
        let is_neighbour = rank != self.rank && self.is_on_this_host(rank);
        is_neighbour && !self.peers[rank.index()].is_proven_gone
    }

    /// A message has come from a rank.
    pub fn on_message(&mut self, from: JobRank, message: Message, now: Instant) {
        self.detector.heard(from, now);
        self.peers[from.index()].is_heard = true;
        self.on_answer(from, now);
        match message {
            Message::Beat => {}
            Message::Ask { key, number } => self.push(Action::Asked { from, key, number }),
            Message::Answer { key, number, status } => {
                self.peers[from.index()].forget_question(&Message::Ask { key, number });
                self.push(Action::Answered { from, key, number, status });
            }
            Message::News(JointNews { origins, topic }) => {
                origins.into_iter().for_each(|origin| self.on_news(from, origin, &topic, now));
            }
            Message::OtherGroup(other) => self.push(Action::Differs(from, other)),
            Message::AskClock { asked_ns } => {
                let clock_ns = monotonic_ns(now);
                self.push(Action::Send(from, Message::Clock { asked_ns, clock_ns }));
            }
            Message::Clock { asked_ns, clock_ns } => {
                let host = self.hosts.number(from).unwrap_or_default();
                let step = self.clocks.answered((from, host), (asked_ns, clock_ns), monotonic_ns(now));
                self.measure(from, step);
            }
            // A rank that is gone takes no answer.
            Message::StoreRequest(request) => {
                if self.presence(from) == Presence::Live {
                    self.push(Action::StoreAsked(from, request));
                }
            }
            Message::StoreAnswer(answer) => self.push(Action::StoreAnswered(from, answer)),
        }
    }

    /// The ranks on our host that the next tick may suspect.
    pub fn silent_neighbours(&self, now: Instant) -> Vec<JobRank> {
        self.detector.silent(now).filter(|&rank| self.hosts.are_same(self.rank, rank)).collect()
    }

    /// A rank lives, although nothing comes from it.
    pub fn excuse(&mut self, rank: JobRank, now: Instant) {
        self.detector.heard(rank, now);
    }

    /// Evidence about a rank that the next tick may suspect, such as that its process is stopped.
    pub fn note_seen(&mut self, rank: JobRank, seen: &'static str) {
        self.seen.push((rank, seen));
    }

    /// The detector's tick.
    pub fn on_tick(&mut self, now: Instant) {
        let seen = std::mem::take(&mut self.seen);
        for silence in self.detector.tick(now) {
            let seen = seen.iter().find(|(rank, _)| *rank == silence.rank).map_or("", |(_, seen)| seen);
            let (silent, patience) = (silence.silent.as_millis(), self.patience.as_millis());
            let cause = if seen.is_empty() { String::new() } else { format!(", {seen}") };
            let reason =
                format!("silent for {silent} ms{cause}; UNISONO_SUSPECT_AFTER_MS={patience} allows no more");
            self.lose(silence.rank, Certainty::Suspected, reason, now);
        }
        self.probes.on_time(now);
        if std::mem::take(&mut self.is_relink_due) {
            self.connect_wanted();
        }
        self.dial_missing(now);
        let watchers = self.topology.watchers().into_iter().filter(|peer| self.peers[peer.index()].is_open());
        self.actions.extend(watchers.map(|peer| Action::Send(peer, Message::Beat)));
        for peer in JobRank::all(self.hosts.ranks()) {
            let is_there = self.has_open(peer) && self.presence(peer) == Presence::Live;
            if is_there && !self.is_on_this_host(peer) {
                let step = self.clocks.on_time(peer, monotonic_ns(now));
                self.measure(peer, step);
            }
        }
    }

    fn measure(&mut self, peer: JobRank, step: Option<ClockStep>) {
        self.actions.extend(step.map(|step| match step {
            ClockStep::Ask(asked_ns) => Action::Send(peer, Message::AskClock { asked_ns }),
            ClockStep::Measured(offset) => Action::Measured(offset),
        }));
    }

    /// Publishes a topic to all ranks.
    pub fn publish(&mut self, topic: Topic, now: Instant) {
        let news = self.flood.publish(topic);
        self.spread(self.rank, news, now);
    }

    /// No rank gets this rank's ballots about a communicator from now on.
    pub(crate) fn withdraw_ballots(&mut self, key: CommunicatorKey) {
        self.flood.withdraw_ballots(key);
    }

    /// Asks a rank about its call.
    pub fn ask(&mut self, peer: JobRank, key: CommunicatorKey, number: u64) {
        self.tell(peer, Message::Ask { key, number });
    }

    /// Sends a question or another list to a rank, as soon as there is a connection.
    pub fn tell(&mut self, peer: JobRank, message: Message) {
        self.peers[peer.index()].keep_question(message.clone());
        self.send(peer, message);
    }

    /// Sends a message to a rank. Where there is no connection, the message is lost, and a connection is made.
    pub fn send(&mut self, peer: JobRank, message: Message) {
        if self.has_open(peer) {
            self.push(Action::Send(peer, message));
        } else {
            self.connect(peer);
        }
    }

    /// Each piece of news comes from most peers of this rank. So a repetition costs no copy.
    fn on_news(&mut self, from: JobRank, publisher: Publisher, topic: &Topic, now: Instant) {
        let Publisher { rank: origin, sequence } = publisher;
        if !self.flood.is_new(origin, sequence) {
            return self.forwarding.also_knows(from, publisher);
        }
        // A live rank that counts as lost is not listened to any more: it may have missed any news.
        let is_heard = self.presence(origin) != Presence::Lost && self.presence(self.rank) != Presence::Lost;
        // Only this rank publishes news in its own name.
        let is_heard = is_heard && origin != self.rank;
        if !is_heard {
            if let Topic::Closed { key, .. } = topic
                && self.presence(self.rank) == Presence::Live
            {
                self.push(Action::HadClosed(origin, *key));
            }
            return;
        }
        let news = News { origin, sequence, topic: topic.clone() };
        self.flood.accept(&news);
        self.spread(from, news, now);
    }

    fn lose(&mut self, rank: JobRank, certainty: Certainty, reason: String, now: Instant) {
        // When this rank counts as lost, all others end their connections to it. That says nothing about them.
        if self.presence(self.rank) == Presence::Live && self.presence(rank) == Presence::Live {
            self.publish(Topic::Lost { rank, certainty, reason }, now);
        }
    }

    /// Forwards news and acts on it.
    fn spread(&mut self, from: JobRank, news: News, now: Instant) {
        self.forwarding.add(from, &news);
        if !news.topic.may_wait() {
            self.forward();
        }
        let gone = match news.topic {
            Topic::Lost { rank, certainty, .. } => Some((rank, Presence::Lost, certainty)),
            Topic::Goodbye => Some((news.origin, Presence::Left, Certainty::Confirmed)),
            Topic::Revoked { .. } | Topic::Closed { .. } | Topic::Ballot { .. } | Topic::Decision { .. } => {
                None
            }
        };
        if let Topic::Revoked { cause, .. } = &news.topic {
            cause.lost_ranks().into_iter().for_each(|rank| self.look_for(rank, now));
        }
        let by = news.origin;
        if let Some(gone) = self.hosts.proven_gone(&news).and_then(|rank| self.peers.get_mut(rank.index())) {
            gone.is_proven_gone = true;
        }
        self.actions.push(Action::Happened(news));
        if let Some((rank, presence, certainty)) = gone.filter(|gone| gone.0.index() < self.peers.len()) {
            let peer = &mut self.peers[rank.index()];
            let before = std::mem::replace(&mut peer.presence, presence);
            peer.questions.clear();
            if rank != self.rank {
                self.topology.remove(rank);
                self.probes.remove(rank);
                self.relink(presence == Presence::Left || certainty == Certainty::Suspected);
                if presence == Presence::Lost && before != Presence::Lost {
                    self.take_over_reports(rank, now);
                    self.probe_host_of(rank, certainty, now);
                }
                self.watch(now);
            } else if by != self.rank {
                // A rank behind a network partition never hears from the ranks that count us as lost. It must not wait
                // for us.
                self.publish(self.own_loss(by), now);
            }
        }
    }

    /// The loss of this rank, which another one counts as lost.
    pub(crate) fn own_loss(&self, by: JobRank) -> Topic {
        let reason = format!("rank {by} has taken it for dead");
        Topic::Lost { rank: self.rank, certainty: Certainty::Suspected, reason }
    }

    /// A rank that has reported losses counts as lost itself. Ranks that had lost it before have ignored its reports,
    /// so this rank reports the losses in its own name. Else both sides would go on with different survivors.
    fn take_over_reports(&mut self, reporter: JobRank, now: Instant) {
        let is_heard = |rank: JobRank| self.presence(rank) != Presence::Lost;
        let orphaned = self.flood.losses_left_by(reporter, is_heard);
        if self.presence(self.rank) == Presence::Live {
            orphaned.into_iter().for_each(|loss| self.publish(loss, now));
        }
    }

    /// Watches the ranks that send us heartbeats, once there is a connection for them, and also while it is made again.
    fn watch(&mut self, now: Instant) {
        let beats = |rank: &JobRank| self.has_open(*rank) || self.has_heard(*rank);
        let mut watched: Vec<JobRank> = self.topology.watched().into_iter().filter(beats).collect();
        watched.extend(self.probes.unanswered());
        watched.sort_unstable();
        watched.dedup();
        self.detector.watch(watched, now);
    }
}
