//! Collectives that reduce: every dtype with every operator that it accepts.

use std::sync::Arc;

use unisono_collectives::Collectives;
use unisono_communicator::{
    BufferMut, Buffers, Call, Collective, Communicator, DType, Descriptor, Element, Error, OPAQUE_BYTES_MAX,
    Place, ReduceOp, UserFunction, UserOp,
};

use crate::backend::Backend;
use crate::case::{Case, assert_same};
use crate::sample::{AFFINE, Parcel, Position, Sample, compose, mix, op_of, reduced};
use crate::suite::groups::rotated;
use crate::with_dtype;
use crate::world::run_each;

/// Of one call: nothing, less than the ranks, not divisible, more than a vector register.
const COUNTS: &[usize] = &[0, 1, 3, 13, 130];

/// Every accepted pair.
pub fn pairs() -> impl Iterator<Item = (DType, ReduceOp)> {
    let ops = || ReduceOp::PLAIN.iter().copied().chain([ReduceOp::PreMulSum(1.0)]);
    let all = DType::ALL.iter().flat_map(move |&dtype| ops().map(move |op| (dtype, op)));
    all.filter(|(dtype, op)| op.accepts(*dtype))
}

/// Every accepted pair that the backend supports; the others are refused. Those that it must have are among them.
fn every_pair(
    backend: &dyn Backend,
    comm: &dyn Communicator,
    collective: Collective,
    check: impl Fn(DType, ReduceOp, usize),
) {
    let mut checked = Vec::new();
    for (dtype, op) in pairs() {
        let case = Case { op: Some(op), ..Case::new(collective, dtype, 3) };
        if case.refusal(comm).is_none() {
            COUNTS.iter().for_each(|&count| check(dtype, op, count));
            checked.push((dtype, op));
        }
    }
    for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max] {
        for &dtype in backend.always_reduces() {
            assert!(checked.contains(&(dtype, op)), "{collective} {op} of {dtype} is refused");
        }
    }
}

/// Whether the backend calls functions of the user's; where it does not, such a call was made and refused.
pub(super) fn has_user_operators(comm: &dyn Communicator) -> bool {
    let case = Case { op: Some(ReduceOp::User(AFFINE)), ..Case::new(Collective::AllReduce, DType::U64, 3) };
    match case.refusal(comm) {
        None => true,
        Some(Error::Unsupported { .. }) => false,
        Some(other) => panic!("refused in another way: {other}"),
    }
}

fn inputs<T: Sample>(op: ReduceOp, ranks: u32, rank: u32, count: usize) -> Vec<T> {
    let position = |index| Position { seed: 5, ranks, rank, index };
    (0..count as u64).map(|index| T::operand(op, &position(index))).collect()
}

fn results<T: Sample>(op: ReduceOp, ranks: u32, count: usize) -> Vec<T> {
    (0..count as u64).map(|index| reduced(op, &Position { seed: 5, ranks, rank: 0, index })).collect()
}

/// In place and into another buffer.
///
/// Rows: A10, A11, B2
pub fn all_reduce(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        every_pair(backend, comm, Collective::AllReduce, |dtype, op, count| {
            with_dtype!(dtype, T => {
                let what = format!("all_reduce {dtype} {op} {count} on rank {rank} of {ranks}");
                let input: Vec<T> = inputs(op, ranks, rank, count);
                let expected: Vec<T> = results(op, ranks, count);
                let mut buffer = input.clone();
                comm.all_reduce(&mut buffer, op_of(op, rank)).unwrap();
                assert_same(&buffer, &expected, &what);
                let (given, mut output) = (input.clone(), vec![T::any(9); count]);
                comm.all_reduce_into(&given, &mut output, op_of(op, rank)).unwrap();
                assert_same(&output, &expected, &what);
                assert_same(&given, &input, &format!("input of {what}"));
            });
        });
    });
}

/// Of many buffers at once, some of them empty: every operator on every type, as of one buffer.
///
/// Rows: B3
pub fn coalesced(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        every_pair(backend, comm, Collective::AllReduce, |dtype, op, count| {
            with_dtype!(dtype, T => {
                let what = format!("coalesced {dtype} {op} {count} on rank {rank} of {ranks}");
                let mut whole: Vec<T> = inputs(op, ranks, rank, count);
                let (first, rest) = whole.split_at_mut(count / 3);
                let (middle, last) = rest.split_at_mut(count / 5);
                comm.all_reduce_coalesced(&mut [first, middle, &mut [], last], op_of(op, rank)).unwrap();
                assert_same(&whole, &results::<T>(op, ranks, count), &what);
            });
        });
    });
}

/// To every root.
///
/// Rows: A10, B5
pub fn reduce(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        every_pair(backend, comm, Collective::Reduce, |dtype, op, count| {
            let root = (mix(count as u64) % u64::from(ranks)) as u32;
            with_dtype!(dtype, T => {
                let what = format!("reduce {dtype} {op} {count} to {root} on rank {rank} of {ranks}");
                let input: Vec<T> = inputs(op, ranks, rank, count);
                let mut output = vec![T::any(9); count];
                let place = (rank == root).then_some(&mut output[..]);
                comm.reduce(&input, place, op_of(op, rank), root).unwrap();
                let mut buffer = input.clone();
                comm.reduce_in_place(&mut buffer, op_of(op, rank), root).unwrap();
                if rank == root {
                    let expected: Vec<T> = results(op, ranks, count);
                    assert_same(&output, &expected, &what);
                    assert_same(&buffer, &expected, &what);
                } else {
                    assert_same(&buffer, &input, &format!("no result of {what}"));
                }
            });
        });
    });
}

/// Separate, in place, and from a list.
///
/// Rows: A10, B6, B7
pub fn reduce_scatter(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        every_pair(backend, comm, Collective::ReduceScatter, |dtype, op, count| {
            with_dtype!(dtype, T => {
                let what = format!("reduce_scatter {dtype} {op} {count} on rank {rank} of {ranks}");
                let input: Vec<T> = inputs(op, ranks, rank, count * ranks as usize);
                let share = rank as usize * count..(rank as usize + 1) * count;
                let expected = &results::<T>(op, ranks, count * ranks as usize)[share.clone()];
                let mut output = vec![T::any(9); count];
                comm.reduce_scatter(&input, &mut output, op_of(op, rank)).unwrap();
                assert_same(&output, expected, &what);
                let mut buffer = input.clone();
                comm.reduce_scatter_in_place(&mut buffer, op_of(op, rank)).unwrap();
                assert_same(&buffer[share], expected, &what);
                let mut output = vec![T::any(9); count];
                let list: Vec<&[T]> = (0..ranks as usize).map(|i| &input[i * count..(i + 1) * count]).collect();
                comm.reduce_scatter_list(&list, &mut output, op_of(op, rank)).unwrap();
                assert_same(&output, expected, &what);
            });
        });
    });
}

/// A caller's own operator, commutative or not: the order of ranks is kept.
///
/// Rows: A10
pub fn user_operators(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        if !has_user_operators(comm) {
            return;
        }
        for count in [0, 1, 5, 1000] {
            let input = |rank: u32| (0..count).map(move |index| mix(index ^ mix(rank.into())));
            let mut buffer: Vec<u64> = input(rank).collect();
            let function = |left: &[u64], right: &[u64], out: &mut [u64]| {
                out.iter_mut().enumerate().for_each(|(i, out)| *out = compose(left[i], right[i]));
            };
            comm.all_reduce_user(&mut buffer, AFFINE, function).unwrap();
            let value = |index| (0..ranks).filter_map(|rank| input(rank).nth(index)).reduce(compose);
            let expected: Vec<u64> = (0..count as usize).filter_map(value).collect();
            assert_eq!(buffer, expected, "{count} on rank {rank} of {ranks}");
        }
        let mut parcels: Vec<Parcel> = parcels_of(rank, ranks);
        let op = UserOp::ordered("parcels");
        comm.all_reduce_user(&mut parcels, op, |left: &[Parcel], right: &[Parcel], out: &mut [Parcel]| {
            for (out, (left, right)) in out.iter_mut().zip(left.iter().zip(right)) {
                *out = Parcel::combine(ReduceOp::User(AFFINE), *left, *right);
            }
        })
        .unwrap();
        assert_same(&parcels, &results(ReduceOp::User(AFFINE), ranks, parcels.len()), "parcels");
        // The order is the order of the group, where no rank has its number of the world.
        let group = comm.subgroup(&rotated(comm)).unwrap().unwrap();
        for (root, dtype) in (0..ranks).flat_map(|root| [(root, DType::U64), (root, Parcel::DTYPE)]) {
            for collective in [Collective::Reduce, Collective::ReduceScatter, Collective::AllReduce] {
                let op = Some(ReduceOp::User(AFFINE));
                let root = if collective == Collective::Reduce { root } else { 0 };
                let case = Case { op, root, ..Case::new(collective, dtype, 7) };
                case.check(comm).unwrap();
                case.check(&*group).unwrap();
                Case { place: Place::InPlace, ..case }.check(comm).unwrap();
            }
        }
    });
}

fn parcels_of(rank: u32, ranks: u32) -> Vec<Parcel> {
    inputs(ReduceOp::User(AFFINE), ranks, rank, 5000)
}

/// Elements whose size is known at run time only, up to the largest: by a call that says so, on plain bytes.
pub fn opaque_bytes(backend: &dyn Backend) {
    /// Left's first half, right's second half: not commutative.
    fn halves(size: usize, left: &[u8], right: &[u8], out: &mut [u8]) {
        let half = size / 2;
        assert!(out.len().is_multiple_of(size), "{} bytes of elements of {size}", out.len());
        for (index, out) in out.iter_mut().enumerate() {
            *out = if index % size < half { left[index] } else { right[index] };
        }
    }
    run_each(backend, &[1, 2, 3, 4], |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        if !has_user_operators(comm) {
            return;
        }
        for size in [1, 3, 1000, 4097, OPAQUE_BYTES_MAX] {
            let count = (200_000 / size).min(100) + 2;
            let input = |rank: u32| -> Vec<u8> {
                (0..count * size).map(|index| mix(index as u64 ^ mix(rank.into())) as u8).collect()
            };
            let mut buffer = input(rank);
            let function: UserFunction = Arc::new(move |left, right, out| halves(size, left, right, out));
            let op = Some(ReduceOp::User(UserOp::ordered("halves")));
            let dtype = DType::opaque(size).unwrap();
            let descriptor = Descriptor::new(Collective::AllReduce, dtype, count as u64);
            let descriptor = Descriptor { op, place: Place::InPlace, ..descriptor };
            let call = Call::new(descriptor, Buffers::InOut(BufferMut::of(&mut buffer)));
            comm.issue(Call { user_function: Some(function), ..call }).unwrap();
            let mut expected = vec![0; count * size];
            halves(size, &input(0), &input(ranks - 1), &mut expected);
            assert!(buffer == expected, "elements of {size} bytes on rank {rank} of {ranks}");
        }
    });
}

/// Sixteen ranks and more.
pub fn many_ranks(backend: &dyn Backend) {
    run_each(backend, backend.large_rank_counts(), |comm| {
        for (dtype, op) in
            [(DType::F32, ReduceOp::Sum), (DType::F16, ReduceOp::Avg), (DType::I8, ReduceOp::Prod)]
        {
            for count in [0, 1, 50, 5000] {
                for collective in [Collective::AllReduce, Collective::Reduce, Collective::ReduceScatter] {
                    let root = comm.group().size() / 2;
                    let root = if collective == Collective::Reduce { root } else { 0 };
                    let case = Case { op: Some(op), root, ..Case::new(collective, dtype, count) };
                    case.check(comm).unwrap();
                    Case { place: Place::InPlace, ..case }.check(comm).unwrap();
                }
            }
        }
    });
}
