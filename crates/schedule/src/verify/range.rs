//! Proofs of many shapes at once.

use std::ops::RangeInclusive;

use super::{Counterexample, Proof, verify};
use crate::{Algorithm, Refusal, Refused, Shape};

/// Up to this number of ranks all roots are tried.
const ALL_ROOTS_RANKS_MAX: u32 = 16;

/// The proof of one algorithm for many shapes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of shapes.
    pub shapes: u64,
    /// The number of steps of all its schedules.
    pub steps: u64,
}

/// The roots to try for an algorithm: all for up to 16 ranks, else the first two, the middle and the last.
pub fn roots(algorithm: &Algorithm, ranks: u32) -> Vec<u32> {
    if !algorithm.collective.is_rooted() {
        return vec![0];
    }
    if ranks <= ALL_ROOTS_RANKS_MAX {
        return (0..ranks).collect();
    }
    vec![0, 1, ranks / 2, ranks - 1]
}

/// Verifies algorithms for every supported number of ranks in a range; with the feature `parallel` on all cores.
///
/// The results have the order of the algorithms. Of several counterexamples, the counterexample with the fewest ranks
/// is returned.
///
/// ```
/// # mod unisono { pub use unisono_schedule as schedule; }
/// use unisono::schedule::{algorithms, verify_range};
/// let all: Vec<_> = algorithms().iter().map(|one| &**one).collect();
/// for (algorithm, result) in all.iter().zip(verify_range(&all, 1..=5)) {
///     assert!(result.is_ok(), "{}: {result:?}", algorithm.qualified_name());
/// }
/// ```
pub fn verify_range(
    algorithms: &[&Algorithm],
    ranks: RangeInclusive<u32>,
) -> Vec<Result<Summary, Counterexample>> {
    // The largest cases come first, so that no core begins a large one at the end.
    let work: Vec<(usize, Shape)> = ranks.rev().flat_map(|ranks| shapes(algorithms, ranks)).collect();
    let one = |(nth, shape): &(usize, Shape)| verify(algorithms[*nth], shape);
    #[cfg(feature = "parallel")]
    let proofs: Vec<Result<Proof, Counterexample>> = {
        use rayon::prelude::*;
        work.par_iter().with_max_len(1).map(one).collect()
    };
    #[cfg(not(feature = "parallel"))]
    let proofs: Vec<Result<Proof, Counterexample>> = work.iter().map(one).collect();
    let mut answers: Vec<Result<Summary, Counterexample>> = vec![Ok(Summary::default()); algorithms.len()];
    for ((nth, _), proof) in work.iter().zip(proofs).rev() {
        match (&mut answers[*nth], proof) {
            (Ok(summary), Ok(proof)) => {
                summary.shapes += 1;
                summary.steps += proof.steps;
            }
            (answer @ Ok(_), Err(counterexample)) => *answer = Err(counterexample),
            (Err(_), _) => {}
        }
    }
    answers
}

/// The numbers of leaders to try: several if the algorithm's cost depends on them.
fn leaders(algorithm: &Algorithm, ranks: u32) -> Vec<u32> {
    // The proof reports a claim that panics.
    let cost = |leaders| algorithm.try_cost_of(&Shape::new(ranks).with_leaders(leaders)).ok();
    let some =
        [1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 27, 32, 48, 64].into_iter().filter(|leaders| 2 * leaders <= ranks);
    let mut all: Vec<u32> = some.collect();
    all.retain(|leaders| *leaders == 1 || cost(*leaders) != cost(1));
    if all.is_empty() { vec![1] } else { all }
}

fn shapes(algorithms: &[&Algorithm], ranks: u32) -> Vec<(usize, Shape)> {
    let all = algorithms.iter().enumerate().flat_map(|(nth, algorithm)| {
        let rooted =
            roots(algorithm, ranks).into_iter().rev().map(move |root| Shape::new(ranks).with_root(root));
        let leaders = leaders(algorithm, ranks);
        let led =
            rooted.flat_map(move |shape| leaders.clone().into_iter().map(move |l| shape.with_leaders(l)));
        led.map(move |shape| (nth, shape))
    });
    // A `fits` that panics is kept: the proof reports it.
    let is_unfit = |refused: Refused| matches!(refused.reason, Refusal::DoesNotFit { .. });
    all.filter(|(nth, shape)| !algorithms[*nth].check_fit(shape).is_err_and(is_unfit)).collect()
}
