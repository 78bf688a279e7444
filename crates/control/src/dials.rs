//! Connections that are wanted and not there yet: when they are dialled, and when they are given up. Pure: failures of
//! dials and time go in, pauses and verdicts come out.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use unisono_communicator::{Certainty, Error, JobRank};

use crate::handshake::Refusal;
use crate::slots::Slot;
use crate::wire::{CommunicatorKey, ConnectionRole};

/// Pauses between attempts to reach a rank.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The time limits of a connection to another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialTimeouts {
    /// Of all attempts together.
    pub total: Duration,
    /// Of each part of an attempt, the handshake for example.
    pub attempt: Duration,
}

impl Default for DialTimeouts {
    fn default() -> DialTimeouts {
        DialTimeouts { total: Duration::from_secs(30), attempt: Duration::from_secs(5) }
    }
}

/// Why a dial failed.
#[derive(Clone, Debug)]
pub enum DialFailure {
    /// Nobody listens there any more.
    Absent(String),
    /// It may succeed later.
    Transient(String),
    /// This rank itself cannot connect, which says nothing about the other side.
    Own(Error),
    /// It never will.
    Refused(Refusal),
}

/// Why a wanted connection will never exist.
#[derive(Debug)]
pub enum Failure {
    /// The other side is gone, with this certainty.
    Gone(Certainty, String),
    /// Anything else.
    Error(Error),
}

/// The next step after a failed dial.
#[derive(Debug)]
pub(crate) enum AfterFailure {
    /// Dial again, after this pause.
    Dial(Duration),
    /// Give up.
    GiveUp(Failure),
    /// Nobody wants this connection any more.
    Nothing,
}

/// A connection that is wanted and not there yet.
#[derive(Debug)]
struct WantedConnection {
    until: Instant,
    pause: Duration,
    /// The end of the connection before it, if the other side would have said goodbye before it left.
    ended: Option<String>,
    /// Since when dials have failed in a way that news would explain, which has not come.
    unexplained_since: Option<Instant>,
    /// Since when this rank itself has not been able to connect.
    unable_since: Option<Instant>,
}

/// The connections of one rank that are wanted and not there yet.
#[derive(Debug)]
pub(crate) struct Dials {
    timeouts: DialTimeouts,
    /// The time that news may be on its way: as long as the detector waits.
    patience: Duration,
    wanted: BTreeMap<Slot, WantedConnection>,
}

impl Dials {
    /// Nothing is wanted.
    pub(crate) fn new(timeouts: DialTimeouts, patience: Duration) -> Dials {
        Dials { timeouts, patience, wanted: BTreeMap::new() }
    }

    /// The time limit of each part of an attempt. A rank whose control connection is made again is silent
    /// meanwhile, and so is a probed rank: a lost packet must not use up the detector's patience.
    pub(crate) fn attempt_timeout(&self, is_heard: bool, is_probed: bool) -> Duration {
        match (is_heard, is_probed) {
            (true, _) => self.patience / 4,
            // The other side may never have been reached, and be busy.
            (false, true) => self.patience / 2,
            (false, false) => self.timeouts.attempt,
        }
    }

    /// The time that news may be on its way.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// A connection is wanted from now on; `ended` says how the connection before it ended, if anything has ever come
    /// from the other side.
    pub(crate) fn want(&mut self, slot: Slot, ended: Option<String>, now: Instant) {
        let until = now + self.timeouts.total;
        // A dial may be accepted just before a dying process closes its listener; the next one then tells.
        let pause = if ended.is_some() { Duration::ZERO } else { PAUSE_MIN };
        let wanted = WantedConnection { until, pause, ended, unexplained_since: None, unable_since: None };
        self.wanted.insert(slot, wanted);
    }

    /// Whether a connection is wanted and not there.
    pub(crate) fn are_wanted(&self, slot: Slot) -> bool {
        self.wanted.contains_key(&slot)
    }

    /// A connection is there, or is given up.
    pub(crate) fn remove(&mut self, slot: Slot) {
        self.wanted.remove(&slot);
    }

    /// No connection to this rank is wanted any more.
    pub(crate) fn remove_rank(&mut self, rank: JobRank) {
        self.wanted.retain(|slot, _| slot.peer != rank);
    }

    /// No connection of this communicator is wanted any more.
    pub(crate) fn remove_communicator(&mut self, key: CommunicatorKey) {
        self.wanted.retain(|slot, _| slot.role == ConnectionRole::Control || slot.key != key);
    }

    /// This rank connects to nobody any more.
    pub(crate) fn clear(&mut self) {
        self.wanted.clear();
    }

    /// Whether there was a connection before the wanted one, which has been read to its end.
    pub(crate) fn follows_another(&self, slot: Slot) -> bool {
        self.wanted.get(&slot).is_some_and(|wanted| wanted.ended.is_some())
    }

    /// This rank itself cannot connect, so the time of the connection begins anew. Returns since when.
    pub(crate) fn unable(&mut self, slot: Slot, now: Instant) -> Option<Instant> {
        let wanted = self.wanted.get_mut(&slot)?;
        wanted.until = now + self.timeouts.total;
        Some(*wanted.unable_since.get_or_insert(now))
    }

    /// A dial has failed, and a later one may succeed, until the time of the connection is up.
    pub(crate) fn failed(&mut self, slot: Slot, problem: String, now: Instant) -> AfterFailure {
        let Some(wanted) = self.wanted.get_mut(&slot) else { return AfterFailure::Nothing };
        if now >= wanted.until {
            return AfterFailure::GiveUp(Failure::Gone(Certainty::Suspected, problem));
        }
        // A rank whose control connection is made again is silent meanwhile.
        let longest = if wanted.ended.is_some() { (self.patience / 8).max(PAUSE_MIN) } else { PAUSE_MAX };
        let pause = wanted.pause;
        wanted.pause = (pause * 2).clamp(PAUSE_MIN, longest);
        AfterFailure::Dial(pause)
    }

    /// No process listens there. A rank from which something has come would have said goodbye. Any other rank may have
    /// left, and its goodbye may still be on its way, so this rank waits for it. If the rank has died, the ranks that
    /// were connected to it report that sooner.
    pub(crate) fn absent(&mut self, slot: Slot, problem: String, now: Instant) -> AfterFailure {
        let Some(wanted) = self.wanted.get(&slot) else { return AfterFailure::Nothing };
        let gone = |reason| AfterFailure::GiveUp(Failure::Gone(Certainty::Confirmed, reason));
        if let Some(ended) = &wanted.ended {
            return gone(format!("{ended}; {problem}"));
        }
        if self.is_news_overdue(slot, now) { gone(problem) } else { self.failed(slot, problem, now) }
    }

    /// A dial has failed in a way that news would explain. Whether that has had its time to come.
    pub(crate) fn is_news_overdue(&mut self, slot: Slot, now: Instant) -> bool {
        let Some(wanted) = self.wanted.get_mut(&slot) else { return false };
        let waited = now.saturating_duration_since(*wanted.unexplained_since.get_or_insert(now));
        let left = self.patience.saturating_sub(waited);
        // The last attempt is at the end of that time, not a doubled pause later.
        wanted.pause = wanted.pause.min(left);
        left.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(800);

    fn wanted(ended: Option<&str>, now: Instant) -> (Dials, Slot) {
        let (mut dials, slot) =
            (Dials::new(DialTimeouts::default(), PATIENCE), Slot::control(JobRank::new(3)));
        dials.want(slot, ended.map(str::to_owned), now);
        (dials, slot)
    }

    /// For how long a rank is dialled whose dials take so long and end in this way, and the failure at the end.
    fn dialled_for(
        ended: Option<&str>,
        takes: Duration,
        fail: impl Fn(&mut Dials, Slot, Instant) -> AfterFailure,
    ) -> (Duration, Failure) {
        let begin = Instant::now();
        let (mut dials, slot) = wanted(ended, begin);
        let mut now = begin;
        loop {
            now += takes;
            match fail(&mut dials, slot, now) {
                AfterFailure::Dial(pause) => now += pause,
                AfterFailure::GiveUp(failure) => return (now - begin, failure),
                AfterFailure::Nothing => panic!("it is wanted"),
            }
        }
    }

    fn absent(dials: &mut Dials, slot: Slot, now: Instant) -> AfterFailure {
        dials.absent(slot, "nobody listens".to_owned(), now)
    }

    #[test]
    fn an_absent_rank_is_awaited_as_long_as_its_goodbye_may_take() {
        let (after, failure) = dialled_for(None, Duration::from_millis(1), absent);
        assert!(after >= PATIENCE && after < PATIENCE * 2, "{after:?}");
        assert!(matches!(failure, Failure::Gone(Certainty::Confirmed, _)));
        let (after, failure) = dialled_for(Some("its connection ended"), Duration::from_millis(1), absent);
        assert!(after <= Duration::from_millis(1), "it would have said goodbye: {after:?}");
        let Failure::Gone(Certainty::Confirmed, reason) = failure else { panic!("it is gone") };
        assert_eq!(reason, "its connection ended; nobody listens");
    }

    #[test]
    fn a_rank_that_does_not_answer_is_dialled_until_the_time_is_up() {
        let timeouts = DialTimeouts::default();
        let transient = |dials: &mut Dials, slot: Slot, now| dials.failed(slot, "no answer".to_owned(), now);
        for takes in [Duration::ZERO, timeouts.attempt] {
            let (after, failure) = dialled_for(None, takes, transient);
            let most = timeouts.total + takes + PAUSE_MAX;
            assert!(after >= timeouts.total && after <= most, "{after:?}");
            assert!(matches!(failure, Failure::Gone(Certainty::Suspected, _)), "a partition looks the same");
        }
    }

    /// A packet may be lost, also where the detector counts the silence of the rank.
    #[test]
    fn a_silent_rank_is_dialled_again_before_it_counts_as_lost() {
        let begin = Instant::now();
        for (is_heard, is_probed) in [(true, false), (true, true), (false, true)] {
            let (mut dials, slot) = wanted(None, begin);
            let attempt = dials.attempt_timeout(is_heard, is_probed);
            let after = dials.failed(slot, "no answer".to_owned(), begin + attempt);
            let AfterFailure::Dial(pause) = after else { panic!("the time is not up") };
            assert!(attempt + pause < PATIENCE, "heard: {is_heard}, probed: {is_probed}");
        }
        let (dials, _) = wanted(None, begin);
        assert_eq!(dials.attempt_timeout(false, false), DialTimeouts::default().attempt, "nobody counts");
    }

    /// Its other side may keep the connection that has ended for a while, and drop each new one until then.
    #[test]
    fn a_rank_that_was_heard_is_dialled_often_until_its_silence_counts() {
        let begin = Instant::now();
        let (mut dials, slot) = wanted(Some("its connection ended"), begin);
        let mut now = begin;
        while now < begin + PATIENCE {
            let AfterFailure::Dial(pause) = dials.failed(slot, "it has another one".to_owned(), now) else {
                panic!("the time is not up")
            };
            assert!(pause <= PATIENCE / 8, "{pause:?}");
            now += pause.max(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_rank_that_cannot_connect_itself_begins_anew() {
        let begin = Instant::now();
        let (mut dials, slot) = wanted(None, begin);
        let late = begin + DialTimeouts::default().total;
        assert_eq!(dials.unable(slot, begin), Some(begin));
        assert_eq!(dials.unable(slot, late), Some(begin));
        assert!(matches!(dials.failed(slot, "no descriptor".to_owned(), late), AfterFailure::Dial(_)));
        dials.remove(slot);
        assert!(dials.unable(slot, late).is_none() && !dials.are_wanted(slot));
        assert!(matches!(dials.failed(slot, "no answer".to_owned(), late), AfterFailure::Nothing));
    }
}
