//! The cases that the tests of whole jobs run.

use super::super::simulation::program::mixed;
use super::{Trouble, number, run_one};

/// The number of seeds for each kind of trouble.
const CASES: u64 = 240;

/// Seeds that have found an error, here or in the tests themselves.
pub(super) const FOUND: [(Trouble, u64); 11] = [
    // A rank that waited in `close` took the goodbye of a rank that had failed for other calls.
    (Trouble::CutLink, 334),
    // A call of long messages over narrow links went on after a failure for longer than the news of it may take.
    (Trouble::Departure, 3 << 32 | 334),
    // Of the ranks that it waited for, a rank named one of a later step, and two such ranks led to each other, not to
    // the rank that had not called.
    (Trouble::Departure, 3_454_056_460_864_980_199),
    // A rank closed and died. One rank had heard that it closed; the others failed with the loss, and only its deadline
    // told the first one, which blamed a rank that had failed.
    (Trouble::Crashes, 10_719_477_989_805_918_348),
    // A rank went on with another root, closed, was told of the mismatch, and ended its streams. The root, which had
    // heard of the close and not of the mismatch, named it as lost.
    (Trouble::Deviation, 13_151_361_117_877_963_190),
    // Over slow links the others found the mismatch when a rank had waited in vain in its close.
    (Trouble::Deviation, 14_082_109_968_627_018_350),
    // A rank reported a loss and was lost itself. Ranks that lost it first ignored its report, and each side waited for
    // heartbeats of ranks that beat for others.
    (Trouble::CutHosts, 4_002_833_945_627_460_860),
    // A rank behind a cut that was over dialled ranks that counted it as lost, for 30 s: nobody told it.
    (Trouble::ResetHosts, 9),
    // A rank of the greater side was told so, believed it, and its own side lost it.
    (Trouble::ResetHosts, 38),
    // A data connection was reset between the verdict and its acknowledgement. The higher rank had sent its part of the
    // call on it, and took another connection as if nothing had happened.
    (Trouble::ResetHosts, 12_908_573_067_675_966_921),
    // A cut came before the first word of a rank. The survivors of the call waited for its ballot until a dial failed.
    (Trouble::CutHosts, 12_836_235_007_978_638_318),
];

/// The low bits of a seed choose the program and the delays, the others choose the trouble: so each program can meet
/// each trouble.
pub(super) const PROGRAM_BITS: u32 = 32;

/// Runs the seeds of one kind of trouble.
pub(super) fn run(trouble: Trouble) {
    match number("UNISONO_TEST_SEED") {
        Some(seed) => drop(run_one(trouble, seed)),
        None => (0..number("UNISONO_TEST_CASES").unwrap_or(CASES)).map(nth_seed).for_each(|seed| {
            run_one(trouble, seed);
        }),
    }
}

/// The seeds in the order in which they are run: first the [`CASES`] of every run, then each program with a trouble
/// that is drawn at random.
fn nth_seed(index: u64) -> u64 {
    let plan = if index < CASES { 0 } else { mixed(index, 1) >> PROGRAM_BITS };
    plan << PROGRAM_BITS | index
}
