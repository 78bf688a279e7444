//! The ranks that have been silent for too long: a state machine of heartbeats and time, which is passed in.

use std::time::{Duration, Instant};

use unisono_communicator::JobRank;

/// A rank that is suspected, and for how long it has been silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Silence {
    /// The rank in the job.
    pub(crate) rank: JobRank,
    /// The time for which nothing has come from it.
    pub(crate) silent: Duration,
}

/// A watcher extends its patience by so many times its own lateness: a rank that sends heartbeats may be late more than
/// once.
const PATIENCE_PER_LATENESS: u32 = 4;

/// Watches the ranks that beat for us.
///
/// A watcher that was itself held up (a stopped process, a busy machine) has not listened meanwhile, so it extends
/// every deadline by the lateness of its own tick. Where its own ticks are late, the heartbeats of others probably are
/// too: as long as that lasts, it is more patient.
#[derive(Clone, Debug)]
pub(crate) struct Detector {
    period: Duration,
    patience: Duration,
    /// The largest recent lateness, at most one patience. It fades by an eighth with every tick.
    lateness: Duration,
    due: Instant,
    watched: Vec<(JobRank, Instant)>,
}

impl Detector {
    /// A detector that expects to be ticked every `period` and suspects after `patience` of silence.
    pub(crate) fn new(period: Duration, patience: Duration, now: Instant) -> Detector {
        Detector { period, patience, lateness: Duration::ZERO, due: now + period, watched: Vec::new() }
    }

    /// When the next tick is due.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Watches these ranks from now on. A rank that is watched already keeps its time.
    pub(crate) fn watch(&mut self, ranks: impl IntoIterator<Item = JobRank>, now: Instant) {
        let heard = |rank| self.watched.iter().find(|entry| entry.0 == rank).map_or(now, |entry| entry.1);
        self.watched = ranks.into_iter().map(|rank| (rank, heard(rank))).collect();
    }

    /// Something has come from a rank.
    pub(crate) fn heard(&mut self, rank: JobRank, now: Instant) {
        if let Some(entry) = self.watched.iter_mut().find(|entry| entry.0 == rank) {
            entry.1 = now;
        }
    }

    /// The watched ranks that have been silent for longer than the patience, without regard to lateness.
    pub(crate) fn silent(&self, now: Instant) -> impl Iterator<Item = JobRank> {
        let is_silent = move |heard: Instant| now.saturating_duration_since(heard) > self.patience;
        self.watched.iter().filter(move |entry| is_silent(entry.1)).map(|entry| entry.0)
    }

    /// The tick: returns the suspected ranks, which are no longer watched.
    pub(crate) fn tick(&mut self, now: Instant) -> Vec<Silence> {
        let late = now.saturating_duration_since(self.due);
        self.due = now + self.period;
        self.lateness = (self.lateness * 7 / 8).max(late).min(self.patience);
        let patience = self.patience + self.lateness * PATIENCE_PER_LATENESS;
        let mut suspects = Vec::new();
        self.watched.retain_mut(|(rank, heard)| {
            *heard = (*heard + late).min(now);
            let silent = now - *heard;
            if silent > patience {
                suspects.push(Silence { rank: *rank, silent });
            }
            silent <= patience
        });
        suspects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(100);
    const PATIENCE: Duration = Duration::from_secs(1);

    #[test]
    fn silence_is_noticed_once() {
        let start = Instant::now();
        let mut detector = Detector::new(PERIOD, PATIENCE, start);
        detector.watch([3, 4].map(JobRank::new), start);
        let mut found = Vec::new();
        for tick in 1..40u32 {
            let now = start + PERIOD * tick;
            detector.heard(JobRank::new(4), now);
            let silent: Vec<u32> = detector.silent(now).map(JobRank::get).collect();
            assert_eq!(silent, if tick == 11 { vec![3] } else { vec![] });
            found.extend(detector.tick(now).into_iter().map(|silence| (tick, silence.rank.get())));
        }
        assert_eq!(found, [(11, 3)]);
    }

    #[test]
    fn a_late_tick_raises_no_alarm() {
        let start = Instant::now();
        let mut detector = Detector::new(PERIOD, PATIENCE, start);
        detector.watch([JobRank::new(1)], start);
        let stopped = start + Duration::from_secs(30);
        assert_eq!(detector.tick(stopped), []);
        assert_eq!(detector.tick(stopped + PERIOD), [], "the time before the stop counts, the stop does not");
        let suspects = (2..20).flat_map(|tick| detector.tick(stopped + PERIOD * tick)).count();
        assert_eq!(suspects, 1, "real silence is still noticed");
    }

    /// It was heard while the watcher was not late.
    #[test]
    fn a_late_tick_gives_nobody_credit_for_the_future() {
        let start = Instant::now();
        let mut detector = Detector::new(PERIOD, PATIENCE, start);
        detector.watch([JobRank::new(1)], start);
        let stopped = start + Duration::from_secs(30);
        detector.heard(JobRank::new(1), stopped);
        let ticks = (0..).take_while(|tick| detector.tick(stopped + PERIOD * *tick).is_empty());
        assert!(ticks.count() < 100);
    }

    #[test]
    fn on_a_busy_machine_silence_counts_for_less() {
        let noticed_after = |late: Duration| {
            let start = Instant::now();
            let mut detector = Detector::new(PERIOD, PATIENCE, start);
            let (mut now, mut silent_since) = (start, None);
            detector.watch([JobRank::new(1)], start);
            for tick in 0..200 {
                now += PERIOD + late;
                if tick < 20 {
                    detector.heard(JobRank::new(1), now);
                    silent_since = Some(now);
                }
                if !detector.tick(now).is_empty() {
                    return silent_since.map(|since| now - since);
                }
            }
            None
        };
        let (quiet, busy) = (noticed_after(Duration::ZERO), noticed_after(PERIOD));
        assert!(quiet.is_some_and(|after| after <= PATIENCE + 2 * PERIOD), "{quiet:?}");
        assert!(busy.is_some_and(|after| after > PATIENCE * 5 / 2 && after < PATIENCE * 5), "{busy:?}");
    }

    #[test]
    fn a_new_set_keeps_the_time_of_those_that_stay() {
        let start = Instant::now();
        let mut detector = Detector::new(PERIOD, PATIENCE, start);
        detector.watch([1, 2].map(JobRank::new), start);
        let later = start + PERIOD;
        assert_eq!(detector.tick(later), []);
        detector.watch([2, 5].map(JobRank::new), later);
        let found: Vec<_> =
            (2..=11).flat_map(|tick| detector.tick(start + PERIOD * tick)).map(|one| one.rank).collect();
        assert_eq!(found, [JobRank::new(2)], "5 has been watched for less than the patience");
    }
}
