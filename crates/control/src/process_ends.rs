//! The processes on this host that have ended, until it is decided whether their ranks are lost: a goodbye that another
//! rank has read may still be on its way.

use std::collections::BTreeMap;
use std::time::Instant;

use unisono_communicator::JobRank;

/// The process of a rank has ended.
#[derive(Debug)]
struct ProcessEnd {
    reason: String,
    goodbye_by: Instant,
}

/// The processes that have ended, by rank.
#[derive(Debug, Default)]
pub(crate) struct ProcessEnds {
    ends: BTreeMap<JobRank, ProcessEnd>,
}

impl ProcessEnds {
    /// The process of a rank has ended. Other ranks may forward its goodbye until `goodbye_by`.
    pub(crate) fn note(&mut self, rank: JobRank, reason: String, goodbye_by: Instant) {
        self.ends.insert(rank, ProcessEnd { reason, goodbye_by });
    }

    /// No goodbye of a rank can come any more. Whether its process has ended.
    pub(crate) fn decide(&mut self, rank: JobRank, now: Instant) -> bool {
        let end = self.ends.get_mut(&rank);
        end.map(|end| end.goodbye_by = now).is_some()
    }

    /// The ranks whose goodbye has not come in time, with the reasons; each once.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<(JobRank, String)> {
        let (due, later) =
            std::mem::take(&mut self.ends).into_iter().partition(|(_, end)| end.goodbye_by <= now);
        self.ends = later;
        let due: BTreeMap<JobRank, ProcessEnd> = due;
        due.into_iter().map(|(rank, end)| (rank, end.reason)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_rank_is_due_once_when_no_goodbye_of_it_can_come() {
        let (mut ends, now, patience) = (ProcessEnds::default(), Instant::now(), Duration::from_secs(1));
        let [early, late] = [1, 2].map(JobRank::new);
        assert!(!ends.decide(early, now) && ends.take_due(now).is_empty());
        [early, late]
            .into_iter()
            .for_each(|rank| ends.note(rank, format!("{rank} has ended"), now + patience));
        assert!(ends.take_due(now).is_empty() && ends.decide(early, now));
        assert_eq!(ends.take_due(now), [(early, "1 has ended".to_owned())]);
        assert_eq!(ends.take_due(now + patience), [(late, "2 has ended".to_owned())]);
        assert!(ends.take_due(now + patience).is_empty());
    }
}
