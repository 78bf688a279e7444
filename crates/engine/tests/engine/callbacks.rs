//! A user's function that runs inside a call must not use the communicator of that call: it would wait for itself.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{
    CallOptions, Collective, Communicator, DType, Descriptor, Error, MemoryKind, OwnedBuffers, OwnedCall,
    OwnedMemory, Peer, Place, ReduceOp, UserOp, Work,
};
use unisono_engine::in_process;

/// Far more time than the test takes on any machine.
const TEST_TIME_MAX: Duration = Duration::from_secs(60);

/// A forbidden call that a reduce function tries.
type Attempt = fn(&dyn Communicator) -> Result<(), Error>;

fn attempts() -> Vec<(&'static str, Attempt)> {
    vec![
        ("send", |comm| comm.send(&[1u8], 1, 0)),
        ("receive", |comm| comm.recv(&mut [0u8], Peer::Any, 0).map(drop)),
        ("plain call", |comm| comm.barrier()),
        ("labelled call", |comm| {
            comm.with(CallOptions::new().label("inner")).all_reduce(&mut [1u32], ReduceOp::Sum)
        }),
        ("asynchronous call", |comm| comm.all_reduce_async(vec![1u32], ReduceOp::Sum).wait().map(drop)),
        ("supports", |comm| {
            let barrier = Descriptor::new(Collective::Barrier, DType::U8, 0);
            comm.supports(&barrier, &CallOptions::new(), MemoryKind::Host)
        }),
        ("subgroup", |comm| comm.subgroup(&[0]).map(drop)),
        ("agree", |comm| comm.agree(true).map(drop)),
        ("close", |comm| comm.close()),
    ]
}

#[test]
fn a_reduce_function_that_uses_its_communicator_is_refused() {
    let (results, received) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = results.send(in_process::run(2, |comm| {
            attempts()
                .into_iter()
                .map(|(name, attempt)| (name, try_inside(&comm, attempt)))
                .collect::<Vec<_>>()
        }));
    });
    let ranks = received.recv_timeout(TEST_TIME_MAX).expect("it hangs");
    for (rank, tried) in ranks.into_iter().enumerate() {
        for (name, outcome) in tried {
            let refused = matches!(outcome, Some(Err(Error::ConcurrentUse { .. })));
            assert!(refused, "{name} on rank {rank}: {outcome:?}");
        }
    }
}

/// Runs a call whose function makes the attempt. Returns the attempt's result, if the function ran on this rank. The
/// call succeeds in any case.
fn try_inside(comm: &Arc<dyn Communicator>, attempt: Attempt) -> Option<Result<(), Error>> {
    let (sender, outcomes) = mpsc::channel();
    let inner = comm.clone();
    let op = UserOp::commutative("nosy");
    let mut value = [1u32];
    let function = move |left: &[u32], right: &[u32], out: &mut [u32]| {
        let _ = sender.send(attempt(&*inner));
        out[0] = left[0] + right[0];
    };
    comm.all_reduce_user(&mut value, op, function).unwrap();
    assert_eq!(value, [2]);
    outcomes.try_recv().ok()
}

/// A reduce function asks for the call inside which it runs. The call has not ended, and a wait for it is refused.
#[test]
fn a_call_within_which_a_reduce_function_asks_for_it_has_not_ended() {
    let (sender, said) = mpsc::channel();
    std::thread::spawn(move || {
        in_process::run(2, move |comm| {
            let (works, handle) = mpsc::channel::<Arc<Work>>();
            let (handle, sender) = (Mutex::new(handle), sender.clone());
            let function = move |left: &[u8], _: &[u8], out: &mut [u8]| {
                let work = handle.lock().unwrap().recv().unwrap();
                let waited = work.wait_timeout(Duration::from_millis(1));
                let is_refused = matches!(waited, Some(Err(Error::ConcurrentUse { .. })));
                sender.send((work.is_done(), is_refused)).unwrap();
                out.copy_from_slice(left);
            };
            let op = Some(ReduceOp::User(UserOp::commutative("asks")));
            let all_reduce = Descriptor::new(Collective::AllReduce, DType::U32, 1);
            let descriptor = Descriptor { op, place: Place::InPlace, ..all_reduce };
            let buffers = OwnedBuffers::InOut(OwnedMemory::of(vec![1u32]));
            let call = OwnedCall::new(descriptor, buffers);
            let work = Arc::new(comm.start(OwnedCall { user_function: Some(Arc::new(function)), ..call }));
            // The function runs on one rank, or on both.
            (0..2).for_each(|_| drop(works.send(work.clone())));
            work.wait().unwrap();
        });
    });
    assert_eq!(said.recv_timeout(TEST_TIME_MAX), Ok((false, true)));
}
