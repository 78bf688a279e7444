//! The mismatch matrix: every form of a collective call, of which one rank makes another that differs in one field or
//! in two, among 2, 3, 5 and 8 ranks over loopback sockets. Every rank must learn of it: from that call, from its next
//! one, or when it closes.
//!
//! The seed is printed; `UNISONO_TEST_SEED` repeats a run.

mod cases;
mod judge;

use std::sync::Barrier;
use std::time::{Duration, SystemTime};

use unisono_collectives::Collectives;
use unisono_communicator::{CallOptions, Collective, Communicator, DType, Error, ReduceOp, Result};
use unisono_engine::EngineOptions;
use unisono_tests::case::Case;
use unisono_tests::sample::mix;
use unisono_tests::world::run;
use unisono_tests::{Tcp, watchdog};

use cases::{Deviation, deviations, harmless};
use judge::{Outcome, Tally};

/// Poor reports that are shown.
const EXAMPLES_MAX: usize = 12;

/// Of one test, on a machine that is busy with others.
const SECONDS_MAX: u64 = 600;

fn seed() -> u64 {
    let text = std::env::var_os("UNISONO_TEST_SEED").and_then(|text| text.into_string().ok());
    text.map_or_else(
        || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64,
        |text| text.parse().unwrap(),
    )
}

/// Questions come soon, since most of the time of a case would be spent waiting for them.
fn options() -> EngineOptions {
    EngineOptions {
        timeout: Duration::from_secs(10),
        probe_after: Duration::from_millis(3),
        ..EngineOptions::default()
    }
}

const USUAL_LINE: u32 = line!() + 3;

fn usual_call(case: &Case, comm: &dyn Communicator) -> Result<()> {
    case.result(comm).map(|_| ())
}

const ODD_LINE: u32 = line!() + 3;

fn odd_call(case: &Case, comm: &dyn Communicator) -> Result<()> {
    case.result(comm).map(|_| ())
}

/// A good call, the deviating one, another good one, and the end.
fn play(deviation: &Deviation, comm: &dyn Communicator, together: &Barrier) -> Outcome {
    let good = Case::new(Collective::AllReduce, DType::U64, 3);
    let first = good.check(comm);
    // A failure ends whatever a slower rank is in.
    together.wait();
    let call = match comm.group().rank() == deviation.odd_rank {
        true => odd_call(&deviation.odd, comm),
        false => usual_call(&deviation.usual, comm),
    };
    Outcome { first, call, next: good.check(comm), close: comm.close() }
}

fn matrix(ranks: u32) {
    let seed = seed();
    let all = deviations(ranks, mix(seed ^ u64::from(ranks)));
    let together = Barrier::new(ranks as usize);
    let outcomes = run(&Tcp, ranks, &options(), |world| {
        let play_one = |deviation| {
            let comm = world.duplicate().unwrap();
            let outcome = play(deviation, &*comm, &together);
            // Who drops its communicator at once might be taken for lost before the first cause has come.
            together.wait();
            outcome
        };
        all.iter().map(play_one).collect::<Vec<_>>()
    });
    let mut tally = Tally::default();
    for (number, deviation) in all.iter().enumerate() {
        let of_ranks: Vec<&Outcome> = outcomes.iter().map(|list| &list[number]).collect();
        tally.take(deviation, &of_ranks, [USUAL_LINE, ODD_LINE]);
    }
    eprintln!("mismatch among {ranks} ranks, seed {seed}: {tally}");
    let Tally { poor, faults, .. } = &tally;
    poor.iter().take(EXAMPLES_MAX).for_each(|example| eprintln!("  {example}"));
    assert!(faults.is_empty(), "{} faults, seed {seed}:\n{}", faults.len(), faults.join("\n"));
    let reports = ranks as usize * all.len();
    assert!(poor.len() * 100 <= reports, "{} of {reports} reports are poor, seed {seed}", poor.len());
}

#[test]
fn among_2_ranks() {
    watchdog(SECONDS_MAX, "mismatch among 2", || matrix(2));
}

#[test]
fn among_3_ranks() {
    watchdog(SECONDS_MAX, "mismatch among 3", || matrix(3));
}

#[test]
fn among_5_ranks() {
    watchdog(SECONDS_MAX, "mismatch among 5", || matrix(5));
}

#[test]
fn among_8_ranks() {
    watchdog(SECONDS_MAX, "mismatch among 8", || matrix(8));
}

/// What may differ is not reported, and the results are right.
#[test]
fn what_may_differ() {
    watchdog(SECONDS_MAX, "what may differ", || {
        for ranks in [2, 3, 5, 8] {
            let seed = seed();
            let all = harmless(ranks, seed);
            run(&Tcp, ranks, &options(), |world| {
                let rank = world.group().rank();
                for (number, pair) in all.iter().enumerate() {
                    let is_late = u64::from(rank) == mix(seed ^ number as u64) % u64::from(ranks);
                    if is_late {
                        // Long enough for the others to ask, so that answers are compared too.
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    let case = &pair[(mix(seed ^ number as u64 ^ u64::from(rank)) % 2) as usize];
                    let result = case.check(world);
                    result.unwrap_or_else(|error| {
                        panic!("seed {seed}: {case:?} on rank {rank} of {ranks}: {error}")
                    });
                }
                world.close().unwrap();
            });
        }
    });
}

/// Of two calls of one shape that a rank makes in the other order, labels tell. Without labels nothing could.
#[test]
fn labelled_calls_in_another_order() {
    watchdog(SECONDS_MAX, "labelled calls in another order", || {
        for ranks in [2, 3, 5, 8] {
            let odd_rank = (seed() % u64::from(ranks)) as u32;
            let errors = run(&Tcp, ranks, &options(), |world| {
                let labelled = |text| Case {
                    options: CallOptions::new().label(text),
                    ..Case::new(Collective::AllReduce, DType::U64, 3)
                };
                let mut calls = [labelled("weights"), labelled("bias")];
                if world.group().rank() == odd_rank {
                    calls.reverse();
                }
                calls.iter().find_map(|call| call.check(world).err())
            });
            for (rank, error) in errors.iter().enumerate() {
                let error = error.as_ref().unwrap_or_else(|| panic!("rank {rank} of {ranks} learnt nothing"));
                let Error::Mismatch { difference, .. } = error.root_cause() else { panic!("{error}") };
                assert!(difference.contains("label"), "rank {rank} of {ranks}: {error}");
            }
        }
    });
}

/// Buffers of one call that one rank cuts in another way, in as many elements: nothing but their lengths tells.
#[test]
fn coalesced_buffers_of_other_lengths() {
    watchdog(SECONDS_MAX, "coalesced buffers of other lengths", || {
        let cuts: [[&[usize]; 2]; 3] =
            [[&[4, 2], &[2, 4]], [&[6], &[0, 6]], [&[40_000, 1, 5], &[5, 1, 40_000]]];
        for (ranks, [usual, odd]) in [2, 3, 5, 8].into_iter().flat_map(|ranks| cuts.map(|cut| (ranks, cut))) {
            let odd_rank = (seed() % u64::from(ranks)) as u32;
            let errors = run(&Tcp, ranks, &options(), |world| {
                let lengths = if world.group().rank() == odd_rank { odd } else { usual };
                let mut buffers: Vec<Vec<u32>> = lengths.iter().map(|length| vec![1; *length]).collect();
                let mut list: Vec<&mut [u32]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
                let result = world.all_reduce_coalesced(&mut list, ReduceOp::Sum);
                result.and_then(|()| world.barrier()).and_then(|()| world.close()).err()
            });
            for (rank, error) in errors.iter().enumerate() {
                let error = error.as_ref().unwrap_or_else(|| panic!("rank {rank} of {ranks} learnt nothing"));
                let Error::Mismatch { difference, .. } = error.root_cause() else { panic!("{error}") };
                assert!(difference.contains("segment lengths "), "rank {rank} of {ranks}: {error}");
                assert!(!error.to_string().contains('#'), "rank {rank} of {ranks}: {error}");
            }
        }
    });
}

/// Ranks that send to each other and receive nothing, and then close: no message of a call is read that would tell, so
/// the digests tell that ranks exchange when they close.
#[test]
fn two_roots_and_no_call_after() {
    watchdog(SECONDS_MAX, "two roots and no call after", || {
        for collective in Collective::ALL.into_iter().filter(|collective| collective.is_rooted()) {
            let together = Barrier::new(2);
            let learnt = run(&Tcp, 2, &options(), |world| {
                // Whoever had to wait for a connection would ask, and be told.
                Case::new(Collective::AllReduce, DType::U64, 3).check(world).unwrap();
                together.wait();
                let rank = world.group().rank();
                let sends = matches!(collective, Collective::Broadcast | Collective::Scatter);
                let root = if sends { rank } else { 1 - rank };
                let case = Case { root, ..Case::new(collective, DType::U32, 6) };
                case.result(world).map(|_| ()).and_then(|()| world.close()).err()
            });
            for (rank, error) in learnt.iter().enumerate() {
                let cause = error.as_ref().map(Error::root_cause);
                assert!(
                    matches!(cause, Some(Error::Mismatch { .. })),
                    "{collective}, rank {rank}: {error:?}"
                );
            }
        }
    });
}
