//! Where the algorithms of a communicator come from, who inherits them, and what a wrong one gets that is proved only
//! when it is first used.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use unisono_collectives::Collectives;
use unisono_communicator::{
    Algorithm, CallOptions, Collective, Communicator, Error, ReduceOp, Result, Trust,
};
use unisono_engine::EngineOptions;
use unisono_schedule::Builder;

use super::mismatch::first_cause;
use super::outside::{both_ways, halves, ran, registration_is_refused};
use crate::backend::Backend;
use crate::capabilities::Algorithms;
use crate::world::{options, run, run_each, run_with_groups};

fn registering(register: Vec<Algorithm>) -> EngineOptions {
    EngineOptions { register: register.into_iter().map(Arc::new).collect(), ..options() }
}

fn forced(name: &str) -> CallOptions {
    CallOptions::new().algorithm(name)
}

/// Refused with this text, before the call took a number.
fn refused<T: std::fmt::Debug>(result: Result<T>, text: &str) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::AlgorithmRefused { .. }) && error.is_before_start(), "{error}");
    assert!(error.to_string().contains(text), "{error}");
}

/// Those of the settings are there from the first call on, in every communicator of the job.
pub fn settings_register(backend: &dyn Backend) {
    if backend.algorithms() != Algorithms::Open {
        return registration_is_refused(backend);
    }
    let registering = registering(vec![halves(Collective::AllGather, both_ways)]);
    run_with_groups(backend, 4, &registering, |comm, groups| {
        let force = |comm: &dyn Communicator| assert_eq!(ran(comm, forced("halves")).unwrap(), "halves");
        force(comm);
        let again = comm.register(Arc::new(halves(Collective::AllGather, both_ways)), Trust::Prove);
        refused(again, "there is another all_gather/halves");
        if let Some(pair) = comm.subgroup(&[3, 0]).unwrap() {
            force(&*pair);
            pair.close().unwrap();
        }
        if comm.group().rank() > 0 {
            let members = groups.make_group("three", &[1, 2, 3]).unwrap();
            force(&*members);
            members.close().unwrap();
        }
        comm.close().unwrap();
    });
}

/// One that is wrong is refused when the communicator is made or, where the ranks have no threads yet to prove it
/// together, when it is used. Two of one name are refused before anything is used.
pub fn wrong_settings_are_refused(backend: &dyn Backend) {
    if backend.algorithms() != Algorithms::Open {
        return registration_is_refused(backend);
    }
    let silent = Algorithm::new("silent", Collective::AllGather, |_| {});
    let twice = [halves(Collective::AllGather, both_ways), halves(Collective::AllGather, both_ways)];
    let cases = [
        (registering(vec![silent]), "lacks the contribution of rank 0"),
        (registering(twice.into()), "there is another all_gather/halves"),
    ];
    for (options, text) in cases {
        let job = match catch_unwind(AssertUnwindSafe(|| backend.open(2, &options))) {
            Ok(job) => job,
            Err(panic) => {
                assert!(panic.downcast_ref::<String>().is_some_and(|said| said.contains(text)));
                continue;
            }
        };
        let job = &*job;
        std::thread::scope(|scope| {
            for rank in 0..2 {
                scope.spawn(move || match job.join(rank) {
                    Ok(member) => {
                        refused(ran(&*member.communicator, forced("silent")), text);
                        member.communicator.close().unwrap();
                    }
                    Err(error) => refused::<()>(Err(error), text),
                });
            }
        });
    }
}

/// The communicator of the survivors has what its parent had then. What either gets later is its own.
pub fn shrunk_ones_inherit(backend: &dyn Backend) {
    if backend.algorithms() != Algorithms::Open {
        return registration_is_refused(backend);
    }
    let registered = &Barrier::new(3);
    run(backend, 3, &options(), |comm| {
        comm.register(Arc::new(halves(Collective::AllGather, both_ways)), Trust::Prove).unwrap();
        registered.wait();
        if comm.group().rank() == 0 {
            comm.abort().unwrap();
        }
        assert!(matches!(comm.barrier().unwrap_err().root_cause(), Error::Aborted { .. }));
        let shrunk = comm.shrink().unwrap().communicator;
        assert_eq!((shrunk.group().size(), ran(&*shrunk, forced("halves")).unwrap()), (3, "halves"));
        let mut later = halves(Collective::AllGather, both_ways);
        later.name = "later";
        let sibling = shrunk.duplicate().unwrap();
        shrunk.register(Arc::new(later), Trust::Prove).unwrap();
        assert_eq!(ran(&*shrunk, forced("later")).unwrap(), "later");
        assert!(matches!(ran(&*sibling, forced("later")), Err(Error::InvalidArgument { .. })));
        sibling.close().unwrap();
        shrunk.close().unwrap();
    });
}

/// The root sends to every other rank. With more extents than one it does nothing, so that they cost the test nothing.
fn star(builder: &mut Builder) {
    let (rank, root, ranks) = (builder.rank(), builder.root(), builder.ranks());
    if builder.chunks() > 1 {
        return;
    }
    if rank == root {
        (0..ranks).filter(|other| *other != root).for_each(|other| builder.send_all(other, [0]));
    } else {
        builder.recv(root, 0);
    }
}

/// The root whose schedules are too many steps to prove.
const LARGE_ROOT: u32 = 1;

fn broadcast(comm: &dyn Communicator, root: u32) -> Result<()> {
    let mut value = [if comm.group().rank() == root { 7 } else { 0 }];
    comm.broadcast(&mut value, root)?;
    assert_eq!(value, [7]);
    Ok(())
}

/// When the proofs of all roots are too many steps for registration, those that are left are proved by each rank when
/// they are used, or are refused there.
pub fn other_roots_are_proved_when_they_are_used(backend: &dyn Backend) {
    if backend.algorithms() != Algorithms::Open {
        return registration_is_refused(backend);
    }
    run_each(backend, &[3], |comm| {
        let algorithm = Algorithm::new("star", Collective::Broadcast, star);
        let algorithm = algorithm.chunks(|shape| if shape.root == LARGE_ROOT { 20_000_000 } else { 1 });
        comm.register(Arc::new(algorithm), Trust::Prove).unwrap();
        let star = comm.with(forced("star"));
        for root in [0, 2] {
            broadcast(&star, root).unwrap();
        }
        refused(broadcast(&star, LARGE_ROOT), "has more than 1000000 steps here, too many to prove");
        // It is not chosen, since the choice may not depend on the root.
        broadcast(comm, LARGE_ROOT).unwrap();
    });
}

/// Right for four ranks, and wrong in one way or another for two: refused by every rank of a pair, whose other calls go
/// on.
pub fn wrong_at_first_use(backend: &dyn Backend) {
    if backend.algorithms() != Algorithms::Open {
        return registration_is_refused(backend);
    }
    let named = |name, build: fn(&mut Builder)| {
        let mut algorithm = halves(Collective::AllGather, build);
        algorithm.name = name;
        algorithm
    };
    let silent: fn(&mut Builder) = |builder| {
        if builder.ranks() == 4 {
            both_ways(builder)
        }
    };
    let panics: fn(&mut Builder) = |builder| {
        assert_eq!(builder.ranks(), 4, "four");
        both_ways(builder);
    };
    let claims = |shape: &unisono_schedule::Shape| {
        assert_eq!(shape.ranks, 4, "claims");
        2 * shape.ranks
    };
    let fits = |shape: &unisono_schedule::Shape| {
        assert_eq!(shape.ranks, 4, "fits");
        true
    };
    run_each(backend, &[4], |comm| {
        let all = [
            (named("silent", silent), Trust::Prove, "lacks the contribution of rank 0"),
            (named("panics", panics), Trust::Prove, "building the schedule of rank 0 panicked: "),
            (named("unbuilt", panics), Trust::Trusted, "building the schedule of rank 0 panicked: "),
            (named("extents", both_ways).chunks(claims), Trust::Prove, "claims"),
            (named("fits", both_ways).fits(fits), Trust::Prove, "the algorithm panicked: "),
            (
                named("unfit", both_ways).fits(|shape| shape.ranks == 4),
                Trust::Prove,
                "does not support 2 ranks",
            ),
        ];
        for (algorithm, trust, _) in &all {
            comm.register(Arc::new(algorithm.clone()), *trust).unwrap();
        }
        if let Some(pair) = comm.subgroup(&[1, 3]).unwrap() {
            for (algorithm, _, text) in &all {
                refused(ran(&*pair, forced(algorithm.name)), text);
                ran(&*pair, CallOptions::new()).unwrap();
            }
            pair.close().unwrap();
        }
    });
}

/// Rank 1 takes a broadcast for a chain that comes over rank 2, the others for a star. Each is right by itself, and no
/// header that a rank reads is another's: the rank that waits asks, and is told of other schedules.
pub fn two_of_one_name_that_share_no_message(backend: &dyn Backend) {
    if backend.algorithms() != Algorithms::Open {
        return registration_is_refused(backend);
    }
    for trust in [Trust::Prove, Trust::Trusted] {
        run(backend, 4, &options(), |comm| {
            let is_odd = comm.group().rank() == 1;
            let changed = Arc::new(AtomicBool::new(false));
            let has_changed = changed.clone();
            let algorithm = Algorithm::new("relay", Collective::Broadcast, move |builder| {
                if !has_changed.load(Ordering::SeqCst) || !is_odd {
                    return star(builder);
                }
                let (rank, ranks) = (builder.rank(), builder.ranks());
                let place = (ranks - rank) % ranks;
                if place > 0 {
                    builder.recv((rank + 1) % ranks, 0);
                }
                if place + 1 < ranks {
                    builder.send((rank + ranks - 1) % ranks, 0);
                }
            });
            comm.register(Arc::new(algorithm), trust).unwrap();
            changed.store(true, Ordering::SeqCst);
            if let Some(three) = comm.subgroup(&[0, 1, 2]).unwrap() {
                let error = first_cause(&*three, |comm| broadcast(&comm.with(forced("relay")), 0));
                let Error::Mismatch { difference, .. } = error.root_cause() else { panic!("{error}") };
                assert!(difference.contains("schedules of relay differ"), "{difference}");
            }
            comm.all_reduce(&mut [1i32], ReduceOp::Sum).unwrap();
            comm.close().unwrap();
        });
    }
}
