//! Makes calls of 64 bytes on a replayed link, as many as its first argument says, and prints the time of one: for
//! callgrind, which counts instructions. The second argument is their form: plain or prepared. The difference of two
//! runs leaves out their preparation (`tests/instructions.rs`).

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run ends")]
#![allow(clippy::print_stdout, reason = "it is what this program is for")]

use std::time::Instant;

use unisono_benches::replay;
use unisono_collectives::{Collectives, CollectivesPrepared};
use unisono_communicator::ReduceOp;

/// Elements of the vector, of four bytes: one short message in each direction.
const COUNT: usize = 16;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let calls: u32 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let is_prepared = arguments.next().is_some_and(|form| form == "prepared");
    let comm = replay(2, |comm| {
        let mut values = [comm.group().rank() + 1; COUNT];
        comm.all_reduce(&mut values, ReduceOp::Sum)
    });
    let prepared = comm.prepare_all_reduce::<u32>(COUNT, ReduceOp::Sum).unwrap();
    let began = Instant::now();
    for _ in 0..calls {
        let mut values = [1u32; COUNT];
        if is_prepared {
            prepared.call(&mut values).unwrap();
        } else {
            comm.all_reduce(&mut values, ReduceOp::Sum).unwrap();
        }
        assert_eq!(values, [3; COUNT]);
    }
    println!("{:.0} ns a call of {calls}", began.elapsed().as_nanos() as f64 / f64::from(calls.max(1)));
}
