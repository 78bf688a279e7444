//! `unisono demo`: the whole library at work between processes on one machine, started with one command.
//!
//! The ranks are this program again. Rank 0, or after its death the lowest survivor, reports to the parent, one JSON
//! value per line; the parent prints.

mod digits;
mod idx;
mod images;
pub(crate) mod kill;
pub(crate) mod method;
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
use crate::bench::form::Form;
use crate::bench::operations::{BenchOperation, MeasuredOperation};
use crate::bench::report::Row;
use crate::bench::timing::Effort;
use crate::bench::{Algorithms, Plan, measure};
use crate::print;
use crate::problem::{Problem, Result};
use kill::Kill;
pub(crate) use parent::demo;
use recipe::Task;
use training::{Recovery, Trained, train};

/// The sizes that each collective is measured with, and for how long.
struct Depth {
    sizes_bytes: &'static [u64],
    effort: Effort,
}

impl Depth {
    /// One size for latency, one for bandwidth, one in between. `unisono bench` takes longer.
    const TABLE: Depth = Depth {
        sizes_bytes: &[1 << 10, 64 << 10, 1 << 20],
        effort: Effort { blocks_max: 9, time: Duration::from_millis(100) },
    };
    /// For users who wait for the training.
    const BRIEF: Depth =
        Depth { sizes_bytes: &[64 << 10], effort: Effort { blocks_max: 3, time: Duration::from_millis(10) } };

    /// Of a demonstration in which this rank dies.
    fn of(kill: Option<Kill>) -> Depth {
        match kill {
            None => Depth::TABLE,
            Some(_) => Depth::BRIEF,
        }
    }

    /// The number of measurements: a barrier has no size.
    fn rows(&self) -> u64 {
        (MeasuredOperation::all().count() as u64 - 1) * self.sizes_bytes.len() as u64 + 1
    }

    /// About how long the demonstration takes on two cores with four ranks, for each way to train.
    fn seconds(&self, trainings: usize) -> u64 {
        self.rows() / 4 + trainings as u64
    }
}

/// A message of the reporting rank to the parent.
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
        measure_collectives(&comm, Depth::of(kill))?;
    }
    train(&comm, &Task { method, seed, data }, kill, |group, note| tell(group, &note))?.close()?;
    Ok(comm.close()?)
}

fn measure_collectives(comm: &dyn Communicator, depth: Depth) -> Result<()> {
    let mut told = Ok(());
    let plan = Plan {
        operations: MeasuredOperation::all().map(BenchOperation::Measured).collect(),
        sizes: depth.sizes_bytes.to_vec(),
        dtype: DType::F32,
        op: ReduceOp::Sum,
        forms: vec![Form::Plain],
        codecs: Vec::new(),
        routes: Vec::new(),
        parts: false,
        algorithms: Algorithms::Cheapest,
        plot: None,
        dump: None,
        effort: depth.effort,
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
