//! Tests of handles: dropped, cancelled, awaited by any executor, outliving their communicator; and of arguments at
//! their limits.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::clocked::{Clock, Clocked};
use unisono_collectives::{Collectives, CollectivesAsync, CollectivesUneven, Solo};
use unisono_communicator::{
    BufferMut, Buffers, Call, CallOptions, Collective, Communicator, DType, Descriptor, Error, Executor,
    Finished, Group, Peer, Place, ReduceOp, SegmentsMut, TypedWork, check,
};
use unisono_engine::{EngineOptions, in_process};

/// Runs `body` on its own thread; panics when it does not return in time.
fn watched<T: Send + 'static>(limit: Duration, body: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || done.send(body()));
    finished.recv_timeout(limit).expect("hangs, or panicked")
}

/// A waker that polls at once, on the waking thread, as a run-to-completion executor does.
struct Inline {
    work: Mutex<Option<TypedWork<Vec<u32>>>>,
    is_done: AtomicBool,
}

impl Wake for Inline {
    fn wake(self: Arc<Inline>) {
        let Some(mut work) = self.work.lock().unwrap().take() else { return };
        let waker = Waker::from(self.clone());
        match Pin::new(&mut work).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(_) => self.is_done.store(true, Ordering::SeqCst),
            Poll::Pending => *self.work.lock().unwrap() = Some(work),
        }
    }
}

#[test]
fn a_waker_may_ask_at_once() {
    watched(Duration::from_secs(20), || {
        let world = in_process::world(2);
        let inline = Arc::new(Inline { work: Mutex::new(None), is_done: AtomicBool::new(false) });
        let mut work = world[0].all_reduce_async(vec![1u32; 4], ReduceOp::Sum);
        let waker = Waker::from(inline.clone());
        assert!(Pin::new(&mut work).poll(&mut Context::from_waker(&waker)).is_pending());
        *inline.work.lock().unwrap() = Some(work);
        world[1].all_reduce(&mut [1u32; 4], ReduceOp::Sum).unwrap();
        while !inline.is_done.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

/// A waker that makes a call at once.
struct Calling {
    comm: Arc<in_process::InProcessCommunicator>,
    ended: Mutex<mpsc::Sender<Result<(), Error>>>,
}

impl Wake for Calling {
    fn wake(self: Arc<Calling>) {
        let _ = self.ended.lock().unwrap().send(self.comm.barrier());
    }
}

#[test]
fn a_waker_may_make_a_call() {
    watched(Duration::from_secs(20), || {
        let world = in_process::world(2);
        let (ended, calls) = mpsc::channel();
        let calling = Calling { comm: world[0].clone(), ended: Mutex::new(ended) };
        let mut work = world[0].all_reduce_async(vec![1u32; 4], ReduceOp::Sum);
        let waker = Waker::from(Arc::new(calling));
        assert!(Pin::new(&mut work).poll(&mut Context::from_waker(&waker)).is_pending());
        world[1].all_reduce(&mut [1u32; 4], ReduceOp::Sum).unwrap();
        world[1].barrier().unwrap();
        calls.recv().unwrap().unwrap();
    });
}

#[test]
fn a_call_that_waits_behind_close_is_told() {
    watched(Duration::from_secs(20), || {
        let world = in_process::world(2);
        let pause = || std::thread::sleep(Duration::from_millis(100));
        std::thread::scope(|scope| {
            // Each call waits for the previous one.
            let first = scope.spawn(|| world[0].all_reduce(&mut [1u32; 4], ReduceOp::Sum));
            pause();
            let closing = scope.spawn(|| world[0].close());
            pause();
            let behind = world[0].with(CallOptions::new().queued());
            let behind = scope.spawn(move || behind.barrier());
            pause();
            world[1].all_reduce(&mut [1u32; 4], ReduceOp::Sum).unwrap();
            world[1].close().unwrap();
            first.join().unwrap().unwrap();
            closing.join().unwrap().unwrap();
            let error = behind.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Closed { .. }), "{error}");
        });
    });
}

#[test]
fn a_thread_that_waits_in_recv_does_not_stop_the_questions() {
    let errors = watched(Duration::from_secs(30), || {
        let world = in_process::world(2);
        for comm in &world {
            let comm = comm.clone();
            std::thread::spawn(move || comm.recv(&mut [0u8], Peer::Any, 77));
        }
        std::thread::sleep(Duration::from_millis(100));
        std::thread::scope(|scope| {
            let reduce = |comm: &Arc<in_process::InProcessCommunicator>| {
                let root = comm.group().rank();
                let quick = comm.with(CallOptions::new().timeout(Duration::from_secs(10)));
                let mut sum = [0u32; 3];
                quick.reduce(&[1; 3], Some(&mut sum), ReduceOp::Sum, root).unwrap_err()
            };
            let threads: Vec<_> = world.iter().map(|comm| scope.spawn(move || reduce(comm))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        })
    });
    for error in errors {
        assert!(matches!(error.root_cause(), Error::Mismatch { .. }), "{error}");
    }
}

#[test]
fn a_credit_for_a_peer_that_left_is_not_pending_for_ever() {
    watched(Duration::from_secs(40), || {
        let mut world = in_process::world(3);
        let (last, gone) = (world.pop().unwrap(), world.pop().unwrap());
        gone.send(&[1u8], 0, 1).unwrap();
        drop(gone);
        // Time for the other rank's threads to drop the communicator, which closes its stream.
        std::thread::sleep(Duration::from_millis(100));
        last.send(&[2u8], 0, 2).unwrap();
        // Reads rank 1's message, which has no receive yet, and the end of the stream.
        world[0].recv(&mut [0u8], Peer::Any, 2).unwrap();
        world[0].recv_async(vec![0u8], Peer::Any, 1).into_work().wait().unwrap();
        let weak = Arc::downgrade(&world.pop().unwrap());
        assert!(weak.upgrade().is_none());
        let quick = last.with(CallOptions::new().timeout(Duration::from_secs(10)));
        let error = quick.recv(&mut [0u8], Peer::Rank(0), 9).unwrap_err();
        assert!(matches!(error, Error::PeerLost { .. }), "rank 0 was dropped, but: {error}");
    });
}

#[test]
fn counts_beyond_the_address_space_are_refused_on_every_rank() {
    let (root, other) = watched(Duration::from_secs(20), || {
        let world = in_process::world(2);
        let counts = [usize::MAX, 2];
        let root = world[0].gather_v(&[1u8], Some(&mut [0u8; 3]), &counts, 0).unwrap_err();
        let quick = world[1].with(CallOptions::new().timeout(Duration::from_secs(3)));
        (root, quick.gather_v(&[1u8; 2], None, &counts, 0).unwrap_err())
    });
    assert!(root.is_before_start(), "{root}");
    assert!(other.is_before_start(), "{other}");
}

#[test]
fn an_endless_default_timeout_does_not_panic_at_close() {
    let options = EngineOptions { timeout: Duration::MAX, ..EngineOptions::default() };
    let world = in_process::world_of(1, &options, |_, links| links);
    world[0].barrier().unwrap();
    world[0].close().unwrap();
}

#[test]
fn an_endless_timeout_does_not_panic_in_the_world_of_one() {
    Solo::new().with(CallOptions::new().timeout(Duration::MAX)).barrier().unwrap();
}

#[test]
fn a_detached_send_arrives_although_its_communicator_is_closed() {
    watched(Duration::from_secs(30), || {
        let world = in_process::world(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                drop(world[1].send_async(vec![5u8; 1 << 20], 0, 1).into_work());
                world[1].close().unwrap();
            });
            let mut message = vec![0u8; 1 << 20];
            let quick = world[0].with(CallOptions::new().timeout(Duration::from_secs(5)));
            quick.recv(&mut message, Peer::Rank(1), 1).unwrap();
            assert_eq!(message[9], 5);
        });
    });
}

#[test]
fn detached_work_goes_on_when_its_communicator_is_dropped_at_once() {
    watched(Duration::from_secs(60), || {
        for round in 0..200 {
            let mut world = in_process::world(2);
            let gone = world.pop().unwrap();
            drop(gone.all_reduce_async(vec![1u32; 4], ReduceOp::Sum));
            drop(gone);
            let quick = world[0].with(CallOptions::new().timeout(Duration::from_secs(3)));
            let result = quick.all_reduce(&mut [1u32; 4], ReduceOp::Sum);
            assert!(result.is_ok(), "round {round}: {result:?}");
        }
    });
}

#[test]
fn segments_hold_whole_elements_or_are_refused() {
    let (mut head, mut tail) = ([0u8; 3], [0u8; 5]);
    let descriptor = Descriptor {
        op: Some(ReduceOp::Sum),
        place: Place::InPlace,
        ..Descriptor::new(Collective::AllReduce, DType::F32, 2)
    };
    let segments = SegmentsMut::Many(vec![&mut head[..], &mut tail[..]].into());
    let call = Call::new(descriptor, Buffers::InOut(BufferMut::Host(segments)));
    assert!(check(&call, &Group::world(0, 2)).is_err());
}

#[test]
fn a_failed_work_gives_its_buffers_back() {
    let Finished { result, buffers } = watched(Duration::from_secs(20), || {
        let world = in_process::world(2);
        let work = world[0].all_reduce_async(vec![1u32; 4], ReduceOp::Sum).into_work();
        work.cancel();
        work.finish()
    });
    assert!(matches!(result, Err(Error::Revoked { .. })));
    assert!(buffers.is_some());
}

#[test]
fn uneven_counts_that_differ_are_found_now_or_at_the_next_call() {
    watched(Duration::from_secs(40), || {
        let world = in_process::world(2);
        std::thread::scope(|scope| {
            for (comm, counts) in [(&world[0], [3, 4]), (&world[1], [3, 1 << 18])] {
                scope.spawn(move || {
                    let own = vec![1u8; counts[comm.group().rank() as usize]];
                    let mut all = vec![0u8; counts[0] + counts[1]];
                    let patient = comm.with(CallOptions::new().timeout(Duration::from_secs(20)));
                    let result =
                        patient.all_gather_v(&own, &mut all, &counts).and_then(|()| patient.barrier());
                    let error = result.unwrap_err();
                    assert!(matches!(error.root_cause(), Error::Mismatch { .. }), "{error}");
                });
            }
        });
    });
}

/// A rank that drops its communicator has left, even if it keeps a handle of a finished call.
#[test]
fn a_handle_of_a_call_that_has_ended_keeps_no_rank_here() {
    watched(Duration::from_secs(20), || {
        let mut world = in_process::world(2);
        let works = [0, 1].map(|rank: usize| world[rank].all_reduce_async(vec![1u32; 4], ReduceOp::Sum));
        for work in &works {
            work.as_work().wait().unwrap();
        }
        drop(world.remove(0));
        let error = world[0].barrier().unwrap_err();
        assert!(matches!(error.root_cause(), Error::PeerLost { .. }), "{error}");
        works.into_iter().for_each(|work| assert_eq!(work.wait().unwrap(), [2; 4]));
    });
}

/// Reports on which thread its communicator ends.
struct Ended(mpsc::Sender<Option<String>>);

impl Clock for Ended {
    fn now(&self) -> Instant {
        Instant::now()
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.send(std::thread::current().name().map(str::to_owned));
    }
}

/// The end of a communicator may wait for other ranks, and `is_done` and `poll` must not.
#[test]
fn who_only_asks_for_a_call_ends_no_communicator() {
    watched(Duration::from_secs(60), || {
        for _ in 0..100 {
            let (sender, ended) = mpsc::channel();
            let mut world = in_process::world_of(2, &EngineOptions::default(), |_, links| Clocked {
                links,
                clock: Ended(sender.clone()),
            });
            let early = world[0].all_reduce_async(vec![1u32; 4], ReduceOp::Sum);
            drop(world.remove(0));
            world[0].all_reduce(&mut [1u32; 4], ReduceOp::Sum).unwrap();
            while !early.is_done() {
                std::hint::spin_loop();
            }
            assert_eq!(ended.recv().unwrap().as_deref(), Some("unisono-progress"));
        }
    });
}

/// The handle of a call that goes on keeps the communicator for it.
#[test]
fn a_call_goes_on_without_its_communicator() {
    watched(Duration::from_secs(20), || {
        let mut world = in_process::world(2);
        let early = world[0].all_reduce_async(vec![1u32; 4], ReduceOp::Sum);
        drop(world.remove(0));
        assert!(early.as_work().wait_timeout(Duration::from_millis(1)).is_none());
        world[0].all_reduce(&mut [1u32; 4], ReduceOp::Sum).unwrap();
        assert_eq!(early.wait().unwrap(), [2; 4]);
    });
}
