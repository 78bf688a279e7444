//! News that every rank must learn. Each rank accepts each piece once and forwards it once.
//!
//! A connection keeps the order of its messages, and every rank forwards news in the order of arrival. So the news of
//! one origin arrives in the order of its sequence, on any path: a sequence that is not higher than the highest so far
//! is a repetition. News is kept for connections and communicators that are made later:
//!
//! | news | time for which it is kept |
//! | --- | --- |
//! | first causes and departures of a communicator | until all its members have left or gone: one may make it late |
//! | the loss or the goodbye of a rank | always, once for each origin and certainty |
//! | other news about communicators | until [`KEPT_MAX`] pieces have come after it |

use std::collections::{BTreeMap, VecDeque};

use unisono_communicator::JobRank;

use crate::wire::{CommunicatorKey, News, RankSet, Topic};

/// The number of pieces of news about communicators that are kept although no member waits for them.
const KEPT_MAX: usize = 1024;

/// The number of first causes of one origin that are kept. A further one replaces the oldest of that origin, so that a
/// rank that revokes without end takes bounded memory, and no room from other ranks.
const CAUSES_MAX: usize = 1024;

/// The number of departures that are kept for members that may still come, shared by all ranks of the job. A rank has
/// at least [`DEPARTURES_MIN`] of them; a further one replaces its oldest.
const DEPARTURES_MAX: usize = 1 << 16;
const DEPARTURES_MIN: usize = 1024;

/// A rank's knowledge of the news so far.
#[derive(Debug)]
pub(crate) struct Flood {
    rank: JobRank,
    highest: Vec<u64>,
    said_goodbye: Vec<bool>,
    /// The number of pieces of news that have been accepted.
    arrivals: u64,
    /// By arrival.
    kept: BTreeMap<u64, News>,
    /// The arrivals of the first causes.
    causes: BTreeMap<CommunicatorKey, KeptCause>,
    /// The departures from communicators that some members have not left.
    left: BTreeMap<CommunicatorKey, KeptDepartures>,
    /// By origin: the communicators that it has left, while others have not, by the arrival of that news.
    left_by: Vec<BTreeMap<u64, CommunicatorKey>>,
    /// The arrivals of losses and goodbyes.
    gone: Vec<u64>,
    /// The arrivals of other news about communicators, the oldest first.
    passing: VecDeque<u64>,
}

/// A first cause that is kept.
#[derive(Debug)]
struct KeptCause {
    arrival: u64,
    origin: JobRank,
    /// The members that may still make the communicator, or still have it.
    members: RankSet,
}

/// Departures from one communicator that are kept.
#[derive(Debug)]
struct KeptDepartures {
    arrivals: Vec<(u64, JobRank)>,
    /// The members that may still make the communicator, or still have it.
    members: RankSet,
}

impl Flood {
    /// Nothing has happened yet.
    pub(crate) fn new(rank: JobRank, size: u32) -> Flood {
        Flood {
            rank,
            highest: vec![0; size as usize],
            said_goodbye: vec![false; size as usize],
            arrivals: 0,
            kept: BTreeMap::new(),
            causes: BTreeMap::new(),
            left: BTreeMap::new(),
            left_by: vec![BTreeMap::new(); size as usize],
            gone: Vec::new(),
            passing: VecDeque::new(),
        }
    }

    /// Our own news, to be sent to everybody we are connected to.
    pub(crate) fn publish(&mut self, topic: Topic) -> News {
        let sequence = self.highest[self.rank.index()] + 1;
        let news = News { origin: self.rank, sequence, topic };
        self.accept(&news);
        news
    }

    /// Whether that news of a rank would be new to this rank.
    pub(crate) fn is_new(&self, origin: JobRank, sequence: u64) -> bool {
        self.highest.get(origin.index()).is_some_and(|highest| *highest < sequence)
    }

    /// Whether news is new to this rank, which then forwards it.
    pub(crate) fn accept(&mut self, news: &News) -> bool {
        if !self.is_new(news.origin, news.sequence) {
            return false;
        }
        self.highest[news.origin.index()] = news.sequence;
        self.arrivals += 1;
        let is_kept = match &news.topic {
            Topic::Revoked { key, members, .. } => self.keep_cause(news.origin, *key, members.clone()),
            Topic::Lost { rank, .. } => {
                self.take_out(*rank);
                rank.index() < self.highest.len() && !self.says_again(news)
            }
            Topic::Goodbye => {
                self.take_out(news.origin);
                !std::mem::replace(&mut self.said_goodbye[news.origin.index()], true)
            }
            Topic::Closed { key, members, .. } => {
                self.keep_departure(news.origin, *key, members);
                true
            }
            Topic::Ballot { .. } | Topic::Decision { .. } => {
                self.let_pass(self.arrivals);
                true
            }
        };
        if is_kept {
            self.kept.insert(self.arrivals, news.clone());
            if matches!(news.topic, Topic::Lost { .. } | Topic::Goodbye) {
                self.gone.push(self.arrivals);
            }
        }
        true
    }

    /// The kept losses and goodbyes.
    fn gone(&self) -> impl Iterator<Item = &News> {
        self.gone.iter().filter_map(|arrival| self.kept.get(arrival))
    }

    /// The losses that `reporter` has reported, and nobody who is heard. A lost rank that reports itself needs no other
    /// reporter: only the ranks that have lost it before do not hear it.
    pub(crate) fn losses_left_by(&self, reporter: JobRank, is_heard: impl Fn(JobRank) -> bool) -> Vec<Topic> {
        let losses =
            || self.gone().filter_map(|news| Some((news.origin, lost_rank(&news.topic)?, &news.topic)));
        let has_reporter = |lost: JobRank| {
            losses().any(|(origin, rank, _)| rank == lost && (origin == lost || is_heard(origin)))
        };
        let by_reporter = losses().filter(|&(origin, rank, _)| origin == reporter && rank != reporter);
        by_reporter.filter(|&(_, rank, _)| !has_reporter(rank)).map(|(_, _, topic)| topic.clone()).collect()
    }

    /// Whether its origin has said before, as surely, that this rank is lost.
    fn says_again(&self, news: &News) -> bool {
        let is_same = |before: &Topic| match (before, &news.topic) {
            (
                Topic::Lost { rank: one, certainty: before, .. },
                Topic::Lost { rank: other, certainty: now, .. },
            ) => (one, before) == (other, now),
            _ => false,
        };
        self.gone().any(|before| before.origin == news.origin && is_same(&before.topic))
    }

    /// From now on the news of this arrival gives way to later news.
    fn let_pass(&mut self, arrival: u64) {
        if self.passing.len() == KEPT_MAX
            && let Some(oldest) = self.passing.pop_front()
        {
            self.kept.remove(&oldest);
        }
        self.passing.push_back(arrival);
    }

    /// The members that have not gone.
    fn present(&self, mut members: RankSet) -> RankSet {
        self.gone().for_each(|news| match &news.topic {
            Topic::Lost { rank, .. } => members.remove(*rank),
            _ => members.remove(news.origin),
        });
        members
    }

    /// Makes room for a cause, if it is to be kept. The first one stays, unless this is the own report of a rank that
    /// the first one takes for lost: [`super::local_communicator`] judges in the same way.
    fn keep_cause(&mut self, origin: JobRank, key: CommunicatorKey, members: RankSet) -> bool {
        if let Some(first) = self.causes.get(&key) {
            let gives_way = |news: &News| match &news.topic {
                Topic::Revoked { cause, .. } => cause.lost_ranks() == [origin],
                _ => false,
            };
            if !self.kept.get(&first.arrival).is_some_and(gives_way) {
                return false;
            }
            self.forget_cause(key);
        }
        let mut members = self.present(members);
        let left =
            self.left.get(&key).into_iter().flat_map(|left| &left.arrivals).map(|(arrival, _)| arrival);
        for news in left.chain(&self.passing).filter_map(|arrival| self.kept.get(arrival)) {
            if matches!(&news.topic, Topic::Closed { key: closed, .. } if *closed == key) {
                members.remove(news.origin);
            }
        }
        if members.is_empty() {
            self.let_pass(self.arrivals);
            return true;
        }
        let of_origin = || self.causes.iter().filter(|(_, cause)| cause.origin == origin);
        if of_origin().count() == CAUSES_MAX
            && let Some(oldest) = of_origin().min_by_key(|(_, cause)| cause.arrival).map(|(key, _)| *key)
        {
            self.forget_cause(oldest);
        }
        self.causes.insert(key, KeptCause { arrival: self.arrivals, origin, members });
        true
    }

    fn forget_cause(&mut self, key: CommunicatorKey) {
        if let Some(cause) = self.causes.remove(&key) {
            self.kept.remove(&cause.arrival);
        }
    }

    /// Keeps the news that `origin` has left a communicator as long as one of its members may still make it.
    fn keep_departure(&mut self, origin: JobRank, key: CommunicatorKey, members: &RankSet) {
        if !members.contains(origin) {
            return self.let_pass(self.arrivals);
        }
        if !self.left.contains_key(&key) {
            let members = self.present(members.clone());
            self.left.insert(key, KeptDepartures { arrivals: Vec::new(), members });
        }
        let room = DEPARTURES_MIN.max(DEPARTURES_MAX / self.highest.len());
        if self.left_by[origin.index()].len() == room
            && let Some((oldest, left)) = self.left_by[origin.index()].pop_first()
        {
            self.kept.remove(&oldest);
            if let Some(departures) = self.left.get_mut(&left) {
                departures.arrivals.retain(|(arrival, _)| *arrival != oldest);
                if departures.arrivals.is_empty() && left != key {
                    self.left.remove(&left);
                }
            }
        }
        self.left_by[origin.index()].insert(self.arrivals, key);
        if let Some(departures) = self.left.get_mut(&key) {
            departures.arrivals.push((self.arrivals, origin));
            departures.members.remove(origin);
            if departures.members.is_empty() {
                self.settle(key);
            }
        }
        if let Some(cause) = self.causes.get_mut(&key) {
            cause.members.remove(origin);
            if cause.members.is_empty() {
                self.forget_cause(key);
            }
        }
    }

    /// All members of a communicator have left it, or gone.
    fn settle(&mut self, key: CommunicatorKey) {
        for (arrival, origin) in self.left.remove(&key).into_iter().flat_map(|left| left.arrivals) {
            self.left_by[origin.index()].remove(&arrival);
            self.let_pass(arrival);
        }
    }

    /// A rank takes no part in any communicator any more.
    fn take_out(&mut self, rank: JobRank) {
        let mut settled = Vec::new();
        for (key, left) in &mut self.left {
            left.members.remove(rank);
            settled.extend(left.members.is_empty().then_some(*key));
        }
        settled.drain(..).for_each(|key| self.settle(key));
        for (key, cause) in &mut self.causes {
            cause.members.remove(rank);
            settled.extend(cause.members.is_empty().then_some(*key));
        }
        settled.into_iter().for_each(|key| self.forget_cause(key));
    }

    /// Keeps this rank's ballots about a communicator no longer.
    pub(crate) fn withdraw_ballots(&mut self, key: CommunicatorKey) {
        let rank = self.rank;
        let is_withdrawn = |news: &News| match &news.topic {
            Topic::Ballot { agreement, .. } => news.origin == rank && agreement.communicator == key,
            _ => false,
        };
        self.kept.retain(|_, news| !is_withdrawn(news));
    }

    /// The kept news, oldest first.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &News> {
        self.kept.values()
    }

    /// The kept news about one communicator and about ranks, oldest first.
    pub(crate) fn about(&self, key: CommunicatorKey) -> Vec<News> {
        let cause = self.causes.get(&key).map(|cause| cause.arrival);
        let left =
            self.left.get(&key).into_iter().flat_map(|left| &left.arrivals).map(|(arrival, _)| *arrival);
        let others = self.gone.iter().chain(&self.passing).copied();
        let mut arrivals: Vec<u64> = cause.into_iter().chain(left).chain(others).collect();
        arrivals.sort_unstable();
        let concerns = |news: &&News| news.topic.key().is_none_or(|other| other == key);
        arrivals.iter().filter_map(|arrival| self.kept.get(arrival)).filter(concerns).cloned().collect()
    }
}

fn lost_rank(topic: &Topic) -> Option<JobRank> {
    match topic {
        Topic::Lost { rank, .. } => Some(*rank),
        Topic::Goodbye
        | Topic::Revoked { .. }
        | Topic::Closed { .. }
        | Topic::Ballot { .. }
        | Topic::Decision { .. } => None,
    }
}

#[cfg(test)]
#[path = "flood_tests.rs"]
mod tests;
