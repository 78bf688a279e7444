//! News that every rank must learn. Each rank accepts each piece once and forwards it once.
//!
//! A connection keeps the order of its messages, and every rank forwards news in the order of arrival. So the news of
//! one origin arrives in the order of its sequence, whatever path it takes: a sequence that is not higher than the
//! highest so far is a repetition. The latest news is kept for connections and communicators that are made later.

use std::collections::VecDeque;

use unisono_communicator::JobRank;

use crate::wire::{CommunicatorKey, News, Topic};

/// How much news about communicators is kept; news about the end of ranks is always kept.
const KEPT_MAX: usize = 1024;

/// What a rank knows of the news so far.
#[derive(Debug)]
pub(crate) struct Flood {
    rank: JobRank,
    highest: Vec<u64>,
    kept: VecDeque<News>,
}

impl Flood {
    /// Nothing has happened yet.
    pub(crate) fn new(rank: JobRank, size: u32) -> Flood {
        Flood { rank, highest: vec![0; size as usize], kept: VecDeque::new() }
    }

    /// Our own news, to be sent to everybody we are connected to.
    pub(crate) fn publish(&mut self, topic: Topic) -> News {
        let sequence = self.highest[self.rank.index()] + 1;
        let news = News { origin: self.rank, sequence, topic };
        self.accept(&news);
        news
    }

    /// Whether news is new to this rank, which then forwards it.
    pub(crate) fn accept(&mut self, news: &News) -> bool {
        match self.highest.get_mut(news.origin.index()) {
            Some(highest) if *highest < news.sequence => *highest = news.sequence,
            _ => return false,
        }
        if self.kept.len() >= KEPT_MAX
            && let Some(oldest) = self.kept.iter().position(|news| news.topic.key().is_some())
        {
            self.kept.remove(oldest);
        }
        self.kept.push_back(news.clone());
        true
    }

    /// What is kept, oldest first.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &News> {
        self.kept.iter()
    }

    /// What is kept about one communicator and about ranks, oldest first.
    pub(crate) fn about(&self, key: CommunicatorKey) -> Vec<News> {
        let concerns = |news: &&News| news.topic.key().is_none_or(|other| other == key);
        self.kept.iter().filter(concerns).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use unisono_communicator::Error;

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

    #[test]
    fn the_last_news_is_kept_by_communicator() {
        let key = CommunicatorKey { id: 4, epoch: 0 };
        let mut flood = Flood::new(JobRank::new(0), 1);
        flood.publish(Topic::Revoked { key, cause: Error::closed() });
        flood.publish(Topic::Goodbye);
        let other = CommunicatorKey { id: 5, ..key };
        let about = |flood: &Flood| flood.about(key).iter().map(|news| news.sequence).collect::<Vec<_>>();
        flood.publish(Topic::Closed { key: other, departure: Departure::before_first_call() });
        assert_eq!(about(&flood), [1, 2]);
        (0..KEPT_MAX).for_each(|_| {
            drop(flood.publish(Topic::Closed { key: other, departure: Departure::before_first_call() }))
        });
        assert_eq!((flood.kept().count(), about(&flood)), (KEPT_MAX, vec![2]));
    }
}
