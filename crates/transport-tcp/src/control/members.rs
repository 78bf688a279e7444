//! The communicators of this rank as the control thread sees them, and what news means to each.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use crossbeam::channel::Sender;
use unisono_backend::{
    Ask, Board, CallHistory, CallStatus, Peers, Waker, asked_next, closing_error, judge_answer,
};
use unisono_communicator::{CallInfo, Certainty, Error, Group};

use super::slots::Slot;
use super::survival::Survival;
use super::{AgreeAnswer, CloseAnswer};
use crate::links::Mail;
use crate::wire::{CommunicatorKey, Fate, News, Topic};

/// The bits of a communicator's id that depend on the list of its ranks; the others say how it came about.
pub(crate) const ID_LIST_BITS: u32 = 16;

struct Closing {
    ours: CallHistory,
    deadline: Instant,
    answer: CloseAnswer,
}

/// Why a connection that is wanted will never be.
pub(crate) enum Failure {
    /// The other side is not there, this surely.
    Gone(Certainty, String),
    /// Anything else.
    Error(Error),
}

/// One communicator.
pub(crate) struct Member {
    key: CommunicatorKey,
    group: Group,
    peers: Peers,
    board: Arc<Board>,
    inbox: Sender<Mail>,
    waker: Waker,
    closed: Vec<Option<CallHistory>>,
    is_told: bool,
    closing: Option<Closing>,
    survival: Survival,
}

impl Member {
    pub(crate) fn new(
        key: CommunicatorKey,
        group: Group,
        board: Arc<Board>,
        (inbox, waker): (Sender<Mail>, Waker),
    ) -> Member {
        let closed = vec![None; group.size() as usize];
        let survival = Survival::new(key, group.clone(), board.clone());
        let peers = Peers::new(group.clone(), board.clone());
        Member { key, group, peers, board, inbox, waker, closed, is_told: false, closing: None, survival }
    }

    /// Its key.
    pub(crate) fn key(&self) -> CommunicatorKey {
        self.key
    }

    /// The rank in the job of a group rank.
    pub(crate) fn global_rank(&self, rank: u32) -> Option<u32> {
        self.group.global_ranks().get(rank as usize).copied()
    }

    fn group_rank(&self, global: u32) -> Option<u32> {
        self.group.global_ranks().iter().position(|&rank| rank == global).map(|rank| rank as u32)
    }

    /// Puts something into the inbox and wakes who waits for it. A communicator that is being dropped takes no mail.
    fn post(&self, mail: Mail) {
        if self.inbox.send(mail).is_ok() {
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

    /// The loss of the group rank `peer`, which the rank of the job `noticed_by` noticed.
    fn peer_lost(&self, peer: u32, noticed_by: u32, certainty: Certainty, reason: String) -> Error {
        self.peers.lost(peer, noticed_by, certainty, reason, self.running())
    }

    /// The failure of a call that needs a rank that is not there any more.
    fn gone(&self, peer: u32, certainty: Certainty, reason: String) -> Error {
        let own = self.group.global_ranks()[self.group.rank() as usize];
        self.peer_lost(peer, own, certainty, reason)
    }

    /// Revokes with a cause found by the rank of the job `origin`.
    fn revoke(&self, origin: u32, cause: Error) {
        let by = self.group_rank(origin).unwrap_or(self.group.rank());
        if self.board.revoke(by, Arc::new(cause)) {
            (self.waker)();
        }
    }

    /// Revokes with a cause found here; the topic to publish if it is the first.
    fn find(&self, cause: Error) -> Option<Topic> {
        let is_first = self.board.revoke(self.group.rank(), Arc::new(cause.clone()));
        (self.waker)();
        is_first.then_some(Topic::Revoked { key: self.key, cause })
    }

    /// What news means here; what is to be published in turn.
    fn happened(&mut self, news: &News, now: Instant) -> Vec<Topic> {
        match &news.topic {
            Topic::Revoked { key, cause } if *key == self.key => self.revoke(news.origin, cause.clone()),
            Topic::Lost { rank, certainty, reason } => {
                let Some(peer) = self.group_rank(*rank) else { return Vec::new() };
                if peer == self.group.rank() {
                    self.evicted(news.origin, reason.clone(), now);
                } else {
                    self.lost(peer, (news.origin, now), *certainty, reason.clone());
                }
            }
            Topic::Closed { key, history } if *key == self.key => {
                self.note_closed(news.origin, *history, now)
            }
            // Who leaves has closed everything it had, so this one it never had.
            Topic::Goodbye => self.note_closed(news.origin, CallHistory::UNUSED, now),
            Topic::Ballot { agreement, ballot } if agreement.communicator == self.key => {
                if let Some(from) = self.group_rank(news.origin) {
                    self.survival.on_ballot(from, *agreement, ballot.clone());
                }
            }
            Topic::Decision { agreement, ballot } if agreement.communicator == self.key => {
                if let Some(from) = self.group_rank(news.origin) {
                    self.survival.on_decision(from, *agreement, ballot.clone());
                }
            }
            Topic::Revoked { .. } | Topic::Closed { .. } | Topic::Ballot { .. } | Topic::Decision { .. } => {}
        }
        self.survival.step(now)
    }

    fn lost(&mut self, peer: u32, (noticed_by, now): (u32, Instant), certainty: Certainty, reason: String) {
        self.survival.note(peer, certainty.into());
        // Who has closed owes nothing; a call that still waits for it learns that by asking.
        if self.closed[peer as usize].is_none() {
            let cause = self.peer_lost(peer, noticed_by, certainty, reason);
            self.revoke(noticed_by, cause);
            self.finish_closing(now);
        }
    }

    fn evicted(&mut self, noticed_by: u32, reason: String, now: Instant) {
        self.board.evict(Error::Evicted { noticed_by, reason });
        (self.waker)();
        self.finish_closing(now);
    }

    fn note_closed(&mut self, origin: u32, history: CallHistory, now: Instant) {
        if let Some(peer) = self.group_rank(origin) {
            if peer != self.group.rank() {
                // It takes no part any more, whether it lives or not.
                self.survival.note(peer, Fate::Gone);
                self.board.note_closed(peer);
            }
            // Who closes behind a failure has stopped where it was: that its calls are fewer says nothing about them.
            if self.board.revocation().is_none() {
                self.closed[peer as usize].get_or_insert(history);
            }
            self.finish_closing(now);
        }
    }

    /// Answers a waiting `close` once everybody has closed, or its time is up.
    fn finish_closing(&mut self, now: Instant) {
        let is_complete = self.closed.iter().all(Option::is_some) || self.board.revocation().is_some();
        if let Some(closing) = self.closing.take_if(|closing| is_complete || closing.deadline <= now) {
            // Nobody takes the answer when the caller has given up.
            let error = closing_error(&self.board, closing.ours, &self.closed);
            let _ = closing.answer.send(error.map_or(Ok(()), Err));
        }
    }

    /// The failure of a call that waits for a rank that has closed before that call.
    fn awaited_has_closed(&self, awaited: u32, number: u64) -> Option<Error> {
        let closed = self.closed.get(awaited as usize).copied().flatten();
        let calls = closed.map(|history| history.calls).filter(|&calls| calls <= number)?;
        let reason = format!("it closed the communicator after {calls} calls");
        Some(self.gone(awaited, Certainty::Confirmed, reason))
    }
}

/// All communicators of this rank.
#[derive(Default)]
pub(crate) struct Members {
    members: BTreeMap<CommunicatorKey, Member>,
}

impl Members {
    /// Adds one, and tells it what has happened before. What is to be published in turn.
    pub(crate) fn add(&mut self, mut member: Member, news: &[News], now: Instant) -> Vec<Topic> {
        let topics = news.iter().flat_map(|news| member.happened(news, now)).collect();
        self.members.insert(member.key, member);
        topics
    }

    /// Takes one out. True when its goodbye has not been said.
    pub(crate) fn remove(&mut self, key: CommunicatorKey) -> bool {
        self.members.remove(&key).is_some_and(|member| !member.is_told)
    }

    /// One of them.
    pub(crate) fn get(&self, key: CommunicatorKey) -> Option<&Member> {
        self.members.get(&key)
    }

    /// Tells all of them what has happened. What is to be published in turn.
    pub(crate) fn happened(&mut self, news: &News, now: Instant) -> Vec<Topic> {
        self.members.values_mut().flat_map(|member| member.happened(news, now)).collect()
    }

    /// Starts this rank's part in an agreement. What is to be published.
    pub(crate) fn agree(
        &mut self,
        key: CommunicatorKey,
        ask: Ask,
        answer: AgreeAnswer,
        now: Instant,
    ) -> Vec<Topic> {
        let member = self.members.get_mut(&key);
        member.map(|member| member.survival.ask(ask, answer, now)).unwrap_or_default()
    }

    /// Hands over a socket. A communicator that has gone meanwhile needs none.
    pub(crate) fn deliver(&self, slot: Slot, socket: OwnedFd) {
        let Some(member) = self.get(slot.key) else { return };
        if let Some(peer) = member.group_rank(slot.peer) {
            member.post(Mail::Socket { peer, role: slot.role, socket });
        }
    }

    /// Says that a socket will never come.
    pub(crate) fn deliver_failure(&self, slot: Slot, failure: Failure) {
        let Some(member) = self.get(slot.key) else { return };
        let Some(peer) = member.group_rank(slot.peer) else { return };
        member.post(Mail::Failed(match failure {
            Failure::Gone(certainty, reason) => member.gone(peer, certainty, reason),
            Failure::Error(error) => error,
        }));
    }

    /// Starts a goodbye. The topic to publish, unless it was said before.
    pub(crate) fn close(
        &mut self,
        key: CommunicatorKey,
        ours: CallHistory,
        (now, deadline): (Instant, Instant),
        answer: CloseAnswer,
    ) -> Option<Topic> {
        let member = self.members.get_mut(&key)?;
        let is_first = !std::mem::replace(&mut member.is_told, true);
        member.closing = Some(Closing { ours, deadline, answer });
        member.finish_closing(now);
        is_first.then_some(Topic::Closed { key, history: ours })
    }

    /// Before asking `awaited` about call `number`: what needs no question.
    pub(crate) fn before_asking(&self, key: CommunicatorKey, awaited: u32, number: u64) -> Option<Topic> {
        let member = self.get(key)?;
        member.awaited_has_closed(awaited, number).and_then(|cause| member.find(cause))
    }

    /// What this rank answers about its call.
    pub(crate) fn status(&self, key: CommunicatorKey, number: u64) -> CallStatus {
        self.get(key).map_or(CallStatus::NotYet { last: None }, |member| member.board.status(number))
    }

    /// The answer of a rank of the job to our question.
    pub(crate) fn answered(
        &self,
        from: u32,
        key: CommunicatorKey,
        number: u64,
        status: &CallStatus,
    ) -> Option<Topic> {
        let member = self.get(key)?;
        let cause = judge_answer(&member.board, member.group_rank(from)?, number, status)?;
        member.find(cause)
    }

    /// Who is to be asked next after that answer.
    pub(crate) fn asked_next(&self, key: CommunicatorKey, number: u64, status: &CallStatus) -> Option<u32> {
        asked_next(&self.get(key)?.board, number, status)
    }

    /// A connection for `slot` came, but there is a communicator that came about in the same way with other ranks:
    /// the two sides called with different lists. Revokes ours; the causes of both are to be published.
    pub(crate) fn find_conflict(&self, slot: Slot) -> Vec<Topic> {
        let origin = |key: CommunicatorKey| (key.id >> ID_LIST_BITS, key.epoch);
        let conflict = self.members.values().find(|member| {
            let is_other = member.key.id != slot.key.id && origin(member.key) == origin(slot.key);
            is_other && member.group_rank(slot.peer).is_some() && member.board.revocation().is_none()
        });
        let Some(member) = conflict else { return Vec::new() };
        let ranks = member.group.global_ranks();
        let problem = format!(
            "the ranks asked for different groups: rank {} of the job for {ranks:?}, rank {} for others",
            ranks[member.group.rank() as usize],
            slot.peer
        );
        let theirs = Topic::Revoked { key: slot.key, cause: Error::Refused { problem: problem.clone() } };
        member.find(Error::Refused { problem }).into_iter().chain([theirs]).collect()
    }

    /// When [`Members::on_time`] is due, if ever.
    pub(crate) fn due(&self) -> Option<Instant> {
        let closings = self.members.values().filter_map(|member| member.closing.as_ref());
        let agreements = self.members.values().filter_map(|member| member.survival.due());
        closings.map(|closing| closing.deadline).chain(agreements).min()
    }

    /// Answers those who have waited long enough.
    pub(crate) fn on_time(&mut self, now: Instant) {
        for member in self.members.values_mut() {
            member.finish_closing(now);
            member.survival.answer(now);
        }
    }
}

#[cfg(test)]
#[path = "members_tests.rs"]
mod tests;
