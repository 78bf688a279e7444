//! One communicator of this rank as the control thread sees it, and the effect of news on it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use unisono_backend::{
    Asked, Board, CallHistory, CallStatus, FirstDifference, Membership, Peers, RankHistory, Revocation,
    SEARCH_MAX, SearchStep, answered_elsewhere, asked_next, closed_differently, closing_error,
    history_difference,
};
use unisono_communicator::{CallInfo, Certainty, Error, Group, GroupRank, JobRank};

use super::control_plane::{Caller, Effect};
use super::hosts::Hosts;
use super::survival::Survival;
use crate::wire::{CommunicatorKey, Departure, Fate, News, RankSet, Topic};

pub(super) struct Closing {
    pub(super) ours: CallHistory,
    pub(super) deadline: Instant,
    pub(super) caller: Caller,
    /// Whether ranks have closed after different calls, and the lowest of them looks for the first one.
    pub(super) is_searched: bool,
    /// The search, if this rank is the lowest.
    pub(super) search: Option<FirstDifference>,
}

/// One communicator.
pub struct LocalCommunicator {
    pub(super) key: CommunicatorKey,
    pub(super) group: Group,
    pub(super) peers: Peers,
    pub(super) board: Arc<Board>,
    /// Per group rank: whether it takes no part any more, and after which calls.
    pub(super) closed: Vec<Option<Box<Departure>>>,
    /// Per group rank: whether its stream has ended in the middle of a call of this rank.
    pub(super) ended_streams: Vec<bool>,
    /// The ranks that have left the job, and answer no more questions.
    left_job: BTreeSet<GroupRank>,
    pub(super) is_told: bool,
    /// Whether the loss that is the first cause was told again; see [`LocalCommunicator::had_closed`].
    is_loss_told: bool,
    pub(super) closing: Option<Closing>,
    pub(super) survival: Survival,
    /// Ranks that are to be asked about calls.
    pub(super) questions: Vec<Asked>,
    /// Effects that nobody has taken yet.
    pub(super) effects: Vec<Effect>,
}

impl LocalCommunicator {
    /// The communicator `key` of this group. This rank's calls are on `board`.
    pub fn new(key: CommunicatorKey, group: Group, board: Arc<Board>) -> LocalCommunicator {
        let group = group.with_id(key.id);
        let (closed, ended_streams) = (vec![None; group.size() as usize], vec![false; group.size() as usize]);
        let survival = Survival::new(key, group.clone(), board.clone());
        let peers = Peers::new(group.clone(), board.clone());
        LocalCommunicator {
            key,
            group,
            peers,
            board,
            closed,
            ended_streams,
            left_job: BTreeSet::new(),
            is_told: false,
            is_loss_told: false,
            closing: None,
            survival,
            questions: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// Its key.
    pub fn key(&self) -> CommunicatorKey {
        self.key
    }

    pub(super) fn membership(&self) -> Membership<'_> {
        Membership { key: self.key, ranks: self.group.job_ranks(), board: &self.board }
    }

    /// When its callers that wait are due, if there are any.
    pub(super) fn due(&self) -> Option<Instant> {
        let closing = self.closing.as_ref().map(|closing| closing.deadline);
        closing.into_iter().chain(self.survival.due()).min()
    }

    /// The rank in the job of one of its ranks.
    pub fn job_rank(&self, rank: GroupRank) -> JobRank {
        self.group.job_rank(rank)
    }

    /// The threads of its engine look at the board again.
    fn wake(&mut self) {
        self.effects.push(Effect::Wake(self.key));
    }

    /// This rank leaves it: every caller that waits for an answer about it gets one.
    pub(super) fn give_up(&mut self) -> Vec<Effect> {
        let closing = self.closing.take();
        let closed = closing.map(|closing| Effect::Closed(closing.caller, Err(Error::closed())));
        self.survival.give_up(&Error::closed());
        self.effects.extend(closed);
        self.take_effects()
    }

    /// The effects since the last call.
    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        let mut effects = std::mem::take(&mut self.effects);
        effects.extend(self.survival.take_effects());
        effects
    }

    /// The call that is going on, if there is one.
    fn running(&self) -> Option<CallInfo> {
        let number = self.board.calls().entered().checked_sub(1)?;
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
    pub(super) fn gone(&self, peer: GroupRank, certainty: Certainty, reason: String) -> Error {
        self.peer_lost(peer, self.group.own_job_rank(), certainty, reason)
    }

    /// Revokes with a cause found by the rank of the job `origin`.
    fn revoke(&mut self, origin: JobRank, cause: Error) {
        // A rank that has reported its own failure stays the culprit after any later report: it may live, and lose
        // other ranks that have left because of its failure.
        let has_told_of_itself =
            |first: Revocation| first.by == origin && first.cause.lost_ranks() == [origin];
        if self.board.first_cause().revocation().is_some_and(has_told_of_itself) {
            return;
        }
        if self.board.first_cause().revoke_reported(origin, Arc::new(cause)) {
            self.wake();
        }
    }

    /// Revokes with a cause found here; returns the topic to publish if it is the first cause.
    pub(super) fn find(&mut self, cause: Error) -> Option<Topic> {
        let is_first = self.board.first_cause().revoke(self.group.own_job_rank(), Arc::new(cause.clone()));
        self.wake();
        is_first.then(|| self.revoked(cause))
    }

    /// All its ranks.
    fn members(&self) -> RankSet {
        self.group.job_ranks().iter().copied().collect()
    }

    /// The news that it is revoked.
    pub(super) fn revoked(&self, cause: Error) -> Topic {
        Topic::Revoked { key: self.key, members: self.members(), cause }
    }

    /// Applies news to this communicator. Returns the topics to publish in turn.
    pub(super) fn happened(&mut self, news: &News, hosts: &Hosts, now: Instant) -> Vec<Topic> {
        match &news.topic {
            Topic::Revoked { key, cause, .. } if *key == self.key => {
                self.revoke(news.origin, cause.clone());
                self.finish_closing(now);
            }
            Topic::Lost { rank, certainty, reason } => {
                let Some(peer) = self.group.group_rank_of(*rank) else { return Vec::new() };
                if peer == self.group.own_rank() {
                    self.evicted(news.origin, reason.clone(), now);
                } else {
                    let is_proven = hosts.proven_gone(news).is_some();
                    let fate = if is_proven { Fate::Gone } else { Fate::Unproven };
                    self.survival.note(peer, fate, *certainty, now);
                    let found = self.lost(peer, (news.origin, now), *certainty, reason.clone());
                    return found.into_iter().chain(self.survival.step(now)).collect();
                }
            }
            Topic::Closed { key, departure, .. } if *key == self.key => {
                let found = self.note_closed(news.origin, departure.clone(), now);
                return found.into_iter().chain(self.survival.step(now)).collect();
            }
            // A rank closes its communicators before it leaves the job, so it never made this one.
            Topic::Goodbye => {
                let departure = Departure::before_first_call();
                self.left_job.extend(self.group.group_rank_of(news.origin));
                let found = self.note_closed(news.origin, departure, now);
                return found.into_iter().chain(self.survival.step(now)).collect();
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
    ) -> Option<Topic> {
        let cause = self.peer_lost(peer, noticed_by, certainty, reason);
        // A rank that has closed is no loss, unless bytes are missing that it had sent before. A call that still waits
        // for more of it learns that by asking.
        if self.closed[peer.index()].is_some() {
            return if self.ended_streams[peer.index()] { self.find(cause) } else { None };
        }
        self.revoke(noticed_by, cause);
        self.finish_closing(now);
        None
    }

    /// A lost rank had closed this communicator before. Ranks that have heard that in time have lost nobody, and would
    /// wait for this rank, which has failed with the loss. Returns the first cause for them, to be published once.
    pub(super) fn had_closed(&mut self, rank: JobRank) -> Option<Topic> {
        let first = self.board.first_cause().revocation()?;
        let is_told = first.cause.lost_ranks() != [rank] || std::mem::replace(&mut self.is_loss_told, true);
        (!is_told).then(|| self.revoked((*first.cause).clone()))
    }

    fn evicted(&mut self, noticed_by: JobRank, reason: String, now: Instant) {
        self.board.first_cause().evict(noticed_by, reason);
        self.wake();
        self.finish_closing(now);
    }

    /// Another rank takes no part any more. Its messages stay valid, so calls go on. Returns the failure to publish:
    /// the loss of that rank if a call of this one has met the end of its stream, or the ranks' difference.
    fn note_closed(&mut self, origin: JobRank, departure: Departure, now: Instant) -> Option<Topic> {
        let mut found = None;
        if let Some(peer) = self.group.group_rank_of(origin) {
            if peer != self.group.own_rank() {
                // It takes no part any more, whether it lives or not.
                self.survival.note(peer, Fate::Gone, Certainty::Confirmed, now);
                self.board.closings().note_closed(peer);
                self.effects.push(Effect::Left(self.key, origin));
            }
            // A rank that closes after a failure may have made fewer calls. That is no mismatch.
            if !self.board.first_cause().is_revoked() {
                self.closed[peer.index()].get_or_insert(Box::new(departure));
            }
            found = self.left_too_early(peer).or_else(|| self.search_difference(now));
            self.finish_closing(now);
        }
        found
    }

    /// A rank has left in good order, while a call of this rank needs more than it has sent. Returns the failure to
    /// publish: its loss if it has not finished that call, else the difference of the two programs.
    pub(super) fn left_too_early(&mut self, peer: GroupRank) -> Option<Topic> {
        let departure = self.closed[peer.index()].as_ref().filter(|_| self.ended_streams[peer.index()])?;
        let Some(ours) = self.finished_before(departure) else {
            let cause = self.gone(peer, Certainty::Confirmed, self.left_after(peer, departure));
            return self.find(cause);
        };
        if departure.by_close && !self.left_job.contains(&peer) {
            // It may also have died since then. Its answer shows which of its calls is another one; there is no answer
            // if it has died.
            self.question(peer, ours.number);
            return None;
        }
        let cause = self.parted(peer, ours, departure);
        self.find(cause)
    }

    /// The call of this rank that is going on, if a rank had finished its call of that number before it left.
    fn finished_before(&self, departure: &Departure) -> Option<CallInfo> {
        let number = self.board.progress().finished();
        // A message is in no history.
        let is_finished = departure.in_progress == 0 && departure.history.calls > number;
        self.board.calls().info(number).filter(|_| is_finished && self.board.doing().message.is_none())
    }

    /// The failure of a call `ours` that needs more of a rank than that rank has sent in its own call of that number.
    fn parted(&self, peer: GroupRank, ours: CallInfo, departure: &Departure) -> Error {
        let (own, rank) = (self.group.own_job_rank(), self.group.job_rank(peer));
        let (history, last) = (departure.history, departure.last.as_ref());
        let our_history = self.board.calls().history();
        if our_history.calls == history.calls {
            let other = RankHistory { rank, history, last };
            let difference = history_difference(&self.peers, our_history, &other, "leave");
            // The calls are the same, so the connection has failed.
            return difference
                .unwrap_or_else(|| self.gone(peer, Certainty::Confirmed, self.left_after(peer, departure)));
        }
        let difference = format!(
            "rank {rank} had finished its call {}: {}",
            ours.number,
            self.left_after(peer, departure)
        );
        let theirs = last.cloned().unwrap_or_else(|| CallInfo::without_data(history.calls, "leave"));
        Error::Mismatch { calls: Box::new([(own, ours), (rank, theirs)]), difference }
    }

    /// Answers a waiting `close` once all ranks have closed, or its time is up.
    pub(super) fn finish_closing(&mut self, now: Instant) {
        let (is_complete, is_revoked) =
            (self.closed.iter().all(Option::is_some), self.board.first_cause().is_revoked());
        let is_over = |closing: &mut Closing| {
            is_revoked || closing.deadline <= now || is_complete && !closing.is_searched
        };
        if let Some(closing) = self.closing.take_if(is_over) {
            let error = self.closing_error(closing.ours);
            self.effects.push(Effect::Closed(closing.caller, error.map_or(Ok(()), Err)));
        }
    }

    /// The histories of the ranks that have closed.
    fn closed_histories(&self) -> Vec<Option<CallHistory>> {
        let by_close =
            |one: &Option<Box<Departure>>| one.as_ref().filter(|one| one.by_close).map(|one| one.history);
        self.closed.iter().map(by_close).collect()
    }

    /// Once all ranks have closed, or the time is up for the others, begins to look for the first difference between
    /// the closed ones. Returns it if it is known already.
    pub(super) fn search_difference(&mut self, now: Instant) -> Option<Topic> {
        let (is_complete, closed) = (self.closed.iter().all(Option::is_some), self.closed_histories());
        let closing = self.closing.as_mut().filter(|closing| !closing.is_searched)?;
        if !(is_complete || closing.deadline <= now) || !closed_differently(&closed) {
            return None;
        }
        (closing.is_searched, closing.deadline) = (true, now + SEARCH_MAX);
        closing.search = FirstDifference::begin(self.group.own_rank(), &closed);
        let step = closing.search.as_mut()?.start(&self.peers);
        self.search_on(step)
    }

    /// That rank is to be asked about a call.
    fn question(&mut self, rank: GroupRank, number: u64) {
        let (rank, communicator) = (self.group.job_rank(rank), self.key);
        self.questions.push(Asked { rank, communicator, number, is_message: false });
    }

    fn search_on(&mut self, step: SearchStep) -> Option<Topic> {
        match step {
            SearchStep::Ask(ranks, number) => {
                ranks.into_iter().for_each(|rank| self.question(rank, number));
                None
            }
            SearchStep::Wait => None,
            SearchStep::Found(error) => self.find(*error),
        }
    }

    /// A rank has answered a question about a call, and the answer shows `cause` or no failure. Returns the failure to
    /// publish.
    pub(super) fn answered(
        &mut self,
        rank: GroupRank,
        number: u64,
        status: &CallStatus,
        cause: Option<Error>,
    ) -> Option<Topic> {
        self.questions.extend(asked_next(&self.peers, rank, number, status));
        if let Some(cause) = cause {
            return self.find(cause);
        }
        let search = self.closing.as_mut().and_then(|closing| closing.search.as_mut())?;
        let step = search.answered(&self.peers, rank, number, status);
        self.search_on(step)
    }

    /// Whether questions of this communicator have led to a call of another one.
    pub(super) fn awaits_answer(
        &self,
        (rank, communicator, number): (JobRank, CommunicatorKey, u64),
    ) -> bool {
        self.board.answers().lead_to(rank, communicator, number)
    }

    /// A rank has answered a question about a call of another communicator to which questions of this one have led.
    pub(super) fn answered_elsewhere(&mut self, asked: (JobRank, CommunicatorKey, u64), status: &CallStatus) {
        self.questions.extend(answered_elsewhere(&self.peers, asked, status));
    }

    /// The error of a rank that closes after these calls. Ranks that have closed too must have made the same calls. A
    /// rank that has left in another way, after fewer calls, has left too early.
    fn closing_error(&self, ours: CallHistory) -> Option<Error> {
        let closed = self.closed_histories();
        let left_early = || {
            let is_early = |one: &Departure| one.history.calls < ours.calls;
            let (peer, departure) = self.group.ranks().zip(&self.closed).find_map(|(peer, one)| {
                let departure = one.as_ref().filter(|one| is_early(one))?;
                Some((peer, departure))
            })?;
            Some(self.gone(peer, Certainty::Confirmed, self.left_after(peer, departure)))
        };
        closing_error(&self.peers, ours, &closed).or_else(left_early)
    }

    /// The failure of a call that waits for a rank that has closed before that call.
    pub(super) fn awaited_has_closed(&self, awaited: GroupRank, number: u64) -> Option<Error> {
        let departure = self.closed.get(awaited.index())?.as_ref();
        let departure = departure.filter(|departure| departure.history.calls <= number)?;
        Some(self.gone(awaited, Certainty::Confirmed, self.left_after(awaited, departure)))
    }

    /// The news that this rank publishes when it leaves now.
    pub(super) fn goodbye(&mut self, history: CallHistory, by_close: bool) -> Vec<Topic> {
        let last = history.calls.checked_sub(1).and_then(|last| self.board.calls().info(last));
        let in_progress = u32::try_from(self.board.calls_in_progress()).unwrap_or(u32::MAX);
        let messages = self.board.messages().entered();
        let departure = Departure { history, by_close, in_progress, messages, last };
        let mut topics = self.survival.leave();
        topics.push(Topic::Closed { key: self.key, members: self.members(), departure });
        topics
    }

    /// Whether started calls go on: some are not over, and nothing has failed.
    pub(super) fn goes_on(&self) -> bool {
        self.board.unfinished().started() > 0 && !self.board.first_cause().is_revoked()
    }

    /// Whether its calls wait for a rank that has left.
    pub(super) fn awaits_left(&self) -> bool {
        let has_left = |rank: GroupRank| self.closed.get(rank.index()).is_some_and(Option::is_some);
        self.board.progress().awaited().is_some_and(has_left)
    }

    /// The reason that is given for the loss of a rank that has left in good order. The rank may live, and have left
    /// only this communicator.
    fn left_after(&self, peer: GroupRank, departure: &Departure) -> String {
        let when = match (departure.history.calls.checked_sub(1), departure.messages) {
            (Some(last), _) => format!("it left after call {last}"),
            (None, 0) if self.left_job.contains(&peer) => "it left before its first call".to_owned(),
            (None, 0) => "it left this communicator unused".to_owned(),
            (None, 1) => "it left after one message and no collective".to_owned(),
            (None, messages) => format!("it left after {messages} messages and no collective"),
        };
        match departure.in_progress {
            0 => when,
            1 => format!("{when}, with 1 call in progress"),
            calls => format!("{when}, with {calls} calls in progress"),
        }
    }
}
