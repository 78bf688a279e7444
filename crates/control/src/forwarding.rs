//! News that this rank is to forward. The same news of several origins goes to a peer as one message.
//!
//! When a job ends, every rank closes the same communicators after the same calls, and says goodbye. As a message for
//! each origin this would cost the job the square of its ranks, on each of the connections between them.

use std::collections::BTreeMap;

use unisono_communicator::JobRank;

use crate::wire::{JointNews, Message, News, Publisher, Topic};

/// News that is to be forwarded.
#[derive(Debug, Default)]
pub(crate) struct Forwarding {
    kinds: Vec<SameNews>,
    /// By origin: where each of its pieces of news is, in the order in which it came.
    places: Vec<Vec<NewsPlace>>,
    /// The origins that have any.
    origins: Vec<JobRank>,
}

/// The place of a piece of news: its kind, and its place among the origins of that kind.
#[derive(Clone, Copy, Debug)]
struct NewsPlace {
    sequence: u64,
    kind: usize,
    place: usize,
}

/// The same news of some origins.
#[derive(Debug)]
struct SameNews {
    topic: Topic,
    origins: Vec<Publisher>,
    /// For each peer from which some of it has come, the places of these origins. A peer does not get its own news
    /// back.
    known: BTreeMap<JobRank, Vec<usize>>,
}

impl Forwarding {
    /// Adds news that has come from a peer, or that this rank publishes itself.
    pub(crate) fn add(&mut self, from: JobRank, news: &News) {
        if self.places.len() <= news.origin.index() {
            self.places.resize(news.origin.index() + 1, Vec::new());
        }
        let of_origin = &mut self.places[news.origin.index()];
        // News of one origin goes out in the order in which it came.
        let first = of_origin.last().map_or(0, |last| last.kind + 1);
        let fits =
            |one: &SameNews| one.origins.len() < JointNews::ORIGINS_MAX && one.topic.joins(&news.topic);
        let found = self.kinds.iter().skip(first).position(fits).map(|index| first + index);
        let kind = found.unwrap_or(self.kinds.len());
        if found.is_none() {
            let (topic, known) = (news.topic.clone(), BTreeMap::new());
            self.kinds.push(SameNews { topic, origins: Vec::new(), known });
        }
        let place = self.kinds[kind].origins.len();
        if of_origin.is_empty() {
            self.origins.push(news.origin);
        }
        of_origin.push(NewsPlace { sequence: news.sequence, kind, place });
        self.kinds[kind].origins.push(Publisher { rank: news.origin, sequence: news.sequence });
        self.kinds[kind].known.entry(from).or_default().push(place);
    }

    /// Notes that news has come from another peer too, which does not need it any more if it still waits here.
    pub(crate) fn also_knows(&mut self, peer: JobRank, news: Publisher) {
        let of_origin = self.places.get(news.rank.index()).into_iter().flatten();
        if let Some(found) = of_origin.rev().find(|one| one.sequence == news.sequence) {
            self.kinds[found.kind].known.entry(peer).or_default().push(found.place);
        }
    }

    /// The messages for these peers, in the order in which each peer must get them. Nothing waits any more.
    pub(crate) fn take(&mut self, peers: impl Iterator<Item = JobRank>) -> Vec<(JobRank, Message)> {
        self.origins.drain(..).for_each(|origin| self.places[origin.index()].clear());
        let kinds = std::mem::take(&mut self.kinds);
        if kinds.is_empty() {
            return Vec::new();
        }
        peers.flat_map(|peer| kinds.iter().filter_map(move |one| Some((peer, one.message(peer)?)))).collect()
    }
}

impl SameNews {
    fn message(&self, peer: JobRank) -> Option<Message> {
        let mut origins = self.origins.clone();
        if let Some(places) = self.known.get(&peer) {
            let mut is_known = vec![false; origins.len()];
            places.iter().for_each(|place| is_known[*place] = true);
            let mut is_known = is_known.into_iter();
            origins.retain(|_| is_known.next() != Some(true));
        }
        (!origins.is_empty()).then(|| Message::News(JointNews { origins, topic: self.topic.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flood::Flood;
    use crate::wire::{CommunicatorKey, Departure};

    const RANKS: u32 = 6;

    fn rank(number: u64) -> JobRank {
        JobRank::new(number as u32 % RANKS)
    }

    /// Of few kinds, so that ranks often publish the same.
    fn topic(kind: u64) -> Topic {
        match kind {
            0 => Topic::Goodbye,
            1 => Topic::Revoked {
                key: CommunicatorKey { id: 9, epoch: 0 },
                members: JobRank::all(RANKS).collect(),
                cause: unisono_communicator::Error::closed(),
            },
            id => Topic::Closed {
                key: CommunicatorKey { id, epoch: 0 },
                members: JobRank::all(RANKS).collect(),
                departure: Departure::before_first_call(),
            },
        }
    }

    fn news_of(message: Message) -> Vec<News> {
        match message {
            Message::News(joint) => joint.each().collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn equal_news_of_all_origins_is_one_message_and_goes_to_nobody_who_knows() {
        let mut forwarding = Forwarding::default();
        for origin in JobRank::all(RANKS) {
            forwarding.add(origin, &News { origin, sequence: 1, topic: topic(2) });
            forwarding.add(origin, &News { origin, sequence: 2, topic: Topic::Goodbye });
        }
        let messages = forwarding.take([rank(0), rank(1)].into_iter());
        let told = messages.into_iter().map(|(peer, message)| (peer, news_of(message).len()));
        let expected = [(rank(0), 5), (rank(0), 5), (rank(1), 5), (rank(1), 5)];
        assert_eq!(told.collect::<Vec<_>>(), expected);
        assert!(forwarding.take(std::iter::once(rank(0))).is_empty(), "once");
    }

    #[test]
    fn who_has_told_the_same_meanwhile_is_not_told() {
        let mut forwarding = Forwarding::default();
        for origin in [rank(2), rank(3)] {
            forwarding.add(rank(0), &News { origin, sequence: 4, topic: Topic::Goodbye });
        }
        let of = |origin, sequence| Publisher { rank: rank(origin), sequence };
        [of(2, 4), of(2, 4), of(2, 5), of(4, 4)]
            .iter()
            .for_each(|news| forwarding.also_knows(rank(1), *news));
        [of(2, 4), of(3, 4)].iter().for_each(|news| forwarding.also_knows(rank(5), *news));
        let messages = forwarding.take(JobRank::all(RANKS).filter(|peer| *peer != rank(4)));
        let told = messages.into_iter().map(|(peer, message)| {
            (peer, news_of(message).iter().map(|news| news.origin).collect::<Vec<_>>())
        });
        let both = vec![rank(2), rank(3)];
        let expected = [(rank(1), vec![rank(3)]), (rank(2), both.clone()), (rank(3), both)];
        assert_eq!(told.collect::<Vec<_>>(), expected);
        forwarding.also_knows(rank(1), of(2, 4));
        assert!(forwarding.take(std::iter::once(rank(0))).is_empty());
    }

    #[test]
    fn a_message_has_no_more_origins_than_a_frame_has_room_for() {
        let mut forwarding = Forwarding::default();
        for origin in JobRank::all(2 * JointNews::ORIGINS_MAX as u32 + 1) {
            forwarding.add(origin, &News { origin, sequence: 1, topic: Topic::Goodbye });
        }
        let messages = forwarding.take(std::iter::once(JobRank::new(u32::MAX)));
        let counts: Vec<usize> = messages.into_iter().map(|(_, message)| news_of(message).len()).collect();
        assert_eq!(counts, [JointNews::ORIGINS_MAX, JointNews::ORIGINS_MAX, 1]);
    }

    proptest::proptest! {
        /// A peer that takes news in the order of its sequence misses nothing, however much of it goes as one message.
        #[test]
        fn the_news_of_each_origin_stays_in_order(
            told in proptest::collection::vec((0..u64::from(RANKS), 0..5_u64, 0..8_u8), 0..200),
        ) {
            let (mut forwarding, mut peer) = (Forwarding::default(), Flood::new(rank(0), RANKS));
            let (mut sequences, mut accepted) = ([0; RANKS as usize], 0);
            let mut take = |forwarding: &mut Forwarding| {
                for (_, message) in forwarding.take(std::iter::once(rank(0))) {
                    for news in news_of(message) {
                        assert!(peer.accept(&news), "{news:?} comes too late");
                        accepted += 1;
                    }
                }
            };
            for (origin, kind, takes) in &told {
                let sequence = &mut sequences[*origin as usize];
                *sequence += 1;
                let news = News { origin: rank(*origin), sequence: *sequence, topic: topic(*kind) };
                forwarding.add(rank(5), &news);
                if *takes == 0 {
                    take(&mut forwarding);
                }
            }
            take(&mut forwarding);
            assert_eq!(accepted, told.len());
        }
    }
}
