//! Prints the throughput of the kernels; asserts nothing, since a busy machine would fail: `cargo test --release -p
//! unisono-engine -- --ignored --nocapture reduce_throughput`

use std::hint::black_box;
use std::time::{Duration, Instant};

use unisono_communicator::{DType, ReduceOp};

use crate::reduce::dispatch::Isa;
use crate::reduce::{PeerBytes, Reducer};

const LARGE_BYTES: usize = 1 << 20;
const SMALL_BYTES: usize = 64;
const MISALIGNMENT_BYTES: usize = 3;
const ROUNDS: usize = 5;

/// Seconds of one `work` in the fastest round. Other work has slowed the other rounds down.
fn seconds(mut work: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let mut calls = 0u32;
        while start.elapsed() < Duration::from_millis(5) {
            for _ in 0..16 {
                work();
            }
            calls += 16;
        }
        best = best.min(start.elapsed().as_secs_f64() / f64::from(calls));
    }
    best
}

fn row(isa: Isa, dtype: DType, op: ReduceOp) -> String {
    let reducer = Reducer::with_isa(isa, dtype, op, 3, None);
    let left = vec![1u8; LARGE_BYTES + MISALIGNMENT_BYTES];
    let (right, mut out) = (left.clone(), left.clone());
    let mut time = |bytes: usize, offset: usize, in_place: bool| {
        let part = offset..offset + bytes;
        seconds(|| {
            let operand = (!in_place).then(|| black_box(&left[part.clone()]));
            let incoming = PeerBytes::Own(black_box(&right[part.clone()]));
            reducer.reduce(black_box(&mut out[part.clone()]), operand, incoming, true, true).unwrap();
        })
    };
    let mut cells = format!("{:9} {:10} {:4}", format!("{isa:?}"), dtype.name(), op.name());
    for (offset, in_place) in [(0, true), (MISALIGNMENT_BYTES, true), (0, false), (MISALIGNMENT_BYTES, false)]
    {
        cells += &format!(" {:11.1}", LARGE_BYTES as f64 / time(LARGE_BYTES, offset, in_place) / 1e9);
    }
    cells + &format!(" {:6.1} {:6.1}", time(SMALL_BYTES, 0, true) * 1e9, time(SMALL_BYTES, 0, false) * 1e9)
}

#[test]
#[ignore = "a measurement"]
fn reduce_throughput() {
    let made = seconds(|| drop(black_box(Reducer::new(DType::F32, black_box(ReduceOp::Sum), 3, None))));
    eprintln!("Reducer::new {:.1} ns", made * 1e9);
    eprintln!(
        "GB/s of incoming bytes at 1 MiB in two addresses (aligned, misaligned) and three; ns at 64 bytes"
    );
    for isa in Isa::available() {
        for &dtype in DType::ALL {
            for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Avg, ReduceOp::BitAnd] {
                if op.accepts(dtype) {
                    eprintln!("{}", row(isa, dtype, op));
                }
            }
        }
    }
}
