//! Calls and operators that a library may lack: one table says for each the calls that stand in for it, or that it is
//! refused, and every row is tried with a double that lacks it.

use std::sync::Arc;
use std::time::Duration;

use unisono_communicator::{
    CallOptions, Collective, Communicator, DType, Error, MemoryKind, Place, ReduceOp,
};
use unisono_offload::{Native, NativeOp, OffloadOptions, Offloaded};
use unisono_tests::case::{Amount, Case};
use unisono_tests::double::{LibraryDouble, LibraryRoom};
use unisono_tests::sample::op_in;
use unisono_tests::{companions, watchdog};

const SECONDS_MAX: u64 = 120;
/// The elements of a share: no multiple of the ranks.
const COUNT: usize = 5;

#[test]
fn every_call_that_may_be_missing_has_its_row_in_the_documentation() {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/backends.md"));
    let (_, rest) = page.split_once("## What a library may lack\n").unwrap();
    let section = rest.split("\n##").next().unwrap();
    let documented: Vec<&str> = section.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    let calls = Native::ALL.map(|native| format!("| {} | {} |", native.name(), native.instead()));
    let ops = NativeOp::KINDS.map(|op| format!("| {op} | {} |", op.instead()));
    let expected: Vec<String> = calls.into_iter().chain(ops).collect();
    assert_eq!(documented, expected);
}

/// The lengths of the calls of a collective, even and uneven.
fn amounts(collective: Collective, ranks: usize) -> Vec<Amount> {
    let shares: Vec<usize> = (0..ranks).map(|rank| 3 * rank).collect();
    let pairs = (0..ranks).map(|from| (0..ranks).map(|to| from + to).collect()).collect();
    match collective {
        Collective::Barrier => vec![Amount::Even(0)],
        Collective::AllToAll => vec![Amount::Even(COUNT), Amount::PerPair(pairs)],
        Collective::ReduceScatter | Collective::AllGather | Collective::Gather | Collective::Scatter => {
            vec![Amount::Even(COUNT), Amount::PerRank(shares)]
        }
        Collective::AllReduce
        | Collective::Broadcast
        | Collective::Reduce
        | Collective::Scan
        | Collective::Exscan => vec![Amount::Even(COUNT)],
    }
}

/// The calls of one element type, with each of these operators where a collective reduces.
fn cases(ranks: u32, ops: &[ReduceOp]) -> Vec<Case> {
    let mut cases = Vec::new();
    for collective in Collective::ALL {
        let ops: Vec<_> = ops.iter().map(|op| Some(op_in(collective, *op))).collect();
        for op in if collective.reduces() { ops } else { vec![None] } {
            for amount in amounts(collective, ranks as usize) {
                for place in [Place::Separate, Place::InPlace] {
                    let root = if collective.is_rooted() { ranks - 1 } else { 0 };
                    let (amount, case) = (amount.clone(), Case::new(collective, DType::F32, COUNT));
                    cases.push(Case { op, amount, root, place, ..case });
                }
            }
        }
    }
    cases
}

/// Makes every call over `library`. The calls for which `is_refused` is true, and no others, are refused with an
/// alternative.
fn try_all(
    name: &str,
    library: impl Fn(&LibraryRoom) -> LibraryDouble + Sync,
    ops: &[ReduceOp],
    is_refused: impl Fn(&Case) -> bool + Sync,
) {
    for (ranks, deadlines) in [(1, false), (3, true), (4, false)] {
        let room = LibraryRoom::new();
        companions(ranks, |companion| {
            let options = OffloadOptions::new(Duration::from_secs(60), deadlines);
            let world = Offloaded::open(companion, Ok(Arc::new(library(&room))), &options).unwrap();
            for case in cases(ranks, ops) {
                let descriptor = case.descriptor(world.group().rank(), ranks);
                let found = world.supports(&descriptor, &CallOptions::new(), MemoryKind::Host);
                match found {
                    Err(Error::Unsupported { instead: Some(_), .. }) if is_refused(&case) => {}
                    Ok(()) if !is_refused(&case) => {}
                    other => panic!("without {name}: {case:?}: {other:?}"),
                }
                case.check(&*world).unwrap_or_else(|error| panic!("without {name}: {case:?}: {error}"));
            }
            world.close().unwrap();
        });
        assert!(room.misuse().is_empty(), "without {name}: {:?}", room.misuse());
    }
}

/// Prefix reductions run by schedules, for which these libraries have no device.
fn is_prefix(case: &Case) -> bool {
    matches!(case.collective, Collective::Scan | Collective::Exscan)
}

/// Rows: B20, D5
#[test]
fn each_call_in_turn_may_be_missing() {
    watchdog(SECONDS_MAX, "lacking calls", || {
        for lacking in Native::ALL {
            let rest: Vec<Native> = Native::ALL.into_iter().filter(|native| *native != lacking).collect();
            let library = |room: &LibraryRoom| LibraryDouble::new(room).with_natives(&rest);
            try_all(lacking.name(), library, &[ReduceOp::Sum], is_prefix);
        }
    });
}

/// Rows: B20, D5
#[test]
fn each_operator_in_turn_may_be_missing() {
    const OPS: [ReduceOp; 6] = [
        ReduceOp::Sum,
        ReduceOp::Prod,
        ReduceOp::Max,
        ReduceOp::Min,
        ReduceOp::Avg,
        ReduceOp::PreMulSum(0.5),
    ];
    watchdog(SECONDS_MAX, "lacking operators", || {
        for lacking in NativeOp::KINDS {
            // The double never has the pre-multiplied sum.
            let is_there = |op: &NativeOp| *op != lacking && !matches!(op, NativeOp::PreMulSum(_));
            let rest: Vec<NativeOp> = NativeOp::KINDS.into_iter().filter(is_there).collect();
            let library = |room: &LibraryRoom| LibraryDouble::new(room).with_reductions(&rest, &[DType::F32]);
            let is_refused = |case: &Case| {
                let own = case.op.is_some_and(|op| match lacking {
                    NativeOp::Sum => matches!(op, ReduceOp::Sum | ReduceOp::PreMulSum(_)),
                    NativeOp::Prod => op == ReduceOp::Prod,
                    NativeOp::Max => op == ReduceOp::Max,
                    NativeOp::Min => op == ReduceOp::Min,
                    NativeOp::Avg | NativeOp::PreMulSum(_) => false,
                });
                is_prefix(case) || own
            };
            try_all(lacking.name(), library, &OPS, is_refused);
        }
    });
}
