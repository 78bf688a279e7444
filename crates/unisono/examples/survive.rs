//! A rank dies in the middle of the work, and the others go on:
//! `unisono run --keep-going -n 4 -- cargo run -p unisono --example survive`.

#![allow(clippy::print_stdout)]

use unisono::{Collectives, Error, ReduceOp};

const STEPS: u64 = 10;

fn main() -> unisono::Result<()> {
    let world = unisono::init()?;
    let (mut comm, number) = (world.communicator(), world.rank());
    let (mut step, mut steps_before) = (0, 0);
    let (mut weight, mut weight_before) = (0.0f32, 0.0f32);
    while step < STEPS {
        if number == 2 && step == 5 {
            println!("rank 2 crashes");
            std::process::abort();
        }
        // One collective per step. A call that fails leaves its buffer undefined, so it works on a copy.
        let mut gradient = [1.0f32];
        match comm.all_reduce(&mut gradient, ReduceOp::Sum) {
            Ok(_) => {
                weight_before = weight;
                weight += gradient[0];
                step += 1;
            }
            // Every survivor gets this error, and it names the same rank.
            Err(error @ Error::PeerLost { .. }) => {
                println!("rank {number}: {error}");
                let shrunk = comm.shrink()?;
                // Some may have finished the step in which it happened. They take it back, so that all agree.
                if step - steps_before > shrunk.last_common_call {
                    (step, weight) = (step - 1, weight_before);
                }
                (comm, steps_before) = (shrunk.communicator, step);
            }
            Err(error) => return Err(error),
        }
    }
    let (rank, size) = (comm.rank(), comm.size());
    println!("rank {number} is rank {rank} of {size} after {STEPS} steps: {weight}");
    // Without an error, since the rank has gone on after the failure of the world.
    world.close()
}
