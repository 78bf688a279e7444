//! Every rank says who it is, and all of them know the sum: `unisono run -n 4 -- cargo run -p unisono --example hello`.

#![allow(clippy::print_stdout)]

use unisono::{Collectives, ReduceOp};

fn main() -> unisono::Result<()> {
    // Joins the job that this process was started in; started alone, it is a world of one.
    let world = unisono::init()?;
    let (rank, size) = (world.rank(), world.size());

    let mut sum = [rank + 1];
    world.all_reduce(&mut sum, ReduceOp::Sum)?;
    println!("rank {rank} of {size}: the sum is {}", sum[0]);

    // Rank 0 decides, everybody knows.
    let mut seed = [if rank == 0 { 42u64 } else { 0 }];
    world.broadcast(&mut seed, 0)?;
    assert_eq!(seed, [42]);

    world.close()
}
