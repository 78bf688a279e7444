//! Prepared calls over in-process links: the registration of an algorithm makes their plans stale.

use std::sync::Arc;

use unisono_collectives::CollectivesPrepared;
use unisono_communicator::{Collective, Communicator, Error, ReduceOp, Trust};
use unisono_engine::in_process;
use unisono_schedule::Algorithm;

/// Rows: B22
#[test]
fn a_plan_is_stale_once_an_algorithm_was_registered() {
    let comm = &in_process::world(1)[0];
    let sum = comm.prepare_all_reduce::<u32>(1, ReduceOp::Sum).unwrap();
    sum.call(&mut [1]).unwrap();
    let nothing = Algorithm::new("nothing_to_do", Collective::Barrier, |_| {});
    comm.register(Arc::new(nothing), Trust::Trusted).unwrap();
    let stale = sum.call(&mut [1]).unwrap_err();
    assert!(matches!(stale, Error::InvalidArgument { argument: "prepared", .. }), "{stale}");
    let stale = sum.start(vec![1]).wait().unwrap_err();
    assert!(stale.to_string().contains("an algorithm was registered after it was prepared"), "{stale}");
    comm.prepare_all_reduce::<u32>(1, ReduceOp::Sum).unwrap().call(&mut [1]).unwrap();
}
