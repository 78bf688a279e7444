//! `unisono bench`: measures operations between ranks and checks every element of their results.

mod case;
pub(crate) mod command;
mod compressed;
mod dump;
pub(crate) mod form;
mod issue;
mod kernels;
pub(crate) mod operations;
mod plot;
#[cfg(test)]
mod prediction_tests;
pub(crate) mod report;
mod resident;
pub(crate) mod timing;
mod values;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use unisono::compression::{Codec, Route};
use unisono::extend::calls::AlgorithmName;
use unisono::{Collectives, Communicator, DType, ReduceOp};

use crate::combine::combine;
use crate::forecast::Forecast;
use crate::problem::{Problem, Result};
use case::{Case, Memory};
use dump::Dump;
use form::Form;
use operations::{BenchOperation, CompressedOperation, MeasuredOperation};
use report::Row;
use resident::Watch;
use timing::{Effort, time};

/// The algorithms that are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Algorithms {
    /// The algorithm that the library chooses.
    Cheapest,
    /// The algorithms of these names; several in turns.
    Named(Vec<Arc<str>>),
    /// Every algorithm that fits the call, in turns.
    All,
}

/// The measurements to make.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) operations: Vec<BenchOperation>,
    pub(crate) sizes: Vec<u64>,
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
    /// The forms in which an operation is measured, if it has them.
    pub(crate) forms: Vec<Form>,
    /// For compressed calls.
    pub(crate) codecs: Vec<Arc<dyn Codec>>,
    /// The routes of compressed calls; the cheaper way if there are none.
    pub(crate) routes: Vec<Route>,
    /// Whether the parts of compressed calls are measured too.
    pub(crate) parts: bool,
    pub(crate) algorithms: Algorithms,
    /// The file for a picture of the rows.
    pub(crate) plot: Option<PathBuf>,
    /// The folder for the input and output of the last call of each row.
    pub(crate) dump: Option<PathBuf>,
    pub(crate) effort: Effort,
}

impl Plan {
    /// The calls that are measured in turns, for each operation and size.
    fn turns(&self, comm: &dyn Communicator, forecast: &Forecast) -> Vec<Turns> {
        let (ranks, rank) = (comm.size(), comm.rank());
        let case = |operation: MeasuredOperation, form, size| Case {
            operation,
            form,
            // The library itself describes a barrier so.
            dtype: if operation.has_size() { self.dtype } else { DType::U8 },
            op: operation.reduces().then_some(self.op),
            count: operation.count(size, self.dtype.bytes(), ranks),
            algorithm: None,
            prepared: None,
            ranks,
            rank,
        };
        let sizes = |operation: MeasuredOperation| if operation.has_size() { &self.sizes[..] } else { &[0] };
        let of_operation = |&asked: &BenchOperation| {
            sizes(asked.like()).iter().flat_map(move |&size| match asked {
                BenchOperation::Measured(operation) => {
                    let forms = self.forms.iter().filter(move |form| form.fits(operation));
                    let turns = |form: &Form| self.algorithms.apply(case(operation, *form, size), forecast);
                    forms.map(turns).map(Turns::Algorithms).collect::<Vec<_>>()
                }
                BenchOperation::Compressed(operation) => {
                    let case = case(asked.like(), Form::Plain, size);
                    let elements = case.count * asked.like().shares(ranks);
                    vec![Turns::Codecs { operation, elements }]
                }
            })
        };
        self.operations.iter().flat_map(of_operation).collect()
    }
}

/// The calls of one operation and size.
enum Turns {
    /// They differ only in their algorithm.
    Algorithms(Vec<Case>),
    /// A compressed call by each codec of the plan, each way.
    Codecs { operation: CompressedOperation, elements: u64 },
}

impl Algorithms {
    /// Whether there are several for one call.
    pub(crate) fn are_compared(&self) -> bool {
        match self {
            Algorithms::Cheapest => false,
            Algorithms::Named(names) => names.len() > 1,
            Algorithms::All => true,
        }
    }

    fn apply(&self, case: Case, forecast: &Forecast) -> Vec<Case> {
        let with = |name: &str| Case { algorithm: Some(AlgorithmName::new(name)), ..case.clone() };
        match (self, case.operation.collective()) {
            (Algorithms::Named(names), _) => names.iter().map(|name| with(name)).collect(),
            // On one rank all algorithms are the same.
            (Algorithms::All, Some(collective)) if case.ranks > 1 => {
                let admitted = forecast.admitted(collective, &case.admit());
                admitted.into_iter().map(|algorithm| with(algorithm.name)).collect()
            }
            (Algorithms::Cheapest | Algorithms::All, _) => vec![case],
        }
    }
}

/// Measures and checks every row of the plan, and gives each to `report` when it is done; every rank gets the same row.
/// Collective.
pub(crate) fn measure(
    comm: &dyn Communicator,
    plan: &Plan,
    mut report: impl FnMut(&Row, &str),
) -> Result<Vec<Row>> {
    let forecast = unisono::algorithms::forecast_of_group(comm.group())?;
    let all = plan.turns(comm, &forecast);
    let cases = all.iter().flat_map(|turns| match turns {
        Turns::Algorithms(cases) => &cases[..],
        Turns::Codecs { .. } => &[],
    });
    let mut memory = Memory::new(comm, &cases.cloned().collect::<Vec<_>>());
    let mut rows = Vec::new();
    for turns in &all {
        let place = Place { comm, effort: plan.effort, row: rows.len(), dump: plan.dump.as_deref() };
        let measured = match turns {
            Turns::Algorithms(cases) => {
                let mut measured = place.measure(cases, &forecast, &mut memory)?;
                if plan.algorithms.are_compared() {
                    compare(&mut measured);
                }
                let line = |(row, case): (&Row, &Case)| report(row, &row.line(case.count, case.root(0)));
                measured.iter().zip(cases).for_each(line);
                measured
            }
            Turns::Codecs { operation, elements } => {
                let (elements_here, bytes) = (*elements as usize, memory.bytes());
                let measured = match operation {
                    CompressedOperation::AllReduce => {
                        compressed::measure(&place, plan, elements_here, bytes)?
                    }
                    CompressedOperation::ReduceScatter => {
                        compressed::scatter::measure(&place, plan, elements_here, bytes)?
                    }
                };
                measured.iter().for_each(|row| report(row, &row.line(*elements, None)));
                measured
            }
        };
        rows.extend(measured);
    }
    Ok(rows)
}

/// Fills in how much slower than the best of them each one is.
fn compare(measured: &mut [Row]) {
    let best = measured.iter().map(|row| row.median_us).fold(f64::INFINITY, f64::min);
    // A call on one rank can be shorter than a tick of the clock.
    let times_best = |row: &Row| if best > 0.0 { row.median_us / best } else { 1.0 };
    measured.iter_mut().for_each(|row| row.times_best = Some(times_best(row)));
}

/// The communicator and the effort of calls that are measured in turns.
struct Place<'a> {
    comm: &'a dyn Communicator,
    effort: Effort,
    /// The number of the first one's row.
    row: usize,
    dump: Option<&'a Path>,
}

impl Place<'_> {
    fn measure(&self, cases: &[Case], forecast: &Forecast, memory: &mut Memory) -> Result<Vec<Row>> {
        let &Place { comm, effort, .. } = self;
        let cases = &cases.iter().map(|case| case.prepared(comm)).collect::<unisono::Result<Vec<_>>>()?;
        // The first check connects and allocates, so that this is not measured.
        let checks =
            (self.row..).zip(cases).map(|(row, case)| check(comm, case, 2 * row as u64, memory, None));
        let before = checks.collect::<Result<Vec<_>>>()?;
        let timings = time(comm, effort, cases.len(), |way, index| {
            let case = &cases[way];
            case.call(comm, case.root(index), memory).map(|_| ())
        })?;
        let mut rows = Vec::with_capacity(cases.len());
        for (((case, before), timing), row) in cases.iter().zip(before).zip(timings).zip(self.row..) {
            let dump = self.dump(row)?;
            let after = check(comm, case, 2 * row as u64 + 1, memory, dump.as_ref())?;
            let checked = before.and(after);
            let early = if case.operation.has_size() { 0 } else { left_early(comm)? };
            let checked =
                Checked { wrong: checked.wrong + early, ..checked }.over_ranks(comm, memory.bytes())?;
            rows.push(row_of(case, &checked, forecast).timed(
                case.operation,
                case.messages_in_turn(),
                &timing,
            ));
        }
        Ok(rows)
    }

    /// The folder of a row, if there is one.
    fn dump(&self, row: usize) -> Result<Option<Dump>> {
        let dump = self.dump.map(|directory| Dump::create(directory, row));
        dump.transpose().map_err(|error| Problem::failed("--dump", error))
    }
}

/// A row without times.
fn row_of(case: &Case, checked: &Checked, forecast: &Forecast) -> Row {
    let collective = case.operation.collective();
    // The outcome leaves out the number of leaders, so the forced name counts.
    let asked = case.algorithm.and_then(|name| name.text().ok());
    let ran = collective.and_then(|collective| forecast.ran(collective, asked, checked.algorithm));
    let pick = collective.and_then(|collective| forecast.pick(collective, case.size_bytes(), &case.admit()));
    Row {
        op: case.form.of(case.operation),
        ranks: case.ranks,
        bytes: case.size_bytes(),
        dtype: case.dtype.name().to_owned(),
        redop: case.op.map(|op| op.name().to_owned()),
        algorithm: asked.filter(|_| ran.is_some()).unwrap_or(checked.algorithm).to_owned(),
        predicted_us: ran.as_ref().and_then(|ran| forecast.microseconds(ran, case.size_bytes())),
        // Without a schedule nothing was chosen.
        chosen: ran.is_none_or(|ran| pick == Some(ran)),
        extra_rss_mib: checked.extra_rss_mib(),
        wrong: checked.wrong,
        // The times come with the measurement.
        ..Row::default()
    }
}

/// The result of the checked calls of a case.
struct Checked {
    /// Wrong elements.
    wrong: u64,
    algorithm: &'static str,
    /// The most bytes that were resident during a call; after [`Checked::over_ranks`] without the bench's own buffers.
    peak_bytes: Option<u64>,
}

impl Checked {
    fn and(self, later: Checked) -> Checked {
        Checked {
            wrong: self.wrong + later.wrong,
            algorithm: later.algorithm,
            peak_bytes: self.peak_bytes.zip(later.peak_bytes).map(|(one, other)| one.max(other)),
        }
    }

    /// All ranks' wrong elements, and the largest of their memories beyond `own_bytes` of the bench itself. Collective.
    fn over_ranks(self, comm: &dyn Communicator, own_bytes: u64) -> Result<Checked> {
        let mut wrong = [self.wrong];
        combine(comm, &mut wrong, ReduceOp::Sum)?;
        let extra = self.peak_bytes.map(|peak| peak.saturating_sub(own_bytes));
        // If one rank does not know, the maximum is not known.
        let mut most = [extra.unwrap_or(u64::MAX)];
        combine(comm, &mut most, ReduceOp::Max)?;
        let peak_bytes = Some(most[0]).filter(|&most| most != u64::MAX);
        Ok(Checked { wrong: wrong[0], peak_bytes, ..self })
    }

    fn extra_rss_mib(&self) -> Option<f64> {
        self.peak_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20))
    }
}

/// Makes one call with every root, or only one, on fresh inputs, and dumps the last one.
fn check(
    comm: &dyn Communicator,
    case: &Case,
    seed: u64,
    memory: &mut Memory,
    dump: Option<&Dump>,
) -> Result<Checked> {
    let dumped = |written: std::io::Result<()>| written.map_err(|error| Problem::failed("--dump", error));
    let calls = if case.operation.is_rooted() { u64::from(case.ranks) } else { 1 };
    let mut checked = Checked { wrong: 0, algorithm: "", peak_bytes: Some(0) };
    for call in 0..calls {
        let (root, seed) = (case.root(call), seed * calls + call);
        let dump = dump.filter(|_| call + 1 == calls);
        case.fill(comm, root, seed, memory);
        if let Some(dump) = dump {
            dumped(dump.call(case, root))?;
            dumped(dump.buffer(case.rank, "in", case.input(comm, root, memory)))?;
        }
        let watch = Watch::start();
        let algorithm = case.call(comm, root, memory)?.algorithm;
        let peak_bytes = watch.peak_bytes();
        let output = case.output(comm, root, memory);
        checked = checked.and(Checked { wrong: case.wrong(root, seed, output), algorithm, peak_bytes });
        if let Some(dump) = dump {
            dumped(dump.buffer(case.rank, "out", output))?;
        }
    }
    Ok(checked)
}

/// The delay of one rank before the barrier that is checked.
const LATE: Duration = Duration::from_millis(5);

/// 1 if this rank left a barrier before the last rank entered it, by the clock that all processes of a host share.
/// Hosts have no common clock, so between hosts nothing is checked.
fn left_early(comm: &dyn Communicator) -> Result<u64> {
    let now = || {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    if comm.rank() + 1 == comm.size() {
        std::thread::sleep(LATE);
    }
    let mut last_entry = [now()];
    comm.barrier()?;
    let exit = now();
    combine(comm, &mut last_entry, ReduceOp::Max)?;
    Ok(u64::from(comm.group().host_count() == 1 && exit < last_entry[0]))
}

#[cfg(test)]
mod tests {
    use unisono::Solo;

    use super::*;

    fn plan(sizes: &[u64]) -> Plan {
        Plan {
            operations: MeasuredOperation::all().map(BenchOperation::Measured).collect(),
            sizes: sizes.to_vec(),
            dtype: DType::I16,
            op: ReduceOp::Max,
            forms: vec![Form::Plain],
            codecs: Vec::new(),
            routes: Vec::new(),
            parts: false,
            algorithms: Algorithms::All,
            plot: None,
            dump: None,
            effort: Effort { blocks_max: 3, time: Duration::from_millis(20) },
        }
    }

    #[test]
    fn every_operation_gives_a_row_per_size_and_a_barrier_one() {
        let mut lines = 0;
        let rows = measure(&Solo::new(), &plan(&[64, 1001]), |_, _| lines += 1).unwrap();
        assert_eq!((rows.len(), lines), (23, 23));
        assert!(
            rows.iter().all(|row| row.wrong == 0 && row.ranks == 1 && row.algorithm == "local"),
            "{rows:?}"
        );
        assert_eq!((rows[0].bytes, rows[1].bytes), (64, 1000));
        assert_eq!(rows.iter().filter(|row| row.redop.as_deref() == Some("max")).count(), 10);
        let barrier = rows.iter().find(|row| row.op == "barrier").unwrap();
        assert_eq!((barrier.bytes, barrier.busbw_gb_per_s), (0, 0.0));
        assert!(rows.iter().all(|row| row.min_us > 0.0 && row.median_us >= row.min_us));
        assert!(
            rows.iter().all(|row| row.chosen && row.times_best == Some(1.0) && row.predicted_us.is_none())
        );
    }
}
