//! Communication behind computation: each layer's gradients are on their way while the next layer is computed.
//! `unisono run -n 4 -- cargo run --release -p unisono --example overlap`.

#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

use unisono::{Collectives, CollectivesAsync, ReduceOp};

const LAYERS: usize = 8;
const ELEMENTS: usize = 1 << 20;

/// Stands for the computation of a layer's gradients.
fn compute(layer: usize) -> Vec<f32> {
    (0..ELEMENTS).map(|index| ((layer * ELEMENTS + index) as f32).sin()).collect()
}

fn main() -> unisono::Result<()> {
    let world = unisono::init()?;

    // The handle owns the buffer until the call has ended, so nobody can touch it too early.
    world.barrier()?;
    let start = Instant::now();
    let mut works = Vec::new();
    for layer in 0..LAYERS {
        works.push(world.all_reduce_async(compute(layer), ReduceOp::Avg));
    }
    let mut waited = Duration::ZERO;
    let mut overlapped = Vec::new();
    for work in works {
        let waiting = Instant::now();
        overlapped.push(work.wait()?);
        waited += waiting.elapsed();
    }
    let asynchronous = start.elapsed();

    world.barrier()?;
    let start = Instant::now();
    for (layer, expected) in overlapped.iter().enumerate() {
        let mut gradients = compute(layer);
        world.all_reduce(&mut gradients, ReduceOp::Avg)?;
        assert_eq!(&gradients, expected, "the same bits");
    }
    let (rank, blocking) = (world.rank(), start.elapsed());
    println!(
        "rank {rank}: {asynchronous:.0?}, of which {waited:.0?} waiting; one after the other {blocking:.0?}"
    );
    world.close()
}
