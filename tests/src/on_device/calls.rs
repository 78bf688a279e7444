//! Typed calls, lists, handles and late errors on memory of the double's devices.

#![expect(unsafe_code, reason = "memory of a device, by its address")]

use std::sync::{Arc, Barrier};
use std::time::Duration;

use unisono_collectives::{
    Collectives, CollectivesAsync, CollectivesOfObjects, CollectivesOnDevice, Stragglers,
};
use unisono_communicator::{
    BufferMut, Buffers, Call, CallOptions, Collective, Communicator, DType, Descriptor, DeviceBufferMut,
    DeviceSliceMut, DeviceStream, Division, Error, Executor, MemoryKind, Place, ReduceOp, Result,
};
use unisono_compression::{CompressedCollectives, CompressionState, SignRms};
use unisono_offload::{HostMemory, Vendor};

use super::{Array, DeviceRank, SECONDS_MAX, TestStream, VendorDouble};
use crate::watchdog;

/// Every typed call.
///
/// # Panics
/// When the backend is wrong.
pub fn typed_calls_are_enqueued_and_end_by_their_tickets<D: VendorDouble>() {
    watchdog(SECONDS_MAX, "typed", || drop(DeviceRank::<D>::run(3, HostMemory::Refused, typed_calls)));
}

fn typed_calls<D: VendorDouble>(rank: &DeviceRank<D>) {
    let (on, own, ranks) = (rank.on_stream(), rank.own(), 3);
    let input = rank.array(&[own, 10.0 * own, 100.0 * own]);
    let mut sums = rank.array(&[0.0; 3]);
    let enqueued = on.all_reduce_into(&input.read(rank), &mut sums.write(rank), ReduceOp::Sum).unwrap();
    assert!(enqueued.ticket().is_some());
    let outcome = on.wait(enqueued).unwrap();
    assert_eq!((outcome.bytes, outcome.algorithm, outcome.ticket()), (12, D::Vendor::BACKEND, None));
    assert_eq!(rank.copied(&sums), [6.0, 60.0, 600.0]);

    // Nobody waits here: the stream orders them.
    let (mut shared, mut all, mut turned) =
        (rank.array(&[0.0]), rank.array(&[0.0; 9]), rank.array(&[0.0; 3]));
    let mut mean = rank.array(&[own]);
    on.reduce_scatter(&input.read(rank), &mut shared.write(rank), ReduceOp::Max).unwrap();
    on.all_gather(&input.read(rank), &mut all.write(rank)).unwrap();
    on.all_to_all(&input.read(rank), &mut turned.write(rank)).unwrap();
    on.all_reduce(&mut mean.write(rank), ReduceOp::Avg).unwrap();
    on.all_reduce(&mut mean.write(rank), ReduceOp::PreMulSum(0.5)).unwrap();
    let scale = 10f32.powi(rank.rank as i32);
    assert_eq!(rank.copied(&shared), [3.0 * scale]);
    assert_eq!(rank.copied(&all), [1.0, 10.0, 100.0, 2.0, 20.0, 200.0, 3.0, 30.0, 300.0]);
    assert_eq!(rank.copied(&turned), [scale, 2.0 * scale, 3.0 * scale]);
    assert_eq!(rank.copied(&mean), [3.0]);

    let mut sent = rank.array(&[own; 4]);
    let (mut summed, mut gathered, mut share) =
        (rank.array(&[0.0; 3]), rank.array(&[0.0; 9]), rank.array(&[0.0; 3]));
    let is_root = rank.rank == 1;
    on.broadcast(&mut sent.write(rank), 2).unwrap();
    on.reduce(&input.read(rank), is_root.then(|| summed.write(rank)), ReduceOp::Sum, 1).unwrap();
    on.gather(&input.read(rank), is_root.then(|| gathered.write(rank)), 1).unwrap();
    on.scatter(is_root.then(|| gathered.read(rank)), &mut share.write(rank), 1).unwrap();
    on.wait(on.barrier().unwrap()).unwrap();
    assert_eq!(rank.copied(&sent), [ranks as f32; 4]);
    assert_eq!(rank.copied(&share), [own, 10.0 * own, 100.0 * own]);
    assert_eq!(rank.copied(&summed), if is_root { [6.0, 60.0, 600.0] } else { [0.0; 3] });
}

/// A barrier on a stream ends nowhere before the last rank has enqueued its own.
///
/// # Panics
/// When the backend is wrong.
pub fn a_barrier_waits_for_every_stream<D: VendorDouble>() {
    const EARLY: Duration = Duration::from_millis(100);
    watchdog(SECONDS_MAX, "barrier", || {
        let has_looked = Barrier::new(2);
        DeviceRank::<D>::run(2, HostMemory::Refused, |rank| {
            let on = rank.on_stream();
            for last in [1, 0] {
                if rank.rank == last {
                    has_looked.wait();
                }
                let barrier = on.barrier().unwrap();
                if rank.rank != last {
                    let early = rank.comm.resolve_within(barrier.ticket().unwrap(), EARLY).unwrap();
                    assert!(early.is_none(), "rank {last} has not called: {early:?}");
                    has_looked.wait();
                }
                on.wait(barrier).unwrap();
            }
        })
    });
}

fn sum(count: usize) -> Descriptor {
    Descriptor {
        op: Some(ReduceOp::Sum),
        place: Place::InPlace,
        ..Descriptor::new(Collective::AllReduce, DType::F32, count as u64)
    }
}

/// Lists of buffers, and calls that own their memory.
///
/// # Panics
/// When the backend is wrong.
pub fn lists_and_handles<D: VendorDouble>() {
    watchdog(SECONDS_MAX, "lists", || {
        DeviceRank::<D>::run(2, HostMemory::Refused, |rank| {
            let mut parts = [3, 64, 33].map(|elements| rank.array(&vec![rank.own(); elements]));
            for round in 0..3 {
                let spans = parts.each_mut().map(|part| {
                    let address = part.address;
                    // SAFETY: the arrays live until their calls are done.
                    unsafe { DeviceBufferMut::from_raw(address, 4 * part.elements, rank.rank) }.unwrap()
                });
                let mut list = DeviceBufferMut::list(spans, Division::Coalesced);
                let call = Call::new(sum(100), Buffers::InOut(BufferMut::Device(&mut list)));
                rank.comm.issue(Call { stream: Some(rank.device_stream()), ..call }).unwrap();
                let expected = 3.0 * 2f32.powi(round);
                parts.iter().for_each(|part| assert_eq!(rank.copied(part), vec![expected; part.elements]));
            }
            let mut array = rank.array(&[rank.own(); 5]);
            let finished = rank.on_stream().all_reduce_async(array.write(rank), ReduceOp::Sum).finish();
            assert!(finished.result.is_ok() && finished.buffers.is_some());
            assert_eq!(rank.copied(&array), [3.0; 5]);
        })
    });
}

/// Calls on a stream are in the communication log when they have ended, and the ranks analyse them although the library
/// takes no memory of the host.
///
/// # Panics
/// When the backend is wrong.
pub fn calls_are_in_the_communication_log<D: VendorDouble>() {
    watchdog(SECONDS_MAX, "log", || {
        DeviceRank::<D>::run(2, HostMemory::Refused, |rank| {
            let (on, log) = (rank.on_stream(), rank.comm.group().comms_logger());
            log.start();
            let mut array = rank.array(&[rank.own(); 64]);
            on.all_reduce(&mut array.write(rank), ReduceOp::Sum).unwrap();
            let last = on.all_reduce(&mut array.write(rank), ReduceOp::Sum).unwrap();
            on.wait(last).unwrap();
            let rows = log.report().rows;
            let found: Vec<_> =
                rows.iter().map(|row| (row.name.as_str(), row.bytes_max, row.count)).collect();
            assert_eq!(found, [("all_reduce", 256, 2)]);
            assert_eq!(log.stragglers(&*rank.comm).unwrap().calls, 2);
        })
    });
}

fn refused(result: Result<impl std::fmt::Debug>, argument: &str) {
    match result {
        Err(Error::InvalidArgument { argument: found, .. }) => assert_eq!(found, argument),
        other => panic!("{other:?}"),
    }
}

/// Memory and streams of others.
///
/// # Panics
/// When the backend is wrong.
pub fn what_is_not_of_the_device_is_refused_before_the_call_has_a_number<D: VendorDouble>() {
    watchdog(SECONDS_MAX, "refused", || {
        DeviceRank::<D>::run(2, HostMemory::Refused, |rank| {
            let mut array = rank.array(&[rank.own(); 4]);
            let on = rank.on_stream();
            let on_host = rank.comm.all_reduce(&mut [1.0f32], ReduceOp::Sum);
            assert!(matches!(on_host, Err(Error::Unsupported { .. })), "{on_host:?}");
            // SAFETY: they are refused.
            unsafe {
                let mut host = vec![1.0f32; 4];
                let address = host.as_mut_ptr().expose_provenance();
                let mut lent = DeviceSliceMut::<f32>::from_raw(address, 4, rank.rank).unwrap();
                refused(on.all_reduce(&mut lent, ReduceOp::Sum), "buffer");
                let mut elsewhere = DeviceSliceMut::<f32>::from_raw(array.address, 4, 7).unwrap();
                refused(on.all_reduce(&mut elsewhere, ReduceOp::Sum), "buffer");
                let other = rank.comm.on(DeviceStream::from_raw(rank.stream.raw(), 7));
                refused(other.all_reduce(&mut elsewhere, ReduceOp::Sum), "stream");
                // The memory of the other rank's device, and a stream of another context.
                let theirs = TestStream::new(&Arc::new(D::open(1 - rank.rank).unwrap()));
                let memory = Array::new(&theirs, &[0.0; 4]);
                let mut lent = DeviceSliceMut::<f32>::from_raw(memory.address, 4, rank.rank).unwrap();
                refused(on.all_reduce(&mut lent, ReduceOp::Sum), "buffer");
                let on_theirs = rank.comm.on(DeviceStream::from_raw(theirs.raw(), rank.rank));
                refused(on_theirs.all_reduce(&mut array.write(rank), ReduceOp::Sum), "stream");
            }
            let bits = on.all_reduce(&mut array.write(rank), ReduceOp::BitAnd);
            assert!(bits.is_err(), "{bits:?}");
            // What was freed on the other rank's device would have waited for a call of that rank.
            rank.comm.companion().unwrap().barrier().unwrap();
            on.wait(on.all_reduce(&mut array.write(rank), ReduceOp::Sum).unwrap()).unwrap();
            assert_eq!(rank.copied(&array), [3.0; 4]);
        })
    });
}

/// By way of the device, or over TCP.
///
/// # Panics
/// When the backend is wrong.
pub fn host_memory_goes_where_the_program_has_said<D: VendorDouble>() {
    watchdog(SECONDS_MAX, "host", || {
        for (host_memory, by) in [(HostMemory::Staged, D::Vendor::BACKEND), (HostMemory::Companion, "tcp")] {
            DeviceRank::<D>::run(2, host_memory, |rank| {
                let mut values = [rank.own(); 9];
                let call =
                    Call::new(Descriptor { count: 9, ..sum(9) }, Buffers::InOut(BufferMut::of(&mut values)));
                let outcome = rank.comm.issue(call).unwrap();
                let own = D::Vendor::BACKEND;
                assert_eq!(outcome.algorithm == own, by == own, "{}", outcome.algorithm);
                assert_eq!(values, [3.0; 9]);
                let mut array = rank.array(&[rank.own(); 4]);
                rank.on_stream().all_reduce(&mut array.write(rank), ReduceOp::Sum).unwrap();
                assert_eq!(rank.copied(&array), [3.0; 4]);
            });
        }
    });
}

/// Where memory of the host is refused, a program has its barriers, groups, objects and compressed calls all the same.
///
/// # Panics
/// When the backend is wrong.
pub fn calls_without_data_of_the_program_go_to_the_companion<D: VendorDouble>() {
    watchdog(SECONDS_MAX, "own calls", || {
        let refused = |error: Error| {
            let is_refused =
                matches!(&error, Error::Unsupported { what, .. } if what == "memory of the host");
            assert!(is_refused, "{error}");
        };
        DeviceRank::<D>::run(3, HostMemory::Refused, |rank| {
            let comm = &*rank.comm;
            let barrier = Descriptor::new(Collective::Barrier, DType::U8, 0);
            comm.supports(&barrier, &CallOptions::new(), MemoryKind::Host).unwrap();
            comm.barrier().unwrap();
            comm.barrier_async().wait().unwrap();
            comm.with(CallOptions::new().timeout(SHORT)).barrier().unwrap();
            comm.monitored_barrier(SHORT).unwrap();
            assert!(comm.agree(true).unwrap());
            own_calls(rank);
            // The data of a program is refused as before, blocking and not, and costs no number.
            refused(comm.all_reduce(&mut [1.0f32], ReduceOp::Sum).unwrap_err());
            refused(comm.broadcast_async(vec![1u8], 0).wait().unwrap_err());
            let mut sum = [rank.own()];
            comm.with(CallOptions::new().host_by_companion()).all_reduce(&mut sum, ReduceOp::Sum).unwrap();
            assert_eq!(sum, [6.0]);
            let mut array = rank.array(&[rank.own(); 4]);
            rank.on_stream().all_reduce(&mut array.write(rank), ReduceOp::Sum).unwrap();
            assert_eq!(rank.copied(&array), [6.0; 4]);
            comm.close().unwrap();
        })
    });
}

/// Longer than any call here takes.
const SHORT: Duration = Duration::from_secs(60);

/// Groups, objects, compressed calls, and a state that goes on after a shrink.
fn own_calls<D: VendorDouble>(rank: &DeviceRank<D>) {
    let comm = &*rank.comm;
    let half = comm.split(Some(0), -i64::from(rank.rank)).unwrap().unwrap();
    assert_eq!((half.rank(), half.backend()), (2 - rank.rank, D::Vendor::BACKEND));
    half.barrier().unwrap();
    comm.duplicate().unwrap().barrier().unwrap();
    for size in [3, 5000] {
        let all = half.all_gather_object(format!("{} ", half.rank()).repeat(size)).unwrap();
        assert_eq!(all, [0, 1, 2].map(|rank| format!("{rank} ").repeat(size)));
    }
    let mut state = CompressionState::new::<f32>(comm, SignRms::default(), 1000).unwrap();
    let mut gradients = vec![rank.own(); 1000];
    comm.compressed_all_reduce(&mut gradients, ReduceOp::Sum, &mut state).unwrap();
    assert!(gradients.iter().all(|sum| (sum - 6.0).abs() < 0.01), "{}", gradients[0]);
    half.revoke(Error::invalid("test", "a failure".to_owned())).unwrap();
    let copy = comm.duplicate().unwrap();
    let mut state = CompressionState::new::<f32>(&*copy, SignRms::default(), 1000).unwrap();
    copy.compressed_all_reduce(&mut gradients, ReduceOp::Avg, &mut state).unwrap();
    copy.revoke(Error::invalid("test", "a failure".to_owned())).unwrap();
    let shrunk = copy.shrink().unwrap();
    state.rebind(&shrunk).unwrap();
    shrunk.communicator.compressed_all_reduce(&mut gradients, ReduceOp::Avg, &mut state).unwrap();
}

/// Nobody else comes.
///
/// # Panics
/// When the backend is wrong.
pub fn what_the_other_ranks_do_not_call_ends_by_its_deadline<D: VendorDouble>() {
    let given_up = Barrier::new(2);
    watchdog(SECONDS_MAX, "late", || {
        DeviceRank::<D>::run(2, HostMemory::Refused, |rank| {
            if rank.rank == 1 {
                given_up.wait();
                return;
            }
            let mut array = rank.array(&[1.0; 4]);
            let patient = rank.comm.with(CallOptions::new().timeout(Duration::from_millis(300)));
            let on = patient.on(rank.device_stream());
            let late = on.wait(on.all_reduce(&mut array.write(rank), ReduceOp::Sum).unwrap());
            assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
            if rank.comm.capabilities().abort {
                // The library has let go of the stream.
                rank.stream.synchronize().unwrap();
            }
            let next = rank.on_stream().all_reduce(&mut array.write(rank), ReduceOp::Sum);
            assert!(next.is_err());
            given_up.wait();
        })
    });
}

/// Work that waits for another call of the other rank.
///
/// # Panics
/// When the backend is wrong.
pub fn calls_that_differ_are_a_mismatch_although_nobody_has_met<D: VendorDouble>() {
    watchdog(SECONDS_MAX, "mismatch", || {
        DeviceRank::<D>::run(2, HostMemory::Refused, |rank| {
            let mut array = rank.array(&[1.0; 4]);
            let on = rank.on_stream();
            let enqueued = if rank.rank == 0 {
                on.all_reduce(&mut array.write(rank), ReduceOp::Sum)
            } else {
                on.broadcast(&mut array.write(rank), 0)
            };
            let ended = on.wait(enqueued.unwrap());
            assert!(matches!(ended, Err(Error::Mismatch { .. })), "{ended:?}");
        })
    });
}

/// `allocations` counts those of this program: the double is a library with an allocator of its own.
///
/// # Panics
/// When the backend is wrong.
pub fn a_typed_call_allocates_nothing<D: VendorDouble>(allocations: fn(&mut dyn FnMut()) -> u64) {
    /// More than tickets are remembered.
    const BEFORE: usize = 1100;
    watchdog(SECONDS_MAX, "allocations", || {
        DeviceRank::<D>::run(2, HostMemory::Refused, |rank| {
            let mut array = rank.array(&[rank.own(); 4]);
            let (on, mut elements) = (rank.on_stream(), array.write(rank));
            for _ in 0..BEFORE {
                on.wait(on.all_reduce(&mut elements, ReduceOp::Max).unwrap()).unwrap();
            }
            let mut enqueued = None;
            let used = allocations(&mut || enqueued = Some(on.all_reduce(&mut elements, ReduceOp::Max)));
            assert_eq!(used, 0);
            on.wait(enqueued.unwrap().unwrap()).unwrap();
            assert_eq!(rank.copied(&array), [2.0; 4]);
        })
    });
}

/// Every test of this file for one double: `calls_on_device!(NcclDouble)`.
#[macro_export]
macro_rules! calls_on_device {
    ($double:ty) => {
        $crate::calls_on_device!(@tests $double, typed_calls_are_enqueued_and_end_by_their_tickets lists_and_handles
            calls_are_in_the_communication_log what_is_not_of_the_device_is_refused_before_the_call_has_a_number
            host_memory_goes_where_the_program_has_said calls_without_data_of_the_program_go_to_the_companion
            what_the_other_ranks_do_not_call_ends_by_its_deadline a_barrier_waits_for_every_stream
            calls_that_differ_are_a_mismatch_although_nobody_has_met);

        #[test]
        fn a_typed_call_allocates_nothing() {
            $crate::on_device::calls::a_typed_call_allocates_nothing::<$double>(|call| {
                allocation_counter::measure(|| call()).count_total
            });
        }
    };
    (@tests $double:ty, $($test:ident)*) => {
        $(#[test]
        fn $test() {
            $crate::on_device::calls::$test::<$double>();
        })*
    };
}
