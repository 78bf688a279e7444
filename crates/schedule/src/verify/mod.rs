//! The verifier: a proof that an algorithm is right for a shape, or a counterexample.
//!
//! In this order, each relying on those before:
//! 1. `structure`: slots, extents and peers exist; sizes are as claimed; inputs are never written.
//! 2. `races`: conflicting steps of a rank are ordered, out of place and in place, for any numbers of pieces.
//! 3. `matching`: the n-th send of each link and direction meets the n-th receive, with the same extent.
//! 4. `graph`: nobody waits in a circle, piece by piece, with scratch as windows.
//! 5. `run`: a symbolic run gives every output each contribution exactly once. As nothing races and links keep
//!    order, every other run gives the same.
//! 6. `count`: the cost, and that nobody leaves a barrier early.
//!
//! Steps 4 and 5 are done with 4 pieces per extent and with seeded random numbers of pieces, 0 to 4.

mod case;
mod count;
mod counterexample;
mod graph;
mod matching;
mod races;
mod range;
mod run;
mod structure;
mod trees;

use case::{Case, Checked};
pub use counterexample::{Counterexample, Event, Fault, Place};
use graph::Graph;
use matching::Matching;
pub use range::{Summary, roots, verify_range};
use run::{Run, Sums};
use trees::Trees;

use crate::{Algorithm, Collective, Cost, Schedule, Shape};

/// The pieces per extent of the first run, and the most of the random ones.
const PIECES_MAX: u32 = 4;

/// What was proved, besides that the schedules are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Whether every result of a reduction has the canonical tree.
    pub canonical: bool,
    /// Whether every result of a reduction keeps the order of the ranks, so that operators need not commute.
    pub keeps_order: bool,
    /// The cost, counted.
    pub cost: Cost,
    /// The number of steps of all ranks.
    pub steps: u64,
    /// The number of events, pieces of transfers and copies, that were run.
    pub events: u64,
}

/// Proves `algorithm` right for `shape`, its claims and its stated cost included.
///
/// Costs about a microsecond per step.
///
/// # Panics
/// If the algorithm does not support the shape.
///
/// ```
/// use unisono_schedule::{Shape, find_by_name, verify};
/// let proof = verify(find_by_name("all_reduce/halving_doubling").unwrap(), &Shape::new(6)).unwrap();
/// assert!(proof.canonical && proof.keeps_order);
/// ```
pub fn verify(algorithm: &Algorithm, shape: &Shape) -> Result<Proof, Counterexample> {
    let schedules: Vec<Schedule> = (0..shape.ranks).map(|rank| algorithm.schedule(shape, rank)).collect();
    let proof = verify_schedules(algorithm, shape, &schedules)?;
    let claimed = (algorithm.cost)(shape);
    if proof.cost == claimed {
        return Ok(proof);
    }
    let (claimed, found) = (format!("{claimed:?}"), format!("{:?}", proof.cost));
    Err(counterexample(algorithm, shape, "", Fault::Claim { claim: "the cost", claimed, found }))
}

/// Proves schedules, one per rank, to be right for what `algorithm` claims, its stated cost excepted.
pub fn verify_schedules(
    algorithm: &Algorithm,
    shape: &Shape,
    schedules: &[Schedule],
) -> Result<Proof, Counterexample> {
    let fail = |fault| counterexample(algorithm, shape, "", fault);
    let case = Case::new(algorithm, shape, schedules);
    structure::check(&case).map_err(fail)?;
    races::check(&case).map_err(fail)?;
    let matching = matching::check(&case).map_err(fail)?;
    let mut proof = Proof {
        canonical: true,
        keeps_order: true,
        cost: Cost::FREE,
        steps: u64::from(case.steps()),
        events: 0,
    };
    let mut trees = Trees::new(shape.ranks);
    for (nth, (setting, pieces)) in settings(&case).into_iter().enumerate() {
        let graph = Graph::new(&case, &matching, &pieces);
        let order = graph.order().map_err(|fault| counterexample(algorithm, shape, &setting, fault))?;
        if nth == 0 {
            proof.cost = count::cost(&case, &matching, &graph, &order);
            if algorithm.collective == Collective::Barrier {
                count::barrier(&case, &matching, &graph, &order).map_err(fail)?;
            }
        }
        for in_place in [false, true].into_iter().take(if algorithm.requires.out_of_place { 1 } else { 2 }) {
            let sums = run(&case, &matching, &graph, &order, &mut trees, in_place).map_err(|fault| {
                let place = if in_place { "in place" } else { "out of place" };
                counterexample(algorithm, shape, &format!("{place}, {setting}"), fault)
            })?;
            proof.canonical &= sums.canonical;
            proof.keeps_order &= sums.keeps_order;
        }
        proof.events += u64::from(graph.events());
    }
    claims(algorithm, &proof).map_err(fail)?;
    Ok(proof)
}

fn counterexample(algorithm: &Algorithm, shape: &Shape, setting: &str, fault: Fault) -> Counterexample {
    let (algorithm, setting) = (algorithm.qualified_name(), setting.to_owned());
    Counterexample { algorithm, shape: *shape, setting, fault: Box::new(fault) }
}

fn run(
    case: &Case<'_>,
    matching: &Matching,
    graph: &Graph<'_>,
    order: &graph::Order,
    trees: &mut Trees,
    in_place: bool,
) -> Checked<Sums> {
    let mut run = Run::new(case, graph, trees, in_place);
    run.run(matching, order)?;
    run.outputs()
}

fn claims(algorithm: &Algorithm, proof: &Proof) -> Checked<()> {
    let claim = |claim, claimed: bool, found: bool| {
        let (claimed, found) = (claimed.to_string(), found.to_string());
        Err(Fault::Claim { claim, claimed, found })
    };
    if algorithm.canonical && !(proof.canonical && algorithm.collective.reduces()) {
        return claim("canonical", true, false);
    }
    if algorithm.collective.reduces() && !algorithm.requires.commutative && !proof.keeps_order {
        return claim("to keep the order of the ranks", true, false);
    }
    Ok(())
}

/// The numbers of pieces of each extent to run with, and what to call them.
fn settings(case: &Case<'_>) -> Vec<(String, Vec<u32>)> {
    let chunks = case.chunks as usize;
    let mut made = vec![(format!("{PIECES_MAX} pieces per extent"), vec![PIECES_MAX; chunks])];
    // Small shapes have few chunks to be unequal: they are tried more often.
    let tries: u64 = if case.shape.ranks <= 16 { 4 } else { 2 };
    for seed in 0..tries {
        let mut random =
            SplitMix(seed << 48 | u64::from(case.shape.ranks) << 24 | u64::from(case.shape.root));
        // One element more can be one piece more, so equal lengths may differ by a piece.
        let (least, spread) = match case.algorithm.requires.even_counts {
            true => (seed as u32 % PIECES_MAX, 2),
            false => (0, PIECES_MAX + 1),
        };
        let mut pieces = || least + (random.next() % u64::from(spread)) as u32;
        let name = format!("random pieces per extent, {least} to {}, seed {seed}", least + spread - 1);
        made.push((name, (0..chunks).map(|_| pieces()).collect()));
    }
    made
}

/// Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
