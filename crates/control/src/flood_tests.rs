//! The time for which news is kept, and its reporters.

use unisono_communicator::{Certainty, Culprit, Error};

use super::*;
use crate::plane::Presence;
use crate::simulation::{MS, Simulation};
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

/// The ranks 1 and 2 are the members, as above.
fn closed(key: CommunicatorKey) -> Topic {
    let members = ranks(&[1, 2]).into_iter().collect();
    Topic::Closed { key, members, departure: Departure::before_first_call() }
}

fn lost(rank: u32, certainty: Certainty) -> Topic {
    Topic::Lost { rank: JobRank::new(rank), certainty, reason: "silent".into() }
}

/// The news that rank 0 of a job of four has heard, and the news of the others.
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

/// The ranks whose departures from `key` are known.
fn departed(heard: &Heard, key: CommunicatorKey) -> Vec<u32> {
    let about = heard.flood.about(key).into_iter();
    let closed = about.filter(|news| matches!(news.topic, Topic::Closed { .. }));
    closed.map(|news| news.origin.get()).collect()
}

/// Rank 2 is late: meanwhile others come and go in which both members take part.
#[test]
fn a_departure_is_known_until_all_members_have_left_or_gone() {
    let other = CommunicatorKey { id: 5, epoch: 0 };
    for last in [closed(KEY), Topic::Goodbye] {
        let mut heard = Heard::new();
        heard.hear(1, closed(KEY));
        for id in 5..10_005 {
            (1..3).for_each(|rank| heard.hear(rank, closed(CommunicatorKey { id, epoch: 0 })));
        }
        assert_eq!(departed(&heard, KEY), [1]);
        let kept = heard.flood.kept().count();
        assert!(kept <= KEPT_MAX + 1, "{kept} pieces are kept: departures that nobody needs are");
        heard.hear(2, last.clone());
        (0..KEPT_MAX).for_each(|_| (1..3).for_each(|rank| heard.hear(rank, closed(other))));
        assert!(departed(&heard, KEY).is_empty(), "{last:?}: all have left");
    }
}

/// A late rank makes the groups that another one has made and left long ago.
#[test]
fn ten_thousand_departures_wait_for_a_member() {
    let key = |id| CommunicatorKey { id, epoch: 0 };
    let mut heard = Heard::new();
    (0..10_000).for_each(|id| heard.hear(1, closed(key(id))));
    (0..10_000).for_each(|id| assert_eq!(departed(&heard, key(id)), [1], "of {id}"));
    (0..10_000).for_each(|id| heard.hear(2, closed(key(id))));
    assert_eq!(heard.flood.kept().count(), KEPT_MAX, "all members have left them");
}

#[test]
fn a_rank_that_leaves_without_end_takes_bounded_memory_and_harms_no_other() {
    let mut heard = Heard::new();
    heard.hear(2, closed(KEY));
    for id in 5..40_000 {
        heard.hear(1, closed(CommunicatorKey { id, epoch: 0 }));
    }
    assert_eq!(departed(&heard, KEY), [2]);
    let latest = CommunicatorKey { id: 39_999, epoch: 0 };
    assert_eq!((departed(&heard, latest), heard.flood.left.len()), (vec![1], DEPARTURES_MAX / 4 + 1));
    assert_eq!(heard.flood.kept().count(), DEPARTURES_MAX / 4 + 1);
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
            // News that passes is forgotten after a while.
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

/// The word of one rank may be proof, and the word of another is not.
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
        heard.hear(1, revoked(CommunicatorKey { id: id % 10 * 1000 + id / 3, epoch: 0 }, Error::closed()));
        heard.hear(1, closed(CommunicatorKey { id: id + 7, epoch: 0 }));
        heard.hear(2, closed(CommunicatorKey { id: id / 2, epoch: 0 }));
    }
    heard.hear(1, Topic::Goodbye);
    let mut other = Flood::new(JobRank::new(3), 4);
    assert!(heard.flood.kept().all(|news| other.accept(news)));
}

/// Rank 1 reports a loss and is lost itself. Ranks that lose it first ignore its report.
#[test]
fn all_ranks_lose_the_same_ranks_also_when_a_reporter_is_lost() {
    for seed in 0..200 {
        let mut simulation = Simulation::new(9, seed);
        simulation.run(MS * 350);
        simulation.publish(1, lost(8, Certainty::Suspected));
        simulation.publish(5, lost(1, Certainty::Suspected));
        simulation.run(MS * 50);
        let is_lost = |by: u32, rank: u32| simulation.presence(by, rank) == Presence::Lost;
        let live: Vec<u32> = (0..9).filter(|&rank| !is_lost(rank, rank)).collect();
        for &rank in &live {
            let by = live.iter().find(|&&by| is_lost(by, rank));
            assert_eq!(by, None, "seed {seed}: rank {rank} does not know that it is lost; live {live:?}");
        }
    }
}
