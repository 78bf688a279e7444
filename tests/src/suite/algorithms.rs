//! Forced algorithms, and what the order of reduction promises.

use unisono_collectives::Collectives;
use unisono_communicator::{
    CallOptions, Collective, Communicator, DType, Determinism, Error, Kind, Place, ReduceOp,
};
use unisono_engine::EngineOptions;
use unisono_schedule::{Algorithm, Shape, algorithms};

use crate::backend::Backend;
use crate::capabilities::Algorithms;
use crate::case::{Amount, Case, Operands};
use crate::sample::AFFINE;
use crate::world::{options, run, run_each};

/// Dtypes whose sums round.
fn rounding() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|dtype| matches!(dtype.kind(), Kind::Float(_) | Kind::Complex(_)))
}

/// A call that forces `algorithm`.
pub fn forced(algorithm: &Algorithm, dtype: DType, count: usize) -> Case {
    let options = CallOptions::new().algorithm(algorithm.name);
    Case { options, ..Case::new(algorithm.collective, dtype, count) }
}

fn supported(ranks: u32) -> impl Iterator<Item = &'static Algorithm> {
    algorithms().iter().map(|one| &**one).filter(move |algorithm| algorithm.supports(&Shape::new(ranks)))
}

/// Where there are no algorithms of ours: every name is refused in the same way on all ranks, by `supports` as by the
/// call, and what forces none goes on.
fn forcing_is_refused(backend: &dyn Backend) {
    for &ranks in backend.rank_counts() {
        let all = run(backend, ranks, &options(), |comm| {
            let mut refusals = Vec::new();
            for (collective, name) in Collective::ALL
                .into_iter()
                .flat_map(|one| ["ring", "direct", "by_pigeon"].map(|name| (one, name)))
            {
                let options = CallOptions::new().algorithm(name);
                let case = Case { options, ..Case::new(collective, DType::F32, 5) };
                let refusal =
                    case.refusal(comm).unwrap_or_else(|| panic!("{collective} by {name} was taken"));
                refusals.push(refusal.to_string());
                check(&Case { options: CallOptions::new(), ..case }, comm);
            }
            comm.close().unwrap();
            refusals
        });
        assert!(all.iter().all(|refusals| *refusals == all[0]), "{all:?}");
    }
}

/// Each gives the right result, at every root, in place where it can.
///
/// Rows: J3
pub fn every_algorithm(backend: &dyn Backend) {
    if backend.algorithms() == Algorithms::None {
        return forcing_is_refused(backend);
    }
    run_each(backend, backend.rank_counts(), |comm| {
        let ranks = comm.group().size();
        for algorithm in supported(ranks) {
            let collective = algorithm.collective;
            let roots = if collective.is_rooted() { ranks } else { 1 };
            let counts: &[usize] = if collective == Collective::Barrier { &[0] } else { &[0, 1, 7, 1000] };
            for (root, &count) in (0..roots).flat_map(|root| counts.iter().map(move |count| (root, count))) {
                let op = collective.reduces().then_some(ReduceOp::Sum);
                // What is added is of a type that all backends' schedules add.
                let dtype = if op.is_some() { DType::I32 } else { DType::I16 };
                let case = Case { op, root, ..forced(algorithm, dtype, count) };
                check(&case, comm);
                if !algorithm.requires.out_of_place {
                    check(&Case { place: Place::InPlace, segments: Some(2), ..case }, comm);
                }
            }
            if collective.reduces() && !algorithm.requires.commutative {
                check(&Case { op: Some(ReduceOp::User(AFFINE)), ..forced(algorithm, DType::U64, 9) }, comm);
            }
        }
    });
}

fn check(case: &Case, comm: &dyn Communicator) {
    case.check(comm).unwrap_or_else(|error| panic!("{case:?} on rank {}: {error}", comm.group().rank()));
}

/// A name that no algorithm of the collective has is refused before anything is sent.
pub fn wrong_names(backend: &dyn Backend) {
    if backend.algorithms() == Algorithms::None {
        return forcing_is_refused(backend);
    }
    run_each(backend, &[1, 3], |comm| {
        for collective in Collective::ALL {
            let options = CallOptions::new().algorithm("by_pigeon");
            let error = Case { options, ..Case::new(collective, DType::U8, 0) }.check(comm).unwrap_err();
            assert!(
                matches!(&error, Error::InvalidArgument { argument: "algorithm", problem, .. } if
                problem.contains("by_pigeon")),
                "{collective}: {error}"
            );
            Case::new(collective, DType::U8, 0).check(comm).unwrap();
        }
    });
}

/// What an algorithm's row says that it cannot do is refused when it is forced, and nothing else is disturbed.
pub fn refused_algorithms(backend: &dyn Backend) {
    if backend.algorithms() == Algorithms::None {
        return forcing_is_refused(backend);
    }
    run_each(backend, &[3, 4, 6], |comm| {
        let ranks = comm.group().size();
        let mut refusals = 0;
        for algorithm in algorithms() {
            let collective = algorithm.collective;
            let case = forced(algorithm, DType::U64, 4);
            let share = Amount::PerRank((0..ranks as usize).map(|rank| rank % 3 * 4).collect());
            let user = case.op.map(|_| ReduceOp::User(AFFINE));
            let has_shares = matches!(
                collective,
                Collective::ReduceScatter | Collective::AllGather | Collective::Gather | Collective::Scatter
            );
            let unfit = [
                (!algorithm.supports(&Shape::new(ranks)), case.clone()),
                (algorithm.requires.commutative, Case { op: user, ..case.clone() }),
                (algorithm.requires.out_of_place, Case { place: Place::InPlace, ..case.clone() }),
                (algorithm.requires.even_counts && has_shares, Case { amount: share, ..case.clone() }),
                (
                    collective.reduces() && !algorithm.canonical,
                    Case { options: case.options.determinism(Determinism::Fixed), ..case.clone() },
                ),
            ];
            for (_, case) in unfit.into_iter().filter(|(is_unfit, _)| *is_unfit) {
                let error = case.check(comm).expect_err(&format!("{case:?} must be refused"));
                assert!(error.is_before_start(), "{case:?}: {error}");
                refusals += 1;
            }
        }
        assert!(refusals > 0, "some algorithm must have a requirement");
        comm.barrier().unwrap();
    });
}

fn fixed(collective: Collective, dtype: DType, op: ReduceOp, count: usize) -> Case {
    let options = CallOptions::new().determinism(Determinism::Fixed);
    let operands = Operands::Rough;
    Case { op: Some(op), options, operands, seed: 11, ..Case::new(collective, dtype, count) }
}

/// The fixed order gives the canonical tree's bits, chosen or forced, at every root.
pub fn fixed_order_is_canonical(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        for (dtype, op) in rounding().flat_map(|dtype| [(dtype, ReduceOp::Sum), (dtype, ReduceOp::Prod)]) {
            // The sizes matter to the schedule, and the dtype to the arithmetic.
            let counts: &[usize] = if dtype == DType::F32 { &[1, 29, 3000] } else { &[301] };
            fixed_everywhere(comm, dtype, op, counts);
        }
    });
    run_each(backend, backend.large_rank_counts(), |comm| {
        fixed_everywhere(comm, DType::F32, ReduceOp::Sum, &[100])
    });
}

fn fixed_everywhere(comm: &dyn Communicator, dtype: DType, op: ReduceOp, counts: &[usize]) {
    let ranks = comm.group().size();
    for &count in counts {
        check(&fixed(Collective::AllReduce, dtype, op, count), comm);
        check(&fixed(Collective::ReduceScatter, dtype, op, count), comm);
        check(&fixed(Collective::Scan, dtype, op, count), comm);
        check(&fixed(Collective::Exscan, dtype, op, count), comm);
        let step = (ranks as usize).div_ceil(8);
        for root in (0..ranks).step_by(step) {
            check(&Case { root, ..fixed(Collective::Reduce, dtype, op, count) }, comm);
        }
        for algorithm in supported(ranks).filter(|algorithm| algorithm.canonical) {
            let case = fixed(algorithm.collective, dtype, op, count);
            let options = case.options.algorithm(algorithm.name);
            check(&Case { options, ..case }, comm);
        }
    }
}

/// ... and pieces of one element, of a few, and as they are.
pub fn fixed_order_at_any_piece_size(backend: &dyn Backend) {
    for ranks in backend.among(&[2, 3, 5, 8]) {
        for piece_bytes in [Some(1), Some(12), Some(4096), None] {
            run(backend, ranks, &EngineOptions { piece_bytes, ..options() }, |comm| {
                fixed_everywhere(comm, DType::F32, ReduceOp::Sum, &[0, 2, 301]);
                if piece_bytes.is_none_or(|bytes| bytes > 100) {
                    fixed_everywhere(comm, DType::F32, ReduceOp::Sum, &[70_001]);
                }
            });
        }
    }
}

/// Whatever the algorithm, all ranks end with the same bits of an all-reduce whose order shows.
pub fn every_rank_gets_the_same_bits(backend: &dyn Backend) {
    if backend.algorithms() == Algorithms::None {
        return super::arithmetic::sums_of_any_order(backend);
    }
    for &ranks in backend.rank_counts() {
        let all = run(backend, ranks, &options(), |comm| {
            let here = supported(ranks).filter(|algorithm| algorithm.collective == Collective::AllReduce);
            let mut results = Vec::new();
            for algorithm in here {
                for (dtype, op) in
                    rounding().flat_map(|dtype| [ReduceOp::Sum, ReduceOp::Avg].map(|op| (dtype, op)))
                {
                    let case =
                        Case { op: Some(op), operands: Operands::Rough, ..forced(algorithm, dtype, 777) };
                    if case.refusal(comm).is_some() {
                        continue;
                    }
                    results.push((format!("{} {dtype} {op}", algorithm.name), case.result(comm).unwrap()));
                }
            }
            assert!(!results.is_empty(), "every call was refused");
            results
        });
        for (rank, results) in all.iter().enumerate() {
            for (ours, first) in results.iter().zip(&all[0]) {
                assert!(ours == first, "{} of {ranks} ranks: rank {rank} differs from rank 0", ours.0);
            }
        }
    }
}
