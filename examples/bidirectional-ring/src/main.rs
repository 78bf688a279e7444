//! Registers the algorithm of this package with a communicator, forces it, lets the library choose it, and shows the
//! errors of wrong algorithms.
//!
//! Started alone, the ranks are 8 threads of this process, and choose by the figures of a machine with 2 cores, so that
//! it prints the same everywhere. Started as ranks of a job, as by `unisono run -n 4 -- bidirectional-ring`, they are
//! its processes, and choose by the figures of the machine.

use std::process::ExitCode;
use std::sync::Arc;

use bidirectional_ring::{bidirectional_ring, deadlocks, forgets};
use unisono::call::{BufferMut, Buffers, Call, Descriptor, Place};
use unisono::in_process::{self, EngineOptions};
use unisono::schedule::{Algorithm, CostModel};
use unisono::{CallOptions, Collective, Collectives, Communicator, DType, Error, ReduceOp, Result, Trust};

const THREADS: u32 = 8;
const CORES: u64 = 2;

/// Elements of a short and of a long call.
const SHORT: usize = 16;
const LONG: usize = 1 << 20;

fn main() -> ExitCode {
    let reports = match unisono::init() {
        // Started alone: a world of one.
        Ok(world) if world.size() == 1 => threads(),
        Ok(world) => vec![on_every_rank(&world).and_then(|report| world.close().map(|()| report))],
        Err(error) => vec![Err(error)],
    };
    match reports.into_iter().collect::<Result<Vec<_>>>() {
        Ok(reports) => {
            reports.into_iter().flatten().for_each(|line| println!("{line}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bidirectional-ring: {error}");
            ExitCode::FAILURE
        }
    }
}

fn threads() -> Vec<Result<Vec<String>>> {
    let cost_model = CostModel::LOOPBACK.with_ranks_on_cores(THREADS.into(), CORES);
    let options = EngineOptions { cost_model, ..EngineOptions::default() };
    in_process::run_with(THREADS, &options, |comm| on_every_rank(&comm))
}

/// The lines of the report on rank 0, none on other ranks.
fn on_every_rank(comm: &dyn Communicator) -> Result<Vec<String>> {
    let mut report = vec![format!("{} ranks", comm.size())];
    let chosen = CallOptions::new();
    let forced = CallOptions::new().algorithm("bidirectional_ring");

    let before = [ran(comm, SHORT, chosen)?, ran(comm, LONG, chosen)?];
    let Err(unknown) = ran(comm, SHORT, forced) else { panic!("it is not registered yet") };
    report.push(format!("before: {unknown}"));

    // Every rank registers it. Rank 0 proves it, and all compare their schedules with the proved one.
    comm.register(bidirectional_ring(), Trust::Prove)?;
    report.push(format!("forced, short: {}", ran(comm, SHORT, forced)?));
    let after = [ran(comm, SHORT, chosen)?, ran(comm, LONG, chosen)?];
    report.push(format!("chosen, short: {}", changed(before[0], after[0])));
    report.push(format!("chosen, long: {}", changed(before[1], after[1])));

    for wrong in [deadlocks(), forgets()] {
        report.push(refused(comm, wrong));
    }
    // The refusals have changed nothing.
    report.push(format!("after, long: {}", ran(comm, LONG, chosen)?));
    comm.barrier()?;
    Ok(if comm.rank() == 0 { report } else { Vec::new() })
}

/// The name of the algorithm that runs an all-reduce of this many elements. Every element of the result is checked.
fn ran(comm: &dyn Communicator, count: usize, options: CallOptions) -> Result<&'static str> {
    let (rank, ranks) = (u64::from(comm.rank()), u64::from(comm.size()));
    let mut values: Vec<u64> = (0..count as u64).map(|index| index * (rank + 1)).collect();
    // The typed call is `comm.with(options).all_reduce(&mut values, ReduceOp::Sum)`; this one names the algorithm that
    // it ran.
    let descriptor = Descriptor {
        op: Some(ReduceOp::Sum),
        place: Place::InPlace,
        ..Descriptor::new(Collective::AllReduce, DType::U64, count as u64)
    };
    let call = Call::new(descriptor, Buffers::InOut(BufferMut::of(&mut values)));
    let outcome = comm.execute(&mut Call { options, ..call })?;
    let sum = ranks * (ranks + 1) / 2;
    assert!((0..).zip(&values).all(|(index, value)| index * sum == *value), "a wrong result");
    Ok(outcome.algorithm)
}

fn changed(before: &str, after: &str) -> String {
    if before == after { format!("{after}, as before") } else { format!("{after}, before it was {before}") }
}

/// The error of a wrong algorithm, the same on all ranks.
fn refused(comm: &dyn Communicator, wrong: Arc<Algorithm>) -> String {
    match comm.register(wrong, Trust::Prove) {
        Err(Error::AlgorithmRefused { algorithm, reason }) => format!("refused: {algorithm}\n    {reason}"),
        Err(other) => panic!("another error: {other}"),
        Ok(()) => panic!("it is wrong"),
    }
}
