//! A rank learns of a failure between two calls. Its next call ends its streams, so that the calls of waiting ranks end
//! at once and not 20 ms later.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use crate::clocked::{Clock, Clocked};
use crate::support::watched;
use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{Communicator, Error, Result};
use unisono_engine::{EngineCommunicator, EngineOptions, in_process};

/// A clock that stands still, so that no call ends because time has passed.
struct Stopped(Instant);

impl Clock for Stopped {
    fn now(&self) -> Instant {
        self.0
    }
}

type NextCall = fn(&EngineCommunicator<Clocked<in_process::InProcessLinks, Stopped>>) -> Result<()>;

#[test]
fn who_learns_of_a_failure_between_two_calls_ends_its_streams() {
    let next_calls: [NextCall; 3] = [
        |comm| comm.broadcast(&mut [0u32], 1),
        |comm| comm.broadcast_async(vec![0u32], 1).wait().map(|_| ()),
        |comm| comm.send(&[0u32], 0, 1),
    ];
    for next_call in next_calls {
        watched(move || {
            let options = EngineOptions::default();
            let world = in_process::world_of(3, &options, |_, links| {
                let clock = Stopped(Instant::now());
                Clocked { links, clock }
            });
            let [waiting, between, failing] = world.try_into().ok().unwrap();
            let all_have_begun = Arc::new(Barrier::new(3));
            let first = move |comm: Arc<EngineCommunicator<_>>| {
                comm.broadcast(&mut [7u32], 1).unwrap();
                all_have_begun.wait();
                comm
            };
            let [first, second, third] = [first.clone(), first.clone(), first];
            let waiting = thread::spawn(move || second(waiting).broadcast(&mut [0u32], 1).unwrap_err());
            let failing = thread::spawn(move || {
                let comm = third(failing);
                comm.revoke(Error::Refused { problem: "enough".into() }).unwrap();
                comm
            });
            let between = first(between);
            let _failing = failing.join().unwrap();
            assert!(matches!(next_call(&between), Err(Error::Revoked { .. })));
            assert!(matches!(waiting.join().unwrap(), Error::Revoked { .. }));
        });
    }
}
