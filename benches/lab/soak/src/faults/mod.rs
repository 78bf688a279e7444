//! Random faults in real jobs: ranks die, stop and go on, and their streams are slow, end or change, while they run a
//! random program whose every result they check.

mod judge;
mod plan;
mod program;
mod proxy;
mod rank;

use std::fmt;

use judge::{End, Outcome};
use plan::Plan;

pub(crate) use judge::introduce;
pub(crate) use plan::Random;
pub(crate) use proxy::Wanted;
pub(crate) use rank::{join, run as rank};

/// What came of all jobs.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    runs: u32,
    first_seed: u64,
    ranks: usize,
    kills: usize,
    stops: usize,
    wires: usize,
    done: usize,
    evicted: usize,
    shrinks: usize,
    one_witness: u32,
    /// What was broken, by seed.
    broken: Vec<String>,
}

impl Totals {
    /// Whether nothing was broken.
    pub(crate) fn is_kept(&self) -> bool {
        self.broken.is_empty()
    }

    fn add(&mut self, outcome: &Outcome) {
        self.ranks += outcome.ends.len();
        let count = |wanted| outcome.ends.iter().filter(|end| **end == wanted).count();
        self.kills += count(End::Killed);
        self.done += count(End::Done);
        self.evicted += count(End::Evicted);
        self.shrinks += outcome.epochs;
        self.stops += outcome.stops;
        self.wires += outcome.hits;
        self.one_witness += u32::from(outcome.has_one_witness);
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals { runs, first_seed, ranks, kills, stops, wires, done, evicted, shrinks, .. } = self;
        write!(
            formatter,
            "random faults: {runs} runs from seed {first_seed}, {ranks} ranks; {kills} killed, {stops} stopped for a \
             while, {wires} faults of streams; {shrinks} shrinks, {done} ranks done, {evicted} evicted; {} runs broken",
            self.broken.len()
        )?;
        self.broken.iter().try_for_each(|broken| write!(formatter, "\n  {broken}"))
    }
}

/// Makes so many jobs; the plan of each follows from its own seed alone.
pub(crate) fn measure(runs: u32, first_seed: u64) -> Totals {
    let mut totals = Totals { runs, first_seed, ..Totals::default() };
    for seed in (first_seed..).take(runs as usize) {
        let plan = Plan::from_seed(seed);
        let name = format!("soak-{}-faults-{seed}", std::process::id());
        match judge::run(&plan, &name) {
            Ok(outcome) => totals.add(&outcome),
            Err(problem) => {
                let broken = format!("seed {seed}: {problem}; {plan:?}");
                eprintln!("{broken}");
                totals.broken.push(broken);
            }
        }
    }
    totals
}
