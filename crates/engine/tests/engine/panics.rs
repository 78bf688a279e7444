//! Unexpected panics, in a waker and inside a call. Calls that the panicking thread held end with an error. Other
//! threads and ranks go on, or get the error.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::support::watched;
use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{Error, Peer, ReduceOp, Result, Work};
use unisono_engine::in_process::InProcessLinks;
use unisono_engine::{Edge, EngineCommunicator, EngineOptions, Interest, Links, in_process};

/// A waker that records that it was called, and may panic.
#[derive(Default)]
struct RecordingWaker {
    panics: bool,
    was_called: AtomicBool,
}

impl Wake for RecordingWaker {
    fn wake(self: Arc<RecordingWaker>) {
        self.was_called.store(true, Ordering::SeqCst);
        assert!(!self.panics, "a waker that panics");
    }
}

/// Registers a waker with a work, without waiting for the work.
fn listen(work: &mut Work, panics: bool) -> Arc<RecordingWaker> {
    let recording = Arc::new(RecordingWaker { panics, ..RecordingWaker::default() });
    let waker = Waker::from(recording.clone());
    assert!(Pin::new(work).poll(&mut Context::from_waker(&waker)).is_pending());
    recording
}

fn await_call(waker: &RecordingWaker) {
    while !waker.was_called.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_waker_that_panics_stops_nobody_else() {
    watched(|| {
        let world = in_process::world(2);
        for _ in 0..3 {
            let mut works: Vec<Work> =
                (0..3).map(|_| world[0].all_reduce_async(vec![1u32; 4], ReduceOp::Sum).into_work()).collect();
            let wakers: Vec<_> = works.iter_mut().map(|work| listen(work, true)).collect();
            let mut last = world[0].all_reduce_async(vec![1u32; 4], ReduceOp::Sum).into_work();
            let last_waker = listen(&mut last, false);
            for _ in 0..4 {
                world[1].all_reduce(&mut [1u32; 4], ReduceOp::Sum).unwrap();
            }
            // No thread waits for the works of rank 0, so its progress thread must live to move them.
            wakers.iter().for_each(|waker| await_call(waker));
            await_call(&last_waker);
            works.into_iter().chain([last]).for_each(|work| assert!(work.wait().is_ok()));
        }
    });
}

/// Links whose `open` panics once.
struct Fragile {
    links: InProcessLinks,
    state: Arc<Opening>,
}

#[derive(Default)]
struct Opening {
    panics: AtomicBool,
    has_opened: AtomicBool,
}

impl Links for Fragile {
    type L = <InProcessLinks as Links>::L;

    fn open(&mut self, edges: &[Edge]) -> Poll<Result<()>> {
        assert!(!self.state.panics.swap(false, Ordering::SeqCst), "links that panic");
        self.state.has_opened.store(true, Ordering::SeqCst);
        self.links.open(edges)
    }

    fn is_open(&mut self, edge: Edge) -> bool {
        self.links.is_open(edge)
    }

    fn link(&mut self, edge: Edge) -> &mut Self::L {
        self.links.link(edge)
    }

    fn wait(&mut self, interest: &[Interest], until: Instant) -> unisono_engine::Wake {
        self.links.wait(interest, until)
    }

    fn waker(&self) -> unisono_backend::Waker {
        self.links.waker()
    }

    fn shut_down(&mut self) {
        self.links.shut_down();
    }

    fn close(&mut self) {
        self.links.close();
    }
}

/// Two ranks, and the switch that makes the next `open` of rank 0 panic.
fn fragile_world() -> (Arc<Opening>, Vec<Arc<EngineCommunicator<Fragile>>>) {
    let opening = Arc::new(Opening::default());
    let world = in_process::world_of(2, &EngineOptions::default(), |rank, links| {
        let state = if rank == 0 { opening.clone() } else { Arc::default() };
        Fragile { links, state }
    });
    (opening, world)
}

fn assert_told(result: &Result<unisono_communicator::Outcome>) {
    assert!(matches!(result, Err(Error::System { what, .. }) if what.contains("panic")), "{result:?}");
}

/// The progress thread meets the panic. Only wakers wait.
#[test]
fn a_panic_on_the_progress_thread_ends_what_is_pending() {
    watched(|| {
        let (opening, world) = fragile_world();
        let submit = || world[0].all_reduce_async(vec![1u32; 4], ReduceOp::Sum).into_work();
        let mut first = submit();
        let first_waker = listen(&mut first, false);
        let mut works = vec![submit(), submit(), world[0].recv_async(vec![1u8; 9], Peer::Any, 1).into_work()];
        let wakers: Vec<_> = works.iter_mut().map(|work| listen(work, false)).collect();
        // The first call is in progress. The next call meets the panic.
        while !opening.has_opened.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        opening.panics.store(true, Ordering::SeqCst);
        world[1].all_reduce(&mut [1u32; 4], ReduceOp::Sum).unwrap();
        await_call(&first_waker);
        assert!(first.wait().is_ok());
        for (work, waker) in works.into_iter().zip(wakers) {
            await_call(&waker);
            assert_told(&work.wait());
        }
        assert!(world[0].barrier().is_err());
        assert!(world[1].barrier().is_err(), "the other rank is told");
    });
}

/// A thread meets the panic in its own blocking call, on behalf of work that another thread waits for.
#[test]
fn a_panic_in_the_start_of_a_call_ends_the_waits_of_other_threads() {
    watched(|| {
        let (opening, world) = fragile_world();
        opening.panics.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let works: Vec<Work> =
                (0..3).map(|_| world[0].all_reduce_async(vec![1u32; 4], ReduceOp::Sum).into_work()).collect();
            let waiters: Vec<_> = works
                .into_iter()
                .map(|work| scope.spawn(move || catch_unwind(AssertUnwindSafe(|| work.wait()))))
                .collect();
            let message = scope.spawn(|| {
                let mut value = [0u8; 4];
                catch_unwind(AssertUnwindSafe(|| world[0].recv(&mut value, Peer::Rank(1), 1)))
            });
            let blocked =
                catch_unwind(AssertUnwindSafe(|| world[0].all_reduce(&mut [1u32; 9], ReduceOp::Sum)));
            assert!(!matches!(blocked, Ok(Ok(()))));
            for waiter in waiters {
                assert!(!matches!(waiter.join().unwrap(), Ok(Ok(_))), "nobody has reduced with it");
            }
            assert!(!matches!(message.join().unwrap(), Ok(Ok(_))));
            assert!(!opening.panics.load(Ordering::SeqCst), "nothing has panicked");
        });
    });
}
