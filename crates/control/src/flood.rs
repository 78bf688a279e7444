//! News that every rank must learn. Each rank accepts each piece once and forwards it once.
//!
//! A connection keeps the order of its messages, and every rank forwards news in the order of arrival. So the news of
//! one origin arrives in the order of its sequence, whatever path it takes: a sequence that is not higher than the
//! highest so far is a repetition. News is kept for connections and communicators that are made later:
//!
//! | news | how long it is kept |
//! | --- | --- |
//! | the first cause of a communicator | until all its members have closed it or gone: a member may make it late |
//! | the loss or the goodbye of a rank | always, once for each origin and certainty |
//! | other news about communicators | until [`KEPT_MAX`] pieces have come after it |

use std::collections::{BTreeMap, VecDeque};

use unisono_communicator::JobRank;

use crate::wire::{CommunicatorKey, News, RankSet, Topic};

/// How much news about communicators is kept, without first causes.
const KEPT_MAX: usize = 1024;

/// How many first causes of one origin are kept. A further one replaces the oldest of that origin, so that a rank that
/// revokes without end takes bounded memory, and no room from other ranks.
const CAUSES_MAX: usize = 1024;

/// What a rank knows of the news so far.
#[derive(Debug)]
pub(crate) struct Flood {
    rank: JobRank,
    highest: Vec<u64>,
    said_goodbye: Vec<bool>,
    /// How much news has been accepted.
    arrivals: u64,
    /// By arrival.
    kept: BTreeMap<u64, News>,
    /// The arrivals of the first causes.
    causes: BTreeMap<CommunicatorKey, KeptCause>,
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

impl Flood {
    /// Nothing has happened yet.
    pub(crate) fn new(rank: JobRank, size: u32) -> Flood {
        let (kept, causes, passing) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        let (highest, said_goodbye) = (vec![0; size as usize], vec![false; size as usize]);
        Flood { rank, highest, said_goodbye, arrivals: 0, kept, causes, passing }
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
                self.take_out(*rank, None);
                rank.index() < self.highest.len() && !self.says_again(news)
            }
            Topic::Goodbye => {
                self.take_out(news.origin, None);
                !std::mem::replace(&mut self.said_goodbye[news.origin.index()], true)
            }
            Topic::Closed { key, .. } => {
                self.take_out(news.origin, Some(*key));
                self.make_room()
            }
            Topic::Ballot { .. } | Topic::Decision { .. } => self.make_room(),
        };
        if is_kept {
            self.kept.insert(self.arrivals, news.clone());
        }
        true
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
        self.kept.values().any(|before| before.origin == news.origin && is_same(&before.topic))
    }

    /// Makes room for news that passes.
    fn make_room(&mut self) -> bool {
        if self.passing.len() == KEPT_MAX
            && let Some(oldest) = self.passing.pop_front()
        {
            self.kept.remove(&oldest);
        }
        self.passing.push_back(self.arrivals);
        true
    }

    /// Makes room for a cause, if it is to be kept. The first one stays, unless this is the own report of a rank that
    /// the first one takes for lost: [`super::local_communicator`] judges in the same way.
    fn keep_cause(&mut self, origin: JobRank, key: CommunicatorKey, mut members: RankSet) -> bool {
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
        for before in self.kept.values() {
            match &before.topic {
                Topic::Closed { key: closed, .. } if *closed == key => members.remove(before.origin),
                Topic::Goodbye => members.remove(before.origin),
                Topic::Lost { rank, .. } => members.remove(*rank),
                _ => {}
            }
        }
        if members.is_empty() {
            return self.make_room();
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

    /// A rank has closed one communicator, or takes no part in any.
    fn take_out(&mut self, rank: JobRank, only: Option<CommunicatorKey>) {
        let mut settled = Vec::new();
        for (key, cause) in self.causes.iter_mut().filter(|(key, _)| only.is_none_or(|only| only == **key)) {
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
        let concerns = |news: &&News| news.topic.key().is_none_or(|other| other == key);
        self.kept.values().filter(concerns).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use unisono_communicator::{Certainty, Culprit, Error};

    use super::*;
    use crate::wire::Departure;

    #[test]
    fn news_is_taken_once() {
        let (mut here, mut there) = (Flood::new(JobRank::new(0), 2), Flood::new(JobRank::new(1), 2));
        let first = here.publish(Topic::Goodbye);
        let second = here.publish(Topic::Goodbye);
        assert!(there.accept(&first) && there.accept(&second));
        assert!(!there.accept(&first) && !there.accept(&second) && !here.accept(&first));
        let unknown = News { origin: JobRank::new(9), ..first };
        assert!(!there.accept(&unknown), "not a rank of this job");
    }

    const KEY: CommunicatorKey = CommunicatorKey { id: 4, epoch: 0 };

    fn ranks(ranks: &[u32]) -> Vec<JobRank> {
        ranks.iter().copied().map(JobRank::new).collect()
    }

    /// The ranks 1 and 2 are the members.
    fn revoked(key: CommunicatorKey, cause: Error) -> Topic {
        Topic::Revoked { key, members: ranks(&[1, 2]).into_iter().collect(), cause }
    }

    fn closed(key: CommunicatorKey) -> Topic {
        Topic::Closed { key, departure: Departure::before_first_call() }
    }

    fn lost(rank: u32, certainty: Certainty) -> Topic {
        Topic::Lost { rank: JobRank::new(rank), certainty, reason: "silent".into() }
    }

    /// What rank 0 of a job of four has heard, and the news of the others.
    struct Heard {
        flood: Flood,
        told: [u64; 4],
    }

    impl Heard {
        fn new() -> Heard {
            Heard { flood: Flood::new(JobRank::new(0), 4), told: [0; 4] }
        }

        fn hear(&mut self, origin: u32, topic: Topic) {
            let sequence = &mut self.told[origin as usize];
            *sequence += 1;
            let news = News { origin: JobRank::new(origin), sequence: *sequence, topic };
            assert!(self.flood.accept(&news), "{news:?} is new");
        }

        /// The ranks whose causes of `key` are kept.
        fn causes(&self, key: CommunicatorKey) -> Vec<u32> {
            let about = self.flood.about(key).into_iter();
            let causes = about.filter(|news| matches!(news.topic, Topic::Revoked { .. }));
            causes.map(|news| news.origin.get()).collect()
        }
    }

    /// The communicator is not known here. Others come and go, are revoked, agree on something.
    #[test]
    fn a_first_cause_survives_a_hundred_thousand_pieces_of_other_news() {
        let mut heard = Heard::new();
        heard.hear(1, revoked(KEY, Error::closed()));
        for id in 5..25_005 {
            let other = CommunicatorKey { id, epoch: 0 };
            heard.hear(1, revoked(other, Error::closed()));
            (1..4).for_each(|rank| heard.hear(rank, closed(other)));
        }
        assert_eq!(heard.causes(KEY), [1]);
        let kept = heard.flood.kept().count();
        assert!(kept <= KEPT_MAX + 1, "{kept} pieces are kept: a cause that nobody needs is");
    }

    #[test]
    fn a_first_cause_is_forgotten_when_all_members_have_closed_or_gone() {
        for (members, others) in [
            ([(1, closed(KEY)), (2, closed(KEY))], [(1, closed(KEY)), (3, closed(KEY))]),
            ([(1, closed(KEY)), (2, Topic::Goodbye)], [(3, Topic::Goodbye), (1, closed(KEY))]),
            (
                [(2, closed(KEY)), (3, lost(1, Certainty::Suspected))],
                [(1, lost(3, Certainty::Suspected)), (2, closed(KEY))],
            ),
            (
                [(2, Topic::Goodbye), (1, Topic::Goodbye)],
                [(2, closed(CommunicatorKey { id: 5, epoch: 0 })), (1, closed(KEY))],
            ),
        ] {
            let after = |before: &[(u32, Topic)], then: &[(u32, Topic)]| {
                let mut heard = Heard::new();
                before.iter().for_each(|(origin, topic)| heard.hear(*origin, topic.clone()));
                heard.hear(3, revoked(KEY, Error::closed()));
                then.iter().for_each(|(origin, topic)| heard.hear(*origin, topic.clone()));
                // What passes is forgotten after a while.
                (0..KEPT_MAX).for_each(|_| heard.hear(0, closed(CommunicatorKey { id: 5, epoch: 0 })));
                heard.causes(KEY)
            };
            for split in 0..=2 {
                assert!(after(&members[..split], &members[split..]).is_empty(), "{members:?} from {split}");
                assert_eq!(after(&others[..split], &others[split..]), [3], "{others:?} from {split}");
            }
        }
    }

    /// As the communicator itself does: the first cause stays, unless a rank that counts as lost has told its own.
    #[test]
    fn one_cause_is_kept_of_a_communicator() {
        let own = Error::System { what: "disk".into(), text: "full".into() };
        let lost = Error::PeerLost {
            culprits: vec![Culprit { rank: JobRank::new(2), process: None, last_call: None }],
            call: None,
            reported_by: JobRank::new(1),
            certainty: Certainty::Confirmed,
            evidence: "its stream ended".into(),
        };
        for (second, kept) in [(3, 1), (2, 2)] {
            let mut heard = Heard::new();
            heard.hear(1, revoked(KEY, lost.clone()));
            heard.hear(second, revoked(KEY, own.clone()));
            (0..KEPT_MAX).for_each(|_| heard.hear(0, closed(CommunicatorKey { id: 5, epoch: 0 })));
            assert_eq!(heard.causes(KEY), [kept]);
        }
    }

    #[test]
    fn a_rank_that_publishes_without_end_takes_bounded_memory_and_harms_no_other() {
        let mut heard = Heard::new();
        heard.hear(1, revoked(KEY, Error::closed()));
        for id in 5..20_000 {
            let key = CommunicatorKey { id, epoch: 0 };
            heard.hear(3, revoked(key, Error::closed()));
            let certainty = [Certainty::Confirmed, Certainty::Suspected][id as usize / 4 % 2];
            // The job has four ranks.
            heard.hear(3, lost([0, 3, 4, id as u32][id as usize % 4], certainty));
            heard.hear(3, Topic::Goodbye);
        }
        assert_eq!(heard.causes(KEY), [1]);
        assert_eq!(heard.causes(CommunicatorKey { id: 19_999, epoch: 0 }), [3], "the latest");
        let kept = heard.flood.kept().count();
        assert!(kept <= 2 * CAUSES_MAX, "{kept} pieces are kept");
    }

    /// The word of one rank may be proof, and that of another is not.
    #[test]
    fn a_loss_is_kept_once_for_each_origin_and_certainty() {
        let mut heard = Heard::new();
        for (origin, certainty) in
            [(1, Certainty::Suspected), (1, Certainty::Confirmed), (2, Certainty::Confirmed)]
        {
            (0..2).for_each(|_| heard.hear(origin, lost(3, certainty)));
        }
        let kept = heard.flood.kept().map(|news| (news.origin.get(), news.sequence));
        assert_eq!(kept.collect::<Vec<_>>(), [(1, 1), (1, 3), (2, 1)]);
    }

    /// A rank takes no news that is older than the latest of its origin.
    #[test]
    fn a_new_connection_gets_all_of_it_in_order() {
        let mut heard = Heard::new();
        for id in 0..2000 {
            heard
                .hear(1, revoked(CommunicatorKey { id: id % 10 * 1000 + id / 3, epoch: 0 }, Error::closed()));
            heard.hear(1, closed(CommunicatorKey { id: id + 7, epoch: 0 }));
            heard.hear(2, closed(CommunicatorKey { id: id / 2, epoch: 0 }));
        }
        heard.hear(1, Topic::Goodbye);
        let mut other = Flood::new(JobRank::new(3), 4);
        assert!(heard.flood.kept().all(|news| other.accept(news)));
    }
}
