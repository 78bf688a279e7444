//! Collectives on lists of buffers: a buffer for each rank, even and uneven, and many buffers in one call.

use unisono_collectives::{Collectives, CollectivesOfLists};
use unisono_communicator::{Communicator, Error, ReduceOp, Result};

use crate::backend::Backend;
use crate::suite::arguments::WrongCall;
use crate::world::{options, run, run_each};

/// Elements that tell their sender, their receiver and their place.
fn elements(from: usize, to: usize, length: usize) -> Vec<u32> {
    (0..length).map(|index| (from * 1_000_003 + to * 10_007 + index) as u32).collect()
}

/// The elements that go from one rank to another: none, a few, or more than one piece.
fn pair_length(from: usize, to: usize, seed: usize) -> usize {
    [0, 1, 7, 3, 40_000, 0, 12][(from * 3 + to * 5 + seed) % 7]
}

fn slices<T>(list: &[Vec<T>]) -> Vec<&[T]> {
    list.iter().map(Vec::as_slice).collect()
}

fn slices_mut<T>(list: &mut [Vec<T>]) -> Vec<&mut [T]> {
    list.iter_mut().map(Vec::as_mut_slice).collect()
}

/// Rank and number of ranks.
fn place(comm: &dyn Communicator) -> (usize, usize) {
    (comm.rank() as usize, comm.size() as usize)
}

/// Each rank sends a list of unequal buffers, and receives a list of unequal buffers.
pub fn b11_all_to_all_of_unequal_buffers(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = place(comm);
        for seed in 0..7 {
            let inputs: Vec<Vec<u32>> =
                (0..ranks).map(|to| elements(rank, to, pair_length(rank, to, seed))).collect();
            let mut outputs: Vec<Vec<u32>> =
                (0..ranks).map(|from| vec![0; pair_length(from, rank, seed)]).collect();
            comm.all_to_all_list(&slices(&inputs), &mut slices_mut(&mut outputs)).unwrap();
            for (from, output) in outputs.iter().enumerate() {
                assert!(*output == elements(from, rank, output.len()), "from {from}, seed {seed}");
            }
        }
    });
}

/// Lists on all ranks and at every root, of equal and of unequal buffers.
pub fn b8_b13_b14_gather_and_scatter_of_lists(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = place(comm);
        for root in 0..ranks {
            let uneven: Vec<usize> = (0..ranks).map(|rank| pair_length(rank, root, 2)).collect();
            for counts in [vec![5; ranks], vec![0; ranks], uneven] {
                let is_even = counts.iter().all(|count| *count == counts[0]);
                let lists: Vec<Vec<u32>> =
                    (0..ranks).map(|rank| elements(rank, root, counts[rank])).collect();
                let mut gathered: Vec<Vec<u32>> = counts.iter().map(|count| vec![0; *count]).collect();
                let mut outputs = slices_mut(&mut gathered);
                let outputs = (rank == root).then_some(&mut outputs[..]);
                let mut share = vec![0; counts[rank]];
                let inputs = slices(&lists);
                let inputs = (rank == root).then_some(&inputs[..]);
                if is_even {
                    comm.gather_list(&lists[rank], outputs, root as u32).unwrap();
                    comm.scatter_list(inputs, &mut share, root as u32).unwrap();
                } else {
                    comm.gather_list_v(&lists[rank], outputs, &counts, root as u32).unwrap();
                    comm.scatter_list_v(inputs, &mut share, &counts, root as u32).unwrap();
                }
                assert!(rank != root || gathered == lists, "gather to {root} of {counts:?}");
                let mut all: Vec<Vec<u32>> = counts.iter().map(|count| vec![0; *count]).collect();
                comm.all_gather_list_v(&lists[rank], &mut slices_mut(&mut all)).unwrap();
                assert!(all == lists, "all_gather of {counts:?}");
                assert!(share == lists[rank], "scatter from {root} of {counts:?}");
            }
        }
    });
}

/// Lengths of whole buffers: no buffer, lengths that divide among the ranks, and lengths that do not.
fn whole_lengths(ranks: usize) -> [Vec<usize>; 5] {
    [vec![], vec![0], vec![2 * ranks, 0, 30_000 * ranks], vec![6, 3], vec![1, 70_001, 0, ranks + 1, 5]]
}

/// Rank `rank`'s part of a buffer: of ceil(n / p) elements for the first ranks, and of the rest for the others.
fn part<T: Clone>(whole: &[T], ranks: usize, rank: usize) -> Vec<T> {
    whole.chunks(whole.len().div_ceil(ranks).max(1)).nth(rank).unwrap_or_default().to_vec()
}

/// One all-gather for all buffers.
pub fn b10_all_gather_coalesced(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = place(comm);
        for lengths in whole_lengths(ranks) {
            let whole: Vec<Vec<u32>> =
                lengths.iter().enumerate().map(|(at, length)| elements(at, 0, *length)).collect();
            let inputs: Vec<Vec<u32>> = whole.iter().map(|whole| part(whole, ranks, rank)).collect();
            let mut outputs: Vec<Vec<u32>> = lengths.iter().map(|length| vec![u32::MAX; *length]).collect();
            comm.all_gather_coalesced(&slices(&inputs), &mut slices_mut(&mut outputs)).unwrap();
            assert!(outputs == whole, "{lengths:?}");
        }
    });
}

/// One reduce-scatter for all buffers. The inputs stay.
pub fn b11_h1_reduce_scatter_coalesced(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = place(comm);
        // Small integers, whose sums and means are exact.
        let value = |rank: usize, at: usize, index: usize| ((rank * 7 + at * 3 + index) % 50) as f32;
        for lengths in whole_lengths(ranks) {
            let of_rank = |rank: usize| -> Vec<Vec<f32>> {
                let buffer = |(at, length): (usize, &usize)| {
                    (0..*length).map(|index| value(rank, at, index)).collect()
                };
                lengths.iter().enumerate().map(buffer).collect()
            };
            let inputs = of_rank(rank);
            let mut sums = of_rank(0);
            for other in 1..ranks {
                let pairs = sums.iter_mut().zip(of_rank(other));
                pairs.for_each(|(sum, other)| sum.iter_mut().zip(other).for_each(|(sum, more)| *sum += more));
            }
            for (op, divisor) in [(ReduceOp::Sum, 1.0), (ReduceOp::Avg, ranks as f32)] {
                let mut outputs: Vec<Vec<f32>> = lengths
                    .iter()
                    .map(|length| vec![0.0; comm.coalesced_share(*length, comm.rank()).len()])
                    .collect();
                comm.reduce_scatter_coalesced(&slices(&inputs), &mut slices_mut(&mut outputs), op).unwrap();
                for (output, sum) in outputs.iter().zip(&sums) {
                    let expected = part(sum, ranks, rank);
                    assert_eq!(output.len(), expected.len());
                    let is_close = |(got, sum): (&f32, &f32)| (got - sum / divisor).abs() <= 1e-3;
                    assert!(output.iter().zip(&expected).all(is_close), "{op} of {lengths:?}");
                }
            }
            assert!(inputs == of_rank(rank), "the inputs stay");
        }
    });
}

/// Lengths whose totals agree, but that differ between ranks, would mix the buffers.
pub fn b10_b11_other_lengths_are_a_mismatch(backend: &dyn Backend) {
    type CoalescedCall = fn(&dyn Communicator, [usize; 2]) -> Result<()>;
    let gather: CoalescedCall = |comm, lengths| {
        let inputs = lengths.map(|length| vec![1u8; comm.coalesced_share(length, comm.rank()).len()]);
        let mut outputs = lengths.map(|length| vec![0u8; length]);
        comm.all_gather_coalesced(&slices(&inputs), &mut slices_mut(&mut outputs))
    };
    let scatter: CoalescedCall = |comm, lengths| {
        let inputs = lengths.map(|length| vec![1i32; length]);
        let mut outputs = lengths.map(|length| vec![0; comm.coalesced_share(length, comm.rank()).len()]);
        comm.reduce_scatter_coalesced(&slices(&inputs), &mut slices_mut(&mut outputs), ReduceOp::Sum)
    };
    for call in [gather, scatter] {
        for lengths in [[8, 4], [6, 3]] {
            run(backend, 2, &options(), |comm| {
                let [first, second] = lengths;
                let own = if comm.rank() == 0 { lengths } else { [second, first] };
                let error = call(comm, own).unwrap_err();
                assert!(matches!(error.root_cause(), Error::Mismatch { .. }), "{error}");
                assert!(error.to_string().contains("segment lengths"), "{error}");
            });
        }
    }
}

/// For groups of two ranks and more, on rank 0.
const WRONG: &[WrongCall] = &[
    ("input", "all_to_all_list with a buffer missing", |c| {
        let (inputs, mut outputs) =
            (vec![vec![1u8]; c.size() as usize - 1], vec![vec![0]; c.size() as usize]);
        c.all_to_all_list(&slices(&inputs), &mut slices_mut(&mut outputs))
    }),
    ("output", "all_to_all_list with a buffer too many", |c| {
        let (inputs, mut outputs) =
            (vec![vec![1u8]; c.size() as usize], vec![vec![0]; c.size() as usize + 1]);
        c.all_to_all_list(&slices(&inputs), &mut slices_mut(&mut outputs))
    }),
    ("output", "gather_list into too few", |c| c.gather_list(&[1u8], Some(&mut [&mut [0]]), 0)),
    ("output", "gather_list into nothing at the root", |c| c.gather_list(&[1u8], None, 0)),
    ("output", "gather_list into another length", |c| {
        let mut outputs = vec![vec![0u8; 1]; c.size() as usize];
        outputs[1] = vec![0; 2];
        c.gather_list(&[1u8], Some(&mut slices_mut(&mut outputs)), 0)
    }),
    ("input", "scatter_list of too many", |c| {
        c.scatter_list(Some(&slices(&vec![vec![1u8]; c.size() as usize + 1])), &mut [0], 0)
    }),
    ("input", "scatter_list of something elsewhere", |c| {
        c.scatter_list(Some(&slices(&vec![vec![1u8]; c.size() as usize])), &mut [0], 1)
    }),
    ("root", "scatter_list from nobody", |c| c.scatter_list(None, &mut [0u8], c.size())),
    ("output", "all_gather_list_v into too few", |c| c.all_gather_list_v(&[1u8], &mut [&mut [0]])),
    ("input", "all_gather_list_v of another length", |c| {
        c.all_gather_list_v(&[1u8; 2], &mut slices_mut(&mut vec![vec![0]; c.size() as usize]))
    }),
    ("counts", "gather_list_v with a count missing", |c| c.gather_list_v(&[1u8], None, &[1], 1)),
    ("inputs", "all_gather_coalesced of too few", |c| {
        c.all_gather_coalesced(&[&[1u8][..]], &mut [&mut vec![0; c.size() as usize], &mut []])
    }),
    ("inputs", "all_gather_coalesced of another share", |c| {
        c.all_gather_coalesced(&[&[1u8; 2][..]], &mut [&mut vec![0; c.size() as usize]])
    }),
    ("outputs", "reduce_scatter_coalesced into too many", |c| {
        let input = vec![1; c.size() as usize];
        c.reduce_scatter_coalesced(&[&input], &mut [&mut [0], &mut []], ReduceOp::Sum)
    }),
    ("outputs", "reduce_scatter_coalesced into another share", |c| {
        c.reduce_scatter_coalesced(&[&[1; 3][..]], &mut [&mut [0; 3]], ReduceOp::Sum)
    }),
    ("op", "reduce_scatter_coalesced by bits of floats", |c| {
        let input = vec![1.0f32; c.size() as usize];
        c.reduce_scatter_coalesced(&[&input], &mut [&mut [0.0]], ReduceOp::BitOr)
    }),
];

/// One rank alone makes the mistake; the next call of all ranks works, so nothing was sent and nothing counted.
pub fn b10_b11_wrong_lists_change_nothing(backend: &dyn Backend) {
    run_each(backend, &[2, 3], |comm| {
        for (argument, what, call) in WRONG {
            if comm.rank() == 0 {
                let error = call(comm).expect_err(what);
                let is_named =
                    matches!(&error, Error::InvalidArgument { argument: named, .. } if named == argument);
                assert!(is_named && error.is_before_start(), "{what} must name {argument}: {error}");
                assert!(error.to_string().contains(concat!(" at ", file!(), ":")), "{error}");
            }
            let mut value = [1i32];
            comm.all_reduce(&mut value, ReduceOp::Sum).unwrap();
            assert_eq!(value, [comm.size() as i32], "after {what}");
        }
    });
}
