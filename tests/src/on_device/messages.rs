//! Messages between two ranks on memory of the double's devices: sends, receives, batches, refusals and deadlines.

#![expect(unsafe_code, reason = "memory of a device, by its address")]

use std::sync::Barrier;
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesOnDevice, DeviceBatch};
use unisono_communicator::{
    Buffer, BufferMut, Call, CallOptions, Communicator, DType, Descriptor, DeviceBuffer, DeviceBufferMut,
    DeviceSlice, DeviceStream, Division, Error, Executor, MemoryKind, Operation, Outcome, Peer, ReduceOp,
    Result, Tag,
};
use unisono_offload::{HostMemory, Vendor};

use super::{Array, DeviceRank, SECONDS_MAX, TestStream, VendorDouble};
use crate::watchdog;

/// Sends and receives one by one, as a pipeline makes them, between collectives on the same stream.
///
/// # Panics
/// When the backend is wrong.
pub fn messages_follow_the_order_of_the_stream<D: VendorDouble>() {
    watchdog(SECONDS_MAX, "pipeline", || drop(DeviceRank::<D>::run(3, HostMemory::Refused, pipeline)));
}

fn pipeline<D: VendorDouble>(rank: &DeviceRank<D>) {
    let (on, own) = (rank.on_stream(), rank.own());
    let mut sum = rank.array(&[own; 3]);
    let mut from_before = rank.array(&[0.0; 3]);
    // Each stage receives from the stage before and sends to the next; nobody waits on the host.
    on.all_reduce(&mut sum.write(rank), ReduceOp::Sum).unwrap();
    if rank.rank > 0 {
        let outcome = on.recv(&mut from_before.write(rank), rank.rank - 1).unwrap();
        assert_eq!((outcome.source, outcome.bytes), (Some(rank.rank - 1), 12));
        let ended = on.wait(outcome).unwrap();
        assert_eq!((ended.source, ended.bytes, ended.ticket()), (Some(rank.rank - 1), 12, None));
        assert_eq!(ended.algorithm, D::Vendor::BACKEND);
    }
    if rank.rank < 2 {
        let outcome = on.send(&sum.read(rank), rank.rank + 1).unwrap();
        assert!(outcome.ticket().is_some());
    }
    // A collective that only two of three ranks have sent a message before has the same number on all.
    on.wait(on.all_reduce(&mut sum.write(rank), ReduceOp::Sum).unwrap()).unwrap();
    assert_eq!(rank.copied(&sum), [18.0; 3]);
    assert_eq!(rank.copied(&from_before), if rank.rank > 0 { [6.0; 3] } else { [0.0; 3] });
    rank.comm.close().unwrap();
}

/// All ranks send to all at once, also to themselves and to nobody, from lists too.
///
/// # Panics
/// When the backend is wrong.
pub fn a_batch_is_one_group<D: VendorDouble>() {
    watchdog(SECONDS_MAX, "batch", || drop(DeviceRank::<D>::run(3, HostMemory::Refused, batches)));
}

fn batches<D: VendorDouble>(rank: &DeviceRank<D>) {
    let (on, own, ranks) = (rank.on_stream(), rank.own(), 3);
    let sent: Vec<_> = (0..ranks).map(|peer| rank.array(&[10.0 * own + peer as f32; 2])).collect();
    let mut received: Vec<_> = (0..ranks).map(|_| rank.array(&[0.0; 2])).collect();
    let mut untouched = rank.array(&[7.0]);
    let messages: Vec<_> = sent.iter().map(|array| array.read(rank)).collect();
    let mut buffers: Vec<_> = received.iter_mut().map(|array| array.write(rank)).collect();
    let (mut nobody, mut batch) = (untouched.write(rank), DeviceBatch::new());
    // Sends first on every rank: each alone would wait for its receive.
    for (peer, message) in messages.iter().enumerate() {
        batch.send(message, peer as u32);
    }
    for (peer, buffer) in buffers.iter_mut().enumerate() {
        batch.recv(buffer, peer as u32);
    }
    batch.recv(&mut nobody, Peer::None);
    let outcome = on.exchange(batch).unwrap();
    assert_eq!(on.wait(outcome).unwrap().bytes, 48);
    for (peer, array) in received.iter().enumerate() {
        assert_eq!(rank.copied(array), [10.0 * (peer as f32 + 1.0) + rank.rank as f32; 2]);
    }
    assert_eq!(rank.copied(&untouched), [7.0]);
    assert!(on.exchange(DeviceBatch::new()).unwrap().ticket().is_none());
    several_of_a_pair(rank);
    handles(rank);
    listed(rank);
}

/// Several messages of one pair in one batch match in their order; empty ones go nowhere.
fn several_of_a_pair<D: VendorDouble>(rank: &DeviceRank<D>) {
    let (on, ranks) = (rank.on_stream(), 3);
    let (next, before) = ((rank.rank + 1) % ranks, (rank.rank + ranks - 1) % ranks);
    let sent = [rank.array(&[rank.own()]), rank.array(&[20.0 + rank.own(); 2])];
    let mut received = [rank.array(&[0.0]), rank.array(&[0.0; 2])];
    let messages = sent.each_ref().map(|array| array.read(rank));
    let mut buffers = received.each_mut().map(|array| array.write(rank));
    let empty = nothing(rank.rank);
    let mut batch = DeviceBatch::new();
    let [first, second] = &mut buffers;
    batch.recv(first, before).recv(second, before).send(&empty, next);
    batch.send(&messages[0], next).send(&messages[1], next);
    on.exchange(batch).unwrap();
    let of_before = (before + 1) as f32;
    assert_eq!(rank.copied(&received[0]), [of_before]);
    assert_eq!(rank.copied(&received[1]), [20.0 + of_before; 2]);
}

fn nothing<'a>(device: u32) -> DeviceSlice<'a, f32> {
    // SAFETY: it is empty.
    unsafe { DeviceSlice::from_raw(0, 0, device) }.unwrap()
}

/// Messages with handles. Their memory comes back.
fn handles<D: VendorDouble>(rank: &DeviceRank<D>) {
    let (on, mut array) = (rank.on_stream(), rank.array(&[rank.own(); 5]));
    let work = match rank.rank {
        0 => on.send_async(array.write(rank), 2),
        2 => on.recv_async(array.write(rank), 0),
        _ => on.send_async(array.write(rank), Peer::None),
    };
    let finished = work.finish();
    assert!(finished.result.is_ok() && finished.buffers.is_some(), "{:?}", finished.result);
    assert_eq!(rank.copied(&array), if rank.rank == 2 { [1.0; 5] } else { [rank.own(); 5] });
}

/// A list is one message, and is received into another list.
fn listed<D: VendorDouble>(rank: &DeviceRank<D>) {
    let mut parts = [1, 4].map(|elements| rank.array(&vec![rank.own(); elements]));
    let (operation, peer) = match rank.rank {
        0 => (Operation::Send, 1),
        1 => (Operation::Recv, 0),
        _ => return,
    };
    let spans = parts.each_mut().map(|part| {
        // SAFETY: the arrays live until their calls are done.
        unsafe { DeviceBufferMut::from_raw(part.address(), 4 * part.len(), rank.rank) }.unwrap()
    });
    let mut list = DeviceBufferMut::list(spans, Division::Anywhere);
    let descriptor = Descriptor { peer: Some(Peer::Rank(peer)), ..Descriptor::new(operation, DType::F32, 5) };
    let call = if operation == Operation::Send {
        Call::separate(descriptor, Buffer::Device(&list), BufferMut::empty())
    } else {
        Call::separate(descriptor, Buffer::empty(), BufferMut::Device(&mut list))
    };
    rank.comm.issue(Call { stream: Some(rank.device_stream()), ..call }).unwrap();
    parts.iter().for_each(|part| assert_eq!(rank.copied(part), vec![1.0; part.len()]));
}

/// A receive of 4 elements by hand.
fn receive<D: VendorDouble>(
    rank: &DeviceRank<D>,
    array: &Array<D::Vendor>,
    peer: Peer,
    tag: Tag,
) -> Result<Outcome> {
    // SAFETY: tests keep it until their calls are done.
    let mut to = unsafe { DeviceBufferMut::from_raw(array.address(), 16, rank.rank) }.unwrap();
    let descriptor = Descriptor { peer: Some(peer), tag, ..Descriptor::new(Operation::Recv, DType::F32, 4) };
    let supported = rank.comm.supports(&descriptor, &CallOptions::new(), MemoryKind::Device);
    let call = Call::separate(descriptor, Buffer::empty(), BufferMut::Device(&mut to));
    let outcome = rank.comm.issue(Call { stream: Some(rank.device_stream()), ..call });
    assert_eq!(supported.is_ok(), outcome.is_ok(), "{supported:?} {outcome:?}");
    outcome
}

/// A refusal is the same on every rank, and the communicator goes on.
///
/// # Panics
/// When the backend is wrong.
pub fn what_no_group_can_be_is_refused<D: VendorDouble>() {
    watchdog(SECONDS_MAX, "refused", || {
        DeviceRank::<D>::run(2, HostMemory::Refused, |rank| {
            let (on, mut array) = (rank.on_stream(), rank.array(&[rank.own(); 4]));
            for (peer, tag) in [
                (Peer::Any, Tag::Is(0)),
                (Peer::Any, Tag::Any),
                (Peer::Rank(1 - rank.rank), Tag::Any),
                (Peer::Rank(1 - rank.rank), Tag::Is(3)),
            ] {
                let error = receive(rank, &array, peer, tag).unwrap_err();
                assert!(matches!(error.root_cause(), Error::Unsupported { instead: Some(_), .. }), "{error}");
                assert!(error.is_before_start(), "{error}");
            }
            assert!(receive(rank, &array, Peer::None, Tag::Any).is_ok());
            let problem = |result: Result<Outcome>, of: &str| match result {
                Err(Error::InvalidArgument { argument, .. }) => assert_eq!(argument, of),
                other => panic!("{other:?}"),
            };
            // One end of a message to itself alone waits for ever.
            problem(on.send(&array.read(rank), rank.rank), "peer");
            problem(on.recv(&mut array.write(rank), rank.rank), "peer");
            mixed(rank, &array, &problem);
            on.wait(on.all_reduce(&mut array.write(rank), ReduceOp::Sum).unwrap()).unwrap();
            assert_eq!(rank.copied(&array), [3.0; 4]);
        })
    });
}

/// Batches of messages that are not all on one stream of the device.
fn mixed<D: VendorDouble>(
    rank: &DeviceRank<D>,
    array: &Array<D::Vendor>,
    problem: &dyn Fn(Result<Outcome>, &str),
) {
    // SAFETY: tests keep it until their calls are done.
    let from = unsafe { DeviceBuffer::from_raw(array.address(), 16, rank.rank) }.unwrap();
    let peer = Some(Peer::Rank(1 - rank.rank));
    let descriptor = Descriptor { peer, ..Descriptor::new(Operation::Send, DType::F32, 4) };
    let on_device = |stream| Call {
        stream: Some(stream),
        ..Call::separate(descriptor, Buffer::Device(&from), BufferMut::empty())
    };
    let exchange = |mut calls: [Call<'_>; 2]| {
        let ended = rank.comm.life().exchange(&mut calls, &mut [None, None]);
        ended.map(|()| Outcome::done(0, "all"))
    };
    let stream = rank.device_stream();
    let host = Call::separate(descriptor, Buffer::of(&[1.0f32; 4]), BufferMut::empty());
    problem(exchange([on_device(stream), host]), "memory");
    let other = TestStream::new(&rank.stream.vendor);
    // SAFETY: the stream lives, and nothing is put on it.
    let other = unsafe { DeviceStream::from_raw(other.raw(), rank.rank) };
    problem(exchange([on_device(stream), on_device(other)]), "stream");
}

/// The error names the rank that has not sent, on both, and the stream goes on where the library can abort.
///
/// # Panics
/// When the backend is wrong.
pub fn a_message_without_its_other_end_ends_by_its_deadline<D: VendorDouble>() {
    let given_up = Barrier::new(2);
    watchdog(SECONDS_MAX, "late message", || {
        DeviceRank::<D>::run(2, HostMemory::Refused, |rank| {
            if rank.rank == 1 {
                given_up.wait();
                // The first cause reaches this rank too.
                let mut array = rank.array(&[1.0; 4]);
                let cause = rank.on_stream().recv(&mut array.write(rank), 0).unwrap_err();
                assert!(cause.to_string().contains("recv"), "{cause}");
                return;
            }
            let mut array = rank.array(&[1.0; 4]);
            let patient = rank.comm.with(CallOptions::new().timeout(Duration::from_millis(300)));
            let on = patient.on(rank.device_stream());
            let late = on.wait(on.recv(&mut array.write(rank), 1).unwrap());
            match &late {
                Err(Error::Timeout { call, not_arrived, .. }) => {
                    assert_eq!(call.descriptor.operation, Operation::Recv);
                    assert!(call.site.as_ref().is_some_and(|site| site.file.contains("messages")), "{call}");
                    let culprit = not_arrived.first().unwrap();
                    assert_eq!(culprit.rank.get(), 1);
                    assert!(culprit.status.starts_with("has not sent"), "{}", culprit.status);
                }
                other => panic!("{other:?}"),
            }
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

/// Every test of this file for one double: `messages_on_device!(NcclDouble)`.
#[macro_export]
macro_rules! messages_on_device {
    ($double:ty) => {
        $crate::messages_on_device!(@tests $double, messages_follow_the_order_of_the_stream a_batch_is_one_group
            what_no_group_can_be_is_refused a_message_without_its_other_end_ends_by_its_deadline);
    };
    (@tests $double:ty, $($test:ident)*) => {
        $(#[test]
        fn $test() {
            $crate::on_device::messages::$test::<$double>();
        })*
    };
}
