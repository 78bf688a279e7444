//! Several communicators and threads of each rank, handles that are dropped, calls of every form at random.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, SystemTime};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use unisono_backend::Companion;
use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{
    CallOptions, Collective, Communicator, DType, Descriptor, ParentCall, Place, ReduceOp, Result,
};
use unisono_engine::EngineOptions;
use unisono_offload::{Native, OffloadOptions, Offloaded};
use unisono_tests::case::{Amount, Case};
use unisono_tests::double::{Fault, LibraryDouble, LibraryRoom, Moment};
use unisono_tests::sample::{mix, op_in};
use unisono_tests::suite::reductions::pairs;
use unisono_tests::{alone, companions, companions_with, test_name, watchdog};

/// Of one test, on a machine that is busy with others.
const SECONDS_MAX: u64 = 120;

fn open(companion: Companion, library: LibraryDouble, deadlines: bool) -> Arc<dyn Communicator> {
    let options = OffloadOptions::new(Duration::from_secs(60), deadlines);
    Offloaded::open(companion, Ok(Arc::new(library)), &options).unwrap()
}

fn sum(comm: &dyn Communicator) -> Result<u32> {
    let mut sum = [1];
    comm.all_reduce(&mut sum, ReduceOp::Sum)?;
    Ok(sum[0])
}

/// Two threads of each rank use two communicators in orders that would block each other if a rank kept its turn in the
/// library while it waits for the others.
#[test]
fn two_communicators_in_opposite_order() {
    watchdog(SECONDS_MAX, "two_communicators", || {
        let room = LibraryRoom::new();
        companions(2, |companion| {
            let world = open(companion, LibraryDouble::new(&room), true);
            let other = world.duplicate().unwrap();
            let is_even = world.group().rank() == 0;
            std::thread::scope(|scope| {
                for comm in if is_even { [&world, &other] } else { [&other, &world] } {
                    scope.spawn(move || (0..50).for_each(|_| assert_eq!(sum(&**comm).unwrap(), 2)));
                }
            });
        });
        assert!(room.misuse().is_empty(), "{:?}", room.misuse());
    });
}

#[test]
fn asynchronous_calls_on_two_communicators_and_messages_between_them() {
    watchdog(SECONDS_MAX, "asynchronous_calls", || {
        let room = LibraryRoom::new();
        companions(3, |companion| {
            let world = open(companion, LibraryDouble::new(&room), false);
            let other = world.duplicate().unwrap();
            let works: Vec<_> = (0..20u32)
                .map(|number| {
                    let comm = if number % 3 == 0 { &other } else { &world };
                    comm.all_reduce_async(vec![number; 5], ReduceOp::Sum)
                })
                .collect();
            // Blocking calls without a deadline come behind those that were issued before.
            assert_eq!(sum(&*world).unwrap(), 3);
            for (number, work) in works.into_iter().enumerate() {
                assert_eq!(work.wait().unwrap(), [3 * number as u32; 5]);
            }
            world.close().unwrap();
        });
        assert!(room.misuse().is_empty(), "{:?}", room.misuse());
    });
}

/// Scopes with a deadline, whose calls meet, and without one.
#[test]
fn scopes_of_both_kinds() {
    watchdog(SECONDS_MAX, "scopes_of_both_kinds", || {
        let room = LibraryRoom::new();
        companions(2, |companion| {
            let world = open(companion, LibraryDouble::new(&room), false);
            for options in [CallOptions::new(), CallOptions::new().timeout(Duration::from_secs(30))] {
                let descriptor = Descriptor::new(Collective::AllReduce, DType::U32, 1);
                let parent = ParentCall::new("of two", Descriptor { place: Place::InPlace, ..descriptor });
                let scope = world.scope(parent, &options).unwrap();
                assert_eq!(sum(&scope).unwrap(), 2);
                assert_eq!(sum(&scope).unwrap(), 2);
            }
            assert_eq!(sum(&*world).unwrap(), 2);
        });
        assert!(room.misuse().is_empty(), "{:?}", room.misuse());
    });
}

/// Nothing is left of communicators whose handles are dropped, also while their calls are under way.
#[test]
fn handles_may_be_dropped_while_calls_are_under_way() {
    watchdog(SECONDS_MAX, "handles_may_be_dropped", || {
        let room = LibraryRoom::new();
        let options = EngineOptions { drop_timeout: Duration::from_secs(30), ..EngineOptions::default() };
        companions_with(2, &options, |companion| {
            for round in 0..5 {
                let world = open(companion.clone(), LibraryDouble::new(&room), round % 2 == 0);
                let work = world.all_reduce_async(vec![1u32; 1000], ReduceOp::Sum);
                let detached = world.all_reduce_async(vec![1u32; 1000], ReduceOp::Sum);
                drop(detached);
                if round == 4 {
                    world.close().unwrap();
                }
                drop(world);
                assert_eq!(work.wait().unwrap(), [2; 1000]);
                companion.barrier().unwrap_or_else(|error| assert!(round == 4, "{error}"));
            }
        });
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while room.open_communicators() > 0 {
            assert!(std::time::Instant::now() < until, "{} are left", room.open_communicators());
            std::thread::yield_now();
        }
        assert!(room.misuse().is_empty(), "{:?}", room.misuse());
    });
}

/// The longest patience is no overflow, neither where a handle is dropped nor where the library's thread ends.
#[test]
fn a_patience_without_end_frees_what_is_dropped() {
    watchdog(SECONDS_MAX, "a_patience_without_end", || {
        let room = LibraryRoom::new();
        let options = EngineOptions { drop_timeout: Duration::MAX, ..EngineOptions::default() };
        companions_with(2, &options, |companion| {
            let world = open(companion.clone(), LibraryDouble::new(&room), true);
            world.all_reduce(&mut [1u32], ReduceOp::Sum).unwrap();
            drop(world);
            companion.barrier().unwrap();
        });
        assert_eq!(room.open_communicators(), 0);
    });
}

/// Where a library is dropped.
struct SaysThread(Sender<ThreadId>);

impl Drop for SaysThread {
    fn drop(&mut self) {
        let _ = self.0.send(std::thread::current().id());
    }
}

/// A rank may drop everything while another thread still reports the first cause to it, the control thread maybe: that
/// one ends nothing.
#[test]
fn who_reports_a_cause_ends_no_world() {
    watchdog(SECONDS_MAX, "who_reports_a_cause", || {
        let (room, is_reporter) = (LibraryRoom::new(), Arc::new(Mutex::new(None)));
        let [(told, is_told), (gone, is_gone)] = [channel(), channel()];
        let ((dropped, where_dropped), is_gone) = (channel(), Mutex::new(is_gone));
        let (says, reporter) = (SaysThread(dropped), is_reporter.clone());
        let waits = move || {
            let _kept = &says;
            if *reporter.lock().unwrap() == Some(std::thread::current().id()) {
                told.send(()).unwrap();
                is_gone.lock().unwrap().recv().unwrap();
            }
        };
        let rooms = [
            Mutex::new(Some(LibraryDouble::new(&room).with_at_turn(waits))),
            Mutex::new(Some(LibraryDouble::new(&room))),
        ];
        let (is_told, gone) = (Mutex::new(is_told), Mutex::new(Some(gone)));
        companions(2, |companion| {
            let rank = companion.group().rank();
            let library = rooms[rank as usize].lock().unwrap().take().unwrap();
            let world = open(companion, library, true);
            if rank == 1 {
                *is_reporter.lock().unwrap() = Some(std::thread::current().id());
                world.abort().unwrap();
                return;
            }
            is_told.lock().unwrap().recv().unwrap();
            drop(world);
            gone.lock().unwrap().take().unwrap().send(()).unwrap();
        });
        let reporter = is_reporter.lock().unwrap().unwrap();
        assert_ne!(where_dropped.recv().unwrap(), reporter);
    });
}

/// Tells the names of the threads on which it is called.
struct NamesThreads(Mutex<Sender<String>>);

impl Subscriber for NamesThreads {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, _event: &Event<'_>) {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        let _ = self.0.lock().unwrap().send(name);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// A subscriber may make calls, which need turns that the library's thread holds.
#[test]
fn no_subscriber_runs_on_the_thread_of_a_library() {
    alone(test_name(module_path!(), "no_subscriber_runs_on_the_thread_of_a_library"), &[], || {
        let (names, told) = channel();
        tracing::subscriber::set_global_default(NamesThreads(Mutex::new(names))).unwrap();
        let room = LibraryRoom::new();
        companions(2, |companion| {
            // A line is all that comes of it.
            let library = LibraryDouble::new(&room).with_fault(Moment::Destroy, Fault::Error(3));
            drop(open(companion, library, true));
        });
        assert_eq!([told.recv().unwrap(), told.recv().unwrap()], ["unisono-log"; 2]);
    });
}

fn number(name: &str) -> Option<u64> {
    std::env::var_os(name)?.to_str()?.parse().ok()
}

/// A call that follows from `seed`.
fn drawn(seed: u64, ranks: u32) -> Case {
    let draw = |what: u64, below: u64| mix(seed ^ mix(what)) % below;
    let collectives = Collective::ALL;
    let collective = collectives[draw(0, collectives.len() as u64) as usize];
    let (dtype, op) = pairs().nth(draw(1, pairs().count() as u64) as usize).unwrap();
    let count = draw(2, 40) as usize;
    let share = |number: u64| (draw(number, 3).min(1) * draw(number + 1000, 9)) as usize;
    let shares = || (0..u64::from(ranks)).map(|rank| share(100 + rank)).collect();
    let pair = |from: u32, to: u32| share(200 + u64::from(from.min(to) * ranks + from.max(to)));
    let amount = match collective {
        Collective::Barrier => Amount::Even(0),
        Collective::AllToAll if draw(3, 2) == 0 => {
            Amount::PerPair((0..ranks).map(|from| (0..ranks).map(|to| pair(from, to)).collect()).collect())
        }
        Collective::ReduceScatter | Collective::AllGather | Collective::Gather | Collective::Scatter
            if draw(3, 2) == 0 =>
        {
            Amount::PerRank(shares())
        }
        _ => Amount::Even(count),
    };
    Case {
        op: collective.reduces().then_some(op_in(collective, op)),
        amount,
        root: if collective.is_rooted() { draw(4, u64::from(ranks)) as u32 } else { 0 },
        place: if draw(5, 2) == 0 { Place::InPlace } else { Place::Separate },
        segments: (draw(6, 3) == 0).then_some(seed),
        seed,
        ..Case::new(collective, dtype, count)
    }
}

/// Random calls on every set of natives, with and without meeting, against the reference. `UNISONO_TEST_SEED` repeats
/// a run, `UNISONO_TEST_CASES` makes it longer.
///
/// Rows: B20, D5
#[test]
fn any_call_by_any_calls_of_the_library() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = number("UNISONO_TEST_SEED").unwrap_or(now.as_nanos() as u64);
    let cases = number("UNISONO_TEST_CASES").unwrap_or(150);
    eprintln!("UNISONO_TEST_SEED={seed}");
    let all = [Native::AllToAllV, Native::Scatter, Native::Groups];
    let some = (0..8).map(|set| (0..3).filter(|bit| set >> bit & 1 == 1).map(|bit| all[bit]).collect());
    // Every set of the calls that exchanges are made of, then every call missing in turn.
    let all_but = |lacking| Native::ALL.into_iter().filter(|native| *native != lacking).collect();
    let sets: Vec<Vec<Native>> = some.chain(Native::ALL.into_iter().map(all_but)).collect();
    watchdog(SECONDS_MAX, "any_call", || {
        for ranks in 1..=5 {
            for (set, natives) in sets.iter().enumerate() {
                let set = set as u64;
                let room = LibraryRoom::new();
                companions(ranks, |companion| {
                    let library = LibraryDouble::new(&room).with_natives(natives);
                    let world = open(companion, library, set.is_multiple_of(2));
                    for number in 0..cases {
                        let case = drawn(mix(seed ^ mix(number << 8 | set << 4 | u64::from(ranks))), ranks);
                        case.check(&*world).unwrap_or_else(|error| panic!("{natives:?}: {error}"));
                    }
                    world.close().unwrap();
                });
                assert!(room.misuse().is_empty(), "{natives:?}: {:?}", room.misuse());
            }
        }
    });
}
