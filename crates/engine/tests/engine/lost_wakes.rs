//! A wake-up that is lost fails a call in builds with debug assertions, and delays it in others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use unisono_collectives::Collectives;
use unisono_communicator::{CallOptions, Error, Peer};
use unisono_engine::{EngineOptions, Interest, in_process};

use crate::clocked::{Clock, Clocked};
use crate::support::watched;

/// The deadline of the call that sleeps.
const DEADLINE: Duration = Duration::from_secs(2);

/// Links that no thread of their rank wakes. They use the machine's clock.
struct Deaf {
    has_slept: Arc<AtomicBool>,
}

impl Clock for Deaf {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn notice(&mut self, _interest: &[Interest]) {
        self.has_slept.store(true, Ordering::SeqCst);
    }

    fn is_deaf(&self) -> bool {
        true
    }
}

#[test]
fn a_collective_of_another_thread_does_not_go_on_without_a_wake_up() {
    watched(|| {
        let has_slept = Arc::<AtomicBool>::default();
        let options = EngineOptions { spin: Duration::ZERO, ..EngineOptions::default() };
        let world = in_process::world_of(2, &options, |_, links| Clocked {
            links,
            clock: Deaf { has_slept: has_slept.clone() },
        });
        let began = Instant::now();
        std::thread::scope(|threads| {
            let receiver = threads.spawn(|| {
                let soon = CallOptions::new().timeout(DEADLINE);
                world[0].with(soon).recv(&mut [0u8], Peer::Rank(1), 1).unwrap_err()
            });
            while !has_slept.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            // It needs the links, and nothing from rank 1, whose bytes would end the sleep.
            let _ = threads.spawn(|| world[0].broadcast(&mut [1u8], 0)).join().unwrap();
            assert!(!cfg!(debug_assertions) || began.elapsed() >= DEADLINE, "{:?}", began.elapsed());
            let error = receiver.join().unwrap();
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
        });
    });
}
