//! One rank has no memory for a call, and the others wait for it. All ranks get the error, which names the rank.

use std::sync::Barrier;
use std::time::Duration;

use crate::support::watched;
use unisono_backend::Waker;
use unisono_collectives::{Collectives, CollectivesAsync, Solo};
use unisono_communicator::{
    BodyStage, Buffer, BufferMut, Buffers, Call, CallBody, CallOptions, Collective, DType, Descriptor,
    Division, Error, Executor, JobRank, Operation, OwnedBuffers, Peer, Result,
};
use unisono_engine::in_process::{self, InProcessCommunicator};

/// The size of one slice. A list repeats it beyond the size of the address space: the call is valid, but cannot be
/// copied.
const SLICE_BYTES: usize = 1 << 30;
const SLICES: usize = 1 << 18;

/// A deadline that ends a call if no error reaches it.
fn hurried() -> CallOptions {
    CallOptions::new().timeout(Duration::from_secs(20))
}

/// Checks that both ranks get the same error: rank 1 has no memory.
fn check(errors: &[Error]) {
    assert_eq!(errors[0].to_string(), errors[1].to_string());
    let Error::System { what, .. } = errors[0].root_cause() else { panic!("{}", errors[0]) };
    assert!(what.starts_with("no memory for the "), "{}", errors[0]);
    let by = matches!(errors[0], Error::Revoked { by, .. } if by == JobRank::new(1));
    assert!(by || what.ends_with(" on rank 1"), "{}", errors[0]);
}

/// The errors of `others` on rank 0 and of `short` on rank 1.
fn errors(
    others: impl Fn(&InProcessCommunicator) -> Error + Sync,
    short: impl Fn(&InProcessCommunicator) -> Error,
) -> Vec<Error> {
    let world = in_process::world(2);
    let told = Barrier::new(2);
    std::thread::scope(|threads| {
        let first = threads.spawn(|| {
            let error = others(&world[0]);
            told.wait();
            error
        });
        let error = short(&world[1]);
        // No rank leaves before all have their errors: its end would fail the calls of the others too.
        told.wait();
        vec![first.join().unwrap(), error]
    })
}

#[test]
fn an_asynchronous_call_without_memory_for_its_output_ends_on_all_ranks() {
    watched(|| {
        check(&errors(
            |comm| comm.with(hurried()).recv(&mut [0u8], Peer::Rank(1), 1).unwrap_err(),
            |comm| {
                let work = comm.scatter_async(Vec::<u8>::new(), 1 << 62, 0);
                work.wait().unwrap_err()
            },
        ));
        // A call that is refused for another reason does no harm.
        let world = in_process::world(1);
        let refused = world[0].scatter_async(Vec::<u8>::new(), 1 << 62, 7).wait().unwrap_err();
        assert!(matches!(refused, Error::InvalidArgument { argument: "root", .. }), "{refused}");
        world[0].barrier().unwrap();
    });
}

#[test]
fn a_send_without_memory_for_its_copy_ends_on_all_ranks() {
    watched(|| {
        check(&errors(
            |comm| comm.with(hurried()).recv(&mut [0u8], Peer::Rank(1), 1).unwrap_err(),
            |comm| {
                let slice = vec![0u8; SLICE_BYTES];
                let message = Buffer::of_list(&vec![&slice[..]; SLICES], Division::Anywhere);
                let buffers = Buffers::Separate { input: message, output: BufferMut::of::<u8>(&mut []) };
                let count = (SLICE_BYTES * SLICES) as u64;
                let send = Descriptor::new(Operation::Send, DType::U8, count);
                let send =
                    Descriptor { peer: Some(Peer::Rank(0)), tag: unisono_communicator::Tag::Is(1), ..send };
                comm.issue(Call::new(send, buffers)).unwrap_err()
            },
        ));
    });
}

/// A body that must not begin.
struct Idle;

impl CallBody for Idle {
    fn named(&self) -> (&'static str, u32) {
        ("idle", 0)
    }

    fn copy_in(&mut self, buffers: &Buffers<'_>) -> Result<()> {
        let Buffers::Separate { input: Buffer::Host(input), .. } = buffers else { panic!("{buffers:?}") };
        input.copied().map(drop)
    }

    fn move_in(&mut self, _: OwnedBuffers) {
        panic!("the call is a blocking one");
    }

    fn advance(&mut self, _: Duration, _: &dyn Fn() -> Waker) -> Result<bool> {
        panic!("not all ranks have met");
    }

    fn stage(&self) -> BodyStage {
        BodyStage::Waiting
    }

    fn copy_out(&mut self, _: &mut Buffers<'_>) {
        panic!("nothing was written");
    }

    fn move_out(&mut self) -> Option<OwnedBuffers> {
        None
    }
}

#[test]
fn a_call_with_a_body_without_memory_for_its_copy_ends_on_all_ranks() {
    fn gather(comm: &InProcessCommunicator, count: usize, input: Buffer<'_>, output: BufferMut<'_>) -> Error {
        let gather = Descriptor::new(Collective::Gather, DType::U8, count as u64);
        let buffers = Buffers::Separate { input, output };
        let mut call = Call::new(Descriptor { root: Some(0), ..gather }, buffers);
        call.options = hurried();
        call.body = Some(Box::new(Idle));
        comm.execute(&mut call).unwrap_err()
    }
    watched(|| {
        check(&errors(
            |comm| gather(comm, 1, Buffer::of(&[0u8]), BufferMut::of(&mut [0u8; 2])),
            |comm| {
                let slice = vec![0u8; SLICE_BYTES];
                let input = Buffer::of_list(&vec![&slice[..]; SLICES], Division::Anywhere);
                gather(comm, SLICE_BYTES * SLICES, input, BufferMut::of::<u8>(&mut []))
            },
        ));
        // A rank alone need not meet others.
        let world = in_process::world(1);
        let slice = vec![0u8; SLICE_BYTES];
        let input = Buffer::of_list(&vec![&slice[..]; SLICES], Division::Anywhere);
        let error = gather(&world[0], SLICE_BYTES * SLICES, input, BufferMut::of::<u8>(&mut []));
        assert!(error.to_string().contains("no memory"), "{error}");
    });
}

#[test]
fn a_world_of_one_refuses_a_body_that_it_would_not_run() {
    let mut call = Call::new(Descriptor::new(Collective::Barrier, DType::U8, 0), Buffers::none());
    call.body = Some(Box::new(Idle));
    let error = Solo::new().execute(&mut call).unwrap_err();
    assert!(error.to_string().contains("a body"), "{error}");
}
