//! A unit test whose ranks are threads of the test: `cargo test -p unisono --example test_with_threads`. No launcher,
//! no network.
//!
//! Run as a program, the same function works on real ranks.

#![allow(clippy::print_stdout)]

use unisono::{Collectives, Communicator, ReduceOp};

/// The mean of all elements of all ranks, whose parts may differ in length.
fn global_mean(comm: &dyn Communicator, part: &[f64]) -> unisono::Result<f64> {
    let mut sums = [part.iter().sum(), part.len() as f64];
    comm.all_reduce(&mut sums, ReduceOp::Sum)?;
    Ok(sums[0] / sums[1])
}

fn main() -> unisono::Result<()> {
    let world = unisono::init()?;
    let rank = world.rank();
    let part = vec![f64::from(rank); rank as usize + 1];
    println!("rank {rank}: the mean is {:.3}", global_mean(&world, &part)?);
    world.close()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use unisono::Error;
    use unisono::in_process::{self, EngineOptions};

    use super::*;

    #[test]
    fn every_rank_gets_the_mean_of_all_parts() {
        let means = in_process::run(4, |comm| {
            let part = vec![1.0; comm.rank() as usize];
            global_mean(&comm, &part).unwrap()
        });
        assert_eq!(means, [1.0; 4]);
    }

    #[test]
    fn a_rank_that_never_calls_is_named() {
        let options = EngineOptions { timeout: Duration::from_millis(100), ..EngineOptions::default() };
        // Rank 1 stays until rank 0 has its error: a rank that returns is lost, and not late.
        let end = std::sync::Barrier::new(2);
        in_process::run_with(2, &options, |comm| {
            if comm.rank() == 0 {
                match global_mean(&comm, &[1.0]) {
                    Err(Error::Timeout { not_arrived, .. }) => assert_eq!(not_arrived[0].rank.get(), 1),
                    other => panic!("{other:?}"),
                }
            }
            end.wait();
        });
    }
}
