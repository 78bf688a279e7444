//! The communicators of this rank as the control thread sees them, and what news means to each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::Sender;
use unisono_backend::{
    Ask, Board, CallHistory, CallStatus, Membership, Peers, Revocation, Waker, asked_next, closing_error,
    different_lists, judge_answer, list_text, on_rank, order_mismatch, with_call_ahead,
};
use unisono_communicator::{CallInfo, Certainty, Error, Group, GroupRank, JobRank};

use super::hosts::Hosts;
use super::left_communicators::LeftCommunicators;
use super::slots::Slot;
use super::survival::Survival;
use super::{AgreeAnswer, CloseAnswer};
use crate::links::{DataSocket, Delivery};
use crate::wire::{CommunicatorKey, ConnectionRole, Departure, Fate, News, OtherList, Topic};

/// The bits of a communicator's id that depend on the list of its ranks; the others say how it came about.
pub(crate) const ID_LIST_BITS: u32 = 16;

struct Closing {
    ours: CallHistory,
    deadline: Instant,
    answer: CloseAnswer,
}

/// Why a wanted connection will never exist.
pub(crate) enum Failure {
    /// The other side is gone, with this certainty.
    Gone(Certainty, String),
    /// Anything else.
    Error(Error),
}

/// One communicator.
pub(crate) struct LocalCommunicator {
    key: CommunicatorKey,
    group: Group,
    peers: Peers,
    board: Arc<Board>,
    inbox: Sender<Delivery>,
    waker: Waker,
    /// Per group rank: whether it takes no part any more, and after which calls.
    closed: Vec<Option<Departure>>,
    /// Per group rank: whether its stream has ended in the middle of a call of this rank.
    ended_streams: Vec<bool>,
    is_told: bool,
    closing: Option<Closing>,
    survival: Survival,
}

impl LocalCommunicator {
    pub(crate) fn new(
        key: CommunicatorKey,
        group: Group,
        board: Arc<Board>,
        (inbox, waker): (Sender<Delivery>, Waker),
    ) -> LocalCommunicator {
        let (closed, ended_streams) = (vec![None; group.size() as usize], vec![false; group.size() as usize]);
        let survival = Survival::new(key, group.clone(), board.clone());
        let peers = Peers::new(group.clone(), board.clone());
        LocalCommunicator {
            key,
            group,
            peers,
            board,
            inbox,
            waker,
            closed,
            ended_streams,
            is_told: false,
            closing: None,
            survival,
        }
    }

    /// Its key.
    pub(crate) fn key(&self) -> CommunicatorKey {
        self.key
    }

    fn membership(&self) -> Membership<'_> {
        Membership { key: self.key, ranks: self.group.job_ranks(), board: &self.board }
    }

    /// The rank in the job of one of its ranks.
    pub(crate) fn job_rank(&self, rank: GroupRank) -> JobRank {
        self.group.job_rank(rank)
    }

    /// Puts a delivery into the inbox and wakes the thread that waits for it. A communicator that is being dropped
    /// ignores it.
    fn post(&self, delivery: Delivery) {
        if self.inbox.send(delivery).is_ok() {
            (self.waker)();
        }
    }

    /// The call that is going on, if there is one.
    fn running(&self) -> Option<CallInfo> {
        let number = self.board.entered().checked_sub(1)?;
        match self.board.status(number) {
            CallStatus::Running { call, .. } => Some(call),
            _ => None,
        }
    }

    /// The loss of `peer`, which `noticed_by` noticed.
    fn peer_lost(&self, peer: GroupRank, noticed_by: JobRank, certainty: Certainty, reason: String) -> Error {
        self.peers.lost(peer, noticed_by, certainty, reason, self.running())
    }

    /// The failure of a call that needs a rank that is not there any more.
    fn gone(&self, peer: GroupRank, certainty: Certainty, reason: String) -> Error {
        self.peer_lost(peer, self.group.own_job_rank(), certainty, reason)
    }

    /// Revokes with a cause found by the rank of the job `origin`.
    fn revoke(&self, origin: JobRank, cause: Error) {
        // A rank that has reported its own failure stays the culprit, whatever it reports later: it may live, and lose
        // other ranks that have left because of its failure.
        let has_told_of_itself =
            |first: Revocation| first.by == origin && first.cause.lost_ranks() == [origin];
        if self.board.revocation().is_some_and(has_told_of_itself) {
            return;
        }
        if self.board.revoke_reported(origin, Arc::new(cause)) {
            (self.waker)();
        }
    }

    /// Revokes with a cause found here; returns the topic to publish if it is the first cause.
    fn find(&self, cause: Error) -> Option<Topic> {
        let is_first = self.board.revoke(self.group.own_job_rank(), Arc::new(cause.clone()));
        (self.waker)();
        is_first.then_some(Topic::Revoked { key: self.key, cause })
    }

    /// Applies news to this communicator; returns what is to be published in turn.
    fn happened(&mut self, news: &News, hosts: &Hosts, now: Instant) -> Vec<Topic> {
        match &news.topic {
            Topic::Revoked { key, cause } if *key == self.key => self.revoke(news.origin, cause.clone()),
            Topic::Lost { rank, certainty, reason } => {
                let Some(peer) = self.group.group_rank_of(*rank) else { return Vec::new() };
                if peer == self.group.own_rank() {
                    self.evicted(news.origin, reason.clone(), now);
                } else {
                    let is_proven = hosts.proven_gone(news).is_some();
                    self.survival.note(peer, if is_proven { Fate::Gone } else { Fate::Unproven });
                    self.lost(peer, (news.origin, now), *certainty, reason.clone());
                }
            }
            Topic::Closed { key, departure } if *key == self.key => {
                let early = self.note_closed(news.origin, departure.clone(), now);
                return early.into_iter().chain(self.survival.step(now)).collect();
            }
            // A rank closes its communicators before it leaves the job, so it never made this one.
            Topic::Goodbye => {
                let departure = Departure::before_first_call();
                let early = self.note_closed(news.origin, departure, now);
                return early.into_iter().chain(self.survival.step(now)).collect();
            }
            Topic::Ballot { agreement, ballot } if agreement.communicator == self.key => {
                if let Some(from) = self.group.group_rank_of(news.origin) {
                    self.survival.on_ballot(from, *agreement, ballot.clone());
                }
            }
            Topic::Decision { agreement, ballot } if agreement.communicator == self.key => {
                if let Some(from) = self.group.group_rank_of(news.origin) {
                    self.survival.on_decision(from, *agreement, ballot.clone());
                }
            }
            Topic::Revoked { .. } | Topic::Closed { .. } | Topic::Ballot { .. } | Topic::Decision { .. } => {}
        }
        self.survival.step(now)
    }

    fn lost(
        &mut self,
        peer: GroupRank,
        (noticed_by, now): (JobRank, Instant),
        certainty: Certainty,
        reason: String,
    ) {
        // A rank that has closed is no loss; a call that still waits for it learns that by asking.
        if self.closed[peer.index()].is_none() {
            let cause = self.peer_lost(peer, noticed_by, certainty, reason);
            self.revoke(noticed_by, cause);
            self.finish_closing(now);
        }
    }

    fn evicted(&mut self, noticed_by: JobRank, reason: String, now: Instant) {
        self.board.evict(noticed_by, reason);
        (self.waker)();
        self.finish_closing(now);
    }

    /// Another rank takes no part any more. What it has sent stays valid, so calls go on. Returns the loss to publish
    /// if a call of this rank has met the end of its stream.
    fn note_closed(&mut self, origin: JobRank, departure: Departure, now: Instant) -> Option<Topic> {
        let mut early = None;
        if let Some(peer) = self.group.group_rank_of(origin) {
            if peer != self.group.own_rank() {
                // It takes no part any more, whether it lives or not.
                self.survival.note(peer, Fate::Gone);
                self.board.closings().note_closed(peer);
            }
            // A rank that closes after a failure may have made fewer calls. That is no mismatch.
            if !self.board.is_revoked() {
                self.closed[peer.index()].get_or_insert(departure);
            }
            early = self.left_too_early(peer);
            self.finish_closing(now);
        }
        early
    }

    /// The loss of a rank that has left in good order, while a call of this rank needs more than it has sent.
    fn left_too_early(&self, peer: GroupRank) -> Option<Topic> {
        let departure = self.closed[peer.index()].as_ref().filter(|_| self.ended_streams[peer.index()])?;
        self.find(self.gone(peer, Certainty::Confirmed, left_after(departure)))
    }

    /// Answers a waiting `close` once all ranks have closed, or its time is up.
    fn finish_closing(&mut self, now: Instant) {
        let is_complete = self.closed.iter().all(Option::is_some) || self.board.is_revoked();
        if let Some(closing) = self.closing.take_if(|closing| is_complete || closing.deadline <= now) {
            // Nobody takes the answer when the caller has given up.
            let error = self.closing_error(closing.ours);
            let _ = closing.answer.send(error.map_or(Ok(()), Err));
        }
    }

    /// The error of a rank that closes after these calls. Ranks that have closed too must have made the same calls. A
    /// rank that has left in another way, after fewer calls, has left too early.
    fn closing_error(&self, ours: CallHistory) -> Option<Error> {
        let by_close =
            |one: &Option<Departure>| one.as_ref().filter(|one| one.by_close).map(|one| one.history);
        let closed: Vec<Option<CallHistory>> = self.closed.iter().map(by_close).collect();
        let left_early = || {
            let is_early = |one: &Departure| !one.by_close && one.history.calls < ours.calls;
            let (peer, departure) = self.group.ranks().zip(&self.closed).find_map(|(peer, one)| {
                let departure = one.as_ref().filter(|one| is_early(one))?;
                Some((peer, departure))
            })?;
            Some(self.gone(peer, Certainty::Confirmed, left_after(departure)))
        };
        closing_error(&self.peers, ours, &closed).or_else(left_early)
    }

    /// The failure of a call that waits for a rank that has closed before that call.
    fn awaited_has_closed(&self, awaited: GroupRank, number: u64) -> Option<Error> {
        let departure = self.closed.get(awaited.index())?.as_ref();
        let departure = departure.filter(|departure| departure.history.calls <= number)?;
        Some(self.gone(awaited, Certainty::Confirmed, left_after(departure)))
    }

    /// How this rank leaves it now.
    fn departure(&self, history: CallHistory, by_close: bool) -> Departure {
        let last = history.calls.checked_sub(1).and_then(|last| self.board.call_info(last));
        let in_progress = u32::try_from(self.board.calls_in_progress()).unwrap_or(u32::MAX);
        Departure { history, by_close, in_progress, last }
    }

    /// Whether started calls go on: some are not over, and nothing has failed.
    fn goes_on(&self) -> bool {
        self.board.unfinished().started() > 0 && !self.board.is_revoked()
    }

    /// Whether its calls wait for a rank that has left.
    fn awaits_left(&self) -> bool {
        let has_left = |rank: GroupRank| self.closed.get(rank.index()).is_some_and(Option::is_some);
        self.board.awaited().is_some_and(has_left)
    }
}

/// The reason that is given for the loss of a rank that has left in good order.
fn left_after(departure: &Departure) -> String {
    let when = match departure.history.calls.checked_sub(1) {
        Some(last) => format!("it left after call {last}"),
        None => "it left before its first call".to_owned(),
    };
    match departure.in_progress {
        0 => when,
        1 => format!("{when}, with 1 call in progress"),
        calls => format!("{when}, with {calls} calls in progress"),
    }
}

/// All communicators of this rank.
pub(crate) struct LocalCommunicators {
    hosts: Hosts,
    communicators: BTreeMap<CommunicatorKey, LocalCommunicator>,
    left: LeftCommunicators,
    /// This rank has left all of them, and publishes nothing about them any more.
    has_left_all: bool,
}

impl LocalCommunicators {
    /// None yet, in a job on these hosts.
    pub(crate) fn new(hosts: Hosts) -> LocalCommunicators {
        let (communicators, left) = (BTreeMap::new(), LeftCommunicators::default());
        LocalCommunicators { hosts, communicators, left, has_left_all: false }
    }

    /// Adds one, and applies what has happened before. Returns what is to be published in turn.
    pub(crate) fn add(
        &mut self,
        mut communicator: LocalCommunicator,
        news: &[News],
        now: Instant,
    ) -> Vec<Topic> {
        let topics = news.iter().flat_map(|news| communicator.happened(news, &self.hosts, now)).collect();
        self.communicators.insert(communicator.key, communicator);
        topics
    }

    /// Removes one that has made these calls. Returns what is to be published.
    pub(crate) fn leave(&mut self, key: CommunicatorKey, ours: CallHistory) -> Option<Topic> {
        let communicator = self.communicators.remove(&key).filter(|communicator| !communicator.is_told)?;
        let departure = communicator.departure(ours, false);
        self.left.count(&communicator.board);
        self.left.add(key, communicator.peers, ours, communicator.closed);
        Some(Topic::Closed { key, departure })
    }

    /// A thread that panics drops one, so this rank has not left but failed. Returns what is to be published.
    pub(crate) fn abandon(&self, key: CommunicatorKey) -> Option<Topic> {
        let communicator = self.get(key).filter(|communicator| !communicator.is_told)?;
        let own = communicator.group.own_rank();
        communicator.find(communicator.gone(own, Certainty::Confirmed, "its thread panicked".to_owned()))
    }

    /// The process ends without having dropped these. Returns what is to be published about them.
    pub(crate) fn leave_all(&mut self) -> Vec<Topic> {
        self.has_left_all = true;
        let mut topics = Vec::new();
        for communicator in self.communicators.values_mut() {
            if !std::mem::replace(&mut communicator.is_told, true) {
                let (key, ours) = (communicator.key, communicator.board.history());
                topics.push(Topic::Closed { key, departure: communicator.departure(ours, false) });
                self.left.add(key, communicator.peers.clone(), ours, communicator.closed.clone());
            }
        }
        topics
    }

    /// Whether started calls of any of them go on.
    pub(crate) fn go_on(&self) -> bool {
        self.communicators.values().any(LocalCommunicator::goes_on)
    }

    /// Whether all calls that go on wait for ranks that have left.
    pub(crate) fn await_left(&self) -> bool {
        self.communicators.values().filter(|one| one.goes_on()).all(LocalCommunicator::awaits_left)
    }

    /// How many started calls have failed.
    pub(crate) fn calls_failed(&self) -> u64 {
        let open: u64 = self.communicators.values().map(|one| one.board.unfinished().failed()).sum();
        open + self.left.calls_failed()
    }

    /// How many started calls are not over.
    pub(crate) fn calls_started(&self) -> u64 {
        self.communicators.values().map(|one| one.board.unfinished().started()).sum()
    }

    /// The first cause of one that has failed and was not dropped, if one has.
    pub(crate) fn first_cause(&self) -> Option<Error> {
        self.communicators.values().find_map(|communicator| communicator.board.revocation_error())
    }

    /// Whether one of them has failed. Then it is no wonder that messages were not received.
    pub(crate) fn have_failed(&self) -> bool {
        self.left.have_failed() || self.communicators.values().any(|one| one.board.is_revoked())
    }

    /// How many messages have arrived that nobody has received.
    pub(crate) fn unread(&self) -> u64 {
        let open: u64 = self.communicators.values().map(|one| one.board.unfinished().unread()).sum();
        open + self.left.unread()
    }

    /// Those that this rank has left without `close`.
    pub(crate) fn left(&self) -> &LeftCommunicators {
        &self.left
    }

    /// The stream from a rank has ended in the middle of a call. Returns the loss to publish if it is known that the
    /// rank has left.
    pub(crate) fn stream_ended(&mut self, key: CommunicatorKey, peer: GroupRank) -> Option<Topic> {
        let communicator = self.communicators.get_mut(&key)?;
        *communicator.ended_streams.get_mut(peer.index())? = true;
        communicator.left_too_early(peer)
    }

    /// One of them.
    pub(crate) fn get(&self, key: CommunicatorKey) -> Option<&LocalCommunicator> {
        self.communicators.get(&key)
    }

    /// Applies news to all of them. Returns what is to be published in turn.
    pub(crate) fn happened(&mut self, news: &News, now: Instant) -> Vec<Topic> {
        self.left.happened(news);
        let topics = self.communicators.values_mut();
        let topics = topics.flat_map(|communicator| communicator.happened(news, &self.hosts, now)).collect();
        if self.has_left_all { Vec::new() } else { topics }
    }

    /// Starts this rank's part in an agreement. Returns what is to be published.
    pub(crate) fn agree(
        &mut self,
        key: CommunicatorKey,
        ask: Ask,
        answer: AgreeAnswer,
        now: Instant,
    ) -> Vec<Topic> {
        let communicator = self.communicators.get_mut(&key);
        communicator.map(|communicator| communicator.survival.ask(ask, answer, now)).unwrap_or_default()
    }

    /// This rank has had no descriptor for a control connection since `since`, so ranks that begin may wait for it in
    /// vain. Returns the failures to publish.
    pub(crate) fn fall_short(
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

    /// Hands over a socket. A communicator that was dropped meanwhile needs none.
    pub(crate) fn deliver(&self, slot: Slot, socket: Arc<DataSocket>) {
        let Some(communicator) = self.get(slot.key) else { return };
        if let Some(peer) = communicator.group.group_rank_of(slot.peer) {
            communicator.post(Delivery::Socket { peer, role: slot.role, socket });
            if slot.role == ConnectionRole::PointToPoint {
                communicator.board.closings().note_message_stream(peer);
            }
        }
    }

    /// Says that a socket will never come.
    pub(crate) fn deliver_failure(&self, slot: Slot, failure: Failure) {
        let Some(communicator) = self.get(slot.key) else { return };
        let Some(peer) = communicator.group.group_rank_of(slot.peer) else { return };
        communicator.post(Delivery::Failed(match failure {
            Failure::Gone(certainty, reason) => communicator.gone(peer, certainty, reason),
            Failure::Error(error) => error,
        }));
    }

    /// Starts to close one. Returns the topic to publish, unless it was published before.
    pub(crate) fn close(
        &mut self,
        key: CommunicatorKey,
        ours: CallHistory,
        (now, deadline): (Instant, Instant),
        answer: CloseAnswer,
    ) -> Option<Topic> {
        let communicator = self.communicators.get_mut(&key)?;
        let is_first = !std::mem::replace(&mut communicator.is_told, true);
        let departure = communicator.departure(ours, true);
        communicator.closing = Some(Closing { ours, deadline, answer });
        communicator.finish_closing(now);
        is_first.then_some(Topic::Closed { key, departure })
    }

    /// Called before `awaited` is asked about call `number`: returns the failure to publish if the answer is known
    /// already.
    pub(crate) fn before_asking(
        &self,
        key: CommunicatorKey,
        awaited: GroupRank,
        number: u64,
    ) -> Option<Topic> {
        let communicator = self.get(key)?;
        communicator.awaited_has_closed(awaited, number).and_then(|cause| communicator.find(cause))
    }

    /// What this rank answers about its call.
    pub(crate) fn status(&self, key: CommunicatorKey, number: u64) -> CallStatus {
        self.get(key).map_or(CallStatus::NotYet { last: None, awaited: None }, |communicator| {
            let all = self.communicators.values().map(LocalCommunicator::membership);
            with_call_ahead(communicator.board.status(number), communicator.membership(), all)
        })
    }

    /// A rank of the job has answered our question. Returns the failure to publish, if the answer shows one.
    pub(crate) fn answered(
        &self,
        from: JobRank,
        key: CommunicatorKey,
        number: u64,
        status: &CallStatus,
    ) -> Option<Topic> {
        let communicator = self.get(key)?;
        let rank = communicator.group.group_rank_of(from)?;
        let cause = judge_answer(&communicator.peers, rank, number, status).or_else(|| {
            let asked = (communicator.group.own_job_rank(), communicator.membership());
            order_mismatch(asked, (from, status), |key| self.get(key).map(LocalCommunicator::membership))
        })?;
        communicator.find(cause)
    }

    /// Who is to be asked next after that answer.
    pub(crate) fn asked_next(
        &self,
        key: CommunicatorKey,
        number: u64,
        status: &CallStatus,
    ) -> Option<GroupRank> {
        asked_next(&self.get(key)?.peers, number, status)
    }

    /// A connection for `slot` came. What to tell its other side, if this rank has a communicator that was made in the
    /// same way for other ranks: the two sides called with different lists.
    pub(crate) fn other_list(&self, slot: Slot) -> Option<OtherList> {
        let origin = |key: CommunicatorKey| (key.id >> ID_LIST_BITS, key.epoch);
        let communicator = self.communicators.values().find(|communicator| {
            communicator.key.id != slot.key.id && origin(communicator.key) == origin(slot.key)
        })?;
        Some(OtherList {
            mine: communicator.key,
            yours: slot.key,
            list: list_text(communicator.group.job_ranks()),
        })
    }

    /// A rank has told of its list. Revokes our communicator, whose list is another one; returns the causes of both, to
    /// be published.
    pub(crate) fn differs(&self, from: JobRank, other: &OtherList) -> Vec<Topic> {
        let Some(communicator) = self.get(other.yours) else { return Vec::new() };
        let ours = list_text(communicator.group.job_ranks());
        let cause = different_lists((communicator.group.own_job_rank(), &ours), (from, &other.list));
        let theirs = Topic::Revoked { key: other.mine, cause: cause.clone() };
        communicator.find(cause).into_iter().chain([theirs]).collect()
    }

    /// When [`LocalCommunicators::on_time`] is due, if ever.
    pub(crate) fn due(&self) -> Option<Instant> {
        let closings = self.communicators.values().filter_map(|communicator| communicator.closing.as_ref());
        let agreements = self.communicators.values().filter_map(|communicator| communicator.survival.due());
        closings.map(|closing| closing.deadline).chain(agreements).min()
    }

    /// Answers the callers whose time is up.
    pub(crate) fn on_time(&mut self, now: Instant) {
        for communicator in self.communicators.values_mut() {
            communicator.finish_closing(now);
            communicator.survival.answer(now);
        }
    }
}

#[cfg(test)]
#[path = "local_communicators_tests.rs"]
mod tests;
