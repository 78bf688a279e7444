//! `unisono demo`: the whole library at work between processes on one machine, started with one command.
//!
//! The ranks are this program again. Rank 0 tells the parent what happens, one JSON value per line; the parent prints.

mod digits;
mod network;
mod parent;
mod training;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use unisono::{DType, ReduceOp};

use crate::bench::operations::Operation;
use crate::bench::report::Row;
use crate::bench::timing::Effort;
use crate::bench::{Algorithms, Plan, measure};
use crate::print;
use crate::problem::{Problem, Result};
pub(crate) use parent::demo;
use training::{Trained, train};

/// The hidden command of this program that is one rank of the demonstration.
pub(crate) const RANK_COMMAND: &str = "demo-rank";

/// One for latency, one for bandwidth, one between.
const SIZES_BYTES: [u64; 3] = [1 << 10, 64 << 10, 1 << 20];
/// Enough for a table; a bench of its own takes longer.
const EFFORT: Effort = Effort { blocks_max: 9, time: Duration::from_millis(100) };

/// What rank 0 tells the parent.
#[derive(Debug, Serialize, Deserialize)]
enum Note {
    /// A collective has been checked and measured; also as a line of the table.
    Row(Row, String),
    /// Epochs done, and the mean loss of the last one.
    Epoch(u32, f32),
    Trained(Trained),
}

/// One rank.
pub(crate) fn rank() -> Result<()> {
    let comm = unisono::init()?;
    let speaks = comm.group().rank() == 0;
    let mut told = Ok(());
    let mut tell = |note: Note| {
        if speaks && told.is_ok() {
            told = note_line(&note);
        }
    };
    let plan = Plan {
        operations: Operation::all().collect(),
        sizes: SIZES_BYTES.to_vec(),
        dtype: DType::F32,
        op: ReduceOp::Sum,
        algorithms: Algorithms::Cheapest,
        dump: None,
        effort: EFFORT,
    };
    measure(&*comm, &plan, |row, line| tell(Note::Row(row.clone(), line.to_owned())))?;
    let trained = train(&*comm, |epoch, loss| tell(Note::Epoch(epoch, loss)))?;
    tell(Note::Trained(trained));
    comm.close()?;
    told
}

fn note_line(note: &Note) -> Result<()> {
    let text = serde_json::to_string(note).map_err(|error| Problem::failed("a note", error))?;
    print::line(&text)
}
