//! Several threads and communicators of one device, of which a library serves one at a time. In processes of their own,
//! whose double lets threads meet that must not.

#![expect(unsafe_code, reason = "streams of a device, by their handles")]

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use unisono_collectives::{Collectives, CollectivesOnDevice};
use unisono_communicator::{CallOptions, Communicator, DeviceStream, Error, Outcome, ReduceOp, Result};
use unisono_offload::{HostMemory, OffloadOptions};

use super::{Array, DeviceRank, TestStream, VendorDouble};
use crate::alone;

/// As long as it takes until whoever waits for a call looks for errors of the library, several times.
const LOOKS: Duration = Duration::from_millis(150);
/// A deadline that is reached, and ones that are not.
const SHORT: Duration = Duration::from_millis(400);
const LATER: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(60);

/// Two threads wait for a call, the communicator's thread looks after it, and a third makes another one.
///
/// # Panics
/// When two of them are in the communicator at once.
pub fn waiters_and_callers_take_turns_in_a_communicator<D: VendorDouble>(test: &'static str) {
    alone(test, &[("UNISONO_DOUBLE_MEET", "50")], || {
        let looked = Barrier::new(2);
        DeviceRank::<D>::run(2, HostMemory::Refused, |rank| {
            let arrays = [(); 2].map(|()| rank.array(&[rank.own(); 4]));
            let mut elements = [arrays[0].write_again(rank), arrays[1].write_again(rank)];
            let on = rank.on_stream();
            if rank.rank == 1 {
                looked.wait();
            }
            let first = on.all_reduce(&mut elements[0], ReduceOp::Sum).unwrap();
            let second = thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| rank.comm.resolve(first.ticket().unwrap()).unwrap());
                }
                if rank.rank == 0 {
                    thread::sleep(LOOKS);
                }
                let second = on.all_reduce(&mut elements[1], ReduceOp::Sum).unwrap();
                if rank.rank == 0 {
                    thread::sleep(LOOKS);
                    looked.wait();
                }
                second
            });
            on.wait(second).unwrap();
            arrays.iter().for_each(|array| assert_eq!(rank.copied(array), [3.0; 4]));
        });
    });
}

/// A call of a communicator on a stream of its own, with a deadline.
struct Own<'a, D: VendorDouble> {
    comm: &'a dyn Communicator,
    stream: TestStream<D::Vendor>,
    array: Array<D::Vendor>,
}

impl<'a, D: VendorDouble> Own<'a, D> {
    fn new(rank: &DeviceRank<D>, comm: &'a dyn Communicator) -> Own<'a, D> {
        let stream = TestStream::new(&rank.stream.vendor);
        let array = Array::new(&stream, &[rank.own(); 4]);
        Own { comm, stream, array }
    }

    /// Enqueues it.
    fn put(&self, rank: &DeviceRank<D>, timeout: Duration) -> Result<Outcome> {
        // SAFETY: the stream is of this rank's device, and lives as long as this value.
        let stream = unsafe { DeviceStream::from_raw(self.stream.raw(), rank.rank) };
        let comm = self.comm.with(CallOptions::new().timeout(timeout));
        comm.on(stream).all_reduce(&mut self.array.write_again(rank), ReduceOp::Sum)
    }

    /// Enqueues it, and waits for it.
    fn make(&self, rank: &DeviceRank<D>, timeout: Duration) -> Result<()> {
        let enqueued = self.put(rank, timeout)?;
        self.comm.resolve(enqueued.ticket().unwrap()).map(drop)
    }
}

/// Two threads of each rank make the first calls of two communicators, in opposite orders. Ranks connect in first
/// calls.
///
/// # Panics
/// When two of them are on the device at once, or a call does not end well.
pub fn opposite_first_calls_of_two_communicators<D: VendorDouble>(test: &'static str) {
    let settings = [("UNISONO_DOUBLE_MEET_ON_DEVICE", "50"), ("UNISONO_DOUBLE_CONNECT", "late")];
    alone(test, &settings, || {
        DeviceRank::<D>::run(2, HostMemory::Refused, |rank| {
            let [one, other] = [(); 2].map(|()| rank.comm.duplicate().unwrap());
            let order = if rank.rank == 0 { [&*one, &*other] } else { [&*other, &*one] };
            let calls = order.map(|comm| Own::new(rank, comm));
            let has_begun = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    has_begun.store(true, Ordering::SeqCst);
                    calls[0].make(rank, LONG).unwrap();
                });
                scope.spawn(|| {
                    while !has_begun.load(Ordering::SeqCst) {
                        thread::yield_now();
                    }
                    // The first is in the library.
                    thread::sleep(Duration::from_millis(20));
                    calls[1].make(rank, LONG).unwrap();
                });
            });
            calls.iter().for_each(|call| assert_eq!(rank.copied(&call.array), [3.0; 4]));
        });
    });
}

/// Threads of each rank make, use and drop communicators of their own at once.
///
/// # Panics
/// When two of them are on the device at once.
pub fn communicators_come_and_go_on_several_threads<D: VendorDouble>(test: &'static str) {
    alone(test, &[("UNISONO_DOUBLE_MEET_ON_DEVICE", "20")], || {
        DeviceRank::<D>::run(2, HostMemory::Refused, |rank| {
            let parents = [(); 2].map(|()| rank.comm.duplicate().unwrap());
            thread::scope(|scope| {
                for parent in &parents {
                    scope.spawn(|| {
                        let comm = parent.duplicate().unwrap();
                        Own::new(rank, &*comm).make(rank, LONG).unwrap();
                    });
                }
            });
        });
    });
}

/// What the error of a call says that has waited for the device of rank 0.
fn check_behind(error: &Error) {
    let Error::Timeout { not_arrived, .. } = error.root_cause() else { panic!("{error}") };
    let text = error.to_string();
    assert_eq!(not_arrived.first().unwrap().rank.get(), 0, "{text}");
    assert!(text.contains("waits for its turn on device 0") && text.contains("all_reduce(4 x f32"), "{text}");
}

/// A call hangs in the library's function `all_reduce`. One of another communicator on its device ends by its own
/// deadline.
///
/// # Panics
/// When they end otherwise.
pub fn what_is_behind_a_call_that_hangs_ends_by_its_own_deadline<D: VendorDouble>(
    test: &'static str,
    all_reduce: &'static str,
) {
    alone(test, &[], move || {
        let (control, done) = (D::control(), Barrier::new(2));
        let options = OffloadOptions::new(LONG, false);
        DeviceRank::<D>::run_with(2, &options, |rank| {
            let [one, other] = [(); 2].map(|()| rank.comm.duplicate().unwrap());
            let [hanging, behind] = [&*one, &*other].map(|comm| Own::new(rank, comm));
            let tcp = rank.comm.companion().unwrap();
            tcp.barrier().unwrap();
            thread::scope(|scope| {
                if rank.rank == 0 {
                    control.hang(all_reduce, 1);
                    scope.spawn(|| hanging.make(rank, LATER).unwrap_err());
                    let until = Instant::now() + LONG;
                    while control.hangs() == 0 {
                        assert!(Instant::now() < until, "nothing hangs");
                        thread::sleep(Duration::from_millis(1));
                    }
                }
                tcp.barrier().unwrap();
                // The other rank hears of it.
                let timeout = if rank.rank == 0 { SHORT } else { LONG };
                check_behind(&behind.make(rank, timeout).unwrap_err());
                done.wait();
                // Where nothing can be aborted, what hangs is let go.
                if !rank.comm.capabilities().abort {
                    control.reset();
                }
            });
        });
    });
}

/// A test of each function of this module, on a double whose all-reduce has this name.
#[macro_export]
macro_rules! turns_on_device {
    ($double:ty, $all_reduce:literal) => {
        $crate::turns_on_device!(@tests $double, waiters_and_callers_take_turns_in_a_communicator
            opposite_first_calls_of_two_communicators communicators_come_and_go_on_several_threads);

        #[test]
        fn what_is_behind_a_call_that_hangs_ends_by_its_own_deadline() {
            let name = "what_is_behind_a_call_that_hangs_ends_by_its_own_deadline";
            let test = $crate::test_name(module_path!(), name);
            $crate::on_device::turns::what_is_behind_a_call_that_hangs_ends_by_its_own_deadline::<$double>(
                test,
                $all_reduce,
            );
        }
    };
    (@tests $double:ty, $($test:ident)*) => {
        $(#[test]
        fn $test() {
            let test = $crate::test_name(module_path!(), stringify!($test));
            $crate::on_device::turns::$test::<$double>(test);
        })*
    };
}
