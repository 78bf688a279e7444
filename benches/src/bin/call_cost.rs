//! Makes calls of 64 bytes on a replayed link, as many as its first argument says, and prints the time of one: for
//! callgrind, which counts instructions. The second argument is their form: plain, prepared, or message, which is a
//! send and a receive. The difference of two runs leaves out their preparation (`tests/instructions.rs`).

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run ends")]
#![allow(clippy::print_stdout, reason = "it is what this program is for")]

use std::time::Instant;

use unisono_benches::replay;
use unisono_collectives::{Collectives, CollectivesPrepared};
use unisono_communicator::{Communicator, ReduceOp, Result};

/// Elements of the vector, of four bytes: one short message in each direction.
const COUNT: usize = 16;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let calls: u32 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let form = arguments.next().unwrap_or_default();
    if form == "message" {
        return messages(calls);
    }
    let is_prepared = form == "prepared";
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

/// Messages there and back, each with the credit for the other.
fn messages(calls: u32) {
    let there_and_back = |comm: &dyn Communicator| -> Result<()> {
        let (mut values, rank) = ([comm.group().rank(); COUNT], comm.group().rank());
        if rank == 0 {
            comm.send(&values, 1, 0)?;
        }
        comm.recv(&mut values, 1 - rank, 0)?;
        if rank == 1 {
            comm.send(&[rank; COUNT], 0, 0)?;
        }
        assert_eq!(values, [1 - rank; COUNT]);
        Ok(())
    };
    let comm = replay(2, there_and_back);
    (0..calls).for_each(|_| there_and_back(&*comm).unwrap());
}
