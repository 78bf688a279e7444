//! The verifier: it proves that an algorithm is right for a shape, or finds a counterexample.
//!
//! The checks run in this order, and each relies on the earlier ones:
//! 1. `structure`: slots, extents and peers exist; sizes are as claimed; no step writes an input.
//! 2. `races`: conflicting steps of a rank are ordered, out of place and in place, for any number of pieces.
//! 3. `matching`: the n-th send of each link and direction has the extent of the n-th receive.
//! 4. `graph`: there is no deadlock.
//! 5. `run`: a symbolic run in which every output gets each contribution exactly once. Without races and with ordered
//!    links, every other run has the same result.
//! 6. `count`: the cost is counted, and no rank leaves a barrier early.
//!
//! Checks 4 to 6 look at one piece of each extent. This proves all counts, including 0, and all piece sizes: `graph`
//! proves that no event waits for ever, and `races` that every piece gets the values that piece 0 gets.

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

pub(crate) use case::{Case, Checked, StepNumber};
pub use counterexample::{Counterexample, Fault, StepPlace, WrongFigure};
use graph::{Graph, Order};
pub(crate) use matching::Matching;
pub use range::{Summary, roots, verify_range};
use run::{Run, Sums};
pub(crate) use structure::check_structure;
use trees::TreeTable;

use crate::{Algorithm, Collective, Cost, Digest, Refusal, Refused, Schedule, Shape};

/// The proved facts about schedules, besides their being right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Whether every result of a reduction has the canonical tree.
    pub canonical: bool,
    /// Whether every result of a reduction keeps the order of the ranks, so that operators need not commute.
    pub keeps_order: bool,
    /// The counted cost.
    pub cost: Cost,
    /// The number of steps of all ranks.
    pub steps: u64,
    /// The largest number of scratch chunks of any rank.
    pub scratch_chunks: u32,
    /// The [`Digest`] of the schedules of all ranks, in order.
    pub digest: u64,
}

/// Proves that `algorithm` is right for `shape`, and that its claims and its cost are true.
///
/// Cost: about a microsecond per step.
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
    match prove(algorithm, shape, u64::MAX) {
        Ok(proof) => Ok(proof),
        Err(Refused { reason: Refusal::Wrong(counterexample), .. }) => Err(counterexample),
        Err(refused) => panic!("{refused}"),
    }
}

/// As [`verify`], for an untrusted algorithm: each fault is an error, never a panic.
///
/// # Errors
/// [`Refusal::DoesNotFit`], [`Refusal::Wrong`]; [`Refusal::TooLarge`] if all ranks have more than `steps_max` steps.
///
/// ```
/// use unisono_schedule::{Algorithm, Collective, Shape, prove};
/// let silent = Algorithm::new("silent", Collective::AllReduce, |_| {});
/// let refused = prove(&silent, &Shape::new(2), 1_000).unwrap_err().to_string();
/// assert!(refused.ends_with("rank 0's output of extent 0 lacks the contribution of ranks 0, 1"), "{refused}");
/// ```
pub fn prove(algorithm: &Algorithm, shape: &Shape, steps_max: u64) -> Result<Proof, Refused> {
    algorithm.guarded(shape, || {
        let wrong = |counterexample| algorithm.refused(Refusal::Wrong(counterexample));
        let schedules = schedules(algorithm, shape, steps_max)?;
        let proof = verify_schedules(algorithm, shape, &schedules).map_err(wrong)?;
        match algorithm.cost_of(shape).and_then(|claimed| count::difference(&claimed, &proof.cost)) {
            None => Ok(proof),
            Some(fault) => Err(wrong(Counterexample::new(algorithm, shape, "", fault))),
        }
    })
}

/// The schedules of all ranks.
pub(crate) fn schedules(
    algorithm: &Algorithm,
    shape: &Shape,
    steps_max: u64,
) -> Result<Vec<Schedule>, Refused> {
    let too_large = || algorithm.refused(Refusal::TooLarge { steps_max });
    let (mut steps, mut all) = (0, Vec::new());
    for rank in 0..shape.ranks {
        let schedule = algorithm.built(shape, rank)?;
        steps += schedule.steps.len() as u64;
        // The proof also looks at every chunk of every rank.
        if steps.max(u64::from(schedule.chunks)) > steps_max {
            return Err(too_large());
        }
        all.push(schedule);
    }
    Ok(all)
}

/// The check of a trusted algorithm: every step can be carried out, and every send has its receive.
pub(crate) fn check_messages(
    algorithm: &Algorithm,
    shape: &Shape,
    schedules: &[Schedule],
) -> Result<(), Refused> {
    algorithm.guarded(shape, || {
        let wrong =
            |fault| algorithm.refused(Refusal::Wrong(Counterexample::new(algorithm, shape, "", fault)));
        let case = Case::new(algorithm, shape, schedules);
        structure::check(&case).and_then(|()| Matching::of(&case)).map(drop).map_err(wrong)
    })
}

/// Proves that schedules, one per rank, are right and keep the claims of `algorithm`. The cost is not compared.
pub fn verify_schedules(
    algorithm: &Algorithm,
    shape: &Shape,
    schedules: &[Schedule],
) -> Result<Proof, Counterexample> {
    let fail = |fault| Counterexample::new(algorithm, shape, "", fault);
    let case = Case::new(algorithm, shape, schedules);
    structure::check(&case).map_err(fail)?;
    races::check(&case).map_err(fail)?;
    let matching = Matching::of(&case).map_err(fail)?;
    let order = Graph::new(&case, &matching).order().map_err(fail)?;
    if algorithm.collective == Collective::Barrier {
        count::barrier(&case, &matching, &order).map_err(fail)?;
    }
    let cost = count::cost(&case, &matching, &order);
    let reduces = algorithm.collective.reduces();
    let mut proof = Proof {
        canonical: reduces,
        keeps_order: true,
        cost,
        steps: case.steps_len() as u64,
        scratch_chunks: schedules.iter().map(|schedule| schedule.scratch_chunks).max().unwrap_or(0),
        digest: Digest::of_all(schedules.iter().map(|one| Digest::of(one).value())).value(),
    };
    let mut trees = TreeTable::new(shape.ranks);
    for in_place in [false, true].into_iter().take(if algorithm.requires.out_of_place { 1 } else { 2 }) {
        let sums = run(&case, &matching, &order, &mut trees, in_place).map_err(|fault| {
            let place = if in_place { "in place" } else { "out of place" };
            Counterexample::new(algorithm, shape, place, fault)
        })?;
        proof.canonical &= sums.canonical;
        proof.keeps_order &= sums.keeps_order;
    }
    claims(algorithm, &proof).map_err(fail)?;
    Ok(proof)
}

fn run(
    case: &Case<'_>,
    matching: &Matching,
    order: &Order,
    trees: &mut TreeTable,
    in_place: bool,
) -> Checked<Sums> {
    let mut run = Run::new(case, trees, in_place);
    run.run(matching, order)?;
    run.outputs()
}

fn claims(algorithm: &Algorithm, proof: &Proof) -> Checked<()> {
    if algorithm.canonical && !proof.canonical {
        return Err(Fault::NotCanonical);
    }
    if algorithm.collective.reduces() && !algorithm.requires.commutative && !proof.keeps_order {
        return Err(Fault::NotInOrder);
    }
    Ok(())
}
