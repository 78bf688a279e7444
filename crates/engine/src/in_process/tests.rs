//! A world is freed when all its ranks have gone, in any way.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier, Weak, mpsc};
use std::time::Duration;

use unisono_collectives::Collectives;
use unisono_communicator::{Communicator, Executor, ReduceOp};

use super::world::World;
use super::*;

/// Runs `body`, and fails when it does not return.
fn watched(body: impl FnOnce() + Send + 'static) {
    let (done, finished) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    match finished.recv_timeout(Duration::from_secs(120)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("hangs"),
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => thread.join().expect("the body"),
    }
}

/// A world in which rank 2 of 3 may go early, and the others go on without it.
fn cycle(way: usize) -> Weak<World> {
    let options = EngineOptions { timeout: Duration::from_secs(60), ..options_for(3) };
    let (world, communicators) = world_and_communicators(vec![0; 3].into(), &options, |_, links| links);
    let have_copies = Barrier::new(3);
    let body = |comm: Arc<InProcessCommunicator>| {
        let copy = comm.duplicate().expect("duplicate");
        have_copies.wait();
        if comm.group().rank() == 2 {
            match way {
                0 => drop(comm),
                1 => comm.close().expect("close"),
                2 => drop(catch_unwind(AssertUnwindSafe(move || {
                    let _both = (comm, copy);
                    // This panic prints no message, because it is no failure.
                    std::panic::resume_unwind(Box::new(()));
                }))),
                _ => {
                    assert!(comm.subgroup(&[0, 1]).expect("subgroup").is_none());
                    drop(comm.subgroup(&[2, 0]).expect("subgroup"));
                }
            }
            return;
        }
        // Nobody waits for rank 2, whether it has left or will leave.
        let pair: Arc<dyn Communicator> = match way {
            2 => comm.shrink().expect("shrink").communicator,
            _ => comm.subgroup(&[0, 1]).expect("subgroup").expect("a member"),
        };
        let mut sum = [1u32];
        pair.all_reduce(&mut sum, ReduceOp::Sum).expect("all_reduce");
        assert_eq!(sum, [2]);
        let left = if way == 3 { comm.subgroup(&[2, 0]).map(drop) } else { comm.agree(true).map(drop) };
        left.expect("what is left");
    };
    std::thread::scope(|scope| {
        communicators.into_iter().for_each(|comm| drop(scope.spawn(|| body(comm))));
    });
    assert_eq!(world.open_rooms(), 0, "way {way}");
    Arc::downgrade(&world)
}

#[test]
fn a_thousand_worlds_leave_nothing_behind() {
    watched(|| {
        for round in 0..1000 {
            let world = cycle(round % 4);
            assert!(world.upgrade().is_none(), "round {round}: something holds the world");
        }
    });
}

/// `run` proves and registers algorithms on all ranks. Worlds for the caller's threads have them unproved.
#[test]
fn algorithms_of_the_options_are_registered() {
    use unisono_communicator::{CallOptions, Collective, Error};
    use unisono_schedule::Algorithm;
    watched(|| {
        let star = Algorithm::new("star", Collective::Broadcast, |builder| {
            if builder.rank() == builder.root() {
                for hop in 1..builder.ranks() {
                    builder.send(builder.ahead(hop), 0);
                }
            } else {
                builder.recv(builder.root(), 0);
            }
        });
        let silent = Algorithm::new("silent", Collective::Broadcast, |_| {});
        let with = |algorithm: &Algorithm| EngineOptions {
            register: vec![Arc::new(algorithm.clone())],
            ..options_for(3)
        };
        let call = |comm: &dyn Communicator, name: &str| {
            comm.with(CallOptions::new().algorithm(name)).broadcast(&mut [7], 1)
        };
        run_with(3, &with(&star), |comm| call(&*comm, "star").expect("it is right"));
        let refused = catch_unwind(AssertUnwindSafe(|| run_with(3, &with(&silent), |_| ())));
        let text = refused.expect_err("it is wrong").downcast::<String>().expect("a text");
        assert!(text.contains("broadcast/silent with 3 ranks"), "{text}");
        for comm in world_of(3, &with(&silent), |_, links| links) {
            assert!(matches!(call(&*comm, "silent"), Err(Error::AlgorithmRefused { .. })));
        }
    });
}
