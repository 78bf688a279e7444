//! Calls on device memory: their order on a stream, their tickets, and their late errors, through the double of a
//! vendor's backend.

#![expect(unsafe_code, reason = "memory and streams of a device, by their addresses")]

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesAsync, Solo};
use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, CallOptions, Collective, Communicator, Completion, DType, Descriptor,
    DeviceBufferMut, DeviceStream, Division, Error, JobRank, Keeper, MemoryKind, Operation, Outcome,
    OwnedBuffers, OwnedCall, OwnedMemory, ParentCall, Peer, Place, ReduceOp, Result, Ticket, Work,
};
use unisono_engine::in_process;
use unisono_tests::double::{Device, DeviceArray, DeviceDouble};
use unisono_tests::suite::borrowed::device_calls_are_refused;
use unisono_tests::watchdog;

/// Of one test, on a machine that is busy with others.
const SECONDS_MAX: u64 = 120;

/// One rank: its communicator for device memory, its device and a stream.
struct Rank {
    comm: DeviceDouble,
    device: Arc<Device>,
    stream: DeviceStream,
    rank: u32,
}

impl Rank {
    fn new(inner: Arc<dyn Communicator>) -> Rank {
        let rank = inner.group().rank();
        let device = Device::new(rank);
        let (comm, stream) = (DeviceDouble::new(inner, device.clone()), device.stream());
        Rank { comm, device, stream, rank }
    }

    fn array(&self, elements: Vec<u32>) -> DeviceArray<u32> {
        DeviceArray::new(&self.device, elements)
    }

    fn issue(&self, descriptor: Descriptor, buffers: Buffers<'_>) -> Result<Ticket> {
        let call = Call { stream: Some(self.stream), ..Call::new(descriptor, buffers) };
        let outcome = self.comm.issue(call)?;
        assert!(matches!(outcome.completion, Completion::StreamOrdered(_)), "{outcome:?}");
        Ok(outcome.ticket().unwrap())
    }

    fn issue_in_place(&self, descriptor: Descriptor, mut buffer: DeviceBufferMut) -> Result<Ticket> {
        let descriptor = Descriptor { place: Place::InPlace, ..descriptor };
        self.issue(descriptor, Buffers::InOut(BufferMut::Device(&mut buffer)))
    }

    fn start(&self, descriptor: Descriptor, buffers: OwnedBuffers) -> Work {
        self.comm.start(OwnedCall { stream: Some(self.stream), ..OwnedCall::new(descriptor, buffers) })
    }

    fn copied(&self, array: DeviceArray<u32>) -> Vec<u32> {
        array.copied(&self.device, self.stream)
    }
}

/// Runs `body` on all ranks of a world, which stay until all have done it.
fn run(name: &'static str, ranks: u32, body: impl Fn(&Rank) + Send + Sync + 'static) {
    watchdog(SECONDS_MAX, name, move || {
        let at_end = Barrier::new(ranks as usize);
        in_process::run(ranks, |inner| {
            let rank = Rank::new(inner);
            body(&rank);
            rank.device.synchronize(rank.stream);
            at_end.wait();
        });
    });
}

fn sum(count: usize) -> Descriptor {
    Descriptor { op: Some(ReduceOp::Sum), ..Descriptor::new(Collective::AllReduce, DType::U32, count as u64) }
}

fn gather(count: usize) -> Descriptor {
    Descriptor::new(Collective::AllGather, DType::U32, count as u64)
}

#[test]
fn in_place_and_separate() {
    run("in_place_and_separate", 3, |rank| {
        for length in [0, 1, 5, 70_000] {
            let both = rank.array(vec![rank.rank + 1; length]);
            let ticket = rank.issue_in_place(sum(length), both.buffer_mut()).unwrap();
            let outcome = rank.comm.resolve(ticket).unwrap();
            assert_eq!((outcome.completion, outcome.bytes), (Completion::Done, 4 * length as u64));
            assert_eq!(rank.copied(both), vec![6; length]);

            let (own, all) = (rank.array(vec![rank.rank; length]), rank.array(vec![9; 3 * length]));
            let (input, mut output) = (own.buffer(), all.buffer_mut());
            let buffers =
                Buffers::Separate { input: Buffer::Device(&input), output: BufferMut::Device(&mut output) };
            let ticket = rank.issue(gather(length), buffers).unwrap();
            rank.comm.resolve(ticket).unwrap();
            assert_eq!(rank.copied(all), [vec![0; length], vec![1; length], vec![2; length]].concat());
            assert_eq!(rank.copied(own), vec![rank.rank; length]);
        }
    });
}

/// Lists of shares, coalesced lists, lists that are cut anywhere; a mutable buffer is also an input.
#[test]
fn lists_of_spans() {
    run("lists_of_spans", 2, |rank| {
        let (memory, own) = (rank.array(vec![0; 10]), rank.array(vec![rank.rank + 1; 3]));
        let parts = [7..10, 1..4].map(|part| memory.part_mut(part));
        let mut shares = DeviceBufferMut::list(parts, Division::Shares);
        let input = own.buffer_mut();
        let buffers =
            Buffers::Separate { input: Buffer::Device(&input), output: BufferMut::Device(&mut shares) };
        rank.issue(gather(3), buffers).unwrap();
        assert_eq!(rank.copied(memory), [0, 2, 2, 2, 0, 0, 0, 1, 1, 1]);

        for division in [Division::Coalesced, Division::Anywhere] {
            let memory = rank.array((0..8).collect());
            let parts = [6..8, 3..3, 0..4].map(|part| memory.part_mut(part));
            let list = DeviceBufferMut::list(parts, division);
            rank.issue_in_place(sum(6), list).unwrap();
            assert_eq!(rank.copied(memory), [0, 2, 4, 6, 4, 5, 12, 14]);
        }
        let parts = [0..2, 2..10].map(|part| memory.part_mut(part));
        let uneven = DeviceBufferMut::list(parts, Division::Shares);
        let error = rank.issue_in_place(gather(5), uneven).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "buffer", .. }), "{error}");
    });
}

/// A call comes behind what was enqueued before it, and before what comes later. Nothing waits on the host.
#[test]
fn calls_run_in_the_order_of_their_stream() {
    run("calls_run_in_the_order_of_their_stream", 3, |rank| {
        let values = rank.array(vec![0; 100]);
        let (open, gate) = channel::<()>();
        let own = rank.rank;
        rank.device.enqueue(rank.stream, move || gate.recv().unwrap());
        values.change(&rank.device, rank.stream, move |values| values.fill(own + 1));
        let first = rank.issue_in_place(sum(100), values.buffer_mut()).unwrap();
        values.change(&rank.device, rank.stream, move |values| values.iter_mut().for_each(|x| *x += own));
        let second = rank.issue_in_place(sum(100), values.buffer_mut()).unwrap();
        let barrier = rank.issue(Descriptor::new(Collective::Barrier, DType::U8, 0), Buffers::none());
        for ticket in [first, second] {
            assert_eq!(rank.comm.resolve_within(ticket, Duration::ZERO).unwrap(), None);
        }
        open.send(()).unwrap();
        rank.comm.resolve(barrier.unwrap()).unwrap();
        for ticket in [second, first] {
            assert!(rank.comm.resolve_within(ticket, Duration::ZERO).unwrap().is_some());
        }
        assert_eq!(rank.copied(values), vec![21; 100]);
    });
}

/// Calls on several streams run in the order of issue, which is the same on all ranks.
#[test]
fn two_streams_share_one_order_of_calls() {
    run("two_streams_share_one_order_of_calls", 2, |rank| {
        let other = rank.device.stream();
        let arrays: Vec<_> = (0..20).map(|turn| rank.array(vec![turn; 50 + turn as usize])).collect();
        for (turn, array) in arrays.iter().enumerate() {
            let stream = if (turn as u32 + rank.rank).is_multiple_of(2) { other } else { rank.stream };
            let mut buffer = array.buffer_mut();
            let descriptor = Descriptor { place: Place::InPlace, ..sum(50 + turn) };
            let call = Call::new(descriptor, Buffers::InOut(BufferMut::Device(&mut buffer)));
            let ticket = rank.comm.issue(Call { stream: Some(stream), ..call }).unwrap().ticket().unwrap();
            if turn % 7 == 0 {
                rank.comm.resolve(ticket).unwrap();
            }
        }
        rank.device.synchronize(rank.stream);
        for (turn, array) in arrays.into_iter().enumerate() {
            assert_eq!(array.copied(&rank.device, other), vec![2 * turn as u32; 50 + turn]);
        }
    });
}

/// Any thread, any number of times; another communicator of the process knows nothing of it.
#[test]
fn tickets_are_resolved_again_and_by_their_communicator_only() {
    run("tickets_are_resolved_again_and_by_their_communicator_only", 2, |rank| {
        let values = rank.array(vec![1; 8]);
        let ticket = rank.issue_in_place(sum(8), values.buffer_mut()).unwrap();
        let answers = std::thread::scope(|scope| {
            let resolve = || scope.spawn(|| rank.comm.resolve(ticket).unwrap());
            [resolve(), resolve(), resolve()].map(|thread| thread.join().unwrap())
        });
        assert_eq!(answers, [Outcome { completion: Completion::Done, ..answers[0] }; 3]);
        let patient = rank.comm.with(CallOptions::new().timeout(Duration::from_secs(9)));
        assert_eq!(patient.resolve(ticket).unwrap(), answers[0]);

        let other = DeviceDouble::new(Arc::new(Solo::new()), rank.device.clone());
        for (comm, ticket) in [(&other, ticket), (&rank.comm, Ticket::new(ticket.issuer(), 1000))] {
            let error = comm.resolve(ticket).unwrap_err();
            assert!(error.is_before_start() && error.to_string().contains(&ticket.to_string()), "{error}");
        }
        let error = Solo::new().resolve(ticket).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(&ticket.to_string()), "{error}");
    });
}

/// What was enqueued before still runs; tickets outlive the communicator's last call.
#[test]
fn tickets_after_close() {
    run("tickets_after_close", 2, |rank| {
        let values = rank.array(vec![2; 1000]);
        let ticket = rank.issue_in_place(sum(1000), values.buffer_mut()).unwrap();
        rank.comm.close().unwrap();
        assert!(rank.comm.resolve_within(ticket, Duration::ZERO).unwrap().is_some());
        assert_eq!(rank.copied(values), vec![4; 1000]);
        assert!(matches!(rank.issue_in_place(sum(1000), values.buffer_mut()), Err(Error::Closed { .. })));
        rank.comm.resolve(ticket).unwrap();
    });
}

/// Ranks that call different things learn it late, and from every later call.
#[test]
fn a_mismatch_is_a_late_error() {
    run("a_mismatch_is_a_late_error", 2, |rank| {
        let values = rank.array(vec![1; 10]);
        let good = rank.issue_in_place(sum(10), values.buffer_mut()).unwrap();
        rank.comm.resolve(good).unwrap();
        let length = 10 - rank.rank as usize;
        let bad = rank.issue_in_place(sum(length), values.part_mut(0..length)).unwrap();
        let behind = rank.issue_in_place(sum(4), values.part_mut(0..4));
        let error = rank.comm.resolve(bad).unwrap_err();
        assert!(matches!(error.root_cause(), Error::Mismatch { .. }), "{error}");
        assert_eq!(rank.comm.resolve(bad).unwrap_err().to_string(), error.to_string(), "asked again");
        let behind = behind.and_then(|ticket| rank.comm.resolve(ticket));
        assert_eq!(behind.unwrap_err().to_string(), error.to_string(), "enqueued behind it");
        let later = rank.issue_in_place(sum(10), values.buffer_mut());
        assert_eq!(later.unwrap_err().to_string(), error.to_string(), "issued later");
        rank.comm.resolve(good).unwrap();
    });
}

#[test]
fn a_lost_rank_is_a_late_error() {
    watchdog(SECONDS_MAX, "a_lost_rank_is_a_late_error", || {
        let seen = Barrier::new(2);
        in_process::run(3, |inner| {
            let rank = Rank::new(inner);
            if rank.rank == 2 {
                return;
            }
            let values = rank.array(vec![1; 10]);
            let buffers = OwnedBuffers::InOut(values.buffer_mut().into());
            let work = rank.start(Descriptor { place: Place::InPlace, ..sum(10) }, buffers);
            let behind = rank.issue_in_place(sum(10), values.buffer_mut());
            let error = work.wait().unwrap_err();
            assert_eq!(error.lost_ranks(), [JobRank::new(2)], "{error}");
            assert!(work.finish().buffers.is_some());
            let behind = behind.and_then(|ticket| rank.comm.resolve(ticket)).unwrap_err();
            assert_eq!(behind.lost_ranks(), [JobRank::new(2)], "{behind}");
            seen.wait();
        });
    });
}

/// The rank that has waited too long names the one that has not called, which learns it from its own call.
#[test]
fn a_passed_deadline_is_a_late_error() {
    let is_seen = Barrier::new(2);
    run("a_passed_deadline_is_a_late_error", 2, move |rank| {
        let mut buffer = rank.array(vec![1; 10]).buffer_mut();
        let descriptor = Descriptor { place: Place::InPlace, ..sum(10) };
        let call = Call::new(descriptor, Buffers::InOut(BufferMut::Device(&mut buffer)));
        let call = Call { stream: Some(rank.stream), ..call };
        if rank.rank == 0 {
            let impatient = rank.comm.with(CallOptions::new().timeout(Duration::from_millis(20)));
            let ticket = impatient.issue(call).unwrap().ticket().unwrap();
            let error = impatient.resolve(ticket).unwrap_err();
            let Error::Timeout { not_arrived, .. } = &error else { panic!("{error}") };
            assert!(not_arrived.iter().any(|awaited| awaited.rank == JobRank::new(1)), "{error}");
            is_seen.wait();
        } else {
            is_seen.wait();
            let ended = rank.comm.issue(call).and_then(|call| rank.comm.resolve(call.ticket().unwrap()));
            let error = ended.unwrap_err();
            assert!(matches!(error.root_cause(), Error::Timeout { .. }), "{error}");
        }
    });
}

/// Handles keep what they need; a call without memory has one too, and so have parts of no bytes at no address.
#[test]
fn handles_outlive_their_communicator() {
    watchdog(SECONDS_MAX, "handles_outlive_their_communicator", || {
        let is_seen = Barrier::new(2);
        in_process::run(2, |inner| {
            let rank = Rank::new(inner.clone());
            let values = rank.array(vec![rank.rank; 10]);
            // SAFETY: there are no bytes.
            let nothing = unsafe { DeviceBufferMut::from_raw(0, 0, rank.device.number()) }.unwrap();
            let list = DeviceBufferMut::list([nothing, values.buffer_mut()], Division::Anywhere);
            let descriptor = Descriptor { place: Place::InPlace, ..sum(10) };
            let work = [
                rank.start(descriptor, OwnedBuffers::InOut(list.into())),
                rank.start(Descriptor::new(Collective::Barrier, DType::U8, 0), OwnedBuffers::None),
            ];
            let Rank { comm, device, stream, .. } = rank;
            drop(comm);
            for work in work.iter().rev() {
                assert_eq!(work.wait().unwrap().completion, Completion::Done);
            }
            assert_eq!(values.copied(&device, stream), [1; 10]);
            is_seen.wait();
        });
    });
}

/// Owned device memory comes back without a keeper; with one it is empty, and the keeper is dropped at the end.
#[test]
fn owned_calls_and_their_keepers() {
    run("owned_calls_and_their_keepers", 2, |rank| {
        let values = rank.array(vec![rank.rank; 6]);
        let descriptor = Descriptor { place: Place::InPlace, ..sum(6) };
        let work = rank.start(descriptor, OwnedBuffers::InOut(values.buffer_mut().into()));
        let (sender, called) = channel();
        work.on_done(move |result| sender.send(result.map(|outcome| outcome.completion).unwrap()).unwrap());
        assert_eq!(called.recv().unwrap(), Completion::Done);
        let Some(OwnedBuffers::InOut(OwnedMemory::Device { buffer, keeper: None })) = work.finish().buffers
        else {
            panic!("no buffer")
        };
        assert_eq!(buffer.bytes(), 24);

        let (open, gate) = channel::<()>();
        rank.device.enqueue(rank.stream, move || gate.recv().unwrap());
        let (keeper, dropped) = channel::<()>();
        let kept = OwnedMemory::Device { buffer, keeper: Some(Keeper::new(keeper)) };
        let work = rank.start(descriptor, OwnedBuffers::InOut(kept));
        assert!(work.wait_timeout(Duration::ZERO).is_none() && !work.is_done());
        assert_eq!(dropped.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
        open.send(()).unwrap();
        work.wait().unwrap();
        assert_eq!(dropped.recv_timeout(Duration::MAX), Err(RecvTimeoutError::Disconnected));
        let Some(OwnedBuffers::InOut(OwnedMemory::Device { buffer, keeper: None })) = work.finish().buffers
        else {
            panic!("no buffer")
        };
        assert_eq!((buffer.bytes(), rank.copied(values)), (0, vec![2; 6]));

        // Dropped handles detach their calls.
        let detached = rank.array(vec![3; 40]);
        let descriptor = Descriptor { place: Place::InPlace, ..sum(40) };
        drop(rank.start(descriptor, OwnedBuffers::InOut(detached.buffer_mut().into())));
        assert_eq!(rank.copied(detached), vec![6; 40]);
    });
}

#[test]
fn a_cancelled_call_ends_on_every_rank() {
    run("a_cancelled_call_ends_on_every_rank", 2, |rank| {
        let values = rank.array(vec![1; 10]);
        let descriptor = Descriptor { place: Place::InPlace, ..sum(10) };
        let (open, gate) = channel::<()>();
        let work = if rank.rank == 0 {
            // The others' calls wait for this one, which waits behind the gate.
            rank.device.enqueue(rank.stream, move || gate.recv().unwrap());
            let work = rank.start(descriptor, OwnedBuffers::InOut(values.buffer_mut().into()));
            work.cancel();
            open.send(()).unwrap();
            work
        } else {
            rank.start(descriptor, OwnedBuffers::InOut(values.buffer_mut().into()))
        };
        let error = work.wait().unwrap_err();
        assert!(
            matches!(error.root_cause(), Error::Cancelled { by, .. } if *by == JobRank::new(0)),
            "{error}"
        );
    });
}

/// A root alone has an output, the others give nothing there; messages go over a stream as well.
#[test]
fn ranks_without_a_part_and_messages() {
    run("ranks_without_a_part_and_messages", 2, |rank| {
        let (own, all) = (rank.array(vec![rank.rank + 4]), rank.array(vec![0; 2]));
        let (input, mut output) = (own.buffer(), all.buffer_mut());
        let output = if rank.rank == 0 { BufferMut::Device(&mut output) } else { BufferMut::empty() };
        let descriptor = Descriptor { root: Some(0), ..Descriptor::new(Collective::Gather, DType::U32, 1) };
        rank.issue(descriptor, Buffers::Separate { input: Buffer::Device(&input), output }).unwrap();
        let expected = if rank.rank == 0 { [4, 5] } else { [0, 0] };
        assert_eq!(rank.copied(all), expected);

        let message = |operation| Descriptor {
            peer: Some(Peer::Rank(1 - rank.rank)),
            tag: unisono_communicator::Tag::Is(3),
            ..Descriptor::new(operation, DType::U32, 2)
        };
        let mut room = all.buffer_mut();
        let both = rank.array(vec![7, 8]);
        let ticket = if rank.rank == 0 {
            let (input, output) = (both.buffer(), BufferMut::empty());
            rank.issue(message(Operation::Send), Buffers::Separate { input: Buffer::Device(&input), output })
        } else {
            let (input, output) = (Buffer::empty(), BufferMut::Device(&mut room));
            rank.issue(message(Operation::Recv), Buffers::Separate { input, output })
        };
        let outcome = rank.comm.resolve(ticket.unwrap()).unwrap();
        if rank.rank == 1 {
            assert_eq!((outcome.source, outcome.tag, outcome.bytes), (Some(0), 3, 8));
            assert_eq!(rank.copied(all), [7, 8]);
        }
    });
}

/// Refused calls change nothing: the next good call of each rank is still the same one.
#[test]
fn wrong_calls_are_refused_before_they_are_enqueued() {
    run("wrong_calls_are_refused_before_they_are_enqueued", 2, |rank| {
        let (values, comm) = (rank.array(vec![1; 4]), &rank.comm);
        let refused = |result: Result<Outcome>, text: &str| {
            let error = result.unwrap_err();
            assert!(error.is_before_start() && error.to_string().contains(text), "{error}");
        };
        let descriptor = Descriptor { place: Place::InPlace, ..sum(4) };
        for _ in 0..=rank.rank {
            let issue = |buffer: &mut DeviceBufferMut, stream| {
                let call = Call::new(descriptor, Buffers::InOut(BufferMut::Device(buffer)));
                comm.issue(Call { stream, ..call })
            };
            refused(issue(&mut values.buffer_mut(), None), "invalid stream: missing");
            refused(issue(&mut values.part_mut(0..3), Some(rank.stream)), "invalid buffer: 3 elements");
            // SAFETY: the stream is refused.
            let [unknown, elsewhere] = [(9, rank.rank), (1, 7)]
                .map(|(handle, device)| unsafe { DeviceStream::from_raw(handle, device) });
            refused(issue(&mut values.buffer_mut(), Some(unknown)), "invalid stream: 9 of device");
            refused(issue(&mut values.buffer_mut(), Some(elsewhere)), "the stream is of device 7");
            let error = comm.all_reduce(&mut [1u32], ReduceOp::Sum).unwrap_err();
            assert!(error.to_string().ends_with("; instead: copy to the device"), "{error}");
            let supports = |memory| comm.supports(&descriptor, &CallOptions::new(), memory).is_ok();
            assert_eq!([MemoryKind::Host, MemoryKind::Device].map(supports), [false, true]);
        }
        let ticket = rank.issue_in_place(sum(4), values.buffer_mut()).unwrap();
        assert_eq!(ticket.number(), 0, "a refused call takes no number");
        rank.comm.resolve(ticket).unwrap();
        assert_eq!(rank.copied(values), [2; 4]);
    });
}

#[test]
fn a_world_of_one_refuses_device_memory() {
    let solo = Solo::new();
    device_calls_are_refused(&solo);
    let parent = ParentCall::new("parts", sum(1));
    let scope = solo.scope(parent, &CallOptions::new()).unwrap();
    device_calls_are_refused(&scope);
    assert_eq!(scope.numbers().count(), 0, "a refused call takes no number");
}
