//! Deadlines, by a clock that the test owns. No call outlives its deadline, and no test waits for a deadline.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clocked::{Clock, Clocked};
use unisono_collectives::Collectives;
use unisono_communicator::{CallOptions, Error, Peer, ReduceOp};
use unisono_engine::in_process::InProcessLinks;
use unisono_engine::{EngineCommunicator, EngineOptions, in_process};

/// A clock that jumps to the end of every sleep.
struct Impatient(Instant);

impl Clock for Impatient {
    fn now(&self) -> Instant {
        self.0
    }

    fn skip_to(&mut self, until: Instant) -> bool {
        self.0 = self.0.max(until);
        true
    }
}

fn world(ranks: u32) -> Vec<Arc<EngineCommunicator<Clocked<InProcessLinks, Impatient>>>> {
    let options = EngineOptions { spin: Duration::ZERO, ..EngineOptions::default() };
    in_process::world_of(ranks, &options, |_, links| {
        let clock = Impatient(Instant::now());
        Clocked { links, clock }
    })
}

#[test]
fn a_collective_names_the_ranks_that_never_came() {
    let world = world(4);
    let started = Instant::now();
    let error = world[0].all_reduce(&mut [1.0f64; 4], ReduceOp::Sum).unwrap_err();
    let Error::Timeout { call, waited, not_arrived, .. } = &error else { panic!("{error}") };
    assert_eq!(call.number, 0);
    assert!(*waited >= Duration::from_secs(600), "{waited:?}");
    assert!(started.elapsed() < Duration::from_secs(60), "the clock of the test is not the machine's");
    assert!(!not_arrived.is_empty());
    assert!(not_arrived.iter().all(|awaited| awaited.rank.get() != 0), "{error}");
    let asked: Vec<_> =
        not_arrived.iter().filter(|awaited| awaited.status.contains("has not called")).collect();
    assert!(!asked.is_empty(), "nobody was asked: {error}");
}

#[test]
fn the_cause_reaches_ranks_that_come_later() {
    let world = world(3);
    let quick = CallOptions::new().timeout(Duration::from_millis(1));
    let first = world[2].with(quick).barrier().unwrap_err();
    assert!(matches!(first, Error::Timeout { .. }), "{first}");
    for late in &world[..2] {
        let error = late.barrier().unwrap_err();
        assert!(matches!(&error, Error::Timeout { reported_by, .. } if reported_by.get() == 2), "{error}");
        assert!(matches!(error.root_cause(), Error::Timeout { .. }), "{error}");
    }
    // Later calls of a rank that saw the cause return the same cause.
    assert!(matches!(world[2].barrier(), Err(Error::Timeout { .. })));
}

#[test]
fn a_receive_without_a_sender_ends() {
    let world = world(2);
    let error = world[0].recv(&mut [0u8; 4], Peer::Rank(1), 3).unwrap_err();
    let Error::Timeout { not_arrived, .. } = &error else { panic!("{error}") };
    assert_eq!(not_arrived[0].rank.get(), 1);
    // The rank was asked, and the error has its answer.
    assert_eq!(not_arrived[0].status, "has not sent and has not called anything yet", "{error}");
    let error = world[1].send(&[1u8], 0, 3).unwrap_err();
    assert!(matches!(error, Error::Timeout { reported_by, .. } if reported_by.get() == 0), "{error}");
}
