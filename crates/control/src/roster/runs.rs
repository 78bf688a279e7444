//! Runs of one job. With the same settings, a rank of an earlier run that still waits finds the store of the next run.
//! Where the launcher names its runs, they are told apart.

use super::Newcomer;

/// Why a process is of another run than `ours`, the run of the store's host. It alone is told: the others go on.
pub(super) fn runs_differ(ours: Option<&str>, newcomer: &Newcomer) -> Option<String> {
    let (rank, theirs) = (newcomer.rank, &newcomer.arrival.run);
    let ours = ours.filter(|ours| !theirs.is_empty() && ours != theirs)?;
    Some(format!(
        "the runs differ: rank {rank}, {newcomer}, is of {theirs}, and the ranks that meet here are of {ours}: end \
         the rest of the earlier run, or set another UNISONO_JOB or MASTER_PORT in one of them"
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::last_round::tests::newcomer;
    use super::super::message::{Answer, Arrival};
    use super::super::{Arrived, Roster};
    use super::*;
    use crate::handshake::JobId;

    #[test]
    fn a_rank_of_another_run_is_refused_and_the_others_meet() {
        let (now, job) = (Instant::now(), JobId([5; 16]));
        let mut roster = Roster::new(2).of_run(Some("Slurm's step 7.1".to_owned()));
        let mut arrive = |rank, run: &str| {
            let newcomer = newcomer(rank, 6 + rank as u16, 1);
            let arrival = Arrival { run: run.to_owned(), ..newcomer.arrival };
            roster.arrive(Newcomer { arrival, ..newcomer }, now, job)
        };
        let Arrived::Late(Answer::Refused { reason }) = arrive(1, "Slurm's step 7.0") else {
            panic!("it waits")
        };
        let both = "is of Slurm's step 7.0, and the ranks that meet here are of Slurm's step 7.1: ";
        assert!(reason.contains(both) && reason.len() < 512, "{reason}");
        assert!(matches!(arrive(0, "Slurm's step 7.1"), Arrived::Waits(_)));
        // A user may have started it by hand.
        assert!(matches!(arrive(1, ""), Arrived::Ends(Answer::Welcome { .. })));
    }
}
