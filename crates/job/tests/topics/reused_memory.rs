//! A rank that has failed may use its memory again at once. The other ranks may still be reading that memory, if a long
//! message is copied once: no call of theirs ends well with bytes from after the failure.

use std::sync::Arc;
use std::time::Duration;

use unisono_collectives::Collectives;
use unisono_communicator::{Communicator, ReduceOp, Result, SplitMix};

use crate::support::{config, on_each, worlds};

const RANKS: usize = 3;

/// The number of jobs. Without the reader's look at the word that takes loans back, some of the first 30 go wrong.
const JOBS: u64 = 100;

/// The memory of a rank after its failure.
const SPOILED: u64 = u64::MAX;

/// The shares of the longest calls, in elements: more than a piece of a message.
const ELEMENTS_MAX: usize = 100_000;

/// The time after which rank 2 aborts, at most.
const ABORTED_AFTER_US_MAX: usize = 3_000;

/// An element of the share that rank `from` has for rank `to` in a call.
fn element(call: usize, from: usize, to: usize, index: usize) -> u64 {
    ((call * RANKS + from) * RANKS + to) as u64 * 1_000_000 + index as u64
}

fn shares(call: usize, own: usize, elements: usize) -> Vec<u64> {
    let share = |to| (0..elements).map(move |index| element(call, own, to, index));
    (0..RANKS).flat_map(share).collect()
}

/// The buffers of one call, which outlive it, and the element that each place of the output must have.
struct Call {
    input: Vec<u64>,
    output: Vec<u64>,
    expected: Vec<u64>,
}

impl Call {
    fn new(call: usize, own: usize, elements: usize) -> Call {
        let input = shares(call, own, elements);
        let of = |from: usize, to| (0..elements).map(move |index| element(call, from, to, index));
        let expected: Vec<u64> = match call % 4 {
            // The first share of each rank.
            0 => (0..RANKS).flat_map(|from| of(from, 0)).collect(),
            1 => (0..RANKS).flat_map(|from| of(from, own)).collect(),
            2 => (0..elements)
                .map(|index| (0..RANKS).map(|from| element(call, from, own, index)).sum())
                .collect(),
            _ => of(0, own).collect(),
        };
        Call { input, output: vec![0; expected.len()], expected }
    }

    fn make(&mut self, call: usize, comm: &dyn Communicator) -> Result<()> {
        let (elements, output) = (self.input.len() / RANKS, &mut self.output);
        match call % 4 {
            0 => comm.all_gather(&self.input[..elements], output),
            1 => comm.all_to_all(&self.input, output),
            2 => comm.reduce_scatter(&self.input, output, ReduceOp::Sum),
            _ => {
                let input = (comm.group().rank() == 0).then_some(&self.input[..]);
                comm.scatter(input, output, 0)
            }
        }
    }
}

/// One job, in which rank 2 aborts after this time. Returns the number of calls that have ended well.
fn job(seed: u64) -> usize {
    let done = on_each(worlds(RANKS as u32, &config(&[])), move |world, comm| {
        let (own, mut random) = (comm.group().rank() as usize, SplitMix(seed));
        let (after, elements) =
            (random.below(ABORTED_AFTER_US_MAX), 8_000 + random.below(ELEMENTS_MAX - 8_000));
        let aborting = (own == 2).then(|| {
            let comm: Arc<dyn Communicator> = comm.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_micros(after as u64));
                comm.abort().unwrap();
            })
        });
        let mut calls = Vec::new();
        for number in 0.. {
            let mut call = Call::new(number, own, elements);
            let ended = call.make(number, &*comm);
            if ended.is_ok() {
                let wrong = call.output.iter().zip(&call.expected).position(|(is, must)| is != must);
                assert_eq!(wrong, None, "seed {seed}, rank {own}: call {number} of {elements} elements");
            } else {
                call.input.fill(SPOILED);
                call.output.fill(SPOILED);
            }
            calls.push(call);
            if ended.is_err() {
                break;
            }
        }
        aborting.into_iter().for_each(|thread| thread.join().unwrap());
        drop((comm, world));
        calls.len() - 1
    });
    done.into_iter().sum()
}

/// Rows: D9
#[test]
fn memory_that_is_used_again_after_a_failure_is_in_no_result() {
    let done: usize = (0..JOBS).map(job).sum();
    assert!(done > 0, "no call came to its end");
}
