//! Prepared calls over in-process links: after the registration of an algorithm they are planned anew.

use std::sync::Arc;

use unisono_collectives::CollectivesPrepared;
use unisono_communicator::{Collective, Communicator, ReduceOp, Trust};
use unisono_engine::in_process;
use unisono_schedule::Algorithm;

/// Rows: B22
#[test]
fn a_call_is_planned_anew_once_an_algorithm_was_registered() {
    let comm = &in_process::world(1)[0];
    let sum = comm.prepare_all_reduce::<u32>(1, ReduceOp::Sum).unwrap();
    sum.call(&mut [1]).unwrap();
    let nothing = Algorithm::new("nothing_to_do", Collective::Barrier, |_| {});
    comm.register(Arc::new(nothing), Trust::Trusted).unwrap();
    for value in 1..4 {
        let mut buffer = [value];
        sum.call(&mut buffer).unwrap();
        assert_eq!((buffer, sum.start(vec![value]).wait().unwrap()), ([value], vec![value]));
    }
}
