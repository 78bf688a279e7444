//! Receiving and reducing against receiving alone and against a plain copy: the time above the copy is the kernel's.

#![allow(missing_docs, reason = "criterion's macros write functions")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run ends")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use unisono_benches::replay;
use unisono_collectives::Collectives;
use unisono_communicator::{Element, ReduceOp, bf16, f16};

/// Fits into the second-level cache of most machines together with its destination.
const BYTES: usize = 1 << 20;

/// Of two ranks, this one receives a mebibyte and reduces it.
fn reduce<T: Element>(criterion: &mut Criterion, op: ReduceOp, one: T, expected: T) {
    let count = BYTES / size_of::<T>();
    let input = vec![one; count];
    let comm = replay(2, |comm| {
        let mut output = input.clone();
        let place = (comm.group().rank() == 0).then_some(&mut output[..]);
        comm.reduce(&input, place, op, 0)
    });
    let mut output = input.clone();
    comm.reduce(&input, Some(&mut output), op, 0).unwrap();
    assert!(output.iter().all(|&value| value == expected));
    let mut group = criterion.benchmark_group("receive_1_MiB");
    group.throughput(Throughput::Bytes(BYTES as u64));
    group.bench_function(format!("reduce_{}_{op}", T::DTYPE), |bencher| {
        bencher.iter(|| comm.reduce(&input, Some(&mut output), op, 0).unwrap());
    });
}

fn reductions(criterion: &mut Criterion) {
    reduce(criterion, ReduceOp::Sum, 1.0f32, 2.0);
    reduce(criterion, ReduceOp::Max, 1.0f32, 1.0);
    reduce(criterion, ReduceOp::Avg, 1.0f32, 1.0);
    reduce(criterion, ReduceOp::Sum, 1.0f64, 2.0);
    reduce(criterion, ReduceOp::Sum, f16::ONE, f16::from_f32(2.0));
    reduce(criterion, ReduceOp::Sum, bf16::ONE, bf16::from_f32(2.0));
    reduce(criterion, ReduceOp::Sum, 1i32, 2);
    reduce(criterion, ReduceOp::BitXor, 1u8, 0);
}

/// The same bytes received without arithmetic, and copied without the engine.
fn copies(criterion: &mut Criterion) {
    let comm = replay(2, |comm| comm.broadcast(&mut vec![7u8; BYTES], 1));
    let mut output = vec![0u8; BYTES];
    comm.broadcast(&mut output, 1).unwrap();
    assert!(output.iter().all(|&byte| byte == 7));
    let mut group = criterion.benchmark_group("receive_1_MiB");
    group.throughput(Throughput::Bytes(BYTES as u64));
    group.bench_function("broadcast", |bencher| {
        bencher.iter(|| comm.broadcast(&mut output, 1).unwrap());
    });
    let input = output.clone();
    let mut copy = input.clone();
    group.bench_function("memcpy", |bencher| {
        bencher.iter(|| black_box(&mut copy).copy_from_slice(black_box(&input)));
    });
}

criterion_group!(benches, reductions, copies);
criterion_main!(benches);
