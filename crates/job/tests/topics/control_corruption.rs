//! Bits that change on the way between control planes: a control connection is made again, and no call notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::proxy::Meddler;
use unisono_collectives::Collectives;
use unisono_communicator::{Communicator, ReduceOp};

const RANKS: u32 = 4;

/// Bits are changed in so many rounds of calls.
const ROUNDS: u64 = 40;

/// The number of bits that change in each of these rounds.
const FLIPS: u64 = 2;

/// No handshake with verdict and acknowledgement is as long, in either direction.
const FRAMES_FROM: u64 = 400;

/// Changes bits of control connections, from byte `from` of each on.
#[derive(Clone)]
struct Flipper {
    from: u64,
    /// The number of bits that are still to be changed.
    armed: Arc<AtomicU64>,
    /// The number of bits that have been changed.
    done: Arc<AtomicU64>,
}

impl Flipper {
    fn new(from: u64) -> Flipper {
        Flipper { from, armed: Arc::default(), done: Arc::default() }
    }
}

impl Meddler for Flipper {
    fn on_bytes(&self, is_data: bool, offset: u64, bytes: &mut [u8]) {
        let take = |armed: u64| armed.checked_sub(1);
        if is_data
            || offset < self.from
            || self.armed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_err()
        {
            return;
        }
        let random = (self.done.fetch_add(1, Ordering::SeqCst) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (random >> 32) as usize % bytes.len();
        bytes[place] ^= 1 << (random >> 29 & 7);
    }
}

fn all_reduce(communicator: &dyn Communicator, round: u64) {
    let mut values: Vec<u64> = (0..500).map(|index| index ^ round).collect();
    communicator.all_reduce(&mut values, ReduceOp::Sum).unwrap();
    let expected = (0..500).map(|index| u64::from(RANKS) * (index ^ round));
    assert!(values.iter().copied().eq(expected), "a wrong result in round {round}");
}

fn flip_and_go_on(flipper: Flipper) {
    let done = flipper.done.clone();
    let worlds = crate::proxy::worlds(RANKS, &crate::support::config(&[]), &flipper);
    crate::support::on_each(worlds, move |_world, communicator| {
        for round in 0..ROUNDS {
            communicator.barrier().unwrap();
            if communicator.group().rank() == 0 {
                flipper.armed.store(FLIPS, Ordering::SeqCst);
            }
            // The news that a communicator is closed reaches every rank over every control connection.
            let copy = communicator.duplicate().unwrap();
            all_reduce(&*copy, round);
            copy.close().unwrap();
            all_reduce(&*communicator, round);
        }
        flipper.armed.store(0, Ordering::SeqCst);
        communicator.barrier().unwrap();
        communicator.close().unwrap();
    });
    let done = done.load(Ordering::SeqCst);
    assert!(done >= ROUNDS, "only {done} bits were changed");
}

#[test]
fn a_changed_bit_in_a_control_message_costs_its_connection_and_no_rank() {
    flip_and_go_on(Flipper::new(FRAMES_FROM));
}

/// Connections are made again while bits change.
#[test]
fn a_changed_bit_in_the_making_of_a_control_connection_costs_no_rank() {
    flip_and_go_on(Flipper::new(0));
}
