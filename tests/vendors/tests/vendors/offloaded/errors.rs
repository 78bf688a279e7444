//! What goes wrong in a library, and what users see of it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use unisono_backend::Companion;
use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{Communicator, Error, Executor, ReduceOp, Result};
use unisono_engine::EngineOptions;
use unisono_offload::{OffloadOptions, Offloaded};
use unisono_tests::double::{Fault, LibraryDouble, LibraryRoom, Moment};
use unisono_tests::suite::borrowed::{all_reduce, lend};
use unisono_tests::{companions_with, watchdog};

/// Of one test, on a machine that is busy with others.
const SECONDS_MAX: u64 = 120;

/// A deadline that is reached.
const SHORT: Duration = Duration::from_millis(400);

type Double = Arc<Offloaded<LibraryDouble>>;

fn engine_options(timeout: Duration) -> EngineOptions {
    EngineOptions { timeout, drop_timeout: Duration::from_secs(1), ..EngineOptions::default() }
}

fn open(companion: Companion, library: LibraryDouble, deadlines: bool) -> Result<Double> {
    let options = OffloadOptions::new(companion.gate().timeout(), deadlines);
    Offloaded::open(companion, Ok(Arc::new(library)), &options)
}

/// The body of a rank, at whose end, if it is the last one or fails, what hangs is released.
struct Ends<'a> {
    room: &'a LibraryRoom,
    ended: &'a AtomicU32,
    ranks: u32,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if self.ended.fetch_add(1, Ordering::SeqCst) + 1 == self.ranks || std::thread::panicking() {
            self.room.release();
        }
    }
}

/// Runs `body` on each rank of a world with these libraries, where all calls have this timeout. Calls that hang are
/// released when all bodies have come back.
fn with_fault<R: Send>(
    ranks: u32,
    timeout: Duration,
    library: impl Fn(u32, LibraryDouble) -> LibraryDouble + Sync,
    deadlines: bool,
    body: impl Fn(u32, Result<Double>, Companion) -> R + Sync,
) -> Vec<R> {
    let room = LibraryRoom::new();
    let ended = AtomicU32::new(0);
    companions_with(ranks, &engine_options(timeout), |companion| {
        let rank = companion.group().rank();
        let _ends = Ends { room: &room, ended: &ended, ranks };
        let opened = open(companion.clone(), library(rank, LibraryDouble::new(&room)), deadlines);
        body(rank, opened, companion)
    })
}

fn sum(comm: &dyn Communicator) -> Result<u32> {
    let mut sum = [comm.group().rank() + 1];
    comm.all_reduce(&mut sum, ReduceOp::Sum)?;
    Ok(sum[0])
}

fn vendor_code(error: &Error) -> Option<i32> {
    match error.root_cause() {
        Error::Vendor { code, .. } => Some(*code),
        _ => None,
    }
}

/// Every code, on one rank or on all, at once or late: the same typed error on all ranks, long before the deadline.
#[test]
fn an_error_of_the_library_is_that_of_all_ranks() {
    let test = || {
        let faults = [1, 2, 3, 4, 5, 6, 7, 11, 12, 99, -7, i32::MAX, i32::MIN].map(Fault::Error);
        let late = [Fault::LateError(3), Fault::LateError(-3)];
        for fault in faults.into_iter().chain(late) {
            for moment in [Moment::Init, Moment::Call(0), Moment::Call(2)] {
                let errors = with_fault(
                    3,
                    Duration::from_secs(30),
                    |rank, library| if rank == 1 { library.with_fault(moment, fault) } else { library },
                    true,
                    |_, opened, _| {
                        let world = match opened {
                            Ok(world) => world,
                            Err(error) => return error,
                        };
                        // A rank that has its result hears of it in its next call.
                        (0..5).find_map(|_| sum(&*world).err()).unwrap()
                    },
                );
                let (Fault::Error(expected) | Fault::LateError(expected)) = fault else { unreachable!() };
                let codes: Vec<_> = errors.iter().map(vendor_code).collect();
                eprintln!("{moment:?} {fault:?}: {}", errors[0]);
                assert_eq!(codes, [Some(expected); 3], "{moment:?} {fault:?}: {errors:?}");
            }
        }
    };
    watchdog(SECONDS_MAX, "an_error_of_the_library", test);
}

/// The id is made by one rank alone.
///
/// Rows: D2
#[test]
fn an_id_that_cannot_be_made_is_the_error_of_all_ranks() {
    watchdog(SECONDS_MAX, "an_id_that_cannot_be_made", || {
        let library = |_, library: LibraryDouble| library.with_fault(Moment::Id, Fault::Error(5));
        let codes = with_fault(3, Duration::from_secs(30), library, true, |_, opened, _| {
            vendor_code(&opened.err().unwrap())
        });
        assert_eq!(codes, [Some(5); 3]);
    });
}

/// A call that hangs on a rank ends at its deadline on all of them, and is told as the timeout that it is. Its memory
/// stays with the library. Nothing of the library can be used any more, but what lies beneath can.
#[test]
fn a_call_that_hangs_ends_at_its_deadline() {
    let test = || {
        let library = |rank, library: LibraryDouble| match rank {
            1 => library.with_fault(Moment::Call(1), Fault::Hang),
            _ => library,
        };
        with_fault(3, SHORT, library, true, |rank, opened, _| {
            let world = opened.unwrap();
            assert_eq!(sum(&*world).unwrap(), 6);
            let other = world.duplicate().unwrap();
            let work = world.all_reduce_async(vec![1u32; 4], ReduceOp::Sum);
            let error = work.wait().map(drop).unwrap_err();
            assert!(matches!(error.root_cause(), Error::Timeout { .. }), "rank {rank}: {error}");
            // A call that has its number has started, so this is no refusal that leaves a communicator as it was.
            let error = sum(&*other).unwrap_err();
            assert!(matches!(error.root_cause(), Error::Unsupported { .. }), "rank {rank}: {error}");
            assert!(!error.is_before_start(), "rank {rank}: {error}");
            // Every survivor hears the same of a new communicator.
            let error = world.shrink().err().unwrap();
            let Error::Unsupported { instead: Some(instead), .. } = &error else { panic!("{error}") };
            assert!(instead.contains("shrink()"), "{instead}");
            let below = world.companion().unwrap().shrink().unwrap();
            assert_eq!(sum(&*below.communicator).unwrap(), 6);
        });
    };
    watchdog(SECONDS_MAX, "a_call_that_hangs", test);
}

/// Where the library can end calls, a hang is a failure like others, and a new communicator can be made.
#[test]
fn a_hang_that_can_be_aborted_leaves_the_library_usable() {
    watchdog(SECONDS_MAX, "a_hang_that_can_be_aborted", || {
        let library = |rank, library: LibraryDouble| match rank {
            2 => library.with_abort().with_fault(Moment::Call(1), Fault::Hang),
            _ => library.with_abort(),
        };
        with_fault(3, SHORT, library, true, |rank, opened, _| {
            let world = opened.unwrap();
            assert_eq!(sum(&*world).unwrap(), 6);
            let error = sum(&*world).unwrap_err();
            assert!(matches!(error.root_cause(), Error::Timeout { .. }), "rank {rank}: {error}");
            let shrunk = world.shrink().unwrap().communicator;
            assert_eq!(sum(&*shrunk).unwrap(), 6);
        });
    });
}

/// A panic where the communicator is made, and in a call.
#[test]
fn a_panic_in_the_library_is_an_error() {
    watchdog(SECONDS_MAX, "a_panic_in_the_library", || {
        for moment in [Moment::Init, Moment::Call(0)] {
            let started = Instant::now();
            let library = |rank, library: LibraryDouble| match rank {
                0 => library.with_fault(moment, Fault::Panic),
                _ => library,
            };
            let errors = with_fault(2, Duration::from_secs(60), library, true, |_, opened, _| match opened {
                Ok(world) => sum(&*world).unwrap_err(),
                Err(error) => error,
            });
            for error in &errors {
                let is_panic =
                    matches!(error.root_cause(), Error::System { text, .. } if text.contains("panicked"));
                assert!(is_panic, "{moment:?}: {error}");
            }
            eprintln!("{moment:?}: {} after {:?}", errors[0], started.elapsed());
        }
    });
}

/// Whatever goes wrong with libraries that differ: the same error on all ranks.
#[test]
fn libraries_that_do_not_go_together_are_refused() {
    watchdog(SECONDS_MAX, "libraries_that_do_not_go_together", || {
        let other = |rank, library: LibraryDouble| match rank {
            2 => library.with_version("the double 2.0"),
            _ => library,
        };
        let texts = with_fault(3, Duration::from_secs(30), other, true, |_, opened, companion| {
            let error = opened.err().unwrap();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            // Nothing was lost: what lies beneath goes on.
            assert_eq!(sum(&*companion).unwrap(), 6);
            error.to_string()
        });
        assert!(texts.iter().all(|text| text == &texts[0]), "{texts:?}");
        assert!(texts[0].contains("1.0") && texts[0].contains("2.0 on rank 2"), "{texts:?}");
    });
}

#[test]
fn a_rank_without_a_library_is_told_by_all() {
    watchdog(SECONDS_MAX, "a_rank_without_a_library", || {
        for missing in [vec![0], vec![1], vec![1, 2], vec![0, 1, 2]] {
            let room = LibraryRoom::new();
            let texts = companions_with(3, &engine_options(Duration::from_secs(30)), |companion| {
                let rank = companion.group().rank();
                let none = Error::LibraryMissing {
                    library: "the double".into(),
                    tried: vec![format!("rank {rank}/libdouble.so: no such file")],
                    remedy: "install it".into(),
                };
                let own = Arc::new(LibraryDouble::new(&room));
                let library = if missing.contains(&rank) { Err(none) } else { Ok(own) };
                let options = OffloadOptions::new(Duration::from_secs(30), true);
                let error = Offloaded::open(companion, library, &options).err().unwrap();
                assert!(matches!(error.root_cause(), Error::LibraryMissing { .. }), "{error}");
                error.to_string()
            });
            assert!(texts.iter().all(|text| text == &texts[0]), "{missing:?}: {texts:?}");
            assert!(texts[0].contains(&format!("rank {}/", missing[0])), "{missing:?}: {texts:?}");
        }
    });
}

/// A rank that dies before it comes to the call is lost for the others before they are in the library, so that they can
/// go on with it.
#[test]
fn a_rank_that_dies_outside_leaves_the_library_usable() {
    watchdog(SECONDS_MAX, "a_rank_that_dies_outside", || {
        let room = Arc::new(LibraryRoom::new());
        let worlds =
            unisono_engine::in_process::world_of(3, &engine_options(Duration::from_secs(30)), |_, l| l);
        let threads = worlds.into_iter().map(|companion| {
            let room = room.clone();
            std::thread::spawn(move || {
                let world = open(companion.as_companion(), LibraryDouble::new(&room), true).unwrap();
                let rank = world.group().rank();
                assert_eq!(sum(&*world).unwrap(), 6);
                assert!(rank != 1, "this rank is to die");
                let error = sum(&*world).unwrap_err();
                assert_eq!(
                    error.lost_ranks().iter().map(|rank| rank.get()).collect::<Vec<_>>(),
                    [1],
                    "{error}"
                );
                let shrunk = world.shrink().unwrap().communicator;
                assert_eq!(sum(&*shrunk).unwrap(), 3);
            })
        });
        let ended: Vec<_> =
            threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().is_ok()).collect();
        assert_eq!(ended, [true, false, true]);
        assert!(room.misuse().is_empty(), "{:?}", room.misuse());
    });
}

/// A keeper lives as long as the library may write to its memory, also when the call was given up long before.
#[test]
fn a_keeper_stays_while_the_library_has_its_memory() {
    watchdog(SECONDS_MAX, "a_keeper_stays", || {
        let room = LibraryRoom::new();
        let given_up = Barrier::new(2);
        companions_with(2, &engine_options(SHORT), |companion| {
            let library = LibraryDouble::new(&room).with_fault(Moment::Call(0), Fault::Hang);
            let world = open(companion, library, true).unwrap();
            let (buffer, returned) = lend(vec![1; 8], false);
            let ended = all_reduce(&*world, buffer, 8).finish();
            let error = ended.result.unwrap_err();
            assert!(matches!(error.root_cause(), Error::Timeout { .. }), "{error}");
            assert!(ended.buffers.is_none() && returned.try_recv().is_err());
            given_up.wait();
            room.release();
            assert_eq!(returned.recv_timeout(Duration::from_secs(60)).unwrap().len(), 8);
        });
    });
}

/// A rank that makes a call without a deadline has not met the others, who have: they are told, and it is told why it
/// hangs.
#[test]
fn calls_with_and_without_deadlines_do_not_go_together() {
    watchdog(SECONDS_MAX, "calls_with_and_without_deadlines", || {
        let room = LibraryRoom::new();
        let errors = companions_with(3, &engine_options(Duration::from_secs(30)), |companion| {
            let rank = companion.group().rank();
            let world = open(companion, LibraryDouble::new(&room).with_abort(), rank != 2).unwrap();
            sum(&*world).unwrap_err().to_string()
        });
        for error in &errors {
            assert!(error.contains("mismatch") && error.contains("by double without meeting"), "{errors:?}");
        }
    });
}
