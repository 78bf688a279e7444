//! Real oneCCL, with ranks that are processes: the conformance suite with deadlines, so that all calls meet; the calls
//! that run on their caller's thread; processes that are killed in the library.

mod queues;
mod two_worlds;

use std::sync::Barrier;
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{CALL_TIMEOUT_DEFAULT, CallOptions, Communicator, Error, ReduceOp, Result};
use unisono_engine::EngineOptions;
use unisono_tests::backend::Job;
use unisono_tests::capabilities::COMMON_TYPES;
use unisono_tests::suite::{self, SECONDS_MAX};
use unisono_tests::world::{options, run_each, run_job};
use unisono_tests::{Algorithms, Arithmetic, Backend, Processes, ccl, watchdog};

const CCL: Processes = Processes {
    name: "ccl",
    program: env!("CARGO_BIN_EXE_vendor_rank"),
    argument: "ccl",
    rank_counts: &[2],
    large_rank_counts: &[4],
    ranks_max: 4,
    algorithms: Algorithms::None,
    always_reduces: COMMON_TYPES,
    arithmetic: unisono_offload_ccl::arithmetic,
    environment: ccl::ccl_environment,
    worlds_max: 4,
};

unisono_tests::conformance!(CCL);

/// Calls without a deadline, on worlds of these sizes.
struct Inline(&'static [u32]);

impl Backend for Inline {
    fn name(&self) -> &'static str {
        "ccl inline"
    }

    fn is_there(&self) -> bool {
        CCL.is_there()
    }

    fn open(&self, ranks: u32, options: &EngineOptions) -> Box<dyn Job> {
        CCL.open(ranks, &EngineOptions { timeout: CALL_TIMEOUT_DEFAULT, ..options.clone() })
    }

    fn rank_counts(&self) -> &'static [u32] {
        self.0
    }

    fn large_rank_counts(&self) -> &'static [u32] {
        &[]
    }

    fn ranks_max(&self) -> u32 {
        CCL.ranks_max
    }

    fn algorithms(&self) -> Algorithms {
        CCL.algorithms
    }

    fn arithmetic(&self) -> Arithmetic {
        unisono_offload_ccl::arithmetic()
    }
}

fn watched(name: &str, backend: &Inline, test: impl FnOnce(&dyn Backend)) {
    if backend.is_there() {
        watchdog(SECONDS_MAX, name, || test(backend));
    }
}

#[test]
fn calls_on_their_callers_thread() {
    watched("inline", &Inline(&[2]), |backend| {
        suite::reductions::all_reduce(backend);
        suite::reductions::reduce(backend);
        suite::reductions::reduce_scatter(backend);
        suite::calls::moves_of_every_dtype(backend);
        suite::calls::typed_uneven(backend);
    });
}

/// Rows: D2, D4
#[test]
fn four_ranks_on_their_callers_threads() {
    watched("inline, 4 ranks", &Inline(&[4]), |backend| {
        suite::calls::typed_moves(backend);
        suite::calls::typed_uneven(backend);
    });
}

/// Right results could come from the communicator beneath.
///
/// Rows: D4
#[test]
fn calls_are_the_librarys_own() {
    watched("own", &Inline(&[2]), |backend| {
        run_each(backend, backend.rank_counts(), |comm| {
            let (two, sum) = (|| vec![1i32; 2], ReduceOp::Sum);
            let shares = if comm.rank() == 0 { two() } else { Vec::new() };
            let works = [
                comm.all_reduce_async(two(), sum).into_work(),
                comm.reduce_async(two(), sum, 0).into_work(),
                comm.reduce_scatter_async(two(), sum).into_work(),
                comm.broadcast_async(two(), 0).into_work(),
                comm.all_gather_async(two()).into_work(),
                comm.all_to_all_async(two()).into_work(),
                comm.gather_async(two(), 0).into_work(),
                comm.scatter_async(shares, 1, 0).into_work(),
            ];
            assert_eq!(works.map(|work| work.wait().unwrap().algorithm), ["ccl"; 8]);
        });
    });
}

/// Of the rank that dies.
const VICTIM: u32 = 1;

/// The victim's process is killed while all ranks call again and again. The others learn who died, and go on with a
/// communicator of oneCCL's; or, where a call hangs in the library of one, all of them are told.
fn killed_during(call: impl Fn(&dyn Communicator) -> Result<()> + Sync) {
    let (ranks, entered) = (3, Barrier::new(3));
    let job = CCL.open_job(ranks, &options());
    let after = run_job(&job, "ccl", ranks, |comm, _| {
        comm.barrier().unwrap();
        entered.wait();
        if comm.group().rank() == VICTIM {
            std::thread::scope(|threads| {
                threads.spawn(|| while call(comm).is_ok() {});
                std::thread::sleep(Duration::from_millis(300));
                job.kill(VICTIM);
            });
            return None;
        }
        let error = loop {
            if let Err(error) = call(comm) {
                break error;
            }
        };
        let Error::PeerLost { culprits, .. } = error.root_cause() else { panic!("{error}") };
        assert_eq!(
            culprits.iter().map(|culprit| culprit.rank.get()).collect::<Vec<_>>(),
            [VICTIM],
            "{error}"
        );
        Some(match comm.shrink() {
            Ok(shrunk) => {
                let mut sum = [1u32];
                shrunk.communicator.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
                assert_eq!((sum, shrunk.new_ranks), ([2], vec![Some(0), None, Some(1)]));
                String::new()
            }
            Err(error) => {
                assert!(matches!(&error, Error::Unsupported { instead: Some(_), .. }), "{error}");
                error.to_string()
            }
        })
    });
    assert_eq!(after[0], after[2], "the same on all survivors");
}

/// Rows: D9
#[test]
fn a_process_that_is_killed_in_the_library() {
    if !CCL.is_there() {
        return;
    }
    watchdog(SECONDS_MAX, "killed", || {
        let hurried = |comm: &dyn Communicator, elements: usize| {
            let comm = comm.with(CallOptions::new().timeout(Duration::from_secs(30)));
            comm.all_reduce(&mut vec![1.0f32; elements], ReduceOp::Sum)
        };
        killed_during(|comm| hurried(comm, 4 << 20));
        killed_during(|comm| hurried(comm, 1));
        killed_during(|comm| comm.all_reduce_async(vec![1u32; 1 << 20], ReduceOp::Sum).wait().map(drop));
    });
}
