//! No memory for a call on one rank, which the others wait for: all of them are told, and by which rank.

use std::sync::Barrier;
use std::time::Duration;

use crate::support::watched;
use unisono_backend::{BodyStage, CallBody, Companion, Waker};
use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, CallOptions, Collective, Collectives, CollectivesAsync, DType,
    Descriptor, Division, Error, JobRank, Operation, OwnedBuffers, Peer, Result,
};
use unisono_engine::in_process::{self, InProcessCommunicator};

/// One slice, and a list of it that is longer than the address space: the call is valid, and no copy of it can be.
const SLICE_BYTES: usize = 1 << 30;
const SLICES: usize = 1 << 18;

/// Ends what nobody is told of.
fn hurried() -> CallOptions {
    CallOptions::new().timeout(Duration::from_secs(20))
}

/// Both ranks get the same error: that rank 1 has no memory.
fn check(errors: &[Error]) {
    assert_eq!(errors[0].to_string(), errors[1].to_string());
    let Error::System { what, .. } = errors[0].root_cause() else { panic!("{}", errors[0]) };
    assert!(what.starts_with("no memory for the "), "{}", errors[0]);
    let by = matches!(errors[0], Error::Revoked { by, .. } if by == JobRank::new(1));
    assert!(by || what.ends_with(" on rank 1"), "{}", errors[0]);
}

/// What rank 0 gets from `others`, and rank 1 from `short`.
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
        // Nobody leaves before all are told, which would end their calls too.
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
        // What is refused for another reason harms nobody.
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
                let send = Descriptor { peer: Some(Peer::Rank(0)), tag: 1, ..send };
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
        comm.execute_by(Box::new(Idle), &mut call).unwrap_err()
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
        // Alone, nobody is to be met.
        let world = in_process::world(1);
        let slice = vec![0u8; SLICE_BYTES];
        let input = Buffer::of_list(&vec![&slice[..]; SLICES], Division::Anywhere);
        let error = gather(&world[0], SLICE_BYTES * SLICES, input, BufferMut::of::<u8>(&mut []));
        assert!(error.to_string().contains("no memory"), "{error}");
    });
}
