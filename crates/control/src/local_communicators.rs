//! All communicators of this rank as the control thread sees them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_backend::{
    Ask, Asked, CallHistory, CallStatus, GroupText, Revocation, different_groups, judge_answer, on_rank,
    order_mismatch, with_call_ahead, with_call_elsewhere,
};
use unisono_communicator::{Certainty, Error, GroupRank, JobRank};

use super::communicator_map::CommunicatorMap;
use super::control_plane::{Caller, Effect};
use super::dials::Failure;
use super::hosts::Hosts;
use super::left_communicators::LeftCommunicators;
use super::local_communicator::{Closing, LocalCommunicator};
use super::slots::Slot;
use crate::wire::{CommunicatorKey, ConnectionRole, News, OtherGroup, Topic};

/// The bits of a communicator's id that depend on the list of its ranks and on its options; the others say how it came
/// about.
pub const ID_LIST_BITS: u32 = 24;

/// The number of deadlocks that are remembered.
const DEADLOCKS_MAX: usize = 16;

/// A deadline that has passed because ranks wait for each other in several communicators.
struct Deadlock {
    cause: Arc<Error>,
    /// Another communicator, in which this rank was awaited.
    communicator: CommunicatorKey,
    /// The numbers of collectives and of messages that this rank had made there.
    made: (u64, u64),
}

impl Deadlock {
    /// The numbers of collectives and of messages that this rank has made in a communicator.
    fn made(communicator: &LocalCommunicator) -> (u64, u64) {
        (communicator.board.calls().entered(), communicator.board.messages().entered())
    }

    /// This rank leaves a communicator. If it has never come there because of a deadlock that has failed another one,
    /// the ranks that wait for it get that failure: it is no loss of this rank. Returns the topics to publish.
    fn part(
        deadlocks: &VecDeque<Deadlock>,
        communicator: &mut LocalCommunicator,
        (ours, by_close): (CallHistory, bool),
    ) -> Vec<Topic> {
        let (key, made) = (communicator.key, Deadlock::made(communicator));
        let deadlock = deadlocks.iter().find(|one| (one.communicator, one.made) == (key, made));
        let revoked = deadlock.and_then(|deadlock| communicator.find((*deadlock.cause).clone()));
        revoked.into_iter().chain(communicator.goodbye(ours, by_close)).collect()
    }
}

/// All communicators of this rank.
pub struct LocalCommunicators {
    hosts: Hosts,
    communicators: CommunicatorMap,
    left: LeftCommunicators,
    /// The last calls that have missed their deadline because ranks wait for each other in several communicators.
    deadlocks: VecDeque<Deadlock>,
    /// This rank has left all of them, and publishes nothing about them any more.
    has_left_all: bool,
    effects: Vec<Effect>,
}

impl LocalCommunicators {
    /// None yet, in a job on these hosts.
    pub fn new(hosts: Hosts) -> LocalCommunicators {
        let (communicators, left) = (CommunicatorMap::default(), LeftCommunicators::default());
        LocalCommunicators {
            hosts,
            communicators,
            left,
            deadlocks: VecDeque::new(),
            has_left_all: false,
            effects: Vec::new(),
        }
    }

    /// Adds a communicator, and applies earlier news. Returns the topics to publish in turn.
    pub fn add(&mut self, mut communicator: LocalCommunicator, news: &[News], now: Instant) -> Vec<Topic> {
        let topics = news.iter().flat_map(|news| communicator.happened(news, &self.hosts, now)).collect();
        self.communicators.insert(communicator);
        topics
    }

    /// Removes a communicator that has made these calls. Returns the topics to publish.
    pub fn leave(&mut self, key: CommunicatorKey, ours: CallHistory) -> Vec<Topic> {
        let Some(mut communicator) = self.communicators.remove(key) else { return Vec::new() };
        self.effects.extend(communicator.give_up());
        if communicator.is_told {
            return Vec::new();
        }
        let topics = Deadlock::part(&self.deadlocks, &mut communicator, (ours, false));
        self.left.count(&communicator.board);
        self.left.add(key, communicator.peers, ours, communicator.closed);
        topics
    }

    /// A thread that panics drops a communicator, so this rank has not left but failed. Returns the topic to publish.
    pub fn abandon(&mut self, key: CommunicatorKey) -> Option<Topic> {
        let communicator = self.communicators.get_mut(key).filter(|communicator| !communicator.is_told)?;
        let own = communicator.group.own_rank();
        let cause = communicator.gone(own, Certainty::Confirmed, "its thread panicked".to_owned());
        communicator.find(cause)
    }

    /// The process ends without having dropped these. Returns the topics to publish about them.
    pub fn leave_all(&mut self) -> Vec<Topic> {
        self.has_left_all = true;
        let mut topics = Vec::new();
        for communicator in self.communicators.values_mut() {
            if !std::mem::replace(&mut communicator.is_told, true) {
                let (key, ours) = (communicator.key, communicator.board.calls().history());
                topics.extend(Deadlock::part(&self.deadlocks, communicator, (ours, false)));
                self.left.add(key, communicator.peers.clone(), ours, communicator.closed.clone());
            }
        }
        topics
    }

    /// Whether started calls of any of them go on.
    pub fn go_on(&self) -> bool {
        self.communicators.values().any(LocalCommunicator::goes_on)
    }

    /// Whether all calls that go on wait for ranks that have left.
    pub fn await_left(&self) -> bool {
        self.communicators.values().filter(|one| one.goes_on()).all(LocalCommunicator::awaits_left)
    }

    /// The number of started calls that have failed.
    pub fn calls_failed(&self) -> u64 {
        let open: u64 = self.communicators.values().map(|one| one.board.unfinished().failed()).sum();
        open + self.left.calls_failed()
    }

    /// The number of started calls that are not over.
    pub fn calls_started(&self) -> u64 {
        self.communicators.values().map(|one| one.board.unfinished().started()).sum()
    }

    /// The first cause of a communicator that has failed and was not dropped.
    pub fn first_cause(&self) -> Option<Error> {
        self.communicators.values().find_map(|communicator| communicator.board.first_cause().error())
    }

    /// Whether one of them has failed. Then it is no wonder that messages were not received.
    pub fn have_failed(&self) -> bool {
        self.left.have_failed() || self.communicators.values().any(|one| one.board.first_cause().is_revoked())
    }

    /// The number of messages that have arrived and that nobody has received.
    pub fn unread(&self) -> u64 {
        let open: u64 = self.communicators.values().map(|one| one.board.unfinished().unread()).sum();
        open + self.left.unread()
    }

    /// The communicators that this rank has left without `close`.
    pub fn left(&self) -> &LeftCommunicators {
        &self.left
    }

    /// The stream from a rank has ended in the middle of a call. Returns the loss to publish if it is known that the
    /// rank has left.
    pub fn stream_ended(&mut self, key: CommunicatorKey, peer: GroupRank) -> Option<Topic> {
        let communicator = self.communicators.get_mut(key)?;
        *communicator.ended_streams.get_mut(peer.index())? = true;
        communicator.left_too_early(peer)
    }

    /// One of them.
    pub fn get(&self, key: CommunicatorKey) -> Option<&LocalCommunicator> {
        self.communicators.get(key)
    }

    /// Applies news to all of them. Returns the topics to publish in turn.
    pub fn happened(&mut self, news: &News, now: Instant) -> Vec<Topic> {
        self.left.happened(news);
        if self.has_left_all {
            // Later failures of others come from this rank's leaving.
            return Vec::new();
        }
        let hosts = &self.hosts;
        let topics = match news.topic.key() {
            Some(key) => {
                let concerned = self.communicators.get_mut(key).into_iter();
                concerned.flat_map(|communicator| communicator.happened(news, hosts, now)).collect()
            }
            None => {
                let all = self.communicators.values_mut();
                all.flat_map(|communicator| communicator.happened(news, hosts, now)).collect()
            }
        };
        if let Topic::Revoked { key, .. } = news.topic {
            self.note_deadlock(key);
        }
        topics
    }

    /// A lost rank had closed a communicator before. Returns the first cause to publish, if this rank has failed with
    /// that loss.
    pub fn had_closed(&mut self, rank: JobRank, key: CommunicatorKey) -> Option<Topic> {
        self.communicators.get_mut(key)?.had_closed(rank)
    }

    /// Starts this rank's part in an agreement. Returns the topics to publish.
    pub fn agree(&mut self, key: CommunicatorKey, ask: Ask, caller: Caller, now: Instant) -> Vec<Topic> {
        let Some(communicator) = self.communicators.get_mut(key) else {
            self.effects.push(Effect::Agreed(caller, Err(Error::closed())));
            return Vec::new();
        };
        communicator.survival.ask(ask, caller, now)
    }

    /// This rank has not been able to make a control connection since `since`, so ranks that begin may wait for it in
    /// vain. Returns the failures to publish.
    pub fn fall_short(
        &mut self,
        error: &Error,
        (since, patience): (Instant, Duration),
        now: Instant,
    ) -> Vec<Topic> {
        let mut topics = Vec::new();
        for communicator in self.communicators.values_mut() {
            if communicator.survival.is_beginning_late(since, patience, now) {
                let cause = on_rank(error.clone(), communicator.group.own_job_rank());
                topics.extend(communicator.find(cause));
                communicator.survival.answer(now);
            }
        }
        topics
    }

    /// The rank of its communicator to which a connection goes. A communicator that was dropped meanwhile needs none.
    pub fn peer_of(&self, slot: Slot) -> Option<GroupRank> {
        self.get(slot.key)?.group.group_rank_of(slot.peer)
    }

    /// The engine has this connection.
    pub fn connected(&self, slot: Slot) {
        if slot.role == ConnectionRole::PointToPoint
            && let (Some(communicator), Some(peer)) = (self.get(slot.key), self.peer_of(slot))
        {
            communicator.board.closings().note_message_stream(peer);
        }
    }

    /// A rank has left a communicator, and the engine has all connections for messages from it.
    pub fn left_completely(&self, key: CommunicatorKey, rank: JobRank) {
        if let Some(communicator) = self.get(key)
            && let Some(peer) = communicator.group.group_rank_of(rank)
        {
            communicator.board.closings().note_complete(peer);
        }
    }

    /// A connection that a communicator wants will never come.
    pub fn not_connected(&mut self, slot: Slot, failure: Failure) {
        let Some(communicator) = self.get(slot.key) else { return };
        let Some(peer) = communicator.group.group_rank_of(slot.peer) else { return };
        let error = match failure {
            Failure::Gone(certainty, reason) => communicator.gone(peer, certainty, reason),
            Failure::Error(error) => error,
        };
        self.effects.push(Effect::NotConnected(slot.key, error));
    }

    /// A connection has ended after this rank had begun to use it and before the other side had. Returns the failure to
    /// publish.
    pub fn connection_lost(&mut self, slot: Slot) -> Option<Topic> {
        let communicator = self.communicators.get_mut(slot.key)?;
        let peer = communicator.group.group_rank_of(slot.peer)?;
        let reason = "their connection ended before both sides had it".to_owned();
        let cause = communicator.gone(peer, Certainty::Suspected, reason);
        communicator.find(cause)
    }

    /// A communicator was revoked. If a deadline has passed there because ranks wait for each other, and for this rank
    /// in another communicator, this rank remembers that for when it leaves the other one.
    pub fn note_deadlock(&mut self, key: CommunicatorKey) {
        let Some(revoked) = self.get(key) else { return };
        let Some(Revocation { cause, .. }) = revoked.board.first_cause().revocation() else { return };
        let others = match cause.root_cause() {
            Error::Timeout { .. } => revoked.board.answers().awaited_elsewhere(revoked.group.own_job_rank()),
            _ => Vec::new(),
        };
        for other in others {
            let Some(made) = self.get(other).map(Deadlock::made) else { continue };
            self.deadlocks.truncate(DEADLOCKS_MAX - 1);
            self.deadlocks.push_front(Deadlock { cause: cause.clone(), communicator: other, made });
        }
    }

    /// Starts to close one. Returns the news to publish, unless this rank has published it before.
    pub fn close(
        &mut self,
        key: CommunicatorKey,
        ours: CallHistory,
        (now, deadline): (Instant, Instant),
        caller: Caller,
    ) -> Vec<Topic> {
        let Some(communicator) = self.communicators.get_mut(key) else {
            self.effects.push(Effect::Closed(caller, Err(Error::closed())));
            return Vec::new();
        };
        let is_first = !std::mem::replace(&mut communicator.is_told, true);
        let topics = match is_first {
            true => Deadlock::part(&self.deadlocks, communicator, (ours, true)),
            false => Vec::new(),
        };
        communicator.closing = Some(Closing { ours, deadline, caller, is_searched: false, search: None });
        communicator.finish_closing(now);
        topics
    }

    /// The question about call `number` to a rank of a communicator, if this rank has it.
    pub fn asked(&self, key: CommunicatorKey, awaited: GroupRank, number: u64) -> Option<Asked> {
        let communicator = self.get(key).filter(|one| awaited.get() < one.group.size())?;
        Some(Asked { communicator: key, ..communicator.peers.asked(awaited, number) })
    }

    /// Called before a rank is asked about a call: returns the failure to publish if the answer is known already. Of a
    /// rank that has left, messages may be on their way.
    pub fn before_asking(&mut self, asked: Asked) -> Option<Topic> {
        let communicator = self.communicators.get_mut(asked.communicator).filter(|_| !asked.is_message)?;
        let awaited = communicator.group.group_rank_of(asked.rank)?;
        let cause = communicator.awaited_has_closed(awaited, asked.number)?;
        communicator.find(cause)
    }

    /// This rank's answer about its call.
    pub fn status(&self, key: CommunicatorKey, number: u64) -> CallStatus {
        let all = || self.communicators.values().map(LocalCommunicator::membership);
        let nothing = CallStatus::NotYet { last: None, doing: Box::default() };
        let status = self.get(key).map_or(nothing, |communicator| {
            with_call_ahead(communicator.board.status(number), communicator.membership(), all())
        });
        with_call_elsewhere(status, key, all())
    }

    /// A rank of the job has answered our question. Returns the failure to publish, if the answer shows one.
    pub fn answered(
        &mut self,
        from: JobRank,
        key: CommunicatorKey,
        number: u64,
        status: &CallStatus,
    ) -> Option<Topic> {
        let awaits = |one: &&LocalCommunicator| one.key != key && one.awaits_answer((from, key, number));
        let others: Vec<_> = self.communicators.values().filter(awaits).map(LocalCommunicator::key).collect();
        for other in others {
            if let Some(communicator) = self.communicators.get_mut(other) {
                communicator.answered_elsewhere((from, key, number), status);
            }
        }
        let communicator = self.get(key).filter(|one| one.group.own_job_rank() != from)?;
        let rank = communicator.group.group_rank_of(from)?;
        let cause = judge_answer(&communicator.peers, rank, number, status).or_else(|| {
            let (own, asked) = (communicator.group.own_job_rank(), communicator.membership());
            order_mismatch(own, asked, from, status, |key| self.get(key).map(LocalCommunicator::membership))
        });
        self.communicators.get_mut(key)?.answered(rank, number, status, cause)
    }

    /// The effects since the last call.
    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        let mut effects = std::mem::take(&mut self.effects);
        effects.extend(self.communicators.touched().into_iter().flat_map(LocalCommunicator::take_effects));
        self.communicators.settle();
        effects
    }

    /// The ranks to ask about calls now, since the last call.
    pub fn take_questions(&mut self) -> Vec<Asked> {
        let touched = self.communicators.touched().into_iter();
        touched.flat_map(|communicator| communicator.questions.drain(..)).collect()
    }

    /// A connection for `slot` came. The message for its other side, if this rank has a communicator that was made in
    /// the same way for other ranks, or with other options.
    pub fn other_group(&self, slot: Slot) -> Option<OtherGroup> {
        let origin = |key: CommunicatorKey| (key.id >> ID_LIST_BITS, key.epoch);
        let communicator = self.communicators.values().find(|communicator| {
            communicator.key.id != slot.key.id && origin(communicator.key) == origin(slot.key)
        })?;
        Some(OtherGroup {
            mine: communicator.key,
            yours: slot.key,
            group: GroupText::of(&communicator.group),
        })
    }

    /// A rank has told of its group. Revokes our communicator, which is another one; returns the causes of both, to
    /// be published.
    pub fn differs(&mut self, from: JobRank, other: &OtherGroup) -> Vec<Topic> {
        let members = JobRank::all(self.hosts.ranks()).collect();
        let Some(communicator) = self.communicators.get_mut(other.yours) else { return Vec::new() };
        let ours = GroupText::of(&communicator.group);
        let cause = different_groups((communicator.group.own_job_rank(), &ours), (from, &other.group));
        // Its members are not known here, so all ranks count as such.
        let theirs = Topic::Revoked { key: other.mine, members, cause: cause.clone() };
        communicator.find(cause).into_iter().chain([theirs]).collect()
    }

    /// When [`LocalCommunicators::on_time`] is due, if ever.
    pub fn due(&self) -> Option<Instant> {
        self.communicators.due()
    }

    /// Answers the callers whose time is up. Returns the topics to publish.
    pub fn on_time(&mut self, now: Instant) -> Vec<Topic> {
        let mut topics = Vec::new();
        for key in self.communicators.timed() {
            let Some(communicator) = self.communicators.get_mut(key) else { continue };
            topics.extend(communicator.search_difference(now));
            communicator.finish_closing(now);
            topics.extend(communicator.survival.step(now));
        }
        topics
    }
}

#[cfg(test)]
#[path = "local_communicators_tests.rs"]
mod tests;
