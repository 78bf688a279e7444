//! Prints what each kernel moves; asserts nothing, since a busy machine would break it:
//! `cargo test --release -p unisono-engine -- --ignored --nocapture reduce_throughput`

use std::hint::black_box;
use std::time::{Duration, Instant};

use unisono_communicator::{DType, ReduceOp};

use crate::reduce::Reducer;
use crate::reduce::dispatch::Isa;

const LARGE_BYTES: usize = 1 << 20;
const SMALL_BYTES: usize = 64;
const ROUNDS: usize = 5;

/// Seconds of the fastest of several rounds: the others were disturbed.
fn seconds(mut work: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let mut calls = 0u32;
        while start.elapsed() < Duration::from_millis(10) {
            for _ in 0..16 {
                work();
            }
            calls += 16;
        }
        best = best.min(start.elapsed().as_secs_f64() / f64::from(calls));
    }
    best
}

fn print_row(isa: Isa, dtype: DType, op: ReduceOp, completes: bool) {
    let reducer = Reducer::with_isa(isa, dtype, op, 3, None);
    let left = vec![1u8; LARGE_BYTES + 64];
    let right = vec![1u8; LARGE_BYTES + 64];
    let mut out = vec![1u8; LARGE_BYTES + 64];
    let mut rate = |bytes: usize, offset: usize, in_place: bool| {
        let part = offset..offset + bytes;
        seconds(|| {
            let operand = (!in_place).then(|| black_box(&left[part.clone()]));
            let incoming = black_box(&right[part.clone()]);
            reducer.reduce(black_box(&mut out[part.clone()]), operand, incoming, true, completes).unwrap();
        })
    };
    let gigabytes = |seconds: f64| LARGE_BYTES as f64 / seconds / 1e9;
    eprintln!(
        "{isa:?} {dtype} {op} completes={completes}: two addresses {:.1} GB/s, misaligned {:.1}, three {:.1}, misaligned {:.1}; {} bytes {:.1} ns, {:.1} ns",
        gigabytes(rate(LARGE_BYTES, 0, true)),
        gigabytes(rate(LARGE_BYTES, 3, true)),
        gigabytes(rate(LARGE_BYTES, 0, false)),
        gigabytes(rate(LARGE_BYTES, 3, false)),
        SMALL_BYTES,
        rate(SMALL_BYTES, 0, true) * 1e9,
        rate(SMALL_BYTES, 0, false) * 1e9,
    );
}

#[test]
#[ignore = "a measurement"]
fn reduce_throughput() {
    for isa in Isa::available() {
        for &dtype in DType::ALL {
            if [DType::F64, DType::U16].contains(&dtype) {
                continue;
            }
            for &op in [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Avg].iter().filter(|op| op.accepts(dtype)) {
                print_row(isa, dtype, op, op == ReduceOp::Avg);
            }
        }
    }
}
