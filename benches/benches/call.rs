//! The cost of a whole call beside the wire: per call and, as elements, per step of its schedule.

#![allow(missing_docs, reason = "criterion's macros write functions")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run ends")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use unisono_benches::replay;
use unisono_collectives::{Collectives, Solo};
use unisono_communicator::{CallOptions, Communicator, Error, Executor, ReduceOp};
use unisono_schedule::{Collective, Shape, find};

const COUNT: usize = 64;

fn all_reduce(comm: &dyn Communicator, name: &str, output: &mut [u32]) -> Result<(), Error> {
    let input = [comm.group().rank() + 1; COUNT];
    comm.with(CallOptions::new().algorithm(name)).all_reduce_into(&input, output, ReduceOp::Sum)
}

/// The engine on links that never wait.
fn engine(criterion: &mut Criterion) {
    for name in ["recursive_doubling", "ring", "direct"] {
        let mut group = criterion.benchmark_group(format!("all_reduce_{name}"));
        let algorithm = find(Collective::AllReduce, name).unwrap();
        for ranks in [2, 4, 8, 64] {
            let comm = replay(ranks, |comm| all_reduce(comm, name, &mut [0; COUNT]));
            let mut output = [0; COUNT];
            all_reduce(&*comm, name, &mut output).unwrap();
            assert_eq!(output, [ranks * (ranks + 1) / 2; COUNT]);
            let steps = algorithm.schedule(&Shape::new(ranks), 0).steps.len();
            group.throughput(Throughput::Elements(steps as u64));
            let input = [1u32; COUNT];
            let forced = comm.with(CallOptions::new().algorithm(name));
            group.bench_function(BenchmarkId::from_parameter(ranks), |bencher| {
                bencher.iter(|| forced.all_reduce_into(&input, &mut output, ReduceOp::Sum).unwrap());
            });
        }
    }
}

/// A world of one: the typed call, its checks, and nothing else.
fn solo(criterion: &mut Criterion) {
    let comm = Solo::new();
    let mut values = [3u32; COUNT];
    comm.all_reduce(&mut values, ReduceOp::Sum).unwrap();
    assert_eq!(values, [3; COUNT]);
    criterion.bench_function("all_reduce_world_of_one", |bencher| {
        bencher.iter(|| comm.all_reduce(&mut values, ReduceOp::Sum).unwrap());
    });
}

/// A short call without and with the communication log, and a reading of the clock: with the log a call reads it twice.
fn comms_log(criterion: &mut Criterion) {
    let comm = replay(2, |comm| all_reduce(comm, "recursive_doubling", &mut [0; COUNT]));
    let (log, input, mut output) = (comm.group().comms_logger(), [1u32; COUNT], [0; COUNT]);
    let forced = comm.with(CallOptions::new().algorithm("recursive_doubling"));
    let mut group = criterion.benchmark_group("comms_log");
    group.bench_function("clock", |bencher| bencher.iter(std::time::Instant::now));
    for (name, is_on, counts) in [("off", false, false), ("on", true, false), ("on_and_counting", true, true)]
    {
        if is_on {
            log.start()
        } else {
            log.stop()
        }
        if counts {
            log.start_counting();
        }
        group.bench_function(name, |bencher| {
            bencher.iter(|| forced.all_reduce_into(&input, &mut output, ReduceOp::Sum).unwrap());
        });
        assert_eq!(log.has_calls(), is_on);
    }
}

criterion_group!(benches, engine, solo, comms_log);
criterion_main!(benches);
