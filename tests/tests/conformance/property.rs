//! Any algorithm on any call that it accepts, in pieces of any size, over links that misbehave: against the reference.
//!
//! The seed is printed; `UNISONO_TEST_SEED` repeats a run, `UNISONO_TEST_CASES` makes it longer.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use unisono_communicator::{CallOptions, Collective, DType, Element, Place, ReduceOp};
use unisono_engine::{EngineOptions, FaultPlan};
use unisono_schedule::{Algorithm, Shape, algorithms};
use unisono_tests::case::{Amount, Case, Operands};
use unisono_tests::sample::{AFFINE, Parcel, mix, op_in};
use unisono_tests::suite::algorithms::forced;
use unisono_tests::suite::reductions::pairs;
use unisono_tests::world::{options, run};
use unisono_tests::{FaultyInProcess, watchdog};

const RANKS_MAX: u32 = 9;

/// With a caller's own function, on a type of ours and on one of its own.
const USER_PAIRS: &[(DType, ReduceOp)] =
    &[(DType::U64, ReduceOp::User(AFFINE)), (Parcel::DTYPE, ReduceOp::User(AFFINE))];

/// What is drawn: small numbers, so that a failure shrinks to a small call.
#[derive(Clone, Debug)]
struct Draw {
    ranks: u32,
    algorithm: usize,
    count: usize,
    pair: usize,
    root: u32,
    is_in_place: bool,
    is_uneven: bool,
    segments: Option<u64>,
    piece_elements: Option<u64>,
    plan: FaultPlan,
    seed: u64,
}

fn draw() -> impl Strategy<Value = Draw> {
    let count = prop_oneof![0..4usize, 0..40usize, 0..900usize];
    let piece = prop_oneof![Just(None), Just(Some(1)), (2..60u64).prop_map(Some)];
    let faults = (prop_oneof![Just(None), (1..8usize).prop_map(Some)], 0..70u8, any::<u64>());
    let call = (any::<prop::sample::Index>(), count, any::<prop::sample::Index>(), any::<u32>());
    let form = (any::<bool>(), any::<bool>(), prop::option::of(any::<u64>()), piece);
    (1..=RANKS_MAX, call, form, faults, any::<u64>()).prop_map(|(ranks, call, form, faults, seed)| Draw {
        ranks,
        algorithm: call.0.index(algorithms().len()),
        count: call.1,
        pair: call.2.index(pairs().count() + USER_PAIRS.len()),
        root: call.3 % ranks,
        is_in_place: form.0,
        is_uneven: form.1,
        segments: form.2,
        piece_elements: form.3,
        plan: FaultPlan {
            seed: faults.2,
            bytes_per_call_max: faults.0,
            would_block_percent: faults.1,
            cut_after_bytes: None,
        },
        seed,
    })
}

/// The call of a draw, in the nearest form that the algorithm accepts.
fn case_of(draw: &Draw, algorithm: &Algorithm) -> Case {
    let collective = algorithm.collective;
    let mut every_pair = pairs().chain(USER_PAIRS.iter().copied());
    let (dtype, op) = match every_pair.nth(draw.pair).unwrap_or(USER_PAIRS[0]) {
        (_, ReduceOp::User(_)) if algorithm.requires.commutative => (DType::U64, ReduceOp::Sum),
        (dtype, op) => (dtype, op_in(collective, op)),
    };
    let is_movable = collective != Collective::Barrier;
    let is_in_place = draw.is_in_place && !algorithm.requires.out_of_place;
    let count = if is_movable { draw.count } else { 0 };
    let amount =
        if draw.is_uneven && !algorithm.requires.even_counts { uneven(draw, collective) } else { None };
    Case {
        op: collective.reduces().then_some(op),
        amount: amount.unwrap_or(Amount::Even(count)),
        root: if collective.is_rooted() { draw.root } else { 0 },
        place: if is_in_place { Place::InPlace } else { Place::Separate },
        segments: draw.segments,
        operands: Operands::Exact,
        seed: draw.seed,
        options: CallOptions::new().algorithm(algorithm.name),
        ..forced(algorithm, dtype, count)
    }
}

/// Shares of up to twice the count, with zeros among them.
fn uneven(draw: &Draw, collective: Collective) -> Option<Amount> {
    let ranks = u64::from(draw.ranks);
    let share = |number: u64| {
        (mix(draw.seed ^ number) as usize % (2 * draw.count + 1)) * (mix(number) as usize % 3).min(1)
    };
    match collective {
        Collective::ReduceScatter | Collective::AllGather | Collective::Gather | Collective::Scatter => {
            Some(Amount::PerRank((0..ranks).map(share).collect()))
        }
        Collective::AllToAll => {
            // The same both ways, so that it works in place too.
            let pair = |from: u64, to: u64| share(from.min(to) * ranks + from.max(to)) / draw.ranks as usize;
            Some(Amount::PerPair(
                (0..ranks).map(|from| (0..ranks).map(|to| pair(from, to)).collect()).collect(),
            ))
        }
        _ => None,
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var_os(name)?.to_str()?.parse().ok()
}

#[test]
fn any_call_matches_the_reference() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = number("UNISONO_TEST_SEED").unwrap_or(now.as_nanos() as u64);
    eprintln!("UNISONO_TEST_SEED={seed}");
    let bytes: Vec<u8> = (0..4).flat_map(|word| mix(seed ^ word).to_le_bytes()).collect();
    let cases = number("UNISONO_TEST_CASES").unwrap_or(600) as u32;
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let result = watchdog(600, "any_call_matches_the_reference", || {
        let outcome = runner.run(&draw(), |draw| {
            let algorithm = &algorithms()[draw.algorithm];
            prop_assume!(algorithm.supports(&Shape::new(draw.ranks).with_root(draw.root)));
            let case = case_of(&draw, algorithm);
            let piece_bytes = draw.piece_elements.map(|elements| elements * case.dtype.bytes() as u64);
            let timeout = Duration::from_secs(20);
            let options = EngineOptions { piece_bytes, timeout, ..options() };
            run(&FaultyInProcess(draw.plan), draw.ranks, &options, |comm| {
                // The second call runs what the first has planned.
                for _ in 0..2 {
                    case.check(comm).unwrap();
                }
            });
            Ok(())
        });
        outcome.map_err(|failure| failure.to_string())
    });
    result.unwrap_or_else(|failure| panic!("UNISONO_TEST_SEED={seed}: {failure}"));
}
