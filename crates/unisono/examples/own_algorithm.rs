//! An algorithm of your own, proved and run: `unisono run -n 4 -- cargo run -p unisono --example own_algorithm`.

#![allow(clippy::print_stdout)]

use std::sync::Arc;

use unisono::schedule::{Algorithm, Own, Shape, verify};
use unisono::{CallOptions, Collective, Collectives, ReduceOp, Trust};

/// Values travel along a line to rank 0, each rank adding its own, and the sum travels back.
fn line() -> Algorithm {
    Algorithm::new("line", Collective::AllReduce, |builder| {
        let (rank, last) = (builder.rank(), builder.ranks() - 1);
        if rank < last {
            builder.recv_reduce(rank + 1, 0, Own::Left, rank == 0);
        }
        if rank > 0 {
            builder.send(rank - 1, 0);
            builder.recv(rank - 1, 0);
        }
        if rank < last {
            builder.send(rank + 1, 0);
        }
        // A rank that is alone has its own value still to copy.
        builder.deliver(0);
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let line = Arc::new(line());
    // A proof needs no job: no deadlock, no race, every contribution exactly once, for every count.
    let proof = verify(&line, &Shape::new(16))?;

    let world = unisono::init()?;
    world.register(line, Trust::Prove)?;
    let mut sum = vec![1.0f32; 1000];
    world.with(CallOptions::new().algorithm("line")).all_reduce(&mut sum, ReduceOp::Sum)?;
    assert_eq!(sum, vec![world.size() as f32; 1000]);
    println!("rank {}: 16 ranks need {} rounds; ours is right", world.rank(), proof.cost.rounds);
    world.close()?;
    Ok(())
}
