//! 1-bit Adam: after a warm-up the ranks exchange one bit for each parameter.
//! `unisono run -n 4 -- cargo run --release -p unisono --example one_bit_adam`.

#![allow(clippy::print_stdout)]

use unisono::compression::one_bit_adam::{OneBitAdam, OneBitAdamOptions};
use unisono::compression::{CompressionState, SignL1, wire_bytes};
use unisono::{Collectives, Error, ReduceOp};

const PARAMETERS: usize = 10_000;
const STEPS: u64 = 300;
const WARMUP_STEPS: u64 = 60;

/// The value that each parameter should reach.
fn target(index: usize) -> f32 {
    (index as f32).sin()
}

fn main() -> unisono::Result<()> {
    let world = unisono::init()?;
    let (rank, size) = (world.rank(), world.size());

    // All ranks begin with the same parameters, and keep the same bits.
    let mut parameters = vec![0.0f32; PARAMETERS];
    let state = CompressionState::new::<f32>(&world, SignL1::default(), PARAMETERS)?;
    let mut optimizer = OneBitAdam::new(state, OneBitAdamOptions::new(WARMUP_STEPS))?;
    for step in 0..STEPS {
        // The slope of the squared distance to the target, as this rank's data shows it.
        let noise = |index: usize| ((index as u64 * 7 + step * 13 + u64::from(rank) * 31) as f32).cos();
        let slope = |(index, value): (usize, &f32)| value - target(index) + 0.3 * noise(index);
        let mut gradient: Vec<f32> = parameters.iter().enumerate().map(slope).collect();
        let learning_rate = 0.05 * (1.0 - step as f32 / STEPS as f32);
        match optimizer.step(&world, &mut parameters, &mut gradient, learning_rate) {
            // Some rank's gradient was not finite. All ranks get this error, and go on with the next batch.
            Err(Error::NonFinite { .. }) => {}
            done => done?,
        }
    }

    let distances = parameters.iter().enumerate().map(|(index, value)| (value - target(index)).abs());
    let distance = distances.sum::<f32>() / PARAMETERS as f32;
    let mut extremes = [distance, -distance];
    world.all_reduce(&mut extremes, ReduceOp::Max)?;
    assert!(
        distance < 0.1 && extremes[0] == -extremes[1],
        "{distance}: close to the target, the same on all ranks"
    );
    let exact = 2 * (u64::from(size) - 1) * 4 * PARAMETERS as u64;
    let compressed = wire_bytes(&SignL1::default(), PARAMETERS, size as usize);
    println!("rank {rank} of {size}: learned; a step sends {compressed} bytes instead of {exact}");
    world.close()
}
