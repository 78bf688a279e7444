//! The commands that list, show and prove algorithms.

use std::io::Write;
use std::ops::RangeInclusive;

use serde::Serialize;
use unisono_schedule::{
    Action, Algorithm, Choice, Collective, Cost, Counterexample, Refusal, Registry, Schedule, Shape,
    StepIndex, Summary, roots, verify_range,
};

use crate::arguments::AlgoCommands;
use crate::choices::{fitting, named, requirements};
use crate::figures::FiguresHere;
use crate::problem::{Problem, Result};
use crate::{price, print};

/// Numbers of ranks for which the list states the cost: a power of two and another.
const LISTED_RANKS: [u32; 2] = [8, 12];

/// Answers a command about the algorithms of `registry`.
pub(crate) fn execute(
    command: AlgoCommands,
    registry: &Registry,
    here: &FiguresHere,
    out: &mut dyn Write,
) -> Result<()> {
    match command {
        AlgoCommands::List { collective, json } => list(registry, collective, json, out),
        AlgoCommands::Show { name, ranks, root, json } => {
            show(registry, &name, Shape::new(ranks), root, json, out)
        }
        AlgoCommands::Verify { name, all: _, ranks, json } => {
            verify(registry, name.as_deref(), ranks, json, out)
        }
        AlgoCommands::Price(arguments) => price::price(&arguments, registry, here, out),
    }
}

#[derive(Serialize)]
struct Listed {
    collective: &'static str,
    name: &'static str,
    /// Whether it is the program's, and not of this crate.
    own: bool,
    requires: Vec<&'static str>,
    /// Whether it claims so.
    canonical: bool,
    summary: String,
    source: String,
    costs: Vec<ListedCost>,
    /// Why a cost is not known.
    refused: Vec<String>,
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
    fn new(cost: &Cost, ranks: u32) -> ListedCost {
        ListedCost {
            ranks,
            rounds: cost.rounds,
            messages: cost.messages,
            peers: cost.peers,
            sent: cost.sent.to_string(),
            received: cost.received.to_string(),
            reduced: cost.reduced.to_string(),
        }
    }
}

impl Listed {
    fn new(registry: &Registry, algorithm: &Algorithm) -> Listed {
        let (mut costs, mut refused) = (Vec::new(), Vec::new());
        for ranks in LISTED_RANKS {
            match registry.facts(algorithm, &Shape::new(ranks)) {
                Ok(facts) => costs.extend(facts.cost.map(|cost| ListedCost::new(&cost, ranks))),
                Err(refusal) if matches!(refusal.reason, Refusal::DoesNotFit { .. }) => {}
                Err(refusal) => refused.push(refusal.to_string()),
            }
        }
        Listed {
            collective: algorithm.collective.name(),
            name: algorithm.name,
            own: unisono_schedule::find(algorithm.collective, algorithm.name).is_none(),
            requires: requirements(algorithm),
            canonical: algorithm.canonical,
            summary: algorithm.summary.to_string(),
            source: algorithm.source.to_string(),
            costs,
            refused,
        }
    }

    fn text(&self) -> String {
        let Listed { collective, name, summary, .. } = self;
        let colon = if summary.is_empty() { "" } else { ": " };
        let mut text = format!("{collective}/{name}{colon}{summary}");
        let mut line = |line: &str| text += &format!("\n    {line}");
        if self.own {
            line("of this program");
        }
        for ListedCost { ranks, rounds, messages, peers, sent, received, reduced } in &self.costs {
            line(&format!(
                "{ranks} ranks: {rounds} rounds, {messages} messages, {peers} peers; \
                 of the vector {sent} sent, {received} received, {reduced} reduced"
            ));
        }
        self.refused.iter().for_each(|why| line(&format!("refused: {why}")));
        if !self.requires.is_empty() {
            line(&format!("requires {}", self.requires.join(", ")));
        }
        if self.canonical {
            line("sums in the canonical order");
        }
        if !self.source.is_empty() {
            line(&self.source);
        }
        text
    }
}

fn list(registry: &Registry, collective: Option<Collective>, json: bool, out: &mut dyn Write) -> Result<()> {
    let asked = registry.algorithms().filter(|one| collective.is_none_or(|asked| one.collective == asked));
    let all: Vec<Listed> = asked.map(|one| Listed::new(registry, one)).collect();
    if json {
        return print::document(out, &all);
    }
    let texts: Vec<String> = all.iter().map(Listed::text).collect();
    print::line(out, &texts.join("\n"))
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

fn show(
    registry: &Registry,
    name: &str,
    shape: Shape,
    root: Option<u32>,
    json: bool,
    out: &mut dyn Write,
) -> Result<()> {
    let shape = shape.with_root(root.unwrap_or_default());
    if shape.root >= shape.ranks {
        let problem =
            format!("--root {}: {} ranks have roots 0 to {}", shape.root, shape.ranks, shape.ranks - 1);
        return Err(Problem::usage(problem));
    }
    let mut shown = Vec::new();
    for Choice { algorithm, shape } in fitting(registry, Some(name), &shape)? {
        if root.is_some() && !algorithm.collective.is_rooted() {
            return Err(Problem::usage(format!("--root: {} has no root", algorithm.collective.name())));
        }
        let schedules = (0..shape.ranks).map(|rank| algorithm.try_schedule(&shape, rank));
        let schedules = schedules.collect::<Result<Vec<Schedule>, _>>();
        let schedules = schedules.map_err(|refused| Problem::failed("the schedules", refused))?;
        if json {
            let schedules = schedules.iter().map(ShownSchedule::new).collect();
            let (collective, name) = (algorithm.collective.name(), algorithm.name);
            shown.push(Shown { collective, name, ranks: shape.ranks, root: shape.root, schedules });
            continue;
        }
        print::line(out, format!("{}: {}", algorithm.qualified_name(), algorithm.summary).trim_end())?;
        for schedule in schedules {
            print::line(out, schedule.to_string().trim_end())?;
        }
    }
    if json { print::document(out, &shown) } else { Ok(()) }
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
    /// Whether roots were left out.
    #[serde(skip)]
    has_other_roots: bool,
}

fn verify(
    registry: &Registry,
    name: Option<&str>,
    ranks: RangeInclusive<u32>,
    json: bool,
    out: &mut dyn Write,
) -> Result<()> {
    if let Some((plain, number)) = name.and_then(|name| name.split_once(':')) {
        for algorithm in named(registry, Some(plain))? {
            let (name, widest) = (format!("{}:{number}", algorithm.name), Shape::new(Shape::RANKS_MAX));
            if let Err(unknown) = Choice::named(registry, algorithm.collective, &name, &widest) {
                return Err(Problem::usage(unknown.to_string()));
            }
        }
        let problem =
            format!("{plain}:{number}: verify proves several numbers of leaders at once, ask for {plain}");
        return Err(Problem::usage(problem));
    }
    let algorithms: Vec<&Algorithm> = named(registry, name)?.into_iter().map(|one| &**one).collect();
    let results = verify_range(&algorithms, ranks.clone());
    let results: Vec<_> = algorithms.into_iter().zip(results).collect();
    report(&results, &ranks, json, out)
}

type Proved<'a> = (&'a Algorithm, Result<Summary, Counterexample>);

fn report(
    results: &[Proved<'_>],
    ranks: &RangeInclusive<u32>,
    json: bool,
    out: &mut dyn Write,
) -> Result<()> {
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
            has_other_roots: roots(algorithm, *ranks.end()).len() < *ranks.end() as usize
                && algorithm.collective.is_rooted(),
        }
    };
    let all: Vec<Verified> = results.iter().map(verified).collect();
    if json {
        print::document(out, &all)?;
    } else {
        let range = match (ranks.start(), ranks.end()) {
            (1, 1) => "1 rank".to_owned(),
            (first, last) if first == last => format!("{first} ranks"),
            (first, last) => format!("{first} to {last} ranks"),
        };
        all.iter().try_for_each(|one| print::line(out, &one.line(&range)))?;
    }
    if all.iter().all(|one| one.proved) { Ok(()) } else { Err(Problem::reported()) }
}

impl Verified {
    fn line(&self, range: &str) -> String {
        let Verified { collective, name, shapes, steps, counterexample, .. } = self;
        match counterexample {
            None if *shapes == 0 => {
                format!("{collective}/{name}: it fits no group of {range}, nothing is proved")
            }
            None => {
                let noun = if *shapes == 1 { "shape" } else { "shapes" };
                let roots =
                    if self.has_other_roots { "; above 16 ranks for roots 0, 1, half and last" } else { "" };
                format!("{collective}/{name}: proved for {range}: {shapes} {noun}, {steps} steps{roots}")
            }
            Some(counterexample) => format!("wrong: {counterexample}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use unisono_schedule::{Collective, algorithms, find, verify_schedules};

    use super::*;

    #[test]
    fn a_counterexample_is_reported_and_fails() {
        let ring = find(Collective::AllGather, "ring").unwrap();
        // Rank 2's steps, given to rank 1 as well.
        let schedules = [0, 2, 2].map(|rank| ring.schedule(&Shape::new(3), rank));
        let counterexample = verify_schedules(ring, &Shape::new(3), &schedules).unwrap_err();
        let (text, mut out) = (counterexample.to_string(), Vec::new());
        let results = [(&**ring, Ok(Summary::default())), (&**ring, Err(counterexample))];
        assert!(report(&results[..1], &(3..=3), true, &mut out).is_ok());
        assert_eq!(report(&results, &(3..=3), true, &mut out).unwrap_err().status, 1);
        let line = Verified {
            collective: "all_gather",
            name: "ring",
            ranks: [3, 3],
            proved: false,
            shapes: 0,
            steps: 0,
            counterexample: Some(text.clone()),
            has_other_roots: false,
        }
        .line("3 to 3 ranks");
        assert!(line.contains(&text), "{line}");
    }

    #[test]
    fn a_number_says_how_many_lead_and_is_refused_elsewhere() {
        let (registry, eight) = (Registry::built_in(), Shape::new(8));
        let [led] = &fitting(&registry, Some("leaders:4"), &eight).unwrap()[..] else {
            panic!("one algorithm")
        };
        assert_eq!((led.algorithm.name, led.shape), ("leaders", eight.with_leaders(4)));
        assert!(
            fitting(&registry, Some("all_reduce/leaders:5"), &eight)
                .unwrap_err()
                .text
                .contains("at most 4 of them")
        );
        assert!(
            fitting(&registry, Some("ring:2"), &eight)
                .unwrap_err()
                .text
                .contains("only leaders takes a number")
        );
    }

    #[test]
    fn a_name_stands_for_one_algorithm_or_for_all_that_bear_it() {
        let registry = Registry::built_in();
        assert_eq!(named(&registry, Some("all_reduce/ring")).unwrap().len(), 1);
        assert!(named(&registry, Some("ring")).unwrap().len() > 1);
        assert_eq!(named(&registry, None).unwrap().len(), algorithms().len());
        let unknown = |name| named(&registry, Some(name)).unwrap_err().text;
        assert!(unknown("rings").starts_with("unknown algorithm \"rings\", the nearest are ring, "));
        assert!(unknown("allreduce/ring").contains("the nearest are all_reduce/ring, "));
    }
}
