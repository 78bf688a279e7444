//! The agreements of one communicator on one rank: which callers wait, the fates of the others, the decisions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_backend::{Agreed, Ask, Board, Question, not_agreed};
use unisono_communicator::{Certainty, Error, Group, GroupRank, JobRank, Result};

use super::agreement::{Agreement, Publish};
use super::control_plane::{Caller, Effect};
use crate::wire::{AgreementKey, Ballot, CommunicatorKey, Fate, Fates, Topic};

/// A caller that waits for an agreement.
struct Asking {
    ask: Ask,
    since: Instant,
    caller: Caller,
}

/// The time after the loss of a rank for which another ballot waits for further losses. The ranks of a silent host are
/// suspected within a heartbeat of each other, at the ticks of several detectors.
const SETTLES_AFTER_SUSPICION: Duration = Duration::from_millis(150);
/// The same, where the end of the rank is certain: the news of ranks that end together comes at once.
const SETTLES_AFTER_END: Duration = Duration::from_millis(10);

/// The agreements of one communicator.
pub(super) struct Survival {
    key: CommunicatorKey,
    group: Group,
    board: Arc<Board>,
    /// The fates of all ranks of the group.
    fates: Fates,
    /// Until when further losses are expected.
    settles_at: Option<Instant>,
    agreements: BTreeMap<(Question, u64), Agreement>,
    /// The number of agreements that this rank has taken part in, by question.
    joined: BTreeMap<Question, u64>,
    asking: Vec<Asking>,
    /// The answers that have not been taken.
    effects: Vec<Effect>,
}

impl Survival {
    /// All ranks live, and no agreement has begun.
    pub(super) fn new(key: CommunicatorKey, group: Group, board: Arc<Board>) -> Survival {
        let fates = Fates::all_live(group.size());
        let (agreements, joined) = (BTreeMap::new(), BTreeMap::new());
        let (asking, effects) = (Vec::new(), Vec::new());
        Survival { key, group, board, fates, settles_at: None, agreements, joined, asking, effects }
    }

    /// Notes the fate of another rank, of which this rank is as certain. A rank that is not live stays so.
    pub(super) fn note(&mut self, rank: GroupRank, fate: Fate, certainty: Certainty, now: Instant) {
        if self.fates.is_live(rank) {
            let settles_at = now
                + match certainty {
                    Certainty::Suspected => SETTLES_AFTER_SUSPICION,
                    Certainty::Confirmed => SETTLES_AFTER_END,
                };
            self.settles_at = self.settles_at.max(Some(settles_at));
        }
        self.fates.note(rank, fate);
    }

    /// A rank has published a ballot.
    pub(super) fn on_ballot(&mut self, from: GroupRank, key: AgreementKey, ballot: Ballot) {
        if let Some(agreement) = self.agreement(key.question, key.number) {
            agreement.on_ballot(from, ballot);
        }
    }

    /// A rank has published a decision. One without us may come before the news that we count as lost. A rank that
    /// counts as gone here decides without us: its decisions from before it left have come before.
    pub(super) fn on_decision(&mut self, from: GroupRank, key: AgreementKey, decision: Ballot) {
        if !decision.fates.is_live(self.group.own_rank()) {
            let reason = "the others have agreed on the survivors".to_owned();
            self.board.first_cause().evict(self.group.job_rank(from), reason);
        } else if self.fates.is_live(from)
            && let Some(agreement) = self.agreement(key.question, key.number)
        {
            agreement.on_decision(decision);
        }
    }

    /// This rank leaves the communicator. Returns the decisions that others may need, to be published before that.
    pub(super) fn leave(&mut self) -> Vec<Topic> {
        let communicator = self.key;
        let unpublished = self.agreements.iter_mut().filter_map(|((question, number), one)| {
            let agreement = AgreementKey { communicator, question: *question, number: *number };
            Some(Topic::Decision { agreement, ballot: one.leave()? })
        });
        unpublished.collect()
    }

    /// A caller of this rank asks. Returns the topics to publish.
    pub(super) fn ask(&mut self, ask: Ask, caller: Caller, now: Instant) -> Vec<Topic> {
        self.joined.insert(ask.question, ask.number + 1);
        // Another rank may still be in the agreement before this one.
        self.agreements.retain(|(question, number), _| *question != ask.question || number + 1 >= ask.number);
        if let Some(agreement) = self.agreement(ask.question, ask.number) {
            agreement.join(ask.flag, ask.finished_calls);
        }
        self.asking.push(Asking { ask, since: now, caller });
        self.step(now)
    }

    /// Moves every agreement on. Returns the topics to publish.
    pub(super) fn step(&mut self, now: Instant) -> Vec<Topic> {
        let mut topics = Vec::new();
        let are_settled = self.settles_at.is_none_or(|at| at <= now);
        for ((question, number), one) in &mut self.agreements {
            let agreement = AgreementKey { communicator: self.key, question: *question, number: *number };
            topics.extend(one.step(&self.fates, are_settled).into_iter().map(|publish| match publish {
                Publish::Ballot(ballot) => Topic::Ballot { agreement, ballot },
                Publish::Decision(ballot) => Topic::Decision { agreement, ballot },
            }));
        }
        self.answer(now);
        topics
    }

    /// Answers the callers whose agreement is decided or whose time is up.
    pub(super) fn answer(&mut self, now: Instant) {
        for index in (0..self.asking.len()).rev() {
            if let Some(result) = self.result(&self.asking[index], now) {
                self.effects.push(Effect::Agreed(self.asking.remove(index).caller, result));
            }
        }
    }

    /// The answers since the last call.
    pub(super) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// This rank leaves: every caller that still waits gets this error.
    pub(super) fn give_up(&mut self, error: &Error) {
        let waiting = self.asking.drain(..);
        self.effects.extend(waiting.map(|asking| Effect::Agreed(asking.caller, Err(error.clone()))));
    }

    /// Whether a caller that begins is short of something of this rank's for too long: since `since`, as far as
    /// `patience` goes, and for half of its time.
    pub(super) fn is_beginning_late(&self, since: Instant, patience: Duration, now: Instant) -> bool {
        let is_late = |asking: &Asking| {
            let half = asking.ask.deadline.saturating_duration_since(asking.since) / 2;
            let begins = asking.ask.question == Question::Flag && asking.ask.heeds_cause;
            begins && (now >= since + patience || now >= asking.since + half)
        };
        self.asking.iter().any(is_late)
    }

    /// When the next caller gives up, or a ballot is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let votes_again = self.agreements.values().any(|one| one.votes_again(&self.fates));
        let ballot = self.settles_at.filter(|_| votes_again);
        self.asking.iter().map(|asking| asking.ask.deadline).chain(ballot).min()
    }

    fn result(&self, asking: &Asking, now: Instant) -> Option<Result<Agreed>> {
        if let Some(eviction) = self.board.first_cause().eviction() {
            return Some(Err(eviction.clone()));
        }
        let ask = &asking.ask;
        if ask.heeds_cause
            && let Some(cause) = self.board.first_cause().error()
        {
            return Some(Err(cause));
        }
        let agreement = self.agreements.get(&(ask.question, ask.number))?;
        if let Some(decision) = agreement.decision() {
            return Some(self.outcome(decision));
        }
        (ask.deadline <= now).then(|| {
            let waited = now.saturating_duration_since(asking.since);
            Err(not_agreed(&self.group, ask, waited, &agreement.awaited(&self.fates)))
        })
    }

    fn outcome(&self, decision: &Ballot) -> Result<Agreed> {
        let of_job = |ranks: Vec<GroupRank>| -> Vec<JobRank> {
            ranks.into_iter().map(|rank| self.group.job_rank(rank)).collect()
        };
        let survivors: Vec<GroupRank> = decision.fates.live().collect();
        if let Some(silent) = decision.rivals(self.group.hosts()) {
            return Err(Error::NoQuorum { survivors: of_job(survivors), silent: of_job(silent) });
        }
        Ok(Agreed { flag: decision.flag, finished_calls: decision.finished_calls, survivors })
    }

    /// An agreement that this rank is in or comes to next, or was in before. No rank is further ahead: the agreement
    /// after that needs our ballot. And no rank is further behind, since this one needs its ballot.
    fn agreement(&mut self, question: Question, number: u64) -> Option<&mut Agreement> {
        let joined = self.joined.get(&question).copied().unwrap_or(0);
        let (rank, ranks) = (self.group.own_rank(), self.group.size());
        if number > joined || number + 2 < joined {
            return None;
        }
        Some(self.agreements.entry((question, number)).or_insert_with(|| Agreement::new(rank, ranks)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CommunicatorKey = CommunicatorKey { id: 3, epoch: 0 };
    const OTHER: GroupRank = GroupRank::new(1);

    fn survival() -> Survival {
        let group = Group::new(GroupRank::new(0), JobRank::all(2).collect(), [0; 2].into(), 0);
        let board = Arc::new(Board::new(GroupRank::new(0), 2));
        Survival::new(KEY, group, board)
    }

    fn agreement(number: u64) -> AgreementKey {
        AgreementKey { communicator: KEY, question: Question::Flag, number }
    }

    fn ballot() -> Ballot {
        Ballot { flag: true, finished_calls: 0, fates: Fates::all_live(2) }
    }

    #[test]
    fn agreements_that_are_over_or_far_ahead_take_no_memory() {
        let (mut survival, now) = (survival(), Instant::now());
        let (question, deadline) = (Question::Flag, now + Duration::from_secs(60));
        for number in 0..20 {
            for told in 0..40 {
                survival.on_ballot(OTHER, agreement(told), ballot());
            }
            assert!(survival.agreements.len() <= 3, "the last two, and the next one");
            let ask = Ask { question, number, flag: true, finished_calls: 0, deadline, heeds_cause: false };
            survival.ask(ask, Caller(number), now);
            let answers = survival.take_effects();
            assert!(matches!(&answers[..], [Effect::Agreed(_, Ok(_))]), "{number}: {answers:?}");
            let kept = survival.agreements.keys().map(|(_, number)| *number).collect::<Vec<_>>();
            assert!(kept.iter().all(|kept| *kept <= number && kept + 1 >= number), "{number}: {kept:?}");
        }
    }

    #[test]
    fn who_is_in_the_agreement_before_gets_its_decision() {
        let (mut survival, now) = (survival(), Instant::now());
        let (question, deadline) = (Question::Flag, now + Duration::from_secs(60));
        for number in 0..2 {
            survival.on_ballot(OTHER, agreement(number), ballot());
            let ask = Ask { question, number, flag: true, finished_calls: 0, deadline, heeds_cause: false };
            survival.ask(ask, Caller(number), now);
        }
        let mut alone = ballot();
        alone.fates.note(GroupRank::new(0), Fate::Unproven);
        survival.on_ballot(OTHER, agreement(0), alone.clone());
        let topics = survival.step(now);
        assert!(
            matches!(&topics[..], [Topic::Decision { agreement, .. }] if agreement.number == 0),
            "{topics:?}"
        );
        assert!(survival.board.first_cause().eviction().is_none());
        survival.on_decision(OTHER, agreement(1), alone);
        assert!(survival.board.first_cause().eviction().is_some(), "the others go on without this rank");
    }

    /// Its decisions from before it left have come before.
    #[test]
    fn a_decision_of_a_rank_that_has_left_is_not_adopted() {
        for has_left in [true, false] {
            let mut survival = survival();
            if has_left {
                survival.note(OTHER, Fate::Gone, Certainty::Confirmed, Instant::now());
            }
            survival.on_decision(OTHER, agreement(0), ballot());
            let agreement = survival.agreement(Question::Flag, 0);
            assert_eq!(agreement.is_some_and(|one| one.decision().is_some()), !has_left);
        }
    }
}
