//! Calls that a body runs once the ranks have met: how the waiting thread spends its time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crate::clocked::{Clock, Clocked};
use crate::support::watched;
use unisono_backend::Waker;
use unisono_communicator::{
    BodyStage, Buffers, Call, CallBody, Collective, DType, Descriptor, Executor, OwnedBuffers, Result,
};
use unisono_engine::{EngineOptions, Interest, in_process};

/// One rank's sleeps while its body is at work.
#[derive(Default)]
struct Seen {
    is_at_work: AtomicBool,
    sleeps: AtomicUsize,
    /// Directions that would have ended one of these sleeps.
    directions: AtomicUsize,
}

/// Counts the sleeps of a rank. The clock is the machine's.
struct Counting(Arc<Seen>);

impl Clock for Counting {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn notice(&mut self, interest: &[Interest]) {
        if self.0.is_at_work.load(Ordering::SeqCst) {
            self.0.directions.fetch_add(interest.len(), Ordering::SeqCst);
            self.0.sleeps.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A body that is at work until every rank sleeps.
struct Patient {
    seen: Arc<Seen>,
    all_sleep: Arc<Barrier>,
    is_started: bool,
    is_ended: Arc<AtomicBool>,
}

impl CallBody for Patient {
    fn named(&self) -> (&'static str, u32) {
        ("patient", 0)
    }

    fn copy_in(&mut self, _: &Buffers<'_>) -> Result<()> {
        Ok(())
    }

    fn move_in(&mut self, _: OwnedBuffers) {}

    fn advance(&mut self, _: Duration, wake: &dyn Fn() -> Waker) -> Result<bool> {
        if std::mem::replace(&mut self.is_started, true) {
            return Ok(self.is_ended.load(Ordering::SeqCst));
        }
        let (seen, all_sleep, wake) = (self.seen.clone(), self.all_sleep.clone(), wake());
        let is_ended = self.is_ended.clone();
        seen.is_at_work.store(true, Ordering::SeqCst);
        std::thread::spawn(move || {
            while seen.sleeps.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            all_sleep.wait();
            seen.is_at_work.store(false, Ordering::SeqCst);
            is_ended.store(true, Ordering::SeqCst);
            wake();
        });
        Ok(true)
    }

    fn stage(&self) -> BodyStage {
        match (self.is_started, self.is_ended.load(Ordering::SeqCst)) {
            (false, _) => BodyStage::Waiting,
            (true, false) => BodyStage::Running,
            (true, true) => BodyStage::Ended,
        }
    }

    fn copy_out(&mut self, _: &mut Buffers<'_>) {}

    fn move_out(&mut self) -> Option<OwnedBuffers> {
        None
    }
}

#[test]
fn a_rank_that_waits_for_its_body_waits_for_no_link() {
    const RANKS: usize = 4;
    watched(|| {
        let seen: [Arc<Seen>; RANKS] = Default::default();
        let options = EngineOptions { spin: Duration::ZERO, ..EngineOptions::default() };
        let clocked = |rank: usize, links| Clocked { links, clock: Counting(seen[rank].clone()) };
        let world = in_process::world_of(RANKS as u32, &options, |rank, links| clocked(rank as usize, links));
        let all_sleep = Arc::new(Barrier::new(RANKS));
        std::thread::scope(|scope| {
            for (comm, seen) in world.iter().zip(&seen) {
                let (seen, all_sleep) = (seen.clone(), all_sleep.clone());
                let body = Patient { seen, all_sleep, is_started: false, is_ended: Arc::default() };
                scope.spawn(move || {
                    let barrier = Descriptor::new(Collective::Barrier, DType::U8, 0);
                    let mut call = Call::new(barrier, Buffers::none());
                    call.body = Some(Box::new(body));
                    comm.execute(&mut call).unwrap();
                });
            }
        });
        for seen in &seen {
            assert!(seen.sleeps.load(Ordering::SeqCst) > 0);
            assert_eq!(seen.directions.load(Ordering::SeqCst), 0, "a link that is ready would end the sleep");
        }
    });
}
