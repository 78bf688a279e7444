//! Collectives that move: every dtype, root, place and list, even and uneven.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesUneven};
use unisono_communicator::{Collective, Communicator, DType, Place, ReduceOp, bf16};

use crate::backend::Backend;
use crate::case::{Amount, Case, assert_same};
use crate::sample::{Position, Sample, dtypes};
use crate::world::{options, run, run_each};

/// The collectives that reduce nothing.
fn moves() -> impl Iterator<Item = Collective> {
    Collective::ALL.into_iter().filter(|collective| !collective.reduces())
}

/// In place and separate, contiguous and in lists.
fn in_every_form(case: &Case, comm: &dyn Communicator) {
    for segments in [None, Some(case.seed)] {
        for place in [Place::Separate, Place::InPlace] {
            case_at(Case { segments, place, ..case.clone() }, comm);
        }
    }
}

fn case_at(case: Case, comm: &dyn Communicator) {
    case.check(comm).unwrap_or_else(|error| panic!("{case:?}: {error}"));
}

/// Any bytes of any element type arrive as they are.
///
/// Rows: A11, B9, B12
pub fn moves_of_every_dtype(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        for dtype in dtypes() {
            for collective in moves() {
                in_every_form(&Case::new(collective, dtype, 5), comm);
            }
        }
    });
}

/// Every root, with counts of nothing, one, fewer than the ranks, and some that do not divide.
///
/// Rows: B1, B13, B14
pub fn moves_at_every_root(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        for collective in moves() {
            let roots = if collective.is_rooted() { comm.group().size() } else { 1 };
            for (root, count) in (0..roots).flat_map(|root| [0, 1, 3, 13, 1000].map(|count| (root, count))) {
                in_every_form(
                    &Case { root, seed: count as u64, ..Case::new(collective, DType::U16, count) },
                    comm,
                );
            }
        }
    });
}

fn elements<T: Sample>(rank: u32, count: usize) -> Vec<T> {
    let position = |index| Position { seed: 2, ranks: 1, rank, index };
    (0..count as u64).map(|index| T::any(position(index).random())).collect()
}

/// The typed methods themselves.
///
/// Rows: B1, B9, B12, B13, B14
pub fn typed_moves(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        for count in [0, 1, 3, 13] {
            let (mine, all) = (rank as usize * count..(rank as usize + 1) * count, count * ranks as usize);
            let input: Vec<f64> = elements(rank, count);
            let everything: Vec<f64> = (0..ranks).flat_map(|rank| elements(rank, count)).collect();
            let mut output = vec![0.0; all];
            comm.all_gather(&input, &mut output).unwrap();
            assert_same(&output, &everything, "all_gather");
            let mut buffer = vec![0.0; all];
            buffer[mine.clone()].copy_from_slice(&input);
            comm.all_gather_in_place(&mut buffer).unwrap();
            assert_same(&buffer, &everything, "all_gather_in_place");

            let wide: Vec<bf16> = elements(rank, all);
            let received: Vec<bf16> =
                (0..ranks).flat_map(|from| elements::<bf16>(from, all)[mine.clone()].to_vec()).collect();
            let mut output = vec![bf16::ZERO; all];
            comm.all_to_all(&wide, &mut output).unwrap();
            assert_same(&output, &received, "all_to_all");
            let mut buffer = wide.clone();
            comm.all_to_all_in_place(&mut buffer).unwrap();
            assert_same(&buffer, &received, "all_to_all_in_place");
            for root in 0..ranks {
                typed_rooted(comm, root, count);
            }
        }
    });
}

fn typed_rooted(comm: &dyn Communicator, root: u32, count: usize) {
    let (rank, ranks) = (comm.group().rank(), comm.group().size());
    let at_root = rank == root;
    let mut buffer: Vec<i64> = elements(rank, count);
    comm.broadcast(&mut buffer, root).unwrap();
    assert_eq!(buffer, elements::<i64>(root, count));

    let everything: Vec<i64> = (0..ranks).flat_map(|rank| elements(rank, count)).collect();
    let mut output = vec![0; everything.len()];
    comm.gather(&elements::<i64>(rank, count), at_root.then_some(&mut output[..]), root).unwrap();
    assert_eq!(output, if at_root { everything.clone() } else { vec![0; everything.len()] });

    let mut share = vec![0; count];
    comm.scatter(at_root.then_some(&everything[..]), &mut share, root).unwrap();
    assert_eq!(share, elements::<i64>(rank, count));
}

/// Lists of buffers, some of them empty.
///
/// Rows: B3, B6, B8
pub fn lists_and_coalesced(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        let input: Vec<u16> = elements(rank, 11);
        let mut outputs = vec![vec![0; 11]; ranks as usize];
        let mut list: Vec<&mut [u16]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        comm.all_gather_list(&input, &mut list).unwrap();
        for (from, output) in (0..).zip(&outputs) {
            assert_eq!(*output, elements::<u16>(from, 11));
        }
        let share = |from: u32, to: u32| [0, 1, 2].map(|index| (from * 100 + to * 10 + index) as i32);
        let inputs: Vec<[i32; 3]> = (0..ranks).map(|to| share(rank, to)).collect();
        let inputs: Vec<&[i32]> = inputs.iter().map(|input| &input[..]).collect();
        for (op, expected) in [
            (ReduceOp::Max, share(ranks - 1, rank)),
            (
                ReduceOp::Sum,
                share(0, rank).map(|least| (least * 2 + 100 * (ranks - 1) as i32) * ranks as i32 / 2),
            ),
        ] {
            let mut output = [-1; 3];
            comm.reduce_scatter_list(&inputs, &mut output, op).unwrap();
            assert_eq!(output, expected, "{op}");
        }
        let (own, sum) = ((rank + 1) as i32, (ranks * (ranks + 1) / 2) as i32);
        let mut parts: Vec<Vec<i32>> = [3, 0, 70_000, 1, 0].map(|length| vec![own; length]).into();
        let mut list: Vec<&mut [i32]> = parts.iter_mut().map(Vec::as_mut_slice).collect();
        comm.all_reduce_coalesced(&mut list, ReduceOp::Sum).unwrap();
        assert!(parts.iter().flatten().all(|&value| value == sum));
        comm.all_reduce_coalesced::<i32>(&mut [], ReduceOp::Sum).unwrap();
    });
}

/// Counts that differ by rank, with zeros among them, in one form or another.
fn uneven_shares(ranks: u32, seed: usize) -> Vec<usize> {
    (0..ranks as usize)
        .map(|rank| (rank * 7 + seed * 5) % 11 * usize::from(!(rank + seed).is_multiple_of(3)))
        .collect()
}

/// Every uneven form, every root.
///
/// Rows: B12
pub fn uneven(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let ranks = comm.group().size();
        for seed in 0..4 {
            let amount = Amount::PerRank(uneven_shares(ranks, seed));
            for collective in
                [Collective::AllGather, Collective::ReduceScatter, Collective::Gather, Collective::Scatter]
            {
                let roots = if collective.is_rooted() { ranks } else { 1 };
                for root in 0..roots {
                    let seed = seed as u64;
                    let case =
                        Case { amount: amount.clone(), root, seed, ..Case::new(collective, DType::I32, 0) };
                    in_every_form(&case, comm);
                }
            }
            let pairs: Vec<_> = (0..ranks).map(|from| uneven_shares(ranks, seed + from as usize)).collect();
            let case = Case { seed: seed as u64, ..Case::new(Collective::AllToAll, DType::F16, 0) };
            for segments in [None, Some(7)] {
                case_at(Case { amount: Amount::PerPair(pairs.clone()), segments, ..case.clone() }, comm);
            }
            // In place, as much must come from a rank as goes to it.
            let both_ways = |from: usize, to: usize| pairs[from.min(to)][from.max(to)];
            let ranks = ranks as usize;
            let pairs = (0..ranks).map(|from| (0..ranks).map(|to| both_ways(from, to)).collect()).collect();
            case_at(Case { amount: Amount::PerPair(pairs), place: Place::InPlace, ..case }, comm);
        }
    });
}

/// The typed uneven methods.
///
/// Rows: B12
pub fn typed_uneven(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        let counts = uneven_shares(ranks, 1);
        let (own, total) = (counts[rank as usize], counts.iter().sum());
        let before: usize = counts[..rank as usize].iter().sum();
        let everything: Vec<i32> =
            (0..ranks).flat_map(|rank| elements(rank, counts[rank as usize])).collect();
        let (root, at_root) = (ranks - 1, rank == ranks - 1);

        let mut output = vec![0; total];
        comm.all_gather_v(&everything[before..before + own], &mut output, &counts).unwrap();
        assert_eq!(output, everything);
        let mut output = vec![0; total];
        let place = at_root.then_some(&mut output[..]);
        comm.gather_v(&everything[before..before + own], place, &counts, root).unwrap();
        assert!(!at_root || output == everything);
        let mut share = vec![0; own];
        comm.scatter_v(at_root.then_some(&everything[..]), &mut share, &counts, root).unwrap();
        assert_eq!(share, everything[before..before + own]);
        let mut share = vec![0; own];
        let factor = rank as i32 + 1;
        let input: Vec<i32> = everything.iter().map(|value| value.wrapping_mul(factor)).collect();
        comm.reduce_scatter_v(&input, &mut share, &counts, ReduceOp::Sum).unwrap();
        let factor = (ranks * (ranks + 1) / 2) as i32;
        let expected: Vec<i32> =
            everything[before..before + own].iter().map(|value| value.wrapping_mul(factor)).collect();
        assert_eq!(share, expected);

        // Rank i has i + 2 j elements for rank j.
        let part = |from: u32, to: u32| (0..from + 2 * to).map(move |index| (from * 100 + to) * 100 + index);
        let send: Vec<usize> = (0..ranks).map(|to| (rank + 2 * to) as usize).collect();
        let receive: Vec<usize> = (0..ranks).map(|from| (from + 2 * rank) as usize).collect();
        let input: Vec<u32> = (0..ranks).flat_map(|to| part(rank, to)).collect();
        let expected: Vec<u32> = (0..ranks).flat_map(|from| part(from, rank)).collect();
        let mut output = vec![u32::MAX; expected.len()];
        comm.all_to_all_v(&input, &send, &mut output, &receive).unwrap();
        assert_eq!(output, expected);
    });
}

/// Several pieces, and the sockets of long calls; the second call of a shape uses what the first has planned.
///
/// Rows: D8
pub fn long_buffers(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 3, 5], |comm| {
        for collective in Collective::ALL {
            for (dtype, count) in [(DType::F32, 300_001), (DType::U8, 140_000), (DType::F32, 300_001)] {
                let count = if collective == Collective::Barrier { 0 } else { count };
                let op = collective.reduces().then_some(ReduceOp::Sum);
                let root = if collective.is_rooted() { comm.group().size() - 1 } else { 0 };
                let case = Case { op, root, seed: 4, ..Case::new(collective, dtype, count) };
                case_at(case.clone(), comm);
                case_at(Case { segments: Some(3), ..case }, comm);
            }
        }
    });
}

/// Outputs so long that the engine stores them past the caches. The last step of a mean divides.
///
/// Rows: D8
pub fn outputs_beyond_the_caches(backend: &dyn Backend) {
    run_each(backend, &[2], |comm| {
        for collective in [Collective::AllGather, Collective::ReduceScatter, Collective::AllReduce] {
            let op = collective.reduces().then_some(ReduceOp::Avg);
            let case = Case { op, seed: 5, ..Case::new(collective, DType::U16, 4_500_001) };
            case_at(Case { segments: Some(3), place: Place::Separate, ..case }, comm);
        }
    });
}

/// Nobody leaves before everybody has come, many times in a row. In every fifth round one rank is late, each in turn.
///
/// Rows: B17
pub fn barrier_waits_for_everybody(backend: &dyn Backend) {
    for &ranks in backend.rank_counts() {
        let arrived = AtomicU32::new(0);
        run(backend, ranks, &options(), |comm| {
            for round in 1..=100 {
                if round % 5 == 0 && comm.group().rank() == round / 5 % ranks {
                    std::thread::sleep(Duration::from_millis(1));
                }
                arrived.fetch_add(1, Ordering::SeqCst);
                comm.barrier().unwrap();
                let seen = arrived.load(Ordering::SeqCst);
                assert!(seen >= round * ranks, "{seen} arrivals in round {round} of {ranks} ranks");
            }
            comm.close().unwrap();
        });
    }
}

/// Sixteen ranks and more.
pub fn many_ranks(backend: &dyn Backend) {
    run_each(backend, backend.large_rank_counts(), |comm| {
        for collective in moves() {
            let root = if collective.is_rooted() { comm.group().size() - 1 } else { 0 };
            for count in [0, 1, 100] {
                in_every_form(&Case { root, ..Case::new(collective, DType::U32, count) }, comm);
            }
        }
    });
}
