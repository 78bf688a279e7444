//! The verifier: a proof that an algorithm is right for a shape, or a counterexample.
//!
//! In this order, each relying on those before:
//! 1. `structure`: slots, extents and peers exist; sizes are as claimed; inputs are never written.
//! 2. `races`: conflicting steps of a rank are ordered, out of place and in place, for any numbers of pieces.
//! 3. `matching`: the n-th send of each link and direction meets the n-th receive, with the same extent.
//! 4. `graph`: nobody waits in a circle.
//! 5. `run`: a symbolic run gives every output each contribution exactly once. As nothing races and links keep
//!    order, every other run gives the same.
//! 6. `count`: the cost, and that nobody leaves a barrier early.
//!
//! Steps 4 to 6 look at one piece of each extent. That is a proof for all counts, zeros included, and for all piece
//! sizes: `graph` says why nobody waits for ever, and `races` why every piece gets what piece 0 gets.

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
pub use counterexample::{Counterexample, Fault, Place};
use graph::{Graph, Order};
use matching::Matching;
pub use range::{Summary, roots, verify_range};
use run::{Run, Sums};
use trees::Trees;

use crate::{Algorithm, Collective, Cost, Schedule, Shape};

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
    let order = Graph::new(&case, &matching).order().map_err(fail)?;
    if algorithm.collective == Collective::Barrier {
        count::barrier(&case, &matching, &order).map_err(fail)?;
    }
    let cost = count::cost(&case, &matching, &order);
    let mut proof = Proof { canonical: true, keeps_order: true, cost, steps: case.steps_len() as u64 };
    let mut trees = Trees::new(shape.ranks);
    for in_place in [false, true].into_iter().take(if algorithm.requires.out_of_place { 1 } else { 2 }) {
        let sums = run(&case, &matching, &order, &mut trees, in_place).map_err(|fault| {
            let place = if in_place { "in place" } else { "out of place" };
            counterexample(algorithm, shape, place, fault)
        })?;
        proof.canonical &= sums.canonical;
        proof.keeps_order &= sums.keeps_order;
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
    order: &Order,
    trees: &mut Trees,
    in_place: bool,
) -> Checked<Sums> {
    let mut run = Run::new(case, trees, in_place);
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
