//! A manager hands out particles to workers, ported call by call from MPI: `MPI_Type_create_struct`, `MPI_Waitany`,
//! `MPI_Iprobe`, `MPI_Get_count`. `unisono run -n 4 -- cargo run -p unisono --example task_farm`.

#![allow(clippy::print_stdout)]

use unisono::Result;
use unisono::prelude::*;

const PARTICLES: u64 = 100;
const BATCH: usize = 7;
const STEPS: usize = 50;
const WORK: u32 = 1;
const STOP: u32 = 2;
const RESULT: u32 = 3;

unisono::element! {
    /// A particle on a spring. Its number tells the manager which one comes back.
    struct Particle { position: [f64; 3], velocity: [f64; 3], number: u64 }
}

fn at_first() -> Vec<Particle> {
    let particle = |number| Particle { position: [number as f64, 1.0, 0.5], velocity: [0.1; 3], number };
    (0..PARTICLES).map(particle).collect()
}

fn advance(particles: &mut [Particle]) {
    for Particle { position, velocity, .. } in particles {
        for axis in (0..STEPS).flat_map(|_| 0..3) {
            velocity[axis] -= 0.01 * position[axis];
            position[axis] += 0.01 * velocity[axis];
        }
    }
}

/// Gives every worker a batch, and another one for each result.
fn manage(world: &World) -> Result<Vec<Particle>> {
    let (given, mut particles, mut results) = (at_first(), at_first(), Vec::new());
    let mut batches = given.chunks(BATCH);
    for worker in 1..world.size() {
        let Some(batch) = batches.next() else { break };
        world.send(batch, worker, WORK)?;
        results.push(world.recv_vec_async::<Particle>(worker, RESULT));
    }
    while let Some(first) = wait_any(&results) {
        let (batch, received) = results.swap_remove(first).wait()?;
        batch.iter().for_each(|particle| particles[particle.number as usize] = *particle);
        if let Some(batch) = batches.next() {
            world.send(batch, received.source, WORK)?;
            results.push(world.recv_vec_async(received.source, RESULT));
        }
    }
    if world.size() == 1 {
        advance(&mut particles);
    }
    for worker in 1..world.size() {
        world.send::<Particle>(&[], worker, STOP)?;
    }
    Ok(particles)
}

/// Moves batches until there are no more. Gives the number of particles.
fn work(world: &World) -> Result<u64> {
    let mut moved = 0;
    loop {
        let Some(found) = world.try_probe(0, Tag::Any)? else {
            std::thread::yield_now(); // or something useful
            continue;
        };
        if found.tag() == STOP {
            return found.recv::<Particle>(&mut []).map(|_| moved);
        }
        let mut batch = found.recv_vec::<Particle>()?;
        advance(&mut batch);
        moved += batch.len() as u64;
        world.send(&batch, 0, RESULT)?;
    }
}

fn main() -> Result<()> {
    let world = unisono::init()?;
    let mut moved = [if world.rank() == 0 { 0 } else { work(&world)? }];
    if world.rank() == 0 {
        let (particles, mut serial) = (manage(&world)?, at_first());
        advance(&mut serial);
        assert_eq!(particles, serial, "not what one rank computes");
    }
    world.all_reduce(&mut moved, ReduceOp::Sum)?;
    println!("rank {} of {}: the workers moved {} particles", world.rank(), world.size(), moved[0]);
    world.close()
}
