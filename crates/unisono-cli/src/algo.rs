//! `unisono algo`: lists, shows and proves the algorithms, and predicts their times.

mod price;

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::Serialize;
use unisono_schedule::{
    Action, Algorithm, Choice, Counterexample, Registry, Schedule, Shape, StepIndex, Summary, algorithms,
    verify_range,
};

use crate::arguments::AlgoCommands;
use crate::print;
use crate::problem::{Problem, Result};

/// Numbers of ranks for which the list states the cost: a power of two and another.
const LISTED_RANKS: [u32; 2] = [8, 12];

/// `unisono algo`.
pub(crate) fn algo(command: AlgoCommands) -> Result<()> {
    match command {
        AlgoCommands::List { json } => list(json),
        AlgoCommands::Show { name, ranks, root, json } => {
            show(&name, Shape::new(ranks).with_root(root), json)
        }
        AlgoCommands::Verify { name, all: _, ranks, json } => verify(name.as_deref(), ranks, json),
        AlgoCommands::Price(arguments) => price::price(&arguments),
    }
}

/// The algorithms that have this name: one for `collective/name`, those of all collectives for `name`, all for `None`.
fn named(name: Option<&str>) -> Result<Vec<&'static Arc<Algorithm>>> {
    let Some(name) = name else { return Ok(algorithms().iter().collect()) };
    let found: Vec<_> = algorithms()
        .iter()
        .filter(|algorithm| algorithm.name == name || algorithm.qualified_name() == name)
        .collect();
    if found.is_empty() {
        let names: Vec<_> = algorithms().iter().map(|one| one.qualified_name()).collect();
        return Err(Problem::usage(format!("unknown algorithm {name:?}, one of: {}", names.join(", "))));
    }
    Ok(found)
}

/// The algorithms of this name that fit `shape`. The name may fix the number of leaders, as in `leaders:4`.
fn fitting(name: Option<&str>, shape: &Shape) -> Result<Vec<Choice>> {
    let (plain, number) = match name.and_then(|name| name.split_once(':')) {
        Some((plain, number)) => (Some(plain), format!(":{number}")),
        None => (name, String::new()),
    };
    let (fitting, others): (Vec<_>, Vec<_>) =
        named(plain)?.into_iter().partition(|algorithm| algorithm.supports(shape));
    if let (true, Some(other)) = (fitting.is_empty(), others.first()) {
        let (name, requires, ranks) = (other.qualified_name(), requirements(other).join(", "), shape.ranks);
        return Err(Problem::usage(format!("{name} does not fit {ranks} ranks, it requires {requires}")));
    }
    let choice = |algorithm: &Arc<Algorithm>| {
        let registry = Registry::built_in();
        let choice =
            Choice::named(&registry, algorithm.collective, &format!("{}{number}", algorithm.name), shape);
        choice.map_err(|unknown| Problem::usage(unknown.to_string()))
    };
    fitting.into_iter().map(choice).collect()
}

/// What must hold for an algorithm to be used, in words.
pub(crate) fn requirements(algorithm: &Algorithm) -> Vec<&'static str> {
    let requires = algorithm.requires;
    [
        (requires.commutative, "a commutative operator"),
        (requires.power_of_two, "a power of two of ranks"),
        (requires.even_counts, "even counts"),
        (requires.out_of_place, "separate buffers"),
    ]
    .iter()
    .filter_map(|&(required, words)| required.then_some(words))
    .collect()
}

#[derive(Serialize)]
struct Listed {
    collective: &'static str,
    name: &'static str,
    requires: Vec<&'static str>,
    canonical: bool,
    summary: String,
    source: String,
    costs: Vec<ListedCost>,
}

/// The cost of the rank that has the most to do; fractions are of the larger of one rank's input and output.
#[derive(Serialize)]
struct ListedCost {
    ranks: u32,
    rounds: u64,
    messages: u64,
    peers: u64,
    sent: String,
    received: String,
    reduced: String,
}

impl ListedCost {
    fn new(algorithm: &Algorithm, ranks: u32) -> Option<ListedCost> {
        let cost = algorithm.cost_of(&Shape::new(ranks))?;
        Some(ListedCost {
            ranks,
            rounds: cost.rounds,
            messages: cost.messages,
            peers: cost.peers,
            sent: cost.sent.to_string(),
            received: cost.received.to_string(),
            reduced: cost.reduced.to_string(),
        })
    }
}

fn list(json: bool) -> Result<()> {
    let listed = |algorithm: &Arc<Algorithm>| Listed {
        collective: algorithm.collective.name(),
        name: algorithm.name,
        requires: requirements(algorithm),
        canonical: algorithm.canonical,
        summary: algorithm.summary.to_string(),
        source: algorithm.source.to_string(),
        costs: LISTED_RANKS
            .into_iter()
            .filter(|&ranks| algorithm.supports(&Shape::new(ranks)))
            .filter_map(|ranks| ListedCost::new(algorithm, ranks))
            .collect(),
    };
    let all: Vec<Listed> = algorithms().iter().map(listed).collect();
    if json {
        return print::document(&all);
    }
    let mut text = String::new();
    for Listed { collective, name, requires, canonical, summary, source, costs } in &all {
        text += &format!("{collective}/{name}: {summary}\n");
        for ListedCost { ranks, rounds, messages, peers, sent, received, reduced } in costs {
            text += &format!(
                "    {ranks} ranks: {rounds} rounds, {messages} messages, {peers} peers; \
                 of the vector {sent} sent, {received} received, {reduced} reduced\n"
            );
        }
        if !requires.is_empty() {
            text += &format!("    requires {}\n", requires.join(", "));
        }
        if *canonical {
            text += "    sums in the canonical order\n";
        }
        text += &format!("    {source}\n");
    }
    print::line(text.trim_end())
}

#[derive(Serialize)]
struct Shown {
    collective: &'static str,
    name: &'static str,
    ranks: u32,
    root: u32,
    schedules: Vec<ShownSchedule>,
}

#[derive(Serialize)]
struct ShownSchedule {
    rank: u32,
    extents: u32,
    scratch_chunks: u32,
    steps: Vec<ShownStep>,
}

/// One step; fields that its action does not have are null.
#[derive(Serialize)]
struct ShownStep {
    action: &'static str,
    peer: Option<u16>,
    extent: u32,
    reads: Option<String>,
    writes: Option<String>,
    after: Vec<usize>,
}

impl ShownSchedule {
    fn new(schedule: &Schedule) -> ShownSchedule {
        let step = |(index, step): (StepIndex, &unisono_schedule::Step)| ShownStep {
            action: match step.action {
                Action::Send { .. } => "send",
                Action::Recv { .. } => "recv",
                Action::RecvReduce { .. } => "recv_reduce",
                Action::Copy { .. } => "copy",
            },
            peer: step.action.link().map(|(peer, _)| peer),
            extent: step.extent,
            reads: step.action.reads().map(|slot| slot.to_string()),
            writes: step.action.writes().map(|slot| slot.to_string()),
            after: schedule.dependencies(index).iter().map(|earlier| earlier.index()).collect(),
        };
        ShownSchedule {
            rank: schedule.rank,
            extents: schedule.chunks,
            scratch_chunks: schedule.scratch_chunks,
            steps: schedule.indexed().map(step).collect(),
        }
    }
}

fn show(name: &str, shape: Shape, json: bool) -> Result<()> {
    if shape.root >= shape.ranks {
        let problem =
            format!("--root {}: {} ranks have roots 0 to {}", shape.root, shape.ranks, shape.ranks - 1);
        return Err(Problem::usage(problem));
    }
    let mut shown = Vec::new();
    for Choice { algorithm, shape } in fitting(Some(name), &shape)? {
        let schedules = (0..shape.ranks).map(|rank| algorithm.schedule(&shape, rank));
        if json {
            let schedules = schedules.map(|schedule| ShownSchedule::new(&schedule)).collect();
            let (collective, name) = (algorithm.collective.name(), algorithm.name);
            shown.push(Shown { collective, name, ranks: shape.ranks, root: shape.root, schedules });
            continue;
        }
        print::line(&format!("{}: {}", algorithm.qualified_name(), algorithm.summary))?;
        for schedule in schedules {
            print::line(schedule.to_string().trim_end())?;
        }
    }
    if json { print::document(&shown) } else { Ok(()) }
}

/// The result of the proof of one algorithm.
#[derive(Serialize)]
struct Verified {
    collective: &'static str,
    name: &'static str,
    ranks: [u32; 2],
    proved: bool,
    shapes: u64,
    steps: u64,
    counterexample: Option<String>,
}

fn verify(name: Option<&str>, ranks: RangeInclusive<u32>, json: bool) -> Result<()> {
    let algorithms: Vec<&Algorithm> = named(name)?.into_iter().map(|one| &**one).collect();
    let results = verify_range(&algorithms, ranks.clone());
    let results: Vec<_> = algorithms.into_iter().zip(results).collect();
    report(&results, &ranks, json)
}

type Proved<'a> = (&'a Algorithm, Result<Summary, Counterexample>);

fn report(results: &[Proved<'_>], ranks: &RangeInclusive<u32>, json: bool) -> Result<()> {
    let verified = |(algorithm, result): &Proved<'_>| {
        let Summary { shapes, steps, .. } = result.as_ref().copied().unwrap_or_default();
        Verified {
            collective: algorithm.collective.name(),
            name: algorithm.name,
            ranks: [*ranks.start(), *ranks.end()],
            proved: result.is_ok(),
            shapes,
            steps,
            counterexample: result.as_ref().err().map(Counterexample::to_string),
        }
    };
    let all: Vec<Verified> = results.iter().map(verified).collect();
    if json {
        print::document(&all)?;
    } else {
        let range = format!("{} to {} ranks", ranks.start(), ranks.end());
        all.iter().try_for_each(|one| print::line(&one.line(&range)))?;
    }
    if all.iter().all(|one| one.proved) { Ok(()) } else { Err(Problem::reported()) }
}

impl Verified {
    fn line(&self, range: &str) -> String {
        let Verified { collective, name, shapes, steps, counterexample, .. } = self;
        match counterexample {
            None => format!("{collective}/{name}: proved for {range}: {shapes} shapes, {steps} steps"),
            Some(counterexample) => format!("wrong: {counterexample}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use unisono_schedule::{Collective, find, verify_schedules};

    use super::*;

    #[test]
    fn a_counterexample_is_reported_and_fails() {
        let ring = find(Collective::AllGather, "ring").unwrap();
        // Rank 2's steps, given to rank 1 as well.
        let schedules = [0, 2, 2].map(|rank| ring.schedule(&Shape::new(3), rank));
        let counterexample = verify_schedules(ring, &Shape::new(3), &schedules).unwrap_err();
        let text = counterexample.to_string();
        let results = [(&**ring, Ok(Summary::default())), (&**ring, Err(counterexample))];
        assert!(report(&results[..1], &(3..=3), true).is_ok());
        assert_eq!(report(&results, &(3..=3), true).unwrap_err().status, 1);
        let line = Verified {
            collective: "all_gather",
            name: "ring",
            ranks: [3, 3],
            proved: false,
            shapes: 0,
            steps: 0,
            counterexample: Some(text.clone()),
        }
        .line("3 to 3 ranks");
        assert!(line.contains(&text), "{line}");
    }

    #[test]
    fn a_number_says_how_many_lead_and_is_refused_elsewhere() {
        let eight = Shape::new(8);
        let [led] = &fitting(Some("leaders:4"), &eight).unwrap()[..] else { panic!("one algorithm") };
        assert_eq!((led.algorithm.name, led.shape), ("leaders", eight.with_leaders(4)));
        assert!(fitting(Some("all_reduce/leaders:5"), &eight).unwrap_err().text.contains("1 to 4 of them"));
        assert!(fitting(Some("ring:2"), &eight).unwrap_err().text.contains("only leaders takes a number"));
    }

    #[test]
    fn a_name_stands_for_one_algorithm_or_for_all_that_bear_it() {
        assert_eq!(named(Some("all_reduce/ring")).unwrap().len(), 1);
        assert!(named(Some("ring")).unwrap().len() > 1);
        assert_eq!(named(None).unwrap().len(), algorithms().len());
        assert!(named(Some("rings")).unwrap_err().text.contains("all_reduce/ring"));
    }
}
