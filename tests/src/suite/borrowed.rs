//! Asynchronous calls on memory that stays where it is, and the keepers of that memory.

#![expect(unsafe_code, reason = "memory of a call, by its address")]

use std::any::Any;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{
    CallOptions, Collective, Communicator, DType, Descriptor, DeviceBufferMut, DeviceStream, Error, Keeper,
    MemoryKind, Operation, OwnedBuffer, OwnedBuffers, OwnedCall, OwnedMemory, ParentCall, Peer, Place,
    ReduceOp, Tag, Ticket, Work,
};

use crate::backend::Backend;
use crate::world::{options, run, run_each};

/// Far longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Memory that a test looks at after the call, and that its keeper hands over when it is dropped.
struct Lent {
    memory: Vec<i32>,
    back: Sender<Vec<i32>>,
    panics: bool,
}

impl Drop for Lent {
    fn drop(&mut self) {
        let _ = self.back.send(std::mem::take(&mut self.memory));
        assert!(!self.panics, "in a test");
    }
}

/// Lends a vector to a call; the other end gets it when the call has ended.
pub fn lend(memory: Vec<i32>, panics: bool) -> (OwnedMemory, Receiver<Vec<i32>>) {
    let (back, returned) = channel();
    let mut lent = Box::new(Lent { memory, back, panics });
    let (start, bytes) = (lent.memory.as_mut_ptr().cast(), lent.memory.len() * 4);
    let keeper: Box<dyn Any + Send> = lent;
    // SAFETY: the vector is the keeper's, who hands it over when the call has ended.
    let buffer = unsafe { OwnedBuffer::from_raw(start, bytes, DType::I32, keeper) };
    (buffer.unwrap().into(), returned)
}

/// The sum of lent vectors of `count` elements, in place.
pub fn all_reduce(comm: &dyn Communicator, buffer: OwnedMemory, count: u64) -> Work {
    let descriptor = Descriptor {
        op: Some(ReduceOp::Sum),
        place: Place::InPlace,
        ..Descriptor::new(Collective::AllReduce, DType::I32, count)
    };
    comm.start(OwnedCall::new(descriptor, OwnedBuffers::InOut(buffer)))
}

/// Collectives and messages on memory that stays: nothing is copied, and what comes back is empty.
pub fn calls_on_memory_that_stays(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        for length in [0, 1, 2000, 70_000] {
            let memory = vec![rank as i32 + 1; length];
            let address = memory.as_ptr();
            let (buffer, returned) = lend(memory, false);
            let work = all_reduce(comm, buffer, length as u64);
            work.wait().unwrap();
            let memory = returned.recv_timeout(LONG).unwrap();
            assert_eq!(memory, vec![(ranks * (ranks + 1) / 2) as i32; length]);
            assert!(length == 0 || memory.as_ptr() == address);
            let Some(OwnedBuffers::InOut(OwnedMemory::One(buffer))) = work.finish().buffers else {
                panic!("no buffer")
            };
            assert!(buffer.bytes().is_empty());

            let message = |operation, peer| Descriptor {
                peer: Some(Peer::Rank(peer)),
                ..Descriptor::new(operation, DType::I32, length as u64)
            };
            let (output, received) = lend(vec![0; length], false);
            let input = OwnedMemory::of(Vec::<i32>::new());
            let receive = message(Operation::Recv, (rank + ranks - 1) % ranks);
            drop(comm.start(OwnedCall::new(receive, OwnedBuffers::Separate { input, output })));
            let (input, sent) = lend(vec![rank as i32; length], false);
            let output = OwnedMemory::of(Vec::<i32>::new());
            let send = message(Operation::Send, (rank + 1) % ranks);
            drop(comm.start(OwnedCall::new(send, OwnedBuffers::Separate { input, output })));
            assert_eq!(
                received.recv_timeout(LONG).unwrap(),
                vec![((rank + ranks - 1) % ranks) as i32; length]
            );
            assert_eq!(sent.recv_timeout(LONG).unwrap(), vec![rank as i32; length]);
        }
    });
}

/// Memory that its owner keeps: the call writes it, and is done with it when it has ended.
pub fn lent_memory_needs_no_keeper(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 3], |comm| {
        let ranks = comm.group().size();
        for length in [0, 1, 70_000] {
            let mut memory = vec![comm.group().rank() as i32 + 1; length];
            let (start, bytes) = (memory.as_mut_ptr().cast(), size_of_val(&memory[..]));
            // SAFETY: the vector outlives the wait below, and nobody looks at it before.
            let buffer = unsafe { OwnedBuffer::lent(start, bytes, DType::I32) }.unwrap();
            let work = all_reduce(comm, buffer.into(), length as u64);
            let outcome = work.wait().unwrap();
            assert_eq!(outcome.bytes, 4 * length as u64);
            assert_eq!(memory, vec![(ranks * (ranks + 1) / 2) as i32; length]);
            let Some(OwnedBuffers::InOut(OwnedMemory::One(buffer))) = work.finish().buffers else {
                panic!("no buffer")
            };
            assert!(buffer.bytes().is_empty());
        }
    });
}

/// A keeper is dropped when the call has ended, though the handle lives on, and not before.
pub fn keepers_are_dropped_at_the_end(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 3], |comm| {
        let (buffer, returned) = lend(vec![1; 10], false);
        let descriptor = Descriptor {
            peer: Some(Peer::Any),
            tag: Tag::Is(8),
            ..Descriptor::new(Operation::Recv, DType::I32, 10)
        };
        let buffers = OwnedBuffers::Separate { input: OwnedMemory::of(Vec::<i32>::new()), output: buffer };
        let work = comm.start(OwnedCall::new(descriptor, buffers));
        assert_eq!(returned.recv_timeout(Duration::from_millis(5)), Err(RecvTimeoutError::Timeout));
        comm.barrier().unwrap();
        comm.send(&[4i32; 10], (comm.group().rank() + 1) % comm.group().size(), 8).unwrap();
        assert_eq!(returned.recv_timeout(LONG).unwrap(), [4; 10]);
        work.wait().unwrap();
        comm.barrier().unwrap();
    });
}

/// Memory of detached work is kept until its end, also when the communicator is dropped before.
pub fn keepers_of_detached_work(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 3], |comm| {
        let own = comm.duplicate().unwrap();
        let (buffer, returned) = lend(vec![1; 50_000], false);
        drop(all_reduce(&*own, buffer, 50_000));
        drop(own);
        assert_eq!(returned.recv_timeout(LONG).unwrap(), vec![comm.group().size() as i32; 50_000]);
        comm.barrier().unwrap();
    });
}

/// A length or an element type that does not fit is refused, and the keeper dropped.
pub fn keepers_of_refused_calls(backend: &dyn Backend) {
    run_each(backend, &[1, 2], |comm| {
        let (buffer, returned) = lend(vec![1; 10], false);
        let refused = all_reduce(comm, buffer, 11);
        assert!(matches!(refused.wait(), Err(Error::InvalidArgument { argument: "buffer", .. })));
        returned.recv_timeout(LONG).unwrap();
        let descriptor = Descriptor {
            op: Some(ReduceOp::Sum),
            place: Place::InPlace,
            ..Descriptor::new(Collective::AllReduce, DType::F32, 10)
        };
        let (buffer, returned) = lend(vec![1; 10], true);
        let refused = comm.start(OwnedCall::new(descriptor, OwnedBuffers::InOut(buffer)));
        assert!(matches!(refused.wait(), Err(Error::InvalidArgument { argument: "dtype", .. })));
        returned.recv_timeout(LONG).unwrap();
        comm.barrier().unwrap();
    });
}

/// Keepers of calls that fail are dropped: of one in progress, of one behind it, of a message.
pub fn keepers_of_failed_calls(backend: &dyn Backend) {
    run(backend, 2, &options(), |comm| {
        if comm.group().rank() == 1 {
            let error = comm.recv(&mut [0u8], Peer::Rank(0), 1).unwrap_err();
            assert!(matches!(error.root_cause(), Error::Closed { .. }), "{error}");
            return;
        }
        let lent: Vec<_> = (0..2).map(|_| lend(vec![1; 100], false)).collect();
        let returned: Vec<_> = lent
            .into_iter()
            .map(|(buffer, returned)| {
                drop(all_reduce(comm, buffer, 100));
                returned
            })
            .collect();
        comm.revoke(Error::closed()).unwrap();
        returned.iter().for_each(|returned| assert_eq!(returned.recv_timeout(LONG).unwrap().len(), 100));
        let (buffer, returned) = lend(vec![1; 100], false);
        assert!(all_reduce(comm, buffer, 100).wait().is_err());
        returned.recv_timeout(LONG).unwrap();
    });
}

/// A keeper that panics in its drop harms no other: not its own call, not those behind it.
pub fn keepers_that_panic(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 3], |comm| {
        let lent: Vec<_> = (0..4).map(|turn| lend(vec![1; 100], turn % 2 == 0)).collect();
        for (buffer, returned) in lent {
            all_reduce(comm, buffer, 100).wait().unwrap();
            assert_eq!(returned.recv_timeout(LONG).unwrap(), vec![comm.group().size() as i32; 100]);
        }
        comm.barrier().unwrap();
    });
}

/// No backend of this suite reaches device memory: blocking and asynchronous calls are refused, also within a scope,
/// and nothing happens. Tickets are none of theirs.
pub fn device_memory_is_refused(backend: &dyn Backend) {
    run_each(backend, &[1, 2], |comm| {
        if reaches_a_device(comm) {
            return;
        }
        for _ in 0..=comm.group().rank() {
            device_calls_are_refused(comm);
        }
        let parent = ParentCall::new("parts", Descriptor::new(Collective::Barrier, DType::U8, 0));
        let scope = comm.scope(parent, &CallOptions::new()).unwrap();
        for _ in 0..=comm.group().rank() {
            device_calls_are_refused(&scope);
        }
        assert_eq!(scope.numbers().count(), 0, "a refused call takes no number");
        scope.barrier().unwrap();
        drop(scope);
        comm.barrier().unwrap();
    });
}

/// Whether calls on memory of a device are supported.
pub fn reaches_a_device(comm: &dyn Communicator) -> bool {
    let barrier = Descriptor::new(Collective::Barrier, DType::U8, 0);
    comm.supports(&barrier, &CallOptions::new(), MemoryKind::Device).is_ok()
}

/// A communicator that reaches host memory only says so.
pub fn device_calls_are_refused(comm: &dyn Communicator) {
    // SAFETY: the address and the stream are never used.
    let buffer = || unsafe { DeviceBufferMut::from_raw(64, 40, 0) }.unwrap();
    // SAFETY: as above.
    let stream = Some(unsafe { DeviceStream::from_raw(0, 0) });
    let is_refused = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().ends_with("; instead: a vendor's backend, or copy to the host"), "{error}");
    };
    let broadcast = Descriptor {
        place: Place::InPlace,
        root: Some(0),
        ..Descriptor::new(Collective::Broadcast, DType::I32, 10)
    };
    let receive = Descriptor { peer: Some(Peer::Any), ..Descriptor::new(Operation::Recv, DType::I32, 10) };
    let barrier = Descriptor::new(Collective::Barrier, DType::U8, 0);
    let (input, output) = (OwnedMemory::of(Vec::<i32>::new()), buffer().into());
    for (descriptor, buffers) in [
        (broadcast, OwnedBuffers::InOut(buffer().into())),
        (receive, OwnedBuffers::Separate { input, output }),
        (barrier, OwnedBuffers::None),
    ] {
        let mut call = OwnedCall { stream, ..OwnedCall::new(descriptor, buffers) };
        is_refused(comm.issue(call.borrow()).map(drop));
        let (work, is_back) = (comm.start(call), descriptor.count == 10);
        is_refused(work.wait().map(drop));
        let bytes = match work.finish().buffers {
            Some(OwnedBuffers::InOut(OwnedMemory::Device { buffer, .. })) => buffer.bytes(),
            Some(OwnedBuffers::Separate { output: OwnedMemory::Device { buffer, .. }, .. }) => buffer.bytes(),
            _ => 0,
        };
        assert_eq!(bytes == 40, is_back, "{descriptor}");
        is_refused(comm.supports(&descriptor, &CallOptions::new(), MemoryKind::Device));
    }
    let (keeper, returned) = channel::<()>();
    let kept = OwnedMemory::Device { buffer: buffer(), keeper: Some(Keeper::new(keeper)) };
    let call = OwnedCall { stream, ..OwnedCall::new(broadcast, OwnedBuffers::InOut(kept)) };
    is_refused(comm.start(call).wait().map(drop));
    assert_eq!(returned.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
    let error = comm.resolve(Ticket::new(7, 3)).unwrap_err().to_string();
    assert!(error.contains("ticket 3 of issuer 7; instead: "), "{error}");
}
