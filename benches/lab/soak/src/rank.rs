//! One rank of a trial: calls until one fails, goes on with the survivors, and says when what happened.

use std::io::Read;

use unisono::{Collectives, Communicator, Error, ReduceOp, Result};

use crate::Problem;
use crate::job::now_ns;

/// Elements of the all-reduce after the failure: 4 MiB.
const ELEMENTS: usize = 1 << 20;

/// The whole life of a rank.
pub(crate) fn run(resident_mib: usize) -> Result<(), Problem> {
    let communicator = unisono::init()?;
    // Not zero, so that every page exists.
    let resident = vec![1u8; resident_mib << 20];
    communicator.barrier()?;
    println!("ready");
    let error = until_failure(&*communicator);
    let named_ns = now_ns();
    match error.root_cause() {
        Error::PeerLost { certainty, .. } => {
            println!("named {named_ns} {:?} {certainty:?}", error.lost_ranks())
        }
        Error::Evicted { .. } => println!("evicted"),
        other => println!("failed otherwise: {other}"),
    }
    go_on(&communicator)?;
    // Nobody leaves before all have spoken: leaving would look like another failure.
    let _ = std::io::stdin().read(&mut [0]);
    drop(resident);
    Ok(())
}

fn until_failure(communicator: &dyn Communicator) -> Error {
    loop {
        if let Err(error) = communicator.all_reduce(&mut [1u64; 64], ReduceOp::Sum) {
            return error;
        }
    }
}

fn go_on(communicator: &dyn Communicator) -> Result<()> {
    let shrunk = match communicator.shrink() {
        Ok(shrunk) => shrunk,
        Err(Error::Evicted { .. }) => {
            println!("stays out");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    println!("shrunk {} {:?}", now_ns(), shrunk.new_ranks);
    let survivors = shrunk.communicator;
    let group = survivors.group();
    // Every value is exact, and tells who took part.
    let mine = (1u32 << group.own_job_rank().get()) as f32;
    let mut values = vec![mine; ELEMENTS];
    survivors.all_reduce(&mut values, ReduceOp::Sum)?;
    let resumed_ns = now_ns();
    let is_uniform = values.iter().all(|value| value.to_bits() == values[0].to_bits());
    println!("resumed {resumed_ns} {} {is_uniform}", values[0]);
    survivors.close()
}
