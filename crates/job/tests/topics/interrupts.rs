//! Waits that a person interrupts: the thread in the wait is told to give up, and the calls of the other ranks end.

use std::cell::RefCell;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{Communicator, Error, InterruptCheck, JobRank, Peer, ReduceOp, Result};
use unisono_control::store::{StoreCall, StoreKey, StoreOperation};
use unisono_control::wire::CommunicatorKey;
use unisono_job::Job;

use crate::support::{TEST_TIME_MAX, config, on_each, worlds};

const RANKS: u32 = 2;

/// The rank whose thread is told to give up.
const TOLD: u32 = 0;

fn is_the_interruption<R>(result: Result<R>) {
    assert!(matches!(result, Err(Error::Aborted { by }) if by.get() == TOLD), "{:?}", result.err());
}

/// Runs `wait` on every rank, of which one is told to give up.
fn interrupted(wait: impl Fn(&Job, &dyn Communicator) + Send + Sync + 'static) {
    let together = Arc::new(Barrier::new(RANKS as usize));
    on_each(worlds(RANKS, &config(&[])), move |world, communicator| {
        let is_told = communicator.group().rank() == TOLD;
        let check = InterruptCheck::begin(if is_told { || true } else { || false });
        wait(&world, &*communicator);
        drop(check);
        together.wait();
    });
}

#[test]
fn a_receive_that_waits_ends_on_all_ranks() {
    interrupted(|_, communicator| {
        is_the_interruption(communicator.recv(&mut [0u8], Peer::Any, 1));
        is_the_interruption(communicator.barrier());
    });
}

#[test]
fn a_collective_and_a_handle_that_wait_end_on_all_ranks() {
    interrupted(|_, communicator| {
        if communicator.group().rank() == TOLD {
            is_the_interruption(communicator.all_reduce(&mut [1u32; 1000], ReduceOp::Sum));
        } else {
            let work = communicator.recv_async(vec![0u8], Peer::Any, 1);
            is_the_interruption(work.wait());
        }
    });
}

/// These waits are for the control thread. They end alone: the others have not been told of a failure.
#[test]
fn waits_for_an_agreement_and_for_a_key_end() {
    interrupted(|world, communicator| {
        if communicator.group().rank() == TOLD {
            is_the_interruption(communicator.agree(true));
            let store = StoreKey { store: CommunicatorKey { id: 0, epoch: 0 }, key: "nobody sets it".into() };
            let (holder, deadline) = (JobRank::new(1), Instant::now() + 2 * TEST_TIME_MAX);
            let call = StoreCall { holder, key: store, operation: StoreOperation::Wait, deadline };
            let ended = world.call_store(call);
            let is_it = matches!(&ended, Err(error) if matches!(error.root_cause(), Error::Aborted { .. }));
            assert!(is_it, "{ended:?}");
        }
    });
}

#[test]
fn a_function_that_asks_may_not_make_calls_meanwhile() {
    thread_local! {
        static COMMUNICATOR: RefCell<Option<Arc<dyn Communicator>>> = const { RefCell::new(None) };
    }
    fn asks() -> bool {
        let refused = COMMUNICATOR.with_borrow(|communicator| communicator.as_ref().unwrap().barrier());
        assert!(matches!(refused, Err(Error::ConcurrentUse { .. })), "{refused:?}");
        false
    }
    on_each(worlds(RANKS, &config(&[])), |_, communicator| {
        if communicator.group().rank() == TOLD {
            COMMUNICATOR.set(Some(communicator.clone()));
            let _check = InterruptCheck::begin(asks);
            communicator.barrier().expect("it is not told to give up");
            COMMUNICATOR.take();
        } else {
            std::thread::sleep(Duration::from_millis(300));
            communicator.barrier().expect("a barrier");
        }
    });
}
