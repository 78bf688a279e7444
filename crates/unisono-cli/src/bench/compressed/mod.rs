//! Rows of `compressed_all_reduce`: the mean of f32 by one codec after the other and one way after the other, in turns.
//!
//! Each codec has a vector of its own, whose calls follow each other in place: the result of one is the input of the
//! next, on every rank. So the sum of all results is the sum of all exact means, but for the last result and the first
//! mean, and the residuals of a codec with error feedback after the last call must be the difference of these two.

mod expected;
mod parts;
pub(super) mod scatter;
mod verify;

use std::sync::Arc;

use unisono::compression::{Codec, CompressedCollectives, CompressionState, Route, network_bytes};
use unisono::{Collective, Communicator, DType, ReduceOp};

use self::parts::Parts;
use self::verify::{Judgement, Verification};
use super::dump::Dump;
use super::operations::{CompressedOperation, MeasuredOperation};
use super::report::{CompressedFigures, PartTimes, Row};
use super::resident::Watch;
use super::timing::time;
use super::values::Values;
use super::{Checked, Place, Plan};
use crate::problem::{Problem, Result};

/// One codec's vector on this rank, and the residuals of its calls.
struct Subject {
    codec: Arc<dyn Codec>,
    state: CompressionState,
    vector: Vec<f32>,
}

/// Measures and checks a row for each codec of the plan. `bench_bytes` is the memory of the bench besides. Collective.
pub(super) fn measure(place: &Place<'_>, plan: &Plan, elements: usize, bench_bytes: u64) -> Result<Vec<Row>> {
    let comm = place.comm;
    let subject = |(codec, route)| Subject::new(comm, codec, route, elements);
    let mut subjects = ways(plan).map(subject).collect::<Result<Vec<_>>>()?;
    let seed = |row: usize, index: u64| 3 * row as u64 + index;
    let count = subjects.len();
    let numbered = || (place.row..).zip(0..count);
    // The first call connects and allocates, so that this is not measured.
    let mut before = Vec::new();
    for (row, index) in numbered() {
        before.push(subjects[index].check(comm, seed(row, 0), None)?);
        subjects[index].begin(comm, seed(row, 1))?;
    }
    let of_parts = |subject: &Subject| Parts::new(comm, &subject.codec, elements, subject.state.owned());
    let mut parts: Vec<Parts> = match plan.parts {
        true => subjects.iter().map(of_parts).collect::<unisono::Result<_>>()?,
        false => Vec::new(),
    };
    let ways = subjects.len() + Parts::WAYS * parts.len();
    let timings = time(comm, place.effort, ways, |way, _| match way.checked_sub(subjects.len()) {
        None => subjects[way].call(comm),
        Some(part) => parts[part / Parts::WAYS].run(comm, part % Parts::WAYS),
    })?;
    drop(parts);
    let mut rows = Vec::new();
    for ((row, index), (checked, judgement)) in numbered().zip(before) {
        let others: u64 = (0..subjects.len()).map(|other| subjects[other].bytes_beside(index == other)).sum();
        let subject = &mut subjects[index];
        let wrong = subject.verification(comm, seed(row, 1)).after_calls()?;
        let (after, _) = subject.check(comm, seed(row, 2), place.dump(row)?.as_ref())?;
        let checked = Checked { wrong: checked.wrong + wrong, ..checked };
        let checked = checked.and(after).over_ranks(comm, bench_bytes + others)?;
        let median = |part: usize| timings[subjects.len() + Parts::WAYS * index + part].median() * 1e6;
        let figures = CompressedFigures {
            codec: subjects[index].codec.name().to_owned(),
            route: subjects[index].state.route().to_string(),
            wire_bytes: sent_bytes(comm, &subjects[index].state),
            relative_error: judgement.relative_error(comm)?,
            parts: plan.parts.then(|| PartTimes {
                encode_us: median(0),
                exchange_us: median(1),
                reduce_us: median(2),
                expand_us: median(3),
            }),
        };
        let like = MeasuredOperation::Collective(Collective::AllReduce);
        let row = row_of(CompressedOperation::AllReduce, comm, elements, &checked, figures);
        rows.push(row.timed(like, 1.0, &timings[index]));
    }
    Ok(rows)
}

/// Each codec of a plan, each way; no way for the cheaper one.
fn ways(plan: &Plan) -> impl Iterator<Item = (Arc<dyn Codec>, Option<Route>)> {
    let routes: Vec<Option<Route>> = match &plan.routes[..] {
        [] => vec![None],
        routes => routes.iter().copied().map(Some).collect(),
    };
    plan.codecs
        .iter()
        .flat_map(move |codec| routes.clone().into_iter().map(move |route| (codec.clone(), route)))
}

/// A row without times.
fn row_of(
    operation: CompressedOperation,
    comm: &dyn Communicator,
    elements: usize,
    checked: &Checked,
    figures: CompressedFigures,
) -> Row {
    Row {
        op: operation.name().to_owned(),
        ranks: comm.size(),
        bytes: (elements * size_of::<f32>()) as u64,
        dtype: DType::F32.name().to_owned(),
        redop: Some(ReduceOp::Avg.name().to_owned()),
        algorithm: figures.codec.clone(),
        chosen: true,
        extra_rss_mib: checked.extra_rss_mib(),
        wrong: checked.wrong,
        compressed: Some(figures),
        ..Row::default()
    }
}

impl Subject {
    fn new(
        comm: &dyn Communicator,
        codec: Arc<dyn Codec>,
        route: Option<Route>,
        elements: usize,
    ) -> Result<Subject> {
        let mut state = CompressionState::with_codec(comm, codec.clone(), DType::F32, elements)?;
        if let Some(route) = route {
            state = state.by(route, comm)?;
        }
        Ok(Subject { codec, state, vector: vec![0.0; elements] })
    }

    /// Its memory that no call of this codec has allocated.
    fn bytes_beside(&self, is_own_call: bool) -> u64 {
        let state = if is_own_call { 0 } else { self.state.bytes() };
        (size_of_val(&self.vector[..]) + state) as u64
    }

    /// Starts anew: nothing is owed, and the vector is this rank's.
    fn begin(&mut self, comm: &dyn Communicator, seed: u64) -> Result<()> {
        let values = values(comm, seed);
        self.state.reset()?;
        let rank = comm.rank();
        (0..).zip(&mut self.vector).for_each(|(index, element)| *element = values.normal(rank, index));
        Ok(())
    }

    fn call(&mut self, comm: &dyn Communicator) -> unisono::Result<()> {
        comm.compressed_all_reduce(&mut self.vector, ReduceOp::Avg, &mut self.state)
    }

    /// Judges the calls since [`Subject::begin`] with `seed`.
    fn verification<'a>(&'a self, comm: &'a dyn Communicator, seed: u64) -> Verification<'a> {
        Verification { comm, values: values(comm, seed), state: &self.state, vector: &self.vector }
    }

    /// Makes one call, and dumps it.
    fn check(
        &mut self,
        comm: &dyn Communicator,
        seed: u64,
        dump: Option<&Dump>,
    ) -> Result<(Checked, Judgement)> {
        self.begin(comm, seed)?;
        let dumped = |written: std::io::Result<()>| written.map_err(|error| Problem::failed("--dump", error));
        let rank = comm.rank();
        if let Some(dump) = dump {
            let elements = self.vector.len() as u64;
            dumped(dump.compressed_call(self.codec.name(), rank, comm.size(), elements))?;
            dumped(dump.buffer(rank, "in", bytemuck::cast_slice(&self.vector)))?;
            // In two levels it is the sum of a host that is encoded, and summed codes have scales of all ranks.
            if self.state.route() == Route::Direct {
                let encoded = self.state.encode(&self.vector)?;
                dumped(dump.buffer(rank, "encoded", bytemuck::cast_slice(&encoded)))?;
            }
        }
        let watch = Watch::start();
        self.call(comm)?;
        let peak_bytes = watch.peak_bytes();
        if let Some(dump) = dump {
            dumped(dump.buffer(rank, "out", bytemuck::cast_slice(&self.vector)))?;
            dumped(dump.buffer(rank, "residual", bytemuck::cast_slice(&self.state.residual())))?;
        }
        let judgement = self.verification(comm, seed).after_one_call()?;
        Ok((Checked { wrong: judgement.wrong, algorithm: self.codec.name(), peak_bytes }, judgement))
    }
}

/// The bytes that all ranks send between hosts, or between ranks if there is one host.
fn sent_bytes(comm: &dyn Communicator, state: &CompressionState) -> u64 {
    let (hosts, ranks) = (comm.group().hosts(), comm.size());
    let is_one_host = hosts.iter().all(|host| *host == hosts[0]);
    let hosts = if is_one_host { (0..ranks).collect() } else { hosts.to_vec() };
    let bytes = network_bytes(state.codec(), state.elements(), &hosts, state.route());
    bytes.to_owners + bytes.to_all
}

fn values(comm: &dyn Communicator, seed: u64) -> Values {
    Values { seed, ranks: comm.size(), dtype: DType::F32, op: None }
}
