//! The conformance suite over loopback sockets, with ranks that are processes; and processes that end or hang.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::Duration;

use unisono_collectives::{Batch, Collectives, CollectivesAsync, PointToPoint};
use unisono_communicator::{CallOptions, Communicator, Error, Peer, ReduceOp, Result};
use unisono_tests::capabilities::COMMON_TYPES;
use unisono_tests::processes::ProcessJob;
use unisono_tests::suite::SECONDS_MAX;
use unisono_tests::world::{options, run_job};
use unisono_tests::{Algorithms, Arithmetic, Processes, watchdog};

const TCP: Processes = Processes {
    name: "tcp processes",
    program: env!("CARGO_BIN_EXE_suite_rank"),
    argument: "tcp",
    rank_counts: &[2],
    large_rank_counts: &[4],
    ranks_max: 5,
    algorithms: Algorithms::BuiltIn,
    always_reduces: COMMON_TYPES,
    arithmetic: || Arithmetic::ENGINE,
    environment: || Some(&[]),
    worlds_max: 2,
};

unisono_tests::conformance!(TCP);

/// Of the rank that dies or hangs.
const VICTIM: u32 = 1;

fn is_lost(error: &Error) {
    let Error::PeerLost { culprits, .. } = error.root_cause() else { panic!("{error}") };
    assert_eq!(culprits.iter().map(|culprit| culprit.rank.get()).collect::<Vec<_>>(), [VICTIM], "{error}");
}

/// The victim's process is killed while `waits` of all others waits for it, and they go on without it.
fn killed_during(waits: impl Fn(&dyn Communicator) -> Result<()> + Sync) {
    let (ranks, entered) = (3, Barrier::new(3));
    let job: ProcessJob = TCP.open_job(ranks, &options());
    run_job(&job, "tcp processes", ranks, |comm, _| {
        comm.barrier().unwrap();
        entered.wait();
        if comm.group().rank() == VICTIM {
            std::thread::sleep(Duration::from_millis(100));
            job.kill(VICTIM);
            let gone = comm.barrier().unwrap_err().to_string();
            assert!(gone.contains("the process of the rank") && gone.contains("has ended"), "{gone}");
            return;
        }
        is_lost(&waits(comm).unwrap_err());
        let shrunk = comm.shrink().unwrap();
        assert_eq!(shrunk.new_ranks, [Some(0), None, Some(1)]);
        let mut sum = [1u32];
        shrunk.communicator.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        assert_eq!(sum, [2]);
    });
}

/// Rows: B16, B18
#[test]
fn a_process_that_is_killed_ends_the_calls_of_the_others() {
    watchdog(SECONDS_MAX, "killed", || {
        killed_during(|comm| comm.all_reduce(&mut vec![1.0f32; 100_000], ReduceOp::Sum));
        killed_during(|comm| comm.recv(&mut [0u8], Peer::Rank(VICTIM), 7).map(drop));
        killed_during(|comm| comm.all_reduce_async(vec![1u32], ReduceOp::Sum).wait().map(drop));
        killed_during(|comm| comm.monitored_barrier(Duration::from_secs(60)));
        killed_during(|comm| comm.probe(Peer::Rank(VICTIM), 7).map(drop));
        killed_during(|comm| {
            let (mut room, mut batch) = ([0u8], Batch::new());
            batch.recv(&mut room, VICTIM, 7).send(&[1u8], comm.rank(), 8);
            comm.exchange(batch).map(drop)
        });
    });
}

#[test]
fn a_process_that_is_killed_before_it_joins_is_missing() {
    watchdog(SECONDS_MAX, "killed before it joins", || {
        let job = TCP.open_job(2, &options());
        job.kill(VICTIM);
        std::thread::scope(|threads| {
            // Nobody tells the store, so that the other one waits: until its process is killed too.
            let first = threads.spawn(|| unisono_tests::backend::Job::join(&job, 0).map(drop));
            let gone = unisono_tests::backend::Job::join(&job, VICTIM).map(drop).unwrap_err().to_string();
            assert!(gone.contains("has ended"), "{gone}");
            job.kill(0);
            assert!(first.join().unwrap().unwrap_err().to_string().contains("has ended"));
        });
    });
}

#[test]
fn a_process_that_is_stopped_is_waited_for_until_the_deadline() {
    watchdog(SECONDS_MAX, "stopped", || {
        let (ranks, stopped) = (2, Barrier::new(2));
        let job = TCP.open_job(ranks, &options());
        run_job(&job, "tcp processes", ranks, |comm, _| {
            comm.barrier().unwrap();
            if comm.group().rank() == VICTIM {
                job.stop(VICTIM);
                stopped.wait();
                stopped.wait();
                job.resume(VICTIM);
                // Bytes that the other rank sent before it gave up may complete one call, if they overtake the news.
                let error = comm.barrier().and_then(|()| comm.barrier()).unwrap_err();
                assert!(matches!(error.root_cause(), Error::Timeout { .. }), "{error}");
                return;
            }
            stopped.wait();
            let hurried = comm.with(CallOptions::new().timeout(Duration::from_millis(500)));
            let error = hurried.barrier().unwrap_err();
            let Error::Timeout { not_arrived, .. } = error.root_cause() else { panic!("{error}") };
            assert_eq!(not_arrived[0].rank.get(), VICTIM, "{error}");
            stopped.wait();
        });
    });
}

#[test]
fn a_process_ends_when_its_test_has() {
    watchdog(SECONDS_MAX, "the end of a test", || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut command = Command::new(TCP.program);
        command.arg(TCP.argument).stdin(Stdio::from(OwnedFd::from(theirs)));
        let mut process = command.spawn().unwrap();
        // The command holds the other end too.
        drop(command);
        std::thread::sleep(Duration::from_millis(50));
        assert!(process.try_wait().unwrap().is_none());
        drop(ours);
        assert!(process.wait().unwrap().success());
    });
}

#[test]
fn processes_are_used_again_and_replaced() {
    watchdog(SECONDS_MAX, "used again", || {
        let pids = |job: &ProcessJob| [0, 1].map(|rank| job.pid(rank));
        let calls = |job: &ProcessJob| {
            run_job(job, "tcp processes", 2, |comm, _| comm.barrier().unwrap());
        };
        let first = TCP.open_job(2, &options());
        calls(&first);
        let killed = pids(&first)[1];
        first.kill(1);
        drop(first);
        for _ in 0..5 {
            let next = TCP.open_job(2, &options());
            calls(&next);
            assert!(!pids(&next).contains(&killed));
        }
    });
}
