//! The worlds that `init` makes from settings.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use unisono::schedule::{Algorithm, Own};
use unisono::{Backend, Collective, Collectives, Communicator, Config, Error, ReduceOp, SecondInit, Trust};

const TEST_TIME_MAX: Duration = Duration::from_secs(120);

fn config(settings: &[(&str, String)]) -> Config {
    let lookup =
        |name: &str| settings.iter().find(|setting| setting.0 == name).map(|setting| setting.1.clone());
    // Tests run beside each other in one process.
    Config::from_lookup(&lookup).expect("good settings").with_second_init(SecondInit::Another)
}

/// Rows: C13
#[test]
fn no_launcher_is_a_world_of_one() {
    let world = unisono::init_with(&config(&[])).unwrap();
    assert_eq!((world.size(), world.backend()), (1, "solo"));
    let mut values = [3u8];
    world.all_reduce(&mut values, ReduceOp::Sum).unwrap();
    assert_eq!(values, [3]);
}

#[test]
fn a16_a_world_of_one_skips_too() {
    let world = unisono::init_with(&config(&[("UNISONO_SKIP", "all_reduce, broadcast".into())])).unwrap();
    for comm in [world.communicator(), world.duplicate().unwrap(), world.subgroup(&[0]).unwrap().unwrap()] {
        let mut value = [3.0f32];
        comm.all_reduce(&mut value, ReduceOp::PreMulSum(2.0)).unwrap();
        assert_eq!(value, [3.0]);
        comm.reduce_in_place(&mut value, ReduceOp::PreMulSum(2.0), 0).unwrap();
        assert_eq!(value, [6.0]);
    }
    let settings = |name: &str| (name == "UNISONO_SKIP").then(|| "send".to_owned());
    let text = Config::from_lookup(&settings).unwrap_err().to_string();
    assert!(text.starts_with("UNISONO_SKIP=send: send and recv go together"), "{text}");
}

#[test]
fn a_world_of_one_makes_groups_and_keeps_no_flight_record() {
    let world = unisono::init_with(&config(&[])).unwrap();
    let group = world.make_group("all", &[0]).unwrap();
    group.barrier().unwrap();
    let invalid = |ranks: &[u32]| match world.make_group("all", ranks).map(drop) {
        Err(Error::InvalidArgument { argument, problem, .. }) => (argument, problem),
        other => panic!("{ranks:?}: {other:?}"),
    };
    assert_eq!(invalid(&[1]), ("ranks", "1, but the group has ranks 0 to 0".to_owned()));
    assert_eq!(invalid(&[]), ("ranks", "[], but only members make a group, and this is rank 0".to_owned()));
    let folder = std::env::temp_dir();
    assert!(matches!(world.dump_flight(&folder), Err(Error::Unsupported { backend: "solo", .. })));
    assert_eq!(format!("{world:?}"), "World(rank 0 of 1, solo)");
    // A handle serves another thread, and all handles are closed together.
    let moved = world.clone();
    std::thread::spawn(move || moved.close()).join().unwrap().unwrap();
    assert!(matches!(world.barrier(), Err(Error::Closed { .. })));
    assert!(matches!(world.make_group("all", &[0]).map(drop), Err(Error::Closed { .. })));
}

#[test]
fn a_world_over_tcp_makes_groups_and_records() {
    let world = unisono::init_with(&config(&[("UNISONO_BACKEND", "tcp".into())])).unwrap();
    let group = world.make_group("all", &[0]).unwrap();
    let mut value = [4u8];
    group.all_reduce(&mut value, ReduceOp::Sum).unwrap();
    assert_eq!(value, [4]);
    assert!(matches!(world.make_group("all", &[1]).map(drop), Err(Error::InvalidArgument { .. })));
    world.barrier().unwrap();
    let record = world.flight_record().unwrap();
    assert_eq!((record.rank, record.pg_config.len(), record.entries.len()), (0, 2, 2));
    world.close().unwrap();
    assert!(matches!(world.make_group("all", &[0]).map(drop), Err(Error::Closed { .. })));
}

/// Rows: A9
#[test]
fn a_backend_that_is_not_there_is_refused_by_name() {
    let misspelt = |name: &str| (name == "UNISONO_BACKEND").then(|| "ncl".to_owned());
    let error = Config::from_lookup(&misspelt).err().unwrap();
    assert!(matches!(&error, Error::Configuration { .. }), "{error}");
    assert_eq!(error.to_string(), "UNISONO_BACKEND=ncl: one of auto, tcp, ccl, nccl, hccl is needed");
    let missing =
        [("UNISONO_BACKEND", "nccl".to_owned()), ("UNISONO_CUDA_LIB", "/no/libcuda.so.1".to_owned())];
    let error = unisono::init_with(&config(&missing)).err().unwrap();
    match unisono::BACKENDS.contains(&Backend::Nccl) {
        true => assert!(
            matches!(&error, Error::LibraryMissing { library, .. } if &**library == "CUDA driver"),
            "{error}"
        ),
        false => {
            let said = error.to_string();
            let expected = "UNISONO_BACKEND=nccl: this program was built without it; it has auto, tcp";
            assert!(said.starts_with(expected), "{said}");
            assert!(said.ends_with(". Build it with the feature \"nccl\" of the crate unisono"), "{said}");
        }
    }
}

/// Rows: A9
#[test]
fn a_backend_that_is_named_is_used_by_a_world_of_one_too() {
    let world = unisono::init_with(&config(&[("UNISONO_BACKEND", "tcp".into())])).unwrap();
    assert_eq!((world.size(), world.backend()), (1, "tcp"));
    let mut values = [3u8];
    world.all_reduce(&mut values, ReduceOp::Sum).unwrap();
    assert_eq!(values, [3]);
    world.close().unwrap();
    let missing = [("UNISONO_BACKEND", "ccl".to_owned()), ("UNISONO_CCL_DIR", "/no/such".to_owned())];
    // In code it is the same.
    for config in [config(&missing), config(&missing[1..]).with_backend(Backend::Ccl)] {
        let error = unisono::init_with(&config).err().unwrap();
        match unisono::BACKENDS.contains(&Backend::Ccl) {
            true => {
                assert!(matches!(&error, Error::LibraryMissing { tried, .. } if tried.len() == 3), "{error}")
            }
            false => assert!(error.to_string().contains("the feature \"ccl\""), "{error}"),
        }
    }
}

#[test]
fn a_program_with_an_algorithm_for_several_ranks_also_starts_alone() {
    let pair = |name| {
        let algorithm = Algorithm::new(name, Collective::AllReduce, |builder| {
            let (peer, own) = (1 - builder.rank(), if builder.rank() == 0 { Own::Left } else { Own::Right });
            builder.send(peer, 0);
            builder.recv_reduce(peer, 0, own, true);
        });
        Arc::new(algorithm.fits(|shape| shape.ranks == 2))
    };
    let forced = [("UNISONO_ALGORITHM", "pair".to_owned())];
    let world = unisono::init_with(&config(&forced).with_own_algorithm(pair("pair"))).unwrap();
    world.all_reduce(&mut [3u8], ReduceOp::Sum).unwrap();
    world.register(pair("pair"), Trust::Prove).unwrap();
    // A backend that is named treats one rank as any number that does not fit.
    let named = [("UNISONO_BACKEND", "tcp".to_owned())];
    let refused = unisono::init_with(&config(&named).with_own_algorithm(pair("pair"))).err().unwrap();
    assert!(matches!(refused, Error::AlgorithmRefused { .. }), "{refused}");
    // An algorithm that is wrong for any number of ranks is refused here too.
    let taken = unisono::init_with(&config(&[]).with_own_algorithm(pair("ring"))).err().unwrap();
    assert!(matches!(taken, Error::AlgorithmRefused { .. }), "{taken}");
    let unknown = unisono::init_with(&config(&forced)).err().unwrap();
    assert!(unknown.to_string().starts_with("UNISONO_ALGORITHM=pair: "), "{unknown}");
}

/// Rows: A1
#[test]
fn ranks_of_one_host_find_each_other() {
    let ranks = 3u32;
    let job = format!("facade test of process {}", std::process::id());
    let (done, finished) = mpsc::channel();
    for rank in 0..ranks {
        let settings = [
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", ranks.to_string()),
            ("UNISONO_JOB", job.clone()),
            ("UNISONO_BACKEND", "tcp".to_owned()),
            ("UNISONO_JOIN_TIMEOUT_S", "60".to_owned()),
            ("XDG_RUNTIME_DIR", std::env::temp_dir().display().to_string()),
        ];
        let done = done.clone();
        std::thread::spawn(move || {
            let world = unisono::init_with(&config(&settings)).unwrap();
            assert_eq!((world.rank(), world.size(), world.backend()), (rank, ranks, "tcp"));
            let mut values = vec![rank; 5000];
            world.all_reduce(&mut values, ReduceOp::Sum).unwrap();
            assert!(values.iter().all(|&value| value == 3));
            world.close().unwrap();
            done.send(rank).unwrap();
        });
    }
    drop(done);
    for _ in 0..ranks {
        finished.recv_timeout(TEST_TIME_MAX).expect("a rank hangs or has panicked");
    }
}
