//! Algorithms by name, also a test's own, over the double's messages, with arithmetic on its device's streams.

use std::sync::Arc;

use unisono_collectives::{Collectives, CollectivesOnDevice};
use unisono_communicator::{CallOptions, Collective, Communicator, Determinism, Error, ReduceOp, Trust};
use unisono_engine::in_process;
use unisono_offload::{HostMemory, Vendor};
use unisono_schedule::Algorithm;

use super::{DeviceRank, SECONDS_MAX, VendorDouble};
use crate::bits::{ELEMENTS, all_reduced, difference, pairs};
use crate::watchdog;

/// A call by this algorithm.
pub fn named(algorithm: &str) -> CallOptions {
    CallOptions::new().algorithm(algorithm)
}

/// Built-in algorithms, on a stream and behind each other there.
///
/// # Panics
/// When the backend is wrong.
pub fn an_algorithm_by_name_runs_on_the_stream<D: VendorDouble>() {
    if !D::computes() {
        return;
    }
    watchdog(SECONDS_MAX, "named", || {
        DeviceRank::<D>::run(4, HostMemory::Refused, |rank| {
            for name in ["ring", "recursive_doubling", "halving_doubling"] {
                let mut sums = rank.array(&[rank.own(); 1000]);
                let ring = rank.comm.with(named(name));
                let on = ring.on(rank.device_stream());
                let ended = on.wait(on.all_reduce(&mut sums.write(rank), ReduceOp::Sum).unwrap()).unwrap();
                assert_eq!(ended.algorithm, format!("{name} over {}", D::Vendor::BACKEND));
                assert_eq!(rank.copied(&sums), [10.0; 1000]);
                // Behind it on the stream, without a wait; an input apart stays as it is.
                let input = rank.array(&[rank.own(); 7]);
                let mut halves = rank.array(&[0.0; 7]);
                let halved = ReduceOp::PreMulSum(0.5);
                on.all_reduce_into(&input.read(rank), &mut halves.write(rank), halved).unwrap();
                assert_eq!((rank.copied(&halves), rank.copied(&input)), (vec![5.0; 7], vec![rank.own(); 7]));
            }
        })
    });
}

/// To the left neighbour, as `ring` sends to the right one.
fn leftwards() -> Arc<Algorithm> {
    Arc::new(Algorithm::new("leftwards", Collective::AllGather, |builder| {
        for hop in 1..builder.ranks() {
            builder.send(builder.behind(1), builder.ahead(hop - 1));
            builder.recv(builder.ahead(1), builder.ahead(hop));
        }
        builder.deliver(builder.rank());
    }))
}

/// One that is registered, on memory of the device and of the host.
///
/// # Panics
/// When the backend is wrong.
pub fn an_algorithm_of_the_users_runs_too<D: VendorDouble>() {
    watchdog(SECONDS_MAX, "own", || {
        DeviceRank::<D>::run(3, HostMemory::Staged, |rank| {
            rank.comm.register(leftwards(), Trust::Prove).unwrap();
            let ours = rank.comm.with(named("leftwards"));
            let (input, mut all) = (rank.array(&[rank.own(); 2]), rank.array(&[0.0; 6]));
            let on = ours.on(rank.device_stream());
            let ended = on.wait(on.all_gather(&input.read(rank), &mut all.write(rank)).unwrap()).unwrap();
            assert_eq!(ended.algorithm, format!("leftwards over {}", D::Vendor::BACKEND));
            assert_eq!(rank.copied(&all), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
            let mut on_host = [0u16; 3];
            ours.all_gather(&[rank.rank as u16], &mut on_host).unwrap();
            assert_eq!(on_host, [0, 1, 2]);
        })
    });
}

/// One rank names an algorithm, the other does not.
///
/// # Panics
/// When the backend is wrong.
pub fn two_algorithms_are_a_mismatch<D: VendorDouble>() {
    if !D::computes() {
        return;
    }
    watchdog(SECONDS_MAX, "two", || {
        DeviceRank::<D>::run(2, HostMemory::Refused, |rank| {
            let mut array = rank.array(&[1.0; 4]);
            let options = if rank.rank == 0 { CallOptions::new() } else { named("ring") };
            let comm = rank.comm.with(options);
            let on = comm.on(rank.device_stream());
            let ended = on.wait(on.all_reduce(&mut array.write(rank), ReduceOp::Sum).unwrap());
            let Err(error @ Error::Mismatch { .. }) = ended else { panic!("{ended:?}") };
            let text = error.to_string();
            assert!(text.contains(&format!("ring over {}", D::Vendor::BACKEND_INLINE)), "{text}");
        })
    });
}

/// What the vendor says that its device combines has the bits of the engine; the rest is refused. `claimed_min` is how
/// many pairs of a type and an operator are of the first kind at least.
///
/// # Panics
/// When the backend is wrong.
pub fn what_is_combined_has_the_bits_of_the_engine<D: VendorDouble>(claimed_min: usize) {
    if !D::computes() {
        return;
    }
    let known = D::open(0).unwrap().capabilities();
    let claimed = || pairs().filter(|(dtype, op)| known.combines(*op, *dtype));
    assert!(claimed().count() >= claimed_min, "{} are claimed", claimed().count());
    let all = |comm: &dyn Communicator| {
        claimed().map(|(dtype, op)| all_reduced(comm, dtype, op, ELEMENTS).unwrap()).collect::<Vec<_>>()
    };
    watchdog(SECONDS_MAX, "bits", || {
        let expected = in_process::run(2, |comm| all(&*comm));
        let found = DeviceRank::<D>::run(2, HostMemory::Staged, |rank| {
            for (dtype, op) in pairs().filter(|(dtype, op)| !known.combines(*op, *dtype)) {
                let refused = all_reduced(&*rank.comm, dtype, op, 1);
                let Err(Error::Unsupported { what, instead: Some(instead), .. }) = refused else {
                    panic!("{op} of {dtype}: {refused:?}");
                };
                assert!(what.starts_with(&format!("{op} of {dtype} by an algorithm: ")), "{what}");
                assert!(instead.ends_with("UNISONO_BACKEND=tcp"), "{instead}");
            }
            all(&*rank.comm)
        });
        for ((dtype, op), (expected, found)) in claimed().zip(expected[0].iter().zip(&found[0])) {
            assert_eq!(difference(dtype, found, expected), None, "{op}");
        }
    });
}

/// The sum in a fixed order, which is that of other transports.
///
/// # Panics
/// When the backend is wrong.
pub fn a_fixed_order_gives_the_bits_of_other_transports<D: VendorDouble>() {
    if !D::computes() {
        return;
    }
    let sum = |comm: &dyn Communicator| {
        let own = comm.group().rank() as f32;
        let mut rough: Vec<f32> = (0..999).map(|at| (own * 7.3 + at as f32).sin() * 1e3).collect();
        comm.with(CallOptions::new().determinism(Determinism::Fixed))
            .all_reduce(&mut rough, ReduceOp::Sum)
            .unwrap();
        rough.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    watchdog(SECONDS_MAX, "fixed", || {
        let expected = in_process::run(3, |comm| sum(&*comm));
        let found = DeviceRank::<D>::run(3, HostMemory::Staged, |rank| sum(&*rank.comm));
        assert_eq!(found, expected);
    });
}

/// A test of each function of this module, on a double that combines so many pairs of a type and an operator.
#[macro_export]
macro_rules! algorithms_on_device {
    ($double:ty, $claimed_min:expr) => {
        $crate::algorithms_on_device!(@tests $double, an_algorithm_by_name_runs_on_the_stream
            an_algorithm_of_the_users_runs_too two_algorithms_are_a_mismatch
            a_fixed_order_gives_the_bits_of_other_transports);

        #[test]
        fn what_is_combined_has_the_bits_of_the_engine() {
            $crate::on_device::algorithms::what_is_combined_has_the_bits_of_the_engine::<$double>($claimed_min);
        }
    };
    (@tests $double:ty, $($test:ident)*) => {
        $(#[test]
        fn $test() {
            $crate::on_device::algorithms::$test::<$double>();
        })*
    };
}
