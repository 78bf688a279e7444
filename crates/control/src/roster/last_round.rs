//! The round that has ended last, as long as some of its ranks may not have its answer. The connection of a rank may be
//! cut after the store has sent the answer and before the rank has read it; the rank then comes again.

use std::collections::BTreeMap;

use super::Newcomer;
use super::message::Answer;

/// A round that has ended.
#[derive(Debug)]
pub(super) struct LastRound {
    answer: Answer,
    /// Its ranks that have not confirmed the answer.
    untold: BTreeMap<u32, Newcomer>,
}

impl LastRound {
    /// The round of these ranks.
    pub(super) fn new(answer: Answer, untold: Vec<Newcomer>) -> LastRound {
        LastRound { answer, untold: untold.into_iter().map(|one| (one.rank, one)).collect() }
    }

    /// The answer, if this process was given it before and has not confirmed it.
    pub(super) fn lost_answer(&self, newcomer: &Newcomer) -> Option<&Answer> {
        self.untold.get(&newcomer.rank).filter(|one| one.is_same_wait(newcomer)).map(|_| &self.answer)
    }

    /// Notes that a rank has confirmed the answer to this wait.
    pub(super) fn has_taken(&mut self, rank: u32, wait: u64) {
        if self.untold.get(&rank).is_some_and(|one| one.arrival.wait == wait) {
            self.untold.remove(&rank);
        }
    }

    /// Whether all its ranks have confirmed the answer.
    pub(super) fn is_told(&self) -> bool {
        self.untold.is_empty()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::SocketAddr;

    use unisono_communicator::Process;

    use super::super::cpus::Cpus;

    use super::super::message::{Arrival, HostClaim, RankProcess};
    use super::*;

    /// A process that listens at this port, in its wait of this number.
    pub(in crate::roster) fn newcomer(rank: u32, port: u16, wait: u64) -> Newcomer {
        let from = SocketAddr::from(([127, 0, 0, 1], port));
        let arrival = Arrival {
            address: from,
            host: HostClaim { id: [0; 16], is_named: false, local_ranks: None },
            process: RankProcess { process: Process { host: "here".into(), pid: 9 }, birth: None },
            run: String::new(),
            wait,
            wait_ms: 1000,
            job_settings: Vec::new(),
            backend: "tcp".to_owned(),
            cpus: Cpus::new([0], 1),
        };
        Newcomer { rank, world_size: 2, connection: 1, from, arrival }
    }

    #[test]
    fn the_same_wait_gets_its_answer_until_it_has_confirmed_it() {
        let answer = Answer::Missing { impatient: 0, ranks: vec![2] };
        let mut round = LastRound::new(answer.clone(), vec![newcomer(0, 6, 1), newcomer(1, 7, 1)]);
        round.has_taken(0, 1);
        // It comes over another connection.
        let again = Newcomer { connection: 3, ..newcomer(1, 7, 1) };
        assert_eq!(round.lost_answer(&again), Some(&answer));
        for other in [newcomer(0, 6, 1), newcomer(1, 8, 1), newcomer(1, 7, 2)] {
            assert_eq!(round.lost_answer(&other), None, "{other:?}");
        }
        round.has_taken(1, 2);
        assert!(!round.is_told());
        round.has_taken(1, 1);
        assert!(round.is_told() && round.lost_answer(&again).is_none());
    }
}
