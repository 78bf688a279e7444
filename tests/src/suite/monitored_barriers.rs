//! The barrier that names the ranks that have not come (row B18).

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use unisono_collectives::Collectives;
use unisono_communicator::Error;

use crate::backend::Backend;
use crate::waits::Waits;
use crate::world::{options, run, run_each};

/// Of a wait that ends with the last rank, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// Of a wait for ranks that do not come.
const SHORT: Duration = Duration::from_millis(200);

/// Nobody leaves before all have come.
pub fn b18_all_ranks_come(backend: &dyn Backend) {
    for ranks in backend.among(&[1, 2, 4, 8]) {
        // Of the turns in which the late rank has come.
        let came = AtomicU32::new(0);
        run(backend, ranks, &options(), |comm| {
            for turn in 0..3 {
                if comm.rank() == turn % ranks {
                    std::thread::sleep(Duration::from_millis(20));
                    came.fetch_add(1, Ordering::SeqCst);
                }
                comm.monitored_barrier(PATIENCE).unwrap();
                assert!(came.load(Ordering::SeqCst) > turn, "before rank {} has come", turn % ranks);
            }
            comm.close().unwrap();
            assert!(matches!(comm.monitored_barrier(PATIENCE), Err(Error::Closed { .. })));
        });
    }
}

/// Every caller gets the list of all ranks that are missing; the communicator works, and the barrier ends when they
/// come.
pub fn b18_missing_ranks_are_named_and_nothing_is_revoked(backend: &dyn Backend) {
    run(backend, 4, &options(), |comm| {
        let mut waits = Waits::default();
        if comm.rank() % 2 == 0 {
            for _ in 0..2 {
                let error = waits.time(SHORT, || comm.monitored_barrier(SHORT).unwrap_err());
                let Error::Timeout { not_arrived, .. } = &error else { panic!("{error}") };
                let missing: Vec<u32> = not_arrived.iter().map(|awaited| awaited.rank.get()).collect();
                // The other caller may come up to its whole time later.
                assert!(missing.ends_with(&[3]) && missing.contains(&1), "{error}");
                assert_eq!(error.first_missing().map(|rank| rank.get()), missing.first().copied());
            }
            let error = waits.time(SHORT, || comm.monitored_barrier(SHORT).unwrap_err());
            waits.are_in_time();
            let Error::Timeout { not_arrived, .. } = &error else { panic!("{error}") };
            let missing: Vec<u32> = not_arrived.iter().map(|awaited| awaited.rank.get()).collect();
            assert_eq!(missing, [1, 3], "both callers have come: {error}");
            assert_eq!(error.first_missing().map(|rank| rank.get()), Some(1));
        }
        comm.barrier().unwrap();
        comm.monitored_barrier(PATIENCE).unwrap();
        comm.monitored_barrier(PATIENCE).unwrap();
        comm.barrier().unwrap();
    });
}

/// A group waits for its members alone, and names the missing one by its rank in the job.
pub fn b18_a_group_names_ranks_of_the_job(backend: &dyn Backend) {
    let has_told = Barrier::new(2);
    run(backend, 4, &options(), |comm| {
        // No rank is the same in both, and rank 1 of the job is no member.
        let Some(group) = comm.subgroup(&[2, 0, 3]).unwrap() else { return };
        group.monitored_barrier(PATIENCE).unwrap();
        if group.rank() == 2 {
            has_told.wait();
        }
        if group.rank() == 0 {
            let error = group.monitored_barrier(SHORT).unwrap_err();
            let Error::Timeout { not_arrived, .. } = &error else { panic!("{error}") };
            let missing: Vec<u32> = not_arrived.iter().map(|awaited| awaited.rank.get()).collect();
            // The other member may come up to its whole time later.
            assert!(missing == [3] || missing == [0, 3], "{error}");
            has_told.wait();
        }
        group.monitored_barrier(PATIENCE).unwrap();
        group.barrier().unwrap();
    });
}

/// A rank that has closed the communicator never comes.
pub fn b18_a_rank_that_has_left(backend: &dyn Backend) {
    run_each(backend, &[2, 3], |comm| {
        if comm.rank() == 0 {
            return comm.close().unwrap();
        }
        let error = comm.monitored_barrier(PATIENCE).unwrap_err();
        let lost: Vec<u32> = error.lost_ranks().iter().map(|rank| rank.get()).collect();
        assert_eq!(lost, [0], "{error}");
    });
}

/// An abort on any rank ends the wait of all others.
pub fn b18_an_abort_ends_it(backend: &dyn Backend) {
    run(backend, 3, &options(), |comm| {
        if comm.rank() == 1 {
            std::thread::sleep(Duration::from_millis(50));
            return comm.abort().unwrap();
        }
        let started = Instant::now();
        let error = comm.monitored_barrier(PATIENCE).unwrap_err();
        assert!(matches!(error.root_cause(), Error::Aborted { .. }), "{error}");
        assert!(started.elapsed() < PATIENCE / 2);
    });
}
