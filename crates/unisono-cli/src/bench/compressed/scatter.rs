//! Rows of `compressed_reduce_scatter`: each rank gets its share of the mean, by one codec after the other and one way
//! after the other; beside them the exact reduce-scatter in two levels, where there are any.

use std::sync::Arc;

use unisono::call::{Buffer, BufferMut};
use unisono::compression::{Codec, CompressedCollectives, CompressionState, Route, network_bytes};
use unisono::{Collective, Collectives, Communicator, ReduceOp};

use super::expected::{Definition, Sum, own_debts};
use super::{row_of, values, ways};
use crate::bench::operations::{CompressedOperation, MeasuredOperation};
use crate::bench::report::{CompressedFigures, Row};
use crate::bench::resident::Watch;
use crate::bench::timing::time;
use crate::bench::values::Values;
use crate::bench::{Checked, Place, Plan};
use crate::combine::combine;
use crate::problem::Result;

/// As errors of f32 sums and means may be: of a few roundings of numbers of this size.
const TOLERANCE: f64 = 64.0 * f32::EPSILON as f64;

/// One way to scatter the same vectors.
enum Scatter {
    Compressed { codec: Arc<dyn Codec>, state: Box<CompressionState> },
    Exact { inside: Arc<dyn Communicator>, between: Arc<dyn Communicator>, sum: Vec<f32> },
}

/// The common vectors of all ways on this rank.
struct Vectors {
    input: Vec<f32>,
    output: Vec<f32>,
}

/// The result of a checked call: wrong elements, and the sums of squares of error and exact mean.
#[derive(Default)]
struct Found {
    wrong: u64,
    squares: [f64; 2],
}

/// Measures and checks a row for each way. `bench_bytes` is the memory of the bench besides. Collective.
pub(in crate::bench) fn measure(
    place: &Place<'_>,
    plan: &Plan,
    elements: usize,
    bench_bytes: u64,
) -> Result<Vec<Row>> {
    let comm = place.comm;
    let ranks = comm.size() as usize;
    let mut vectors = Vectors { input: vec![0.0; elements], output: vec![0.0; elements / ranks] };
    let mut subjects = Vec::new();
    for (codec, route) in ways(plan) {
        let mut state = CompressionState::reduce_scatter::<f32>(comm, codec.clone(), &[elements])?;
        if let Some(route) = route {
            state = state.by(route, comm)?;
        }
        subjects.push(Scatter::Compressed { codec, state: Box::new(state) });
    }
    subjects.extend(Scatter::exact(comm, elements)?);
    let mut founds = Vec::new();
    for (row, subject) in (place.row..).zip(&mut subjects) {
        founds.push(subject.check(comm, 2 * row as u64, &mut vectors)?);
    }
    let timings = time(comm, place.effort, subjects.len(), |way, _| subjects[way].call(comm, &mut vectors))?;
    let mut rows = Vec::new();
    for (((row, subject), before), timing) in (place.row..).zip(&mut subjects).zip(founds).zip(timings) {
        let watch = Watch::start();
        let after = subject.check(comm, 2 * row as u64 + 1, &mut vectors)?;
        let peak_bytes = watch.peak_bytes();
        let beside = bench_bytes + 8 * elements as u64;
        let checked = Checked { wrong: before.wrong + after.wrong, algorithm: subject.name(), peak_bytes };
        let checked = checked.over_ranks(comm, beside)?;
        let figures = subject.figures(comm, elements, before.relative_error(comm)?);
        let operation = CompressedOperation::ReduceScatter;
        let like = MeasuredOperation::Collective(Collective::ReduceScatter);
        rows.push(row_of(operation, comm, elements, &checked, figures).timed(like, 1.0, &timing));
    }
    Ok(rows)
}

impl Found {
    /// Of all ranks. Collective.
    fn relative_error(&self, comm: &dyn Communicator) -> Result<f64> {
        let mut squares = self.squares;
        combine(comm, &mut squares, ReduceOp::Sum)?;
        Ok(if squares[1] > 0.0 { (squares[0] / squares[1]).sqrt() } else { 0.0 })
    }
}

impl Scatter {
    /// The exact call in two levels, where there are several hosts with as many ranks each: a reduce-scatter in each
    /// host, and one between those ranks of hosts that have got the same part. Collective.
    fn exact(comm: &dyn Communicator, elements: usize) -> Result<Option<Scatter>> {
        let hosts = comm.group().hosts();
        let mut names = hosts.to_vec();
        names.sort_unstable();
        names.dedup();
        let ranks_of = |host: &u32| -> Vec<u32> {
            (0..comm.size()).filter(|rank| hosts[*rank as usize] == *host).collect()
        };
        let teams: Vec<Vec<u32>> = names.iter().map(ranks_of).collect();
        let places = teams[0].len();
        if teams.len() < 2 || places < 2 || teams.iter().any(|team| team.len() != places) {
            return Ok(None);
        }
        let (mut inside, mut between) = (None, None);
        for team in &teams {
            inside = inside.or(comm.subgroup(team)?);
        }
        for place in 0..places {
            let ranks: Vec<u32> = teams.iter().map(|team| team[place]).collect();
            between = between.or(comm.subgroup(&ranks)?);
        }
        let sum = vec![0.0; elements / places];
        Ok(inside.zip(between).map(|(inside, between)| Scatter::Exact { inside, between, sum }))
    }

    fn name(&self) -> &'static str {
        match self {
            Scatter::Compressed { codec, .. } => codec.name(),
            Scatter::Exact { .. } => "exact",
        }
    }

    fn figures(&self, comm: &dyn Communicator, elements: usize, relative_error: f64) -> CompressedFigures {
        let hosts = comm.group().hosts();
        let (route, wire_bytes) = match self {
            Scatter::Compressed { codec, state } => {
                let route = state.route();
                (route, network_bytes(&**codec, elements, hosts, route).to_owners)
            }
            // Each host sends to each other the elements that the latter's ranks own.
            Scatter::Exact { between, .. } => {
                (Route::TwoLevels, 4 * elements as u64 * (u64::from(between.group().size()) - 1))
            }
        };
        let (codec, route) = (self.name().to_owned(), route.to_string());
        CompressedFigures { codec, route, wire_bytes, relative_error, parts: None }
    }

    fn call(&mut self, comm: &dyn Communicator, vectors: &mut Vectors) -> unisono::Result<()> {
        let Vectors { input, output } = vectors;
        match self {
            Scatter::Compressed { state, .. } => {
                comm.compressed_reduce_scatter(&[input], &mut [output], ReduceOp::Avg, state)
            }
            Scatter::Exact { inside, between, sum } => {
                inside.reduce_scatter(input, sum, ReduceOp::Avg)?;
                between.reduce_scatter(sum, output, ReduceOp::Avg)
            }
        }
    }

    /// Makes one call that owes nothing before, and judges it. Collective.
    fn check(&mut self, comm: &dyn Communicator, seed: u64, vectors: &mut Vectors) -> Result<Found> {
        let values = values(comm, seed);
        let rank = comm.rank();
        (0..).zip(&mut vectors.input).for_each(|(index, element)| *element = values.normal(rank, index));
        vectors.output.fill(f32::NAN);
        if let Scatter::Compressed { state, .. } = self {
            state.reset()?;
        }
        self.call(comm, vectors)?;
        let share = vectors.output.len();
        match self {
            Scatter::Exact { inside, between, .. } => {
                let chunk = inside.group().rank() * between.group().size() + between.group().rank();
                let first = chunk as usize * share;
                Ok(judge(values, &vectors.output, first, |_, mean| mean, TOLERANCE))
            }
            Scatter::Compressed { codec, state } => {
                let first = rank as usize * share;
                if codec.has_feedback() {
                    let mut owed = own_debts(state, 0..share * values.ranks as usize);
                    comm.all_reduce(&mut owed, ReduceOp::Sum)?;
                    let told = |at: usize, mean| mean - f64::from(owed[first + at]) / f64::from(values.ranks);
                    return Ok(judge(values, &vectors.output, first, told, TOLERANCE));
                }
                let expected = expected(comm, values, state, first..first + share)?;
                let told = |at: usize, _| f64::from(expected[at]);
                Ok(judge(values, &vectors.output, first, told, 0.0))
            }
        }
    }
}

/// The share of a codec without error feedback.
fn expected(
    comm: &dyn Communicator,
    values: Values,
    state: &CompressionState,
    own: std::ops::Range<usize>,
) -> Result<Vec<f32>> {
    let mut expected = vec![0.0f32; own.len()];
    let definition = Definition::new(comm, values, state);
    if let Sum::Parts(parts) = definition.sum(own)? {
        let parts: Vec<Buffer<'_>> = parts.iter().map(|part| Buffer::of(part)).collect();
        let (weight, out) = (1.0 / values.ranks as f32, BufferMut::of(&mut expected));
        state.codec().decode_sum(&definition.kernels, &parts, weight, out)?;
    }
    Ok(expected)
}

/// Compares the output from element `first` on with the value that `told` gives for element and exact mean.
fn judge(
    values: Values,
    output: &[f32],
    first: usize,
    told: impl Fn(usize, f64) -> f64,
    tolerance: f64,
) -> Found {
    let mut found = Found::default();
    for (at, output) in output.iter().enumerate() {
        let of_rank = |rank| f64::from(values.normal(rank, (first + at) as u64));
        let mean = (0..values.ranks).map(of_rank).sum::<f64>() / f64::from(values.ranks);
        let (output, told) = (f64::from(*output), told(at, mean));
        let is_right = (output - told).abs() <= tolerance * (1.0 + mean.abs() + told.abs());
        // Not a number is wrong too.
        found.wrong += u64::from(!is_right);
        found.squares[0] += (output - mean).powi(2);
        found.squares[1] += mean * mean;
    }
    found
}
