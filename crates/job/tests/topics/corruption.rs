//! Bits that change on the way between ranks: every rank gets the same error, which names the link, and nobody a wrong
//! result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::proxy::Meddler;
use unisono_collectives::Collectives;
use unisono_communicator::{Communicator, Error, ReduceOp};

const RANKS: u32 = 3;

/// Jobs, in each of which one bit changes.
const JOBS: u64 = 60;

/// No handshake, verdict or acknowledgement is as long.
const DATA_FROM: u64 = 1000;

/// Calls after which every stream that carries data has carried more than the last byte a flip may hit.
const ROUNDS_MAX: u64 = 100;

/// One bit of the first stream between two ranks, in either direction, that carries so many bytes: who dialled a
/// connection, and so which way its data goes, is not the same in every run.
#[derive(Clone)]
struct Flip {
    byte: u64,
    bit: u8,
    /// Once in a job.
    is_done: Arc<AtomicBool>,
}

impl Meddler for Flip {
    fn on_bytes(&self, is_data: bool, offset: u64, bytes: &mut [u8]) {
        let is_here = |place: &u64| is_data && *place < bytes.len() as u64;
        let place = self.byte.checked_sub(offset).filter(is_here);
        if let Some(place) = place
            && !self.is_done.swap(true, Ordering::SeqCst)
        {
            bytes[place as usize] ^= 1 << self.bit;
        }
    }
}

/// Calls until one fails. Every result before is right.
fn until_failure(communicator: &dyn Communicator) -> Error {
    for round in 0..ROUNDS_MAX {
        let mut values: Vec<u64> = (0..1 + round * 3000).map(|index| index ^ round).collect();
        if let Err(error) = communicator.all_reduce(&mut values, ReduceOp::Sum) {
            return error;
        }
        let expected = (0..).map(|index| u64::from(RANKS) * (index ^ round));
        assert!(values.iter().copied().eq(expected.take(values.len())), "a wrong result in round {round}");
    }
    panic!("no bit has changed, or nobody saw it")
}

#[test]
fn a_changed_bit_fails_the_call_on_every_rank_and_names_the_link() {
    let config = crate::support::config(&[("UNISONO_CHECKSUM", "on")]);
    let mut random = 1u64;
    for job in 0..JOBS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let flip = Flip {
            byte: DATA_FROM + (random >> 30) % 500_000,
            bit: (random >> 20) as u8 % 8,
            is_done: Arc::default(),
        };
        let links = crate::support::on_each(
            crate::proxy::worlds(RANKS, &config, &flip),
            move |_world, communicator| {
                let error = until_failure(&*communicator);
                match error.root_cause() {
                    Error::Corrupted { from, to, .. } => (*from, *to),
                    other => panic!("job {job}: {other}"),
                }
            },
        );
        assert!(flip.is_done.load(Ordering::SeqCst));
        assert!(links.iter().all(|link| *link == links[0] && link.0 != link.1), "job {job}: {links:?}");
    }
}
