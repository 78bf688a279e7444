//! Calls that somebody else runs once the ranks have met: what the thread that waits for their end does.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crate::clocked::{Clock, Clocked};
use crate::support::watched;
use unisono_backend::{Companion, Executor, Job};
use unisono_communicator::{Buffers, Call, Collective, DType, Descriptor};
use unisono_engine::{EngineOptions, Interest, in_process};

/// What one rank does while its executor is at work.
#[derive(Default)]
struct Seen {
    is_at_work: AtomicBool,
    sleeps: AtomicUsize,
    /// Directions that would have ended one of those sleeps.
    directions: AtomicUsize,
}

/// Counts the sleeps of a rank. The time is that of the machine.
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

/// An executor that is at work until every rank sleeps.
struct Patient {
    seen: Arc<Seen>,
    all_sleep: Arc<Barrier>,
}

impl Executor for Patient {
    fn name(&self) -> &'static str {
        "patient"
    }

    fn start(&self, job: Job) {
        let (seen, all_sleep) = (self.seen.clone(), self.all_sleep.clone());
        seen.is_at_work.store(true, Ordering::SeqCst);
        std::thread::spawn(move || {
            while seen.sleeps.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            all_sleep.wait();
            seen.is_at_work.store(false, Ordering::SeqCst);
            job.done.end(Ok(()), job.buffers);
        });
    }

    fn abandon(&self) {}
}

#[test]
fn a_rank_that_waits_for_its_executor_waits_for_no_link() {
    const RANKS: usize = 4;
    watched(|| {
        let seen: [Arc<Seen>; RANKS] = Default::default();
        let options = EngineOptions { spin: Duration::ZERO, ..EngineOptions::default() };
        let clocked = |rank: usize, links| Clocked { links, clock: Counting(seen[rank].clone()) };
        let world = in_process::world_of(RANKS as u32, &options, |rank, links| clocked(rank as usize, links));
        let all_sleep = Arc::new(Barrier::new(RANKS));
        std::thread::scope(|scope| {
            for (comm, seen) in world.iter().zip(&seen) {
                let executor: Arc<dyn Executor> =
                    Arc::new(Patient { seen: seen.clone(), all_sleep: all_sleep.clone() });
                scope.spawn(move || {
                    let barrier = Descriptor::new(Collective::Barrier, DType::U8, 0);
                    comm.execute_by(Some(&executor), &mut Call::new(barrier, Buffers::none()), None).unwrap();
                });
            }
        });
        for seen in &seen {
            assert!(seen.sleeps.load(Ordering::SeqCst) > 0);
            assert_eq!(seen.directions.load(Ordering::SeqCst), 0, "a link that is ready would end the sleep");
        }
    });
}
