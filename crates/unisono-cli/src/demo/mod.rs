//! `unisono demo`: the whole library at work between processes on one machine, started with one command.
//!
//! The ranks are this program again. Rank 0, or after its death the lowest survivor, reports to the parent, one JSON
//! value per line; the parent prints.

mod digits;
mod idx;
mod images;
mod kill;
mod method;
mod network;
mod optimiser;
mod parent;
mod recipe;
mod report;
mod training;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use unisono::{Communicator, DType, Group, ReduceOp};

use crate::arguments::DemoRankArguments;
use crate::bench::operations::{BenchOperation, MeasuredOperation};
use crate::bench::report::Row;
use crate::bench::timing::Effort;
use crate::bench::{Algorithms, Plan, measure};
use crate::print;
use crate::problem::{Problem, Result};
pub(crate) use kill::Kill;
pub(crate) use method::{Method, Methods};
pub(crate) use parent::demo;
use recipe::Task;
use training::{Recovery, Trained, train};

/// The hidden command of this program that is one rank of the demonstration.
pub(crate) const RANK_COMMAND: &str = "demo-rank";

/// One size for latency, one for bandwidth, one in between.
const SIZES_BYTES: [u64; 3] = [1 << 10, 64 << 10, 1 << 20];
/// Enough for this table; `unisono bench` takes longer.
const EFFORT: Effort = Effort { blocks_max: 9, time: Duration::from_millis(100) };

/// What the reporting rank sends to the parent.
#[derive(Debug, Serialize, Deserialize)]
enum Note {
    /// A collective has been checked and measured; also as a line of the table.
    Row(Row, String),
    /// An epoch of so many is done, with this mean loss.
    Epoch {
        epoch: u32,
        epochs: u32,
        loss: f64,
    },
    /// Ranks have died, and the others have gone on.
    Recovered(Recovery),
    Trained(Trained),
}

/// One rank.
pub(crate) fn rank(arguments: DemoRankArguments) -> Result<()> {
    let DemoRankArguments { kill, only_training, method, seed, data } = arguments;
    let comm = print::aside(unisono::init)?;
    if !only_training {
        measure_collectives(&comm)?;
    }
    let last = train(&comm, &Task { method, seed, data }, kill, |group, note| tell(group, &note))?;
    last.close()?;
    // A communicator that has lost a rank is revoked and need not be closed.
    if last.group().epoch() == comm.group().epoch() { Ok(comm.close()?) } else { Ok(()) }
}

fn measure_collectives(comm: &dyn Communicator) -> Result<()> {
    let mut told = Ok(());
    let plan = Plan {
        operations: MeasuredOperation::all().map(BenchOperation::Measured).collect(),
        sizes: SIZES_BYTES.to_vec(),
        dtype: DType::F32,
        op: ReduceOp::Sum,
        codecs: Vec::new(),
        routes: Vec::new(),
        parts: false,
        algorithms: Algorithms::Cheapest,
        plot: None,
        dump: None,
        effort: EFFORT,
    };
    measure(comm, &plan, |row, line| {
        if told.is_ok() {
            told = tell(comm.group(), &Note::Row(row.clone(), line.to_owned()));
        }
    })?;
    told
}

fn tell(group: &Group, note: &Note) -> Result<()> {
    if group.rank() > 0 {
        return Ok(());
    }
    let text = serde_json::to_string(note).map_err(|error| Problem::failed("a note", error))?;
    print::line(&text)
}
