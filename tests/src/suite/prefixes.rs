//! Scan and exscan: every operator, the order of the ranks, and rank 0, whose exscan gives it nothing.

use unisono_collectives::{Collectives, CollectivesPrefix};
use unisono_communicator::{
    BufferMut, Call, Collective, Communicator, DType, Descriptor, Error, Place, ReduceOp,
};

use crate::backend::Backend;
use crate::case::{Case, assert_same};
use crate::sample::{AFFINE, Position, Sample, compose, mix, op_of, reduced_of_first};
use crate::suite::groups::rotated;
use crate::suite::reductions::{has_user_operators, pairs};
use crate::with_dtype;
use crate::world::run_each;

/// Of one call: nothing, less than the ranks, more than a vector register.
const COUNTS: &[usize] = &[0, 1, 3, 130];

const PREFIXES: [Collective; 2] = [Collective::Scan, Collective::Exscan];

fn is_refused(comm: &dyn Communicator, dtype: DType, op: ReduceOp) -> bool {
    let cases = PREFIXES.map(|one| Case { op: Some(op), ..Case::new(one, dtype, 3) });
    let refusals = cases.map(|case| case.refusal(comm).is_some());
    assert_eq!(refusals[0], refusals[1], "a scan and an exscan by {op} of {dtype}");
    refusals[0]
}

/// In place and into another buffer, against the reference, which folds from rank 0 on.
///
/// Rows: B24
pub fn every_operator(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        let mut checked = 0;
        for (dtype, op) in pairs() {
            if is_refused(comm, dtype, op) {
                continue;
            }
            checked += 1;
            for &count in COUNTS {
                let what = format!("{dtype} {op} {count} on rank {rank} of {ranks}");
                with_dtype!(dtype, T => typed::<T>(comm, op, count, &what));
            }
        }
        assert!(checked > 0 || !backend.algorithms().are_ours(), "every call was refused");
    });
}

fn typed<T: Sample>(comm: &dyn Communicator, op: ReduceOp, count: usize, what: &str) {
    let (rank, ranks) = (comm.group().rank(), comm.group().size());
    let position = |rank, index| Position { seed: 6, ranks, rank, index };
    let input: Vec<T> = (0..count as u64).map(|index| T::operand(op, &position(rank, index))).collect();
    let of_first = |first: u32| -> Vec<T> {
        (0..count as u64).map(|index| reduced_of_first(op, &position(0, index), first)).collect()
    };
    let own_op = op_of(op, rank);
    let untouched = vec![T::any(9); count];

    let mut buffer = input.clone();
    comm.scan(&mut buffer, own_op).unwrap();
    assert_same(&buffer, &of_first(rank + 1), &format!("scan {what}"));
    let mut output = untouched.clone();
    comm.scan_into(&input, &mut output, own_op).unwrap();
    assert_same(&output, &of_first(rank + 1), &format!("scan_into {what}"));

    let mut buffer = input.clone();
    comm.exscan(&mut buffer, own_op).unwrap();
    let mut output = untouched.clone();
    comm.exscan_into(&input, &mut output, own_op).unwrap();
    let (in_place, apart) = match rank {
        0 => (input.clone(), untouched),
        _ => (of_first(rank), of_first(rank)),
    };
    assert_same(&buffer, &in_place, &format!("exscan {what}"));
    assert_same(&output, &apart, &format!("exscan_into {what}"));
}

/// An operator that does not commute: the values of lower ranks stand on the left, by every algorithm that there is.
pub fn an_order_that_shows(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        if !has_user_operators(comm) {
            return;
        }
        let function = |left: &[u64], right: &[u64], out: &mut [u64]| {
            out.iter_mut().enumerate().for_each(|(i, out)| *out = compose(left[i], right[i]));
        };
        for count in [0, 1, 5, 1000] {
            let input = |rank: u32| (0..count).map(move |index| mix(index ^ mix(rank.into())));
            let of_first = |first: u32| -> Vec<u64> {
                let value = |index| (0..first).filter_map(|rank| input(rank).nth(index)).reduce(compose);
                (0..count as usize).filter_map(value).collect()
            };
            let mut buffer: Vec<u64> = input(rank).collect();
            comm.scan_user(&mut buffer, AFFINE, function).unwrap();
            assert_eq!(buffer, of_first(rank + 1), "scan of {count} on rank {rank} of {ranks}");
            let mut buffer: Vec<u64> = input(rank).collect();
            comm.exscan_user(&mut buffer, AFFINE, function).unwrap();
            let expected = if rank == 0 { input(0).collect() } else { of_first(rank) };
            assert_eq!(buffer, expected, "exscan of {count} on rank {rank} of {ranks}");
        }
    });
}

/// Several calls at once; the handle of rank 0 gives its buffer back. The elements fall with the rank and differ by
/// their place, so that the result of no other rank is its input.
///
/// Rows: B24, A12
pub fn handles(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let rank = comm.group().rank();
        let operators = [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min];
        if operators.into_iter().any(|op| is_refused(comm, DType::U64, op)) {
            return;
        }
        for count in [0, 1, 5, 2000] {
            let element = |rank: u32, index: u64| 100_000 - 1000 * u64::from(rank) + index;
            let of = |rank: u32| -> Vec<u64> { (0..count).map(|index| element(rank, index)).collect() };
            let sum_of_first = |first: u32| -> Vec<u64> {
                (0..count).map(|index| (0..first).map(|rank| element(rank, index)).sum()).collect()
            };
            let own = of(rank);
            let scan = comm.scan_async(own.clone(), ReduceOp::Sum);
            let exscan = comm.exscan_async(own.clone(), ReduceOp::Sum);
            let largest = comm.scan_async(own.clone(), ReduceOp::Max);
            let before = comm.exscan_async(own.clone(), ReduceOp::Min);
            assert_eq!(largest.wait().unwrap(), of(0));
            assert_eq!(before.wait().unwrap(), of(rank.saturating_sub(1)));
            let before = if rank == 0 { own } else { sum_of_first(rank) };
            assert_eq!(exscan.wait().unwrap(), before);
            assert_eq!(scan.wait().unwrap(), sum_of_first(rank + 1));
        }
    });
}

/// The asynchronous forms with an operator that does not commute, beside the blocking calls of other ranks, in a group
/// whose order is not the order of the world.
///
/// Rows: A12, B24
pub fn handles_of_user_operators(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let group = comm.subgroup(&rotated(comm)).unwrap().unwrap();
        let (comm, rank) = (&*group, group.group().rank());
        if !has_user_operators(comm) {
            return;
        }
        let function = |left: &[u64], right: &[u64], out: &mut [u64]| {
            out.iter_mut().enumerate().for_each(|(i, out)| *out = compose(left[i], right[i]));
        };
        for count in [0, 1, 5, 1000] {
            let input = |rank: u32| -> Vec<u64> {
                (0..count).map(|index| mix(index ^ mix(u64::from(rank) + 7))).collect()
            };
            let of_first = |first: u32| -> Vec<u64> {
                let all: Vec<Vec<u64>> = (0..first).map(&input).collect();
                let value = |index: usize| all.iter().map(|input| input[index]).reduce(compose);
                (0..count as usize).filter_map(value).collect()
            };
            for turn in 0..2 {
                let (mut scanned, mut exscanned) = (input(rank), input(rank));
                if (rank + turn).is_multiple_of(2) {
                    let scan = comm.scan_user_async(scanned, AFFINE, function);
                    let exscan = comm.exscan_user_async(exscanned, AFFINE, function);
                    (exscanned, scanned) = (exscan.wait().unwrap(), scan.wait().unwrap());
                } else {
                    comm.scan_user(&mut scanned, AFFINE, function).unwrap();
                    comm.exscan_user(&mut exscanned, AFFINE, function).unwrap();
                }
                assert_eq!(scanned, of_first(rank + 1), "scan of {count} on rank {rank}, turn {turn}");
                let before = if rank == 0 { input(0) } else { of_first(rank) };
                assert_eq!(exscanned, before, "exscan of {count} on rank {rank}, turn {turn}");
            }
        }
    });
}

/// A mean, and an output of rank 0: refused before anything is sent, and nothing changes.
pub fn what_an_exscan_refuses(backend: &dyn Backend) {
    run_each(backend, &[1, 3], |comm| {
        for collective in PREFIXES {
            let mean = Case { op: Some(ReduceOp::Avg), ..Case::new(collective, DType::F32, 3) };
            let refusal = mean.refusal(comm);
            let is_told = matches!(&refusal, Some(Error::InvalidArgument { argument: "op", .. }));
            assert!(is_told, "{collective}: {refusal:?}");
        }
        if comm.group().rank() == 0 {
            let mut buffer = [7u32];
            let sum = Some(ReduceOp::Sum);
            let descriptor = Descriptor { op: sum, ..Descriptor::new(Collective::Exscan, DType::U32, 1) };
            let error = comm.issue(Call::in_place(descriptor, BufferMut::of(&mut buffer))).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { argument: "place", .. }), "{error}");
            assert_eq!(buffer, [7]);
        }
        comm.barrier().unwrap();
    });
}

/// Sixteen ranks and more.
pub fn many_ranks_in_a_row(backend: &dyn Backend) {
    run_each(backend, backend.large_rank_counts(), |comm| {
        for (collective, count) in PREFIXES.into_iter().flat_map(|one| [0, 1, 50, 5000].map(|n| (one, n))) {
            let case = Case { op: Some(ReduceOp::Sum), ..Case::new(collective, DType::I32, count) };
            case.check(comm).unwrap();
            Case { place: Place::InPlace, ..case }.check(comm).unwrap();
        }
    });
}
