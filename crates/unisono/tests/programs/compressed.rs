//! Compressed calls with states of several calls, over real processes: the bits of ranks that are threads.

use std::sync::Arc;

use unisono::compression::one_bit_adam::{OneBitAdam, OneBitAdamOptions};
use unisono::compression::{CompressedCollectives, CompressionState, Int8, LoCo, SecondaryCopy, SignL1};
use unisono::{Communicator, ReduceOp, in_process};

use crate::support::start_ranks;

const RANKS: u32 = 4;

/// No multiple of the ranks.
const ELEMENTS: usize = 1001;

/// Values between -1 and 1 that depend on the rank and the step.
fn values(rank: u32, step: u32, elements: usize) -> Vec<f32> {
    let value = |index: usize| ((index as u32 * 37 + rank * 101 + step * 53) % 199) as f32 / 99.5 - 1.0;
    (0..elements).map(value).collect()
}

/// Residuals of one byte (LoCo): four sums, each with the error of the sums before.
fn sums_with_loco(comm: &dyn Communicator) -> Vec<f32> {
    let state = CompressionState::new::<f32>(comm, SignL1::default(), ELEMENTS).unwrap();
    let mut state = state.with_loco(LoCo { average_shift: 2, reset_calls: 3 }).unwrap();
    (0..4)
        .flat_map(|step| {
            let mut vector = values(comm.rank(), step, ELEMENTS);
            comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state).unwrap();
            vector
        })
        .collect()
}

/// Quantised weights, gathered from all ranks and then from the copy on the host.
fn weights_twice(comm: &dyn Communicator) -> Vec<f32> {
    let whole = ELEMENTS * comm.size() as usize;
    let shares = vec![ELEMENTS; comm.size() as usize];
    let mut state = CompressionState::all_gather::<f32>(comm, Arc::new(Int8::default()), &shares).unwrap();
    let mut copy = SecondaryCopy::new(comm, whole).unwrap();
    let (mut forward, mut backward) = (vec![0.0; whole], vec![f32::NAN; whole]);
    comm.compressed_all_gather(&values(comm.rank(), 0, ELEMENTS), &mut forward, &mut state).unwrap();
    copy.keep(&forward).unwrap();
    copy.gather(&mut backward).unwrap();
    assert_eq!(forward, backward);
    backward
}

/// Twelve steps of 1-bit Adam, four of them with exact gradients.
fn trained(comm: &dyn Communicator) -> Vec<f32> {
    let state = CompressionState::new::<f32>(comm, SignL1::default(), ELEMENTS).unwrap();
    let mut optimizer = OneBitAdam::new(state, OneBitAdamOptions::new(4)).unwrap();
    let mut parameters = vec![0.5; ELEMENTS];
    for step in 0..12 {
        let noise = values(comm.rank(), step, ELEMENTS);
        let mut gradient: Vec<f32> =
            parameters.iter().zip(noise).map(|(value, noise)| value + noise).collect();
        optimizer.step(comm, &mut parameters, &mut gradient, 0.05).unwrap();
    }
    parameters
}

fn bits(comm: &dyn Communicator) -> Vec<u32> {
    let all = [sums_with_loco(comm), weights_twice(comm), trained(comm)].concat();
    all.into_iter().map(f32::to_bits).collect()
}

pub(crate) fn program_that_compresses() {
    let world = unisono::init().unwrap();
    let expected = in_process::run(RANKS, |comm| bits(&*comm)).swap_remove(world.rank() as usize);
    assert!(bits(&*world) == expected, "rank {} has other bits than a thread has", world.rank());
    world.close().unwrap();
}

/// Rows: G10, G14, H4, H6
#[test]
fn compressed_calls_over_processes_have_the_bits_of_threads() {
    for way in ["0", "1"] {
        let variables = &[("UNISONO_SHM", way)];
        for program in start_ranks("compressed::program_that_compresses", "compressed", RANKS, variables) {
            assert_eq!(program.end(), (true, Vec::new()));
        }
    }
}
