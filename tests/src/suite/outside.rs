//! Algorithms from outside: registered, proved, forced, chosen, inherited; and every way in which one is refused.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{
    Algorithm, Buffer, BufferMut, Buffers, Call, CallOptions, Collective, Communicator, Counts, DType,
    Descriptor, Error, Place, ReduceOp, Trust,
};
use unisono_schedule::{Builder, Cost, Layout, Own, Requires};

use super::algorithms::forced;
use crate::backend::Backend;
use crate::capabilities::Algorithms;
use crate::case::{Amount, Case};
use crate::world::{options, run, run_each};

/// Where algorithms cannot be registered: all ranks are told so, in the same words, and go on.
pub(super) fn registration_is_refused(backend: &dyn Backend) {
    for ranks in backend.among(&[2, 3]) {
        let refusals = run(backend, ranks, &options(), |comm| {
            let refusals = [Trust::Prove, Trust::Trusted].map(|trust| {
                let refused = comm.register(Arc::new(halves(Collective::AllGather, both_ways)), trust);
                let error = refused.unwrap_err();
                let is_typed = matches!(error, Error::Unsupported { .. } | Error::AlgorithmRefused { .. });
                assert!(is_typed && error.is_before_start(), "{error}");
                ran(comm, CallOptions::new()).unwrap();
                error.to_string()
            });
            comm.close().unwrap();
            refusals
        });
        assert!(refusals.iter().all(|refusal| *refusal == refusals[0]), "{refusals:?}");
    }
}

/// Each half of every share travels around the ring in a direction of its own.
pub(super) fn both_ways(builder: &mut Builder) {
    let (next, previous) = (builder.ahead(1), builder.behind(1));
    for hop in 1..builder.ranks() {
        builder.send(next, 2 * builder.behind(hop - 1));
        builder.send(previous, 2 * builder.ahead(hop - 1) + 1);
        builder.recv(previous, 2 * builder.behind(hop));
        builder.recv(next, 2 * builder.ahead(hop) + 1);
    }
    deliver(builder, builder.rank());
}

fn deliver(builder: &mut Builder, share: u32) {
    [2 * share, 2 * share + 1].into_iter().for_each(|half| builder.deliver(half));
}

/// The halves of a share go to the root, or come from it.
fn star(builder: &mut Builder) {
    let (rank, root, gathers) = (builder.rank(), builder.root(), builder.collective() == Collective::Gather);
    for other in (0..builder.ranks()).filter(|other| *other != root && (rank == root || rank == *other)) {
        let (peer, halves) = (if rank == root { other } else { root }, [2 * other, 2 * other + 1]);
        match gathers == (rank == root) {
            true => builder.recv_all(peer, halves),
            false => builder.send_all(peer, halves),
        }
    }
    if !gathers || rank == root {
        deliver(builder, rank);
    }
}

fn to_each_owner(builder: &mut Builder) {
    let (rank, ranks) = (builder.rank(), builder.ranks());
    for other in (0..ranks).filter(|other| *other != rank) {
        builder.send_all(other, [2 * other, 2 * other + 1]);
    }
    let peers = (0..rank).rev().map(|below| (below, Own::Right));
    for (nth, (peer, own)) in (1..).zip(peers.chain((rank + 1..ranks).map(|above| (above, Own::Left)))) {
        [2 * rank, 2 * rank + 1].into_iter().for_each(|half| {
            builder.recv_reduce(peer, half, own, nth == ranks - 1);
        });
    }
    deliver(builder, rank);
}

fn to_everybody(builder: &mut Builder) {
    let (rank, ranks) = (builder.rank(), builder.ranks());
    let halves = |from: u32, to: u32| [2 * (from * ranks + to), 2 * (from * ranks + to) + 1];
    for hop in 1..ranks {
        let to = builder.ahead(hop);
        builder.send_all(to, halves(rank, to));
    }
    for hop in 1..ranks {
        let from = builder.behind(hop);
        builder.recv_all(from, halves(from, rank));
    }
    halves(rank, rank).into_iter().for_each(|half| builder.deliver(half));
}

pub(super) fn halves(collective: Collective, build: fn(&mut Builder)) -> Algorithm {
    Algorithm::new("halves", collective, build).chunks(move |shape| 2 * Layout::unit(collective, shape))
}

/// Algorithms that cut every share in two give the right result for even and uneven counts, at every root.
pub fn shares_cut_further(backend: &dyn Backend) {
    if backend.algorithms() != Algorithms::Open {
        return registration_is_refused(backend);
    }
    run_each(backend, backend.rank_counts(), |comm| {
        let ranks = comm.group().size();
        let apart = Requires { out_of_place: true, ..Requires::NOTHING };
        let all = [
            halves(Collective::AllGather, both_ways),
            halves(Collective::Gather, star),
            halves(Collective::Scatter, star),
            halves(Collective::ReduceScatter, to_each_owner),
            halves(Collective::AllToAll, to_everybody).requires(apart),
        ];
        for algorithm in all {
            let algorithm = Arc::new(algorithm);
            comm.register(algorithm.clone(), Trust::Prove).unwrap();
            let uneven = match algorithm.collective {
                Collective::AllToAll => Amount::PerPair(
                    (0..ranks)
                        .map(|from| (0..ranks).map(|to| ((from + 2 * to) % 4) as usize).collect())
                        .collect(),
                ),
                _ => Amount::PerRank((0..ranks).map(|rank| (rank % 3 * 5) as usize).collect()),
            };
            let amounts = [0, 1, 7, 1000].map(Amount::Even).into_iter().chain([uneven]);
            for amount in amounts {
                for root in if algorithm.collective.is_rooted() { 0..ranks } else { 0..1 } {
                    let op = algorithm.collective.reduces().then_some(ReduceOp::Sum);
                    let case = Case { op, root, amount: amount.clone(), ..forced(&algorithm, DType::I32, 0) };
                    case.check(comm).unwrap();
                    if !algorithm.requires.out_of_place {
                        Case { place: Place::InPlace, ..case }.check(comm).unwrap();
                    }
                }
            }
        }
    });
}

/// The name of the algorithm that an all_gather of one u64 runs.
pub(super) fn ran(comm: &dyn Communicator, options: CallOptions) -> Result<&'static str, Error> {
    let (input, ranks) = ([u64::from(comm.group().rank())], comm.group().size());
    let mut output = vec![u64::MAX; ranks as usize];
    let outcome = comm.execute(&mut Call {
        descriptor: Descriptor::new(Collective::AllGather, DType::U64, 1),
        buffers: Buffers::Separate { input: Buffer::of(&input), output: BufferMut::of(&mut output) },
        stream: None,
        counts: Counts::Even,
        options,
        scope: None,
        body: None,
        user_function: None,
        prepared: None,
        site: Location::caller().into(),
    })?;
    assert!(output.into_iter().eq(0..u64::from(ranks)));
    Ok(outcome.algorithm)
}

/// One that is cheaper than all others is chosen, also where a plan was made before; every one can be forced.
///
/// Rows: A17
pub fn chosen_and_forced(backend: &dyn Backend) {
    if backend.algorithms() != Algorithms::Open {
        return registration_is_refused(backend);
    }
    run_each(backend, &[2, 5], |comm| {
        assert_ne!(ran(comm, CallOptions::new()).unwrap(), "free");
        comm.register(Arc::new(halves(Collective::AllGather, both_ways)), Trust::Prove).unwrap();
        assert_eq!(ran(comm, CallOptions::new().algorithm("halves")).unwrap(), "halves");
        let by_halves = comm.with(CallOptions::new().algorithm("halves"));
        let work = by_halves.all_gather_async(vec![u64::from(comm.group().rank())]).into_work();
        assert_eq!(work.wait().unwrap().algorithm, "halves", "the asynchronous form");
        let mut free = halves(Collective::AllGather, both_ways).cost(|_| Cost::FREE);
        free.name = "free";
        comm.register(Arc::new(free), Trust::Trusted).unwrap();
        assert_eq!(ran(comm, CallOptions::new()).unwrap(), "free");
        let unknown = ran(comm, CallOptions::new().algorithm("halve")).unwrap_err().to_string();
        assert!(unknown.contains("the nearest are halves, "), "{unknown}");
    });
}

/// A refusal says why, is the same error on all ranks, and changes nothing.
///
/// Rows: A17
pub fn wrong_ones_change_nothing(backend: &dyn Backend) {
    if backend.algorithms() != Algorithms::Open {
        return registration_is_refused(backend);
    }
    run_each(backend, &[2, 3, 8], |comm| {
        let named = |build: fn(&mut Builder)| Algorithm::new("wrong", Collective::AllReduce, build);
        let exchange: fn(&mut Builder) = |builder| {
            for other in (0..builder.ranks()).filter(|other| *other != builder.rank()).collect::<Vec<_>>() {
                builder.send(other, 0);
            }
            builder.deliver(0);
        };
        let waits: fn(&mut Builder) = |builder| {
            let received = builder.recv_reduce(builder.behind(1), 0, Own::Right, builder.ranks() == 2);
            let sent = builder.send(builder.ahead(1), 0);
            builder.after(sent, received);
        };
        let twice: fn(&mut Builder) = |builder| {
            for _ in 0..2 {
                builder.send(builder.ahead(1), 0);
                builder.recv_reduce(builder.behind(1), 0, Own::Right, builder.ranks() == 2);
            }
        };
        let ring = || Algorithm::new("ring", Collective::AllGather, |_| {});
        let priced = halves(Collective::AllGather, both_ways).cost(|_| Cost { messages: 77, ..Cost::FREE });
        let all = [
            (named(|builder| assert_eq!(builder.rank(), 0, "not today")), "of rank 1 panicked: "),
            (named(|builder| builder.send_all(builder.ranks(), [0])), "names a rank beyond the last"),
            (named(waits), "deadlock: "),
            (named(|builder| builder.deliver(0)), "lacks the contribution of rank"),
            (named(twice), "the contribution of rank"),
            (named(exchange), "is never received"),
            (ring(), "there is another all_gather/ring"),
            (priced, "rounds: claimed 0, counted "),
            (named(|_| {}).fits(|shape| shape.ranks > 100), "does not support "),
            (named(|_| {}).fits(|_| panic!("fits?")), "the algorithm panicked: fits?"),
            (named(|_| {}).chunks(|_| panic!("chunks?")), "panicked: chunks?"),
            (named(|_| {}).scratch_chunks(|_| panic!("scratch?")), "panicked: scratch?"),
            (halves(Collective::AllGather, both_ways).cost(|_| panic!("cost?")), "panicked: cost?"),
            // Nothing is built of this many extents.
            (named(|_| {}).chunks(|_| 20_000_000), "has more than 10000000 steps here, too many to prove"),
            (named(|_| {}).chunks(|_| 0), "it cuts the vector into 0 extents"),
        ];
        for (algorithm, expected) in all {
            let name = algorithm.qualified_name();
            let error = comm.register(Arc::new(algorithm), Trust::Prove).unwrap_err();
            let Error::AlgorithmRefused { algorithm, reason } = &error else { panic!("{error}") };
            assert!(*algorithm == name && reason.contains(&name) && reason.contains(expected), "{reason}");
            assert!(error.is_before_start());
            comm.barrier().unwrap();
        }
        // What is not proved may not panic or be unreadable either.
        let trusted = [
            (named(|_| {}).cost(|_| panic!("cost?")), "panicked: cost?"),
            (named(|builder| builder.send_all(u32::MAX, [0])), "cannot build its schedule"),
            (named(exchange), "what some rank sends is not what the other receives"),
        ];
        for (algorithm, expected) in trusted {
            let error = comm.register(Arc::new(algorithm), Trust::Trusted).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            comm.barrier().unwrap();
        }
        let unknown = comm.with(CallOptions::new().algorithm("wrong")).all_reduce(&mut [1u32], ReduceOp::Sum);
        assert!(matches!(unknown, Err(Error::InvalidArgument { argument: "algorithm", .. })));
        // The name is still free.
        comm.register(Arc::new(halves(Collective::AllGather, both_ways)), Trust::Prove).unwrap();
        let again = comm.register(Arc::new(halves(Collective::AllGather, both_ways)), Trust::Prove);
        assert!(again.unwrap_err().to_string().contains("there is another all_gather/halves"));
    });
}

/// A ring in the one direction or the other.
fn one_way(backwards: impl Fn() -> bool + Send + Sync + 'static) -> Algorithm {
    Algorithm::new("one_way", Collective::AllGather, move |builder| {
        for hop in 1..builder.ranks() {
            let there =
                |distance| if backwards() { builder.behind(distance) } else { builder.ahead(distance) };
            let back =
                |distance| if backwards() { builder.ahead(distance) } else { builder.behind(distance) };
            let (to, from, sent, received) = (there(1), back(1), back(hop - 1), back(hop));
            builder.send(to, sent);
            builder.recv(from, received);
        }
        builder.deliver(builder.rank());
    })
}

/// The rank whose schedule, name or claims differ is named on all ranks.
///
/// Rows: A17
pub fn differing_ranks_are_named(backend: &dyn Backend) {
    if backend.algorithms() != Algorithms::Open {
        return registration_is_refused(backend);
    }
    run_each(backend, &[3, 4, 8], |comm| {
        // Neither the first rank nor the last.
        let odd = comm.group().size() / 2;
        let is_odd = comm.group().rank() == odd;
        let differs = |algorithm: Algorithm, trust, expected: &str| {
            let error = comm.register(Arc::new(algorithm), trust).unwrap_err().to_string();
            assert!(error.contains(&format!("rank {odd} {expected}")), "{error}");
            comm.barrier().unwrap();
        };
        differs(one_way(move || is_odd), Trust::Prove, "has another schedule than rank 0 builds for it");
        let name = if is_odd { "odd" } else { "even" };
        let mut renamed = one_way(|| false);
        renamed.name = name;
        differs(renamed, Trust::Trusted, "registers another algorithm");
        let mut claims = one_way(|| false);
        claims.canonical = is_odd;
        differs(claims, Trust::Trusted, "registers another algorithm, or makes other claims");
        // Ranks that believed their own prices would choose for themselves.
        let priced = one_way(|| false).cost(move |_| Cost { rounds: u64::from(is_odd), ..Cost::FREE });
        differs(priced, Trust::Trusted, "registers another algorithm, or makes other claims");
        let broken = one_way(move || if is_odd { panic!("not here") } else { false });
        differs(broken, Trust::Prove, "cannot build its schedule");
        // Nobody proves it, and nobody but the odd rank can say which rank is wrong.
        let error = comm.register(Arc::new(one_way(move || is_odd)), Trust::Trusted).unwrap_err();
        assert!(error.to_string().contains("what some rank sends is not what the other receives"), "{error}");
        comm.register(Arc::new(one_way(|| false)), Trust::Prove).unwrap();
        assert_eq!(ran(comm, CallOptions::new().algorithm("one_way")).unwrap(), "one_way");
    });
}

/// Derived communicators have what their parent had when they were made, and prove it for their own shape.
pub fn derived_ones_inherit(backend: &dyn Backend) {
    if backend.algorithms() != Algorithms::Open {
        return registration_is_refused(backend);
    }
    run_each(backend, &[4], |comm| {
        let before = comm.duplicate().unwrap();
        // Right for four ranks only.
        let build: fn(&mut Builder) = |builder| {
            if builder.ranks() == 4 {
                both_ways(builder)
            }
        };
        let mut four = halves(Collective::AllGather, build);
        four.name = "four";
        comm.register(Arc::new(four), Trust::Prove).unwrap();
        comm.register(Arc::new(halves(Collective::AllGather, both_ways)), Trust::Prove).unwrap();
        let (copy, pair) = (comm.duplicate().unwrap(), comm.subgroup(&[2, 1]).unwrap());
        let force = |comm: &dyn Communicator, name: &str| ran(comm, CallOptions::new().algorithm(name));
        assert!(matches!(force(&*before, "halves"), Err(Error::InvalidArgument { .. })));
        assert_eq!(force(&*copy, "four").unwrap(), "four");
        if let Some(pair) = pair {
            assert_eq!(force(&*pair, "halves").unwrap(), "halves");
            let error = force(&*pair, "four").unwrap_err();
            assert!(
                matches!(&error, Error::AlgorithmRefused { algorithm, .. } if algorithm == "all_gather/four")
            );
            assert!(error.to_string().contains("four with 2 ranks"), "{error}");
            ran(&*pair, CallOptions::new()).unwrap();
            pair.close().unwrap();
        }
        before.close().unwrap();
        copy.close().unwrap();
    });
}

/// The sum of all at the root.
fn to_root(builder: &mut Builder) {
    let (rank, root, last) = (builder.rank(), builder.root(), builder.ranks() - 1);
    if rank != root {
        builder.send(root, 0);
        return;
    }
    let others: Vec<u32> = (0..=last).filter(|other| *other != root).collect();
    for (nth, other) in (1..).zip(others) {
        builder.recv_reduce(other, 0, Own::Left, nth == last);
    }
}

/// Whether a root passes one buffer, no other rank sees. So an algorithm that needs two is none for collectives with a
/// root, by whatever trust, and roots that pass one go on with what all ranks choose.
pub fn roots_may_pass_one_buffer(backend: &dyn Backend) {
    if backend.algorithms() != Algorithms::Open {
        return registration_is_refused(backend);
    }
    run_each(backend, &[3], |comm| {
        let apart = Requires { out_of_place: true, ..Requires::COMMUTATIVE };
        let reduce = Algorithm::new("halves", Collective::Reduce, to_root);
        for algorithm in [halves(Collective::Gather, star), halves(Collective::Scatter, star), reduce] {
            let (name, collective) = (algorithm.qualified_name(), algorithm.collective);
            // Chosen wherever it may be.
            let algorithm = Arc::new(algorithm.requires(apart).cost(|_| Cost::FREE));
            let refusals =
                [Trust::Trusted, Trust::Prove].map(|trust| comm.register(algorithm.clone(), trust));
            for root in 0..3 {
                let place = if comm.group().rank() == root { Place::InPlace } else { Place::Separate };
                for count in [0, 1, 1000] {
                    Case { root, place, ..Case::new(collective, DType::I32, count) }.check(comm).unwrap();
                }
            }
            for refused in refusals {
                let Err(Error::AlgorithmRefused { algorithm, reason }) = &refused else {
                    panic!("{refused:?}")
                };
                assert!(
                    *algorithm == name && reason.contains("some of its ranks may pass one buffer"),
                    "{reason}"
                );
            }
        }
    });
}

/// A rank that is neither sender nor receiver knows the length of a part of an all-to-all only if all are equal.
pub fn relays_need_even_counts(backend: &dyn Backend) {
    if backend.algorithms() != Algorithms::Open {
        return registration_is_refused(backend);
    }
    run_each(backend, &[4], |comm| {
        let bruck = unisono_schedule::find_by_name("all_to_all/bruck").unwrap();
        let relays = |requires| {
            let mut algorithm = Algorithm::clone(bruck).requires(requires);
            algorithm.name = "relays";
            Arc::new(algorithm)
        };
        let all_to_all = |amount| Case { amount, ..Case::new(Collective::AllToAll, DType::I32, 0) };
        let pairs = (0..4).map(|from| (0..4).map(|to| 3 * from + to).collect()).collect();
        let (even, uneven) = (all_to_all(Amount::Even(7)), all_to_all(Amount::PerPair(pairs)));
        let apart = Requires { out_of_place: true, ..Requires::NOTHING };
        let error = comm.register(relays(apart), Trust::Prove).unwrap_err();
        assert!(error.to_string().contains("passes on what rank"), "{error}");
        let error = comm.register(relays(apart), Trust::Trusted).unwrap_err();
        assert!(error.to_string().contains("cannot build its schedule"), "{error}");
        comm.register(relays(Requires { even_counts: true, ..apart }), Trust::Prove).unwrap();
        let by_name = CallOptions::new().algorithm("relays");
        Case { options: by_name, ..even }.check(comm).unwrap();
        let refused = Case { options: by_name, ..uneven.clone() }.check(comm).unwrap_err();
        assert!(refused.to_string().contains("it needs equal counts on all ranks"), "{refused}");
        uneven.check(comm).unwrap();
    });
}

/// Ranks that make different schedules under one name, each right in itself, are a mismatch and not garbage.
pub fn two_of_one_name_are_a_mismatch(backend: &dyn Backend) {
    if backend.algorithms() != Algorithms::Open {
        return registration_is_refused(backend);
    }
    run_each(backend, &[4], |comm| {
        let is_odd = comm.group().rank() == 1;
        let changed = Arc::new(AtomicBool::new(false));
        let has_changed = changed.clone();
        // The halves change places, so that all ranks still exchange messages with their neighbours.
        let other = Algorithm::new("one_way", Collective::AllGather, move |builder| {
            let swapped = u32::from(is_odd && has_changed.load(Ordering::SeqCst));
            let (next, previous) = (builder.ahead(1), builder.behind(1));
            for hop in 1..builder.ranks() {
                builder.send(next, 2 * builder.behind(hop - 1) + swapped);
                builder.send(previous, 2 * builder.ahead(hop - 1) + 1 - swapped);
                builder.recv(previous, 2 * builder.behind(hop) + swapped);
                builder.recv(next, 2 * builder.ahead(hop) + 1 - swapped);
            }
            deliver(builder, builder.rank());
        });
        let algorithm = other.chunks(|shape| 2 * shape.ranks);
        comm.register(Arc::new(algorithm), Trust::Prove).unwrap();
        changed.store(true, Ordering::SeqCst);
        if let Some(three) = comm.subgroup(&[0, 1, 2]).unwrap() {
            let error = ran(&*three, CallOptions::new().algorithm("one_way")).unwrap_err();
            assert!(matches!(error, Error::Mismatch { .. }), "{error}");
        }
    });
}
