//! `unisono bench`: measures operations between ranks and checks every element of their results.

mod case;
pub(crate) mod command;
mod dump;
pub(crate) mod operations;
pub(crate) mod report;
pub(crate) mod sizes;
pub(crate) mod timing;
mod values;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use unisono::{Collectives, Communicator, DType, ReduceOp};

use crate::problem::{Problem, Result};
use case::Case;
use dump::Dump;
use operations::Operation;
use report::Row;
use timing::{Effort, time};

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) operations: Vec<Operation>,
    pub(crate) sizes: Vec<u64>,
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
    /// Forced algorithm.
    pub(crate) algorithm: Option<Arc<str>>,
    /// Where to put what the last call of each row got and gave.
    pub(crate) dump: Option<PathBuf>,
    pub(crate) effort: Effort,
}

impl Plan {
    fn cases(&self, comm: &dyn Communicator) -> Vec<Case> {
        let (ranks, rank) = (comm.group().size(), comm.group().rank());
        let row = |operation: Operation, size| Case {
            operation,
            // As the library itself describes a barrier.
            dtype: if operation.has_size() { self.dtype } else { DType::U8 },
            op: operation.reduces().then_some(self.op),
            count: operation.count(size, self.dtype.bytes(), ranks),
            algorithm: self.algorithm.clone(),
            ranks,
            rank,
        };
        let sizes = |operation: Operation| if operation.has_size() { &self.sizes[..] } else { &[0] };
        self.operations
            .iter()
            .flat_map(|&operation| sizes(operation).iter().map(move |&size| row(operation, size)))
            .collect()
    }
}

/// Measures and checks every row of the plan, and hands each to `report` when it is done, the same on every rank.
/// Collective.
pub(crate) fn measure(
    comm: &dyn Communicator,
    plan: &Plan,
    mut report: impl FnMut(&Row, &str),
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (index, case) in plan.cases(comm).iter().enumerate() {
        let dump = plan.dump.as_deref().map(|directory| Dump::create(directory, index));
        let dump = dump.transpose().map_err(|error| Problem::failed("--dump", error))?;
        let row = measure_case(comm, case, plan.effort, index as u64, dump.as_ref())?;
        report(&row, &row.line(case.count, case.root(0)));
        rows.push(row);
    }
    Ok(rows)
}

fn measure_case(
    comm: &dyn Communicator,
    case: &Case,
    effort: Effort,
    index: u64,
    dump: Option<&Dump>,
) -> Result<Row> {
    let mut memory = case.memory(comm);
    // The first check connects and allocates, so that the clock does not see it.
    let (mut wrong, _) = check(comm, case, 2 * index, &mut memory, None)?;
    let timing = time(comm, effort, |call| case.call(comm, case.root(call), &mut memory).map(|_| ()))?;
    let (wrong_after, algorithm) = check(comm, case, 2 * index + 1, &mut memory, dump)?;
    wrong += wrong_after;
    if !case.operation.has_size() {
        wrong += left_early(comm)?;
    }
    let mut total = [wrong];
    comm.all_reduce(&mut total, ReduceOp::Sum)?;
    let shares = case.operation.shares(case.ranks);
    let row = Row {
        op: case.operation.name().to_owned(),
        ranks: case.ranks,
        bytes: case.count * shares * case.dtype.bytes() as u64,
        dtype: case.dtype.name().to_owned(),
        redop: case.op.map(|op| op.name().to_owned()),
        algorithm: algorithm.to_owned(),
        median_us: 0.0,
        min_us: 0.0,
        algbw_gb_per_s: 0.0,
        busbw_gb_per_s: 0.0,
        wrong: total[0],
    };
    Ok(row.timed(case.operation, timing))
}

/// Calls once with every root, or once, on fresh inputs; gives this rank's wrong elements and the algorithm that ran.
/// The last call goes into the dump.
fn check(
    comm: &dyn Communicator,
    case: &Case,
    seed: u64,
    memory: &mut case::Memory,
    dump: Option<&Dump>,
) -> Result<(u64, &'static str)> {
    let dumped = |written: std::io::Result<()>| written.map_err(|error| Problem::failed("--dump", error));
    let calls = if case.operation.is_rooted() { u64::from(case.ranks) } else { 1 };
    let (mut wrong, mut algorithm) = (0, "");
    for call in 0..calls {
        let (root, seed) = (case.root(call), seed * calls + call);
        let dump = dump.filter(|_| call + 1 == calls);
        case.fill(comm, root, seed, memory);
        if let Some(dump) = dump {
            dumped(dump.call(case, root))?;
            dumped(dump.buffer(case.rank, "in", case.input(comm, root, memory)))?;
        }
        algorithm = case.call(comm, root, memory)?.algorithm;
        let output = case.output(comm, root, memory);
        wrong += case.wrong(root, seed, output);
        if let Some(dump) = dump {
            dumped(dump.buffer(case.rank, "out", output))?;
        }
    }
    Ok((wrong, algorithm))
}

/// How long one rank stays away from the barrier that is checked.
const LATE: Duration = Duration::from_millis(5);

/// 1 if this rank left a barrier before the last one came, by the clock that all processes of a host share; between
/// hosts there is no such clock, and nothing is checked.
fn left_early(comm: &dyn Communicator) -> Result<u64> {
    let now = || {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    if comm.group().rank() + 1 == comm.group().size() {
        std::thread::sleep(LATE);
    }
    let mut last_entry = [now()];
    comm.barrier()?;
    let exit = now();
    comm.all_reduce(&mut last_entry, ReduceOp::Max)?;
    Ok(u64::from(comm.group().host_count() == 1 && exit < last_entry[0]))
}

#[cfg(test)]
mod tests {
    use unisono::Solo;

    use super::*;

    fn plan(sizes: &[u64]) -> Plan {
        Plan {
            operations: Operation::all().collect(),
            sizes: sizes.to_vec(),
            dtype: DType::I16,
            op: ReduceOp::Max,
            algorithm: None,
            dump: None,
            effort: Effort { blocks_max: 3, time: Duration::from_millis(20) },
        }
    }

    #[test]
    fn every_operation_gives_a_row_per_size_and_a_barrier_one() {
        let mut lines = 0;
        let rows = measure(&Solo::new(), &plan(&[64, 1001]), |_, _| lines += 1).unwrap();
        assert_eq!((rows.len(), lines), (19, 19));
        assert!(
            rows.iter().all(|row| row.wrong == 0 && row.ranks == 1 && row.algorithm == "local"),
            "{rows:?}"
        );
        assert_eq!((rows[0].bytes, rows[1].bytes), (64, 1000));
        assert_eq!(rows.iter().filter(|row| row.redop.as_deref() == Some("max")).count(), 6);
        let barrier = rows.iter().find(|row| row.op == "barrier").unwrap();
        assert_eq!((barrier.bytes, barrier.busbw_gb_per_s), (0, 0.0));
        assert!(rows.iter().all(|row| row.min_us > 0.0 && row.median_us >= row.min_us));
    }
}
