//! Calls in two levels: hosts sum exactly, and encode the sum of a host.

use std::sync::Arc;

use crate::common::{bits, codecs, feedback_codecs, input, noise, state};
use unisono_collectives::Collectives;
use unisono_communicator::{Communicator, CostModel, DType, Error, JobRank, ReduceOp, bf16};
use unisono_compression::{Codec, CompressedCollectives, CompressionState, Int4, Int8, Route, SignL1};
use unisono_engine::in_process::{self, EngineOptions};

/// Hosts of one size and of several, with ranks in any order, one host alone, and every rank alone.
const HOSTS: [&[u32]; 7] =
    [&[0, 0, 1, 1], &[0, 1, 0, 1, 0, 1], &[7, 7, 7, 2], &[0, 1, 1, 2, 2, 2], &[4, 4, 4], &[0, 1, 2], &[0]];

fn on<R: Send>(hosts: &[u32], body: impl Fn(Arc<dyn Communicator>) -> R + Sync) -> Vec<R> {
    in_process::run_on_hosts(hosts, &EngineOptions::default(), |_, links| links, body)
}

fn in_two_levels(comm: &dyn Communicator, codec: &Arc<dyn Codec>, elements: usize) -> CompressionState {
    state(comm, codec, elements).by(Route::TwoLevels, comm).unwrap()
}

/// The residuals of each rank, at the elements that it encodes: the shares of owners for whom it sums.
fn owed(state: &CompressionState, hosts: &[u32], rank: usize, elements: usize) -> Vec<f64> {
    let mut all = vec![0.0; elements];
    let place = |rank: usize| hosts[..rank].iter().filter(|host| **host == hosts[rank]).count();
    let team = hosts.iter().filter(|host| **host == hosts[rank]).count();
    let ranks = hosts.len();
    let block = state.codec().block();
    let blocks = elements.div_ceil(block);
    let at = |rank: usize| (blocks * rank / ranks * block).min(elements);
    let residual = state.residual();
    let mut residual = residual.iter();
    for owner in (0..ranks).filter(|owner| place(*owner) % team == place(rank)) {
        for element in &mut all[at(owner)..at(owner + 1)] {
            *element += f64::from(*residual.next().unwrap());
        }
    }
    assert_eq!(residual.next(), None, "a rank owes for its part alone");
    for (element, owed) in state.owned().zip(&*state.owner_residual()) {
        all[element] += f64::from(*owed);
    }
    all
}

/// Rows: H3
#[test]
fn sums_over_many_calls_are_right_and_replicas_equal() {
    for (number, hosts) in HOSTS.into_iter().enumerate() {
        // A vector that is filled up has other shares; `owed` knows only the shares of the others.
        for codec in feedback_codecs().iter().filter(|codec| codec.padded(1, 3) == 1) {
            let elements = [700, 2 * hosts.len() + 1, 4100][number % 3];
            let ended = on(hosts, |comm| {
                let mut state = in_two_levels(&*comm, codec, elements);
                assert_eq!(state.route(), Route::TwoLevels);
                let rank = comm.group().rank();
                let (mut sums, mut last) = (vec![0.0f64; elements], Vec::new());
                for call in 0..10 {
                    last = input(rank, call, elements);
                    comm.compressed_all_reduce(&mut last, ReduceOp::Sum, &mut state).unwrap();
                    sums.iter_mut().zip(&last).for_each(|(sum, value)| *sum += f64::from(*value));
                }
                (sums, bits(&last), owed(&state, hosts, rank as usize, elements))
            });
            for index in 0..elements {
                let inputs = (0..hosts.len() as u32)
                    .flat_map(|rank| (0..10).map(move |call| crate::common::input_at(rank, call, index)));
                let inputs: f64 = inputs.map(f64::from).sum();
                let owed: f64 = ended.iter().map(|rank| rank.2[index]).sum();
                let error = ended[0].0[index] + owed - inputs;
                assert!(error.abs() < 1e-3, "{codec:?} on {hosts:?}, element {index}: {error}");
            }
            assert!(ended.iter().all(|rank| rank.1 == ended[0].1), "{codec:?} on {hosts:?}: replicas differ");
        }
    }
}

#[test]
fn every_rank_alone_is_the_direct_way() {
    for codec in &codecs() {
        let run = |route| {
            in_process::run(3, |comm| {
                let mut state = state(&*comm, codec, 1000).by(route, &*comm).unwrap();
                let mut vector = input(comm.group().rank(), 0, 1000);
                comm.compressed_all_reduce(&mut vector, ReduceOp::Avg, &mut state).unwrap();
                bits(&vector)
            })
        };
        // On one host, in two levels, each owner sums all before it encodes: less is lost.
        assert_eq!(run(Route::Direct).len(), 3);
        let alone = on(&[0, 1, 2], |comm| {
            let mut state = in_two_levels(&*comm, codec, 1000);
            let mut vector = input(comm.group().rank(), 0, 1000);
            comm.compressed_all_reduce(&mut vector, ReduceOp::Avg, &mut state).unwrap();
            bits(&vector)
        });
        assert_eq!(alone, run(Route::Direct), "{codec:?}");
    }
}

/// Several pieces, so that vectors for the team, codes for owners and sums for all are on their way at the same time;
/// and narrow elements in a list of vectors.
#[test]
fn long_lists_of_narrow_vectors() {
    const LENGTHS: [usize; 4] = [1_500_000, 0, 3, 700_001];
    let codec: Arc<dyn Codec> = Arc::new(Int8::default());
    let elements = LENGTHS.iter().sum();
    let ended = on(&[0, 0, 1, 1], |comm| {
        let state = CompressionState::with_codec(&*comm, codec.clone(), DType::BF16, elements).unwrap();
        let mut state = state.by(Route::TwoLevels, &*comm).unwrap();
        let mut next = 0;
        let mut vectors = LENGTHS.map(|length| {
            next += length;
            let of = |index| bf16::from_f32(noise(u64::from(comm.group().rank()), next - length + index));
            (0..length).map(of).collect::<Vec<bf16>>()
        });
        let mut exact = vectors.iter().flatten().map(|value| value.to_f32()).collect::<Vec<f32>>();
        comm.all_reduce(&mut exact, ReduceOp::Avg).unwrap();
        let mut list: Vec<&mut [bf16]> = vectors.iter_mut().map(|vector| &mut vector[..]).collect();
        comm.compressed_all_reduce_coalesced(&mut list, ReduceOp::Avg, &mut state).unwrap();
        let error = vectors.iter().flatten().zip(&exact).map(|(mean, exact)| (mean.to_f32() - exact).abs());
        assert!(error.fold(0.0, f32::max) < 0.03);
        vectors.concat()
    });
    assert!(ended.iter().all(|rank| *rank == ended[0]));
}

#[test]
fn the_rank_with_an_element_that_is_not_finite_is_named() {
    for codec in &codecs() {
        let ended = on(&[0, 0, 1, 1, 1], |comm| {
            let mut state = in_two_levels(&*comm, codec, 5000);
            let rank = comm.group().rank();
            let mut clean = input(rank, 0, 5000);
            comm.compressed_all_reduce(&mut clean, ReduceOp::Sum, &mut state).unwrap();
            let before = state.export().unwrap();
            let mut vector = input(rank, 1, 5000);
            if rank == 3 {
                vector[4321] = f32::NAN;
            }
            let untouched = bits(&vector);
            let refused = comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state);
            let Err(Error::NonFinite { rank: culprit, block, .. }) = refused else { panic!("{refused:?}") };
            assert_eq!((culprit, block), (JobRank::new(3), 4321 / codec.block() as u64), "{codec:?}");
            assert_eq!(
                (bits(&vector), state.export().unwrap()),
                (untouched, before),
                "{codec:?}: all is as before"
            );
            comm.compressed_all_reduce(&mut clean, ReduceOp::Sum, &mut state).unwrap();
            bits(&clean)
        });
        assert!(ended.iter().all(|rank| *rank == ended[0]));
    }
}

/// Finite elements whose sum is none: a rank that summed it is named.
#[test]
fn a_sum_that_overflows_in_a_host() {
    on(&[0, 0, 1, 1], |comm| {
        let codec: Arc<dyn Codec> = Arc::new(SignL1::default());
        let mut state = in_two_levels(&*comm, &codec, 100);
        let refused = comm.compressed_all_reduce(&mut [3e38f32; 100], ReduceOp::Avg, &mut state);
        let Err(Error::NonFinite { block, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(block, 0);
    });
}

/// Between hosts of several ranks, two levels send less; on one host, and with ranks alone, there is only one way. Slow
/// links in a host turn the choice.
#[test]
fn the_cheaper_way_is_chosen_by_price() {
    let choice_of = |codec: &Arc<dyn Codec>, hosts: &[u32], model: CostModel| {
        let options = EngineOptions { cost_model: model, ..EngineOptions::default() };
        let routes = in_process::run_on_hosts(
            hosts,
            &options,
            |_, links| links,
            |comm| state(&*comm, codec, 1 << 16).route(),
        );
        assert!(routes.iter().all(|route| *route == routes[0]));
        routes[0]
    };
    let int8: Arc<dyn Codec> = Arc::new(Int8::default());
    let choice = |hosts: &[u32], model| choice_of(&int8, hosts, model);
    // 1 Gbit/s.
    let slow_network = CostModel { network_fs_per_byte: 8_000_000, ..CostModel::LOOPBACK };
    assert_eq!(choice(&[0, 0, 1, 1], slow_network), Route::TwoLevels);
    assert_eq!(choice(&[0, 0, 0, 0], slow_network), Route::Direct);
    assert_eq!(choice(&[0, 1, 2], slow_network), Route::Direct);
    // As docs/compression.md has measured it, with four ranks on two cores: a sum on the host must be worth the bytes
    // that it spares.
    let crowded = slow_network.with_ranks_on_cores(4, 2);
    let sign: Arc<dyn Codec> = Arc::new(SignL1::default());
    assert_eq!(choice_of(&sign, &[0, 0, 1, 1], crowded), Route::Direct);
    let int4: Arc<dyn Codec> = Arc::new(Int4::default());
    assert_eq!(choice_of(&int4, &[0, 0, 1, 1], crowded), Route::TwoLevels);
    assert_eq!(choice(&[0, 0, 1, 1], crowded), Route::TwoLevels);
    let fast_network = CostModel { network_fs_per_byte: 10_000, ..CostModel::LOOPBACK };
    assert_eq!(choice(&[0, 0, 1, 1], fast_network), Route::Direct);
}

/// After a shrink a host has the residuals of its ranks that are left.
#[test]
fn residuals_stay_on_their_host_after_a_shrink() {
    let hosts = [0, 0, 0, 1, 1];
    for codec in feedback_codecs().iter().filter(|codec| codec.padded(1, 3) == 1) {
        let elements = 9000;
        let ended = on(&hosts, |comm| {
            let rank = comm.group().rank();
            let mut state = in_two_levels(&*comm, codec, elements);
            for call in 0..3 {
                comm.compressed_all_reduce(&mut input(rank, call, elements), ReduceOp::Sum, &mut state)
                    .unwrap();
            }
            let before = owed(&state, &hosts, rank as usize, elements);
            // A rank that leaves earlier fails the last call of a rank that is held up.
            comm.agree(true).unwrap();
            if rank == 1 {
                return (before, None);
            }
            let _ = comm.barrier();
            let shrunk = comm.shrink().unwrap();
            let rebound = state.rebind(&shrunk).unwrap();
            assert_eq!(rebound.lost, [JobRank::new(1)]);
            let left = [0, 0, 1, 1];
            let after = owed(&state, &left, shrunk.communicator.group().rank() as usize, elements);
            let mut vector = input(rank, 9, elements);
            shrunk.communicator.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state).unwrap();
            (before, Some((after, bits(&vector))))
        });
        let survivors = || ended.iter().filter(|rank| rank.1.is_some());
        for element in 0..elements {
            let before: f64 = survivors().map(|rank| rank.0[element]).sum();
            let after: f64 =
                survivors().filter_map(|rank| rank.1.as_ref()).map(|after| after.0[element]).sum();
            assert!((before - after).abs() < 1e-5, "{codec:?}, element {element}: {before} and {after}");
        }
        let mut vectors = survivors().filter_map(|rank| rank.1.as_ref()).map(|after| &after.1);
        let first = vectors.next().unwrap();
        assert!(vectors.all(|vector| vector == first), "{codec:?}: replicas differ");
    }
}
