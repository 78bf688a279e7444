//! Every form of a call: with counts that differ, in place, on lists, on many buffers at once, with the caller's own
//! operator, each beside its asynchronous twin. A blocking and an asynchronous call of two ranks match.

use unisono_collectives::{
    Collectives, CollectivesAsync, CollectivesOfLists, CollectivesUneven, UserOperators,
};
use unisono_communicator::{Communicator, Error, ReduceOp, UserOp};

use crate::backend::Backend;
use crate::suite::reductions::has_user_operators;
use crate::world::run_each;

/// The elements that `from` has for `to`.
pub(super) fn part(from: u32, to: u32, length: usize) -> Vec<i32> {
    (0..length as u32).map(|index| ((from * 100 + to) * 1000 + index) as i32).collect()
}

/// A count for each rank: none, few, some.
fn counts(ranks: u32) -> Vec<usize> {
    (0..ranks as usize).map(|rank| [3, 0, 700, 1, 5][rank % 5]).collect()
}

/// The shares of all ranks, of the elements that each has for `to`.
fn shares(counts: &[usize], to: u32) -> Vec<Vec<i32>> {
    (0..).zip(counts).map(|(from, &count)| part(from, to, count)).collect()
}

/// Element i of the sum over all ranks of their shares for `to`.
pub(super) fn sums(ranks: u32, to: u32, length: usize) -> Vec<i32> {
    let of = |from| part(from, to, length);
    (0..ranks).map(of).reduce(|sum, next| sum.iter().zip(next).map(|(a, b)| a + b).collect()).unwrap()
}

/// Even ranks make the blocking call, odd ranks its twin; then the other way round.
fn both<R: PartialEq + std::fmt::Debug>(
    comm: &dyn Communicator,
    blocking: impl Fn() -> R,
    twin: impl Fn() -> R,
    expected: &R,
) {
    for turn in 0..2 {
        let result = if (comm.rank() + turn).is_multiple_of(2) { blocking() } else { twin() };
        assert_eq!(&result, expected, "turn {turn} on rank {}", comm.rank());
    }
}

/// Counts that differ by rank.
pub fn a12_uneven_calls(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.rank(), comm.size());
        let (counts, root) = (counts(ranks), ranks - 1);
        let (own, total) = (counts[rank as usize], counts.iter().sum::<usize>());
        let mine = || part(rank, 7, own);
        let all = shares(&counts, 7).concat();
        let blocking = || {
            let mut output = vec![0; total];
            comm.all_gather_v(&mine(), &mut output, &counts).unwrap();
            output
        };
        both(comm, blocking, || comm.all_gather_v_async(mine(), &counts).wait().unwrap(), &all);

        let at_root = if rank == root { all } else { Vec::new() };
        let blocking = || {
            let mut output = vec![0; if rank == root { total } else { 0 }];
            let room = (rank == root).then_some(&mut output[..]);
            comm.gather_v(&mine(), room, &counts, root).unwrap();
            output
        };
        both(comm, blocking, || comm.gather_v_async(mine(), &counts, root).wait().unwrap(), &at_root);

        let to_all = || (0..).zip(&counts).flat_map(|(to, &count)| part(rank, to, count)).collect::<Vec<_>>();
        let blocking = || {
            let mut output = vec![0; own];
            comm.reduce_scatter_v(&to_all(), &mut output, &counts, ReduceOp::Sum).unwrap();
            output
        };
        let twin = || comm.reduce_scatter_v_async(to_all(), &counts, ReduceOp::Sum).wait().unwrap();
        both(comm, blocking, twin, &sums(ranks, rank, own));

        let from_root = || if rank == root { to_all() } else { Vec::new() };
        let blocking = || {
            let mut output = vec![0; own];
            comm.scatter_v((rank == root).then_some(&from_root()[..]), &mut output, &counts, root).unwrap();
            output
        };
        let twin = || comm.scatter_v_async(from_root(), &counts, root).wait().unwrap();
        both(comm, blocking, twin, &part(root, rank, own));

        // Every rank sends counts[to] elements, and so receives its own count from each.
        let receive = vec![own; ranks as usize];
        let received: Vec<i32> = (0..ranks).flat_map(|from| part(from, rank, own)).collect();
        let blocking = || {
            let mut output = vec![0; own * ranks as usize];
            comm.all_to_all_v(&to_all(), &counts, &mut output, &receive).unwrap();
            output
        };
        let twin = || comm.all_to_all_v_async(to_all(), &counts, &receive).wait().unwrap();
        both(comm, blocking, twin, &received);
    });
}

/// The same on one buffer.
pub fn a12_uneven_calls_in_place(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.rank(), comm.size());
        let counts = counts(ranks);
        let own = counts[rank as usize];
        let start: usize = counts[..rank as usize].iter().sum();
        let mut buffer = vec![9; counts.iter().sum()];
        buffer[start..start + own].copy_from_slice(&part(rank, 7, own));
        comm.all_gather_v_in_place(&mut buffer, &counts).unwrap();
        assert_eq!(buffer, shares(&counts, 7).concat());

        let mut buffer: Vec<i32> =
            (0..).zip(&counts).flat_map(|(to, &count)| part(rank, to, count)).collect();
        comm.reduce_scatter_v_in_place(&mut buffer, &counts, ReduceOp::Sum).unwrap();
        assert_eq!(buffer[start..start + own], sums(ranks, rank, own));

        // As many elements go each way between two ranks.
        let pairs: Vec<usize> = (0..ranks).map(|other| (rank + other) as usize % 4).collect();
        let mut buffer: Vec<i32> = (0..).zip(&pairs).flat_map(|(to, &count)| part(rank, to, count)).collect();
        comm.all_to_all_v_in_place(&mut buffer, &pairs).unwrap();
        let expected: Vec<i32> =
            (0..).zip(&pairs).flat_map(|(from, &count)| part(from, rank, count)).collect();
        assert_eq!(buffer, expected);
    });
}

/// A buffer for each rank, of lengths that differ.
pub fn a12_lists(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.rank(), comm.size());
        let (counts, root) = (counts(ranks), ranks / 2);
        let own = counts[rank as usize];
        let mine = || part(rank, 7, own);
        let all = shares(&counts, 7);
        let work = comm.all_gather_list_v_async(mine(), &counts);
        assert_eq!(work.wait().unwrap(), all);
        let at_root = |list: Vec<Vec<i32>>| if rank == root { list } else { Vec::new() };
        assert_eq!(comm.gather_list_v_async(mine(), &counts, root).wait().unwrap(), at_root(all));
        let even: Vec<Vec<i32>> = (0..ranks).map(|from| part(from, 7, 4)).collect();
        assert_eq!(comm.gather_list_async(part(rank, 7, 4), root).wait().unwrap(), at_root(even));
        let to_all: Vec<Vec<i32>> = (0..).zip(&counts).map(|(to, &count)| part(rank, to, count)).collect();
        let work = comm.scatter_list_v_async(at_root(to_all.clone()), &counts, root);
        assert_eq!(work.wait().unwrap(), part(root, rank, own));
        let even: Vec<Vec<i32>> = (0..ranks).map(|to| part(rank, to, 4)).collect();
        assert_eq!(comm.scatter_list_async(at_root(even), 4, root).wait().unwrap(), part(root, rank, 4));
        let received: Vec<Vec<i32>> = (0..ranks).map(|from| part(from, rank, own)).collect();
        let receive = vec![own; ranks as usize];
        let blocking = || {
            let inputs: Vec<&[i32]> = to_all.iter().map(|part| &part[..]).collect();
            let mut outputs = vec![vec![0; own]; ranks as usize];
            let mut rooms: Vec<&mut [i32]> = outputs.iter_mut().map(|room| &mut room[..]).collect();
            comm.all_to_all_list(&inputs, &mut rooms).unwrap();
            outputs
        };
        let twin = || comm.all_to_all_list_async(to_all.clone(), &receive).wait().unwrap();
        both(comm, blocking, twin, &received);
    });
}

/// Lengths that divide among the ranks and lengths that do not.
pub fn a12_coalesced_calls(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.rank(), comm.size());
        for lengths in [vec![ranks as usize * 2, ranks as usize * 3], vec![7, 0, 1, 900]] {
            let whole: Vec<Vec<i32>> =
                (1..).zip(&lengths).map(|(buffer, &length)| part(buffer, 3, length)).collect();
            let own = |whole: &[Vec<i32>]| -> Vec<Vec<i32>> {
                whole.iter().map(|all| all[comm.coalesced_share(all.len(), rank)].to_vec()).collect()
            };
            let blocking = || {
                let inputs = own(&whole);
                let inputs: Vec<&[i32]> = inputs.iter().map(|input| &input[..]).collect();
                let mut outputs: Vec<Vec<i32>> = lengths.iter().map(|&length| vec![0; length]).collect();
                let mut rooms: Vec<&mut [i32]> = outputs.iter_mut().map(|room| &mut room[..]).collect();
                comm.all_gather_coalesced(&inputs, &mut rooms).unwrap();
                outputs
            };
            let twin = || comm.all_gather_coalesced_async(own(&whole), &lengths).wait().unwrap();
            both(comm, blocking, twin, &whole);

            let given = || (1..).zip(&lengths).map(|(buffer, &length)| part(rank, buffer, length)).collect();
            let sums: Vec<Vec<i32>> =
                (1..).zip(&lengths).map(|(buffer, &length)| sums(ranks, buffer, length)).collect();
            let sums = own(&sums);
            let blocking = || {
                let inputs: Vec<Vec<i32>> = given();
                let inputs: Vec<&[i32]> = inputs.iter().map(|input| &input[..]).collect();
                let mut outputs: Vec<Vec<i32>> = sums.iter().map(|share| vec![0; share.len()]).collect();
                let mut rooms: Vec<&mut [i32]> = outputs.iter_mut().map(|room| &mut room[..]).collect();
                comm.reduce_scatter_coalesced(&inputs, &mut rooms, ReduceOp::Sum).unwrap();
                outputs
            };
            let twin = || comm.reduce_scatter_coalesced_async(given(), ReduceOp::Sum).wait().unwrap();
            both(comm, blocking, twin, &sums);
        }
    });
}

/// An affine map of wrapping numbers, `x -> a x + b`, with `a` in the high half.
fn map(a: u32, b: u32) -> u64 {
    u64::from(a) << 32 | u64::from(b)
}

/// The composition of maps, which does not commute.
fn compose(left: &[u64], right: &[u64], out: &mut [u64]) {
    for ((&left, &right), out) in left.iter().zip(right).zip(out) {
        let (a, b) = ((right >> 32) as u32, right as u32);
        *out = map(a.wrapping_mul((left >> 32) as u32), a.wrapping_mul(left as u32).wrapping_add(b));
    }
}

/// An operator that does not commute, in every reduction.
pub fn a12_user_operators(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        if !has_user_operators(comm) {
            return;
        }
        let (rank, ranks) = (comm.rank(), comm.size());
        let maps_of = |rank: u32| -> Vec<u64> { (0..ranks * 2).map(|at| map(3, rank * 7 + at)).collect() };
        let mut expected = maps_of(0);
        for next in 1..ranks {
            compose(&expected.clone(), &maps_of(next), &mut expected);
        }
        let (op, root) = (UserOp::ordered("affine"), ranks - 1);
        let blocking = || {
            let mut buffer = maps_of(rank);
            comm.all_reduce_user(&mut buffer, op, compose).unwrap();
            buffer
        };
        let twin = || comm.all_reduce_user_async(maps_of(rank), op, compose).wait().unwrap();
        both(comm, blocking, twin, &expected);

        let at_root = if rank == root { expected.clone() } else { Vec::new() };
        let blocking = || {
            let mut output = vec![0; at_root.len()];
            let room = (rank == root).then_some(&mut output[..]);
            comm.reduce_user(&maps_of(rank), room, op, root, compose).unwrap();
            output
        };
        let twin = || comm.reduce_user_async(maps_of(rank), op, root, compose).wait().unwrap();
        both(comm, blocking, twin, &at_root);

        let share = expected[rank as usize * 2..rank as usize * 2 + 2].to_vec();
        let blocking = || {
            let mut output = vec![0; 2];
            comm.reduce_scatter_user(&maps_of(rank), &mut output, op, compose).unwrap();
            output
        };
        let twin = || comm.reduce_scatter_user_async(maps_of(rank), op, compose).wait().unwrap();
        both(comm, blocking, twin, &share);
    });
}

/// One buffer for input and output, on every root.
pub fn a12_in_place(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.rank(), comm.size());
        for root in 0..ranks {
            let (length, share) = (5, rank as usize * 5..rank as usize * 5 + 5);
            let all: Vec<i32> = (0..ranks).flat_map(|from| part(from, 1, length)).collect();
            let mut buffer = if rank == root { vec![0; all.len()] } else { part(rank, 1, length) };
            if rank == root {
                buffer[share.clone()].copy_from_slice(&part(rank, 1, length));
            }
            comm.gather_in_place(&mut buffer, root).unwrap();
            let expected = if rank == root { all.clone() } else { part(rank, 1, length) };
            assert_eq!(buffer, expected, "gather to {root}");
            let mut buffer = if rank == root { all.clone() } else { vec![0; length] };
            comm.scatter_in_place(&mut buffer, root).unwrap();
            let expected = if rank == root { all } else { part(rank, 1, length) };
            assert_eq!(buffer, expected, "scatter of {root}");
            let work = comm.reduce_in_place_async(part(rank, 2, length), ReduceOp::Sum, root);
            let expected = if rank == root { sums(ranks, 2, length) } else { part(rank, 2, length) };
            assert_eq!(work.wait().unwrap(), expected);
        }
        let share = rank as usize * 2..rank as usize * 2 + 2;
        let mut buffer = vec![0; ranks as usize * 2];
        buffer[share.clone()].copy_from_slice(&part(rank, 1, 2));
        let all: Vec<i32> = (0..ranks).flat_map(|from| part(from, 1, 2)).collect();
        assert_eq!(comm.all_gather_in_place_async(buffer).wait().unwrap(), all);
        let to_all = || (0..ranks).flat_map(|to| part(rank, to, 2)).collect::<Vec<i32>>();
        let received: Vec<i32> = (0..ranks).flat_map(|from| part(from, rank, 2)).collect();
        assert_eq!(comm.all_to_all_in_place_async(to_all()).wait().unwrap(), received);
        let reduced = comm.reduce_scatter_in_place_async(to_all(), ReduceOp::Sum).wait().unwrap();
        assert_eq!(reduced[share], sums(ranks, rank, 2));
    });
}

/// A wrong argument of each form is named before anything is sent, and the next call works.
pub fn a12_wrong_arguments_change_nothing(backend: &dyn Backend) {
    run_each(backend, &[2, 3], |comm| {
        let (rank, ranks) = (comm.rank(), comm.size() as usize);
        let ones = vec![1usize; ranks];
        let short = &ones[1..];
        let wrong: Vec<(&str, Error)> = vec![
            ("counts", comm.all_gather_v_async(vec![1i32], short).wait().unwrap_err()),
            ("input", comm.all_gather_v_async(vec![1i32; 2], &ones).wait().unwrap_err()),
            ("counts", comm.gather_v_async(vec![1i32], short, 0).wait().unwrap_err()),
            ("root", comm.gather_v_async(vec![1i32], &ones, 9).wait().unwrap_err()),
            ("counts", comm.scatter_v_async(vec![1i32], short, 0).wait().unwrap_err()),
            ("root", comm.scatter_v_async(vec![1i32], &ones, 9).wait().unwrap_err()),
            ("counts", comm.reduce_scatter_v_async(vec![1i32], short, ReduceOp::Sum).wait().unwrap_err()),
            ("input", comm.reduce_scatter_v_async(vec![1i32], &ones, ReduceOp::Sum).wait().unwrap_err()),
            ("counts", comm.all_to_all_v_async(vec![1i32], short, &ones).wait().unwrap_err()),
            ("counts", comm.all_to_all_v_async(vec![1i32], &ones, short).wait().unwrap_err()),
            ("counts", comm.all_gather_v_in_place(&mut vec![1i32; ranks], short).unwrap_err()),
            ("buffer", comm.all_gather_v_in_place(&mut vec![1i32; ranks + 1], &ones).unwrap_err()),
            ("buffer", comm.all_to_all_v_in_place(&mut vec![1i32; ranks + 1], &ones).unwrap_err()),
            ("inputs", comm.all_gather_coalesced_async(vec![vec![1i32]], &[]).wait().unwrap_err()),
            ("buffer", comm.all_gather_in_place_async(vec![1i32; ranks + 1]).wait().unwrap_err()),
            ("buffer", comm.all_to_all_in_place_async(vec![1i32; ranks + 1]).wait().unwrap_err()),
            ("root", comm.reduce_in_place_async(vec![1i32], ReduceOp::Sum, 9).wait().unwrap_err()),
            ("root", comm.gather_in_place(&mut [1i32], 9).unwrap_err()),
            ("root", comm.scatter_in_place(&mut [1i32], 9).unwrap_err()),
            ("root", comm.gather_list_async(vec![1i32], 9).wait().unwrap_err()),
            ("root", comm.scatter_list_async(vec![vec![1i32]], 1, 9).wait().unwrap_err()),
        ];
        for (at, (argument, error)) in wrong.iter().enumerate() {
            let named = matches!(error, Error::InvalidArgument { argument: named, .. } if named == argument);
            assert!(named, "number {at} on rank {rank}, {argument}: {error}");
        }
        let mut sum = [1i32];
        comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        assert_eq!(sum, [ranks as i32]);
    });
}
