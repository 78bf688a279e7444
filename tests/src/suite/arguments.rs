//! Wrong arguments: each is answered by an error that names it, before anything is sent.

use bytemuck::Zeroable;
use unisono_collectives::{Collectives, CollectivesAsync, CollectivesUneven};
use unisono_communicator::{
    Bool, Buffer, BufferMut, Buffers, Call, CallOptions, Collective, Communicator, Complex, DType,
    Descriptor, Error, ParentCall, Peer, ReduceOp, Result, UserOp,
};

use crate::backend::Backend;
use crate::capabilities::Algorithms;
use crate::sample::Parcel;
use crate::world::{options, run, run_each};

/// The argument at fault, the fault, and the call.
pub(super) type WrongCall = (&'static str, &'static str, fn(&dyn Communicator) -> Result<()>);

/// For groups of two ranks and more, on rank 0.
const WRONG: &[WrongCall] = &[
    ("output", "all_reduce_into of other lengths", |c| {
        c.all_reduce_into(&[1u8; 3], &mut [0; 2], ReduceOp::Sum)
    }),
    ("input", "reduce_scatter of too little", |c| c.reduce_scatter(&[1u8; 3], &mut [0; 2], ReduceOp::Sum)),
    ("buffer", "reduce_scatter_in_place that does not divide", |c| {
        c.reduce_scatter_in_place(&mut vec![1u8; c.group().size() as usize + 1], ReduceOp::Sum)
    }),
    ("output", "all_gather into too little", |c| c.all_gather(&[1u8; 3], &mut [0; 3])),
    ("output", "all_gather_list into too few", |c| c.all_gather_list(&[1u8; 3], &mut [&mut [0; 3]])),
    ("buffer", "all_gather_in_place that does not divide", |c| {
        c.all_gather_in_place(&mut vec![1u8; c.group().size() as usize + 1])
    }),
    ("input", "all_to_all that does not divide", |c| {
        c.all_to_all(&vec![1u8; c.group().size() as usize + 1], &mut [0; 2])
    }),
    ("output", "all_to_all of other lengths", |c| {
        c.all_to_all(&vec![1u8; c.group().size() as usize], &mut [0; 1])
    }),
    ("root", "broadcast from nobody", |c| c.broadcast(&mut [1u8], c.group().size())),
    ("root", "reduce to nobody", |c| c.reduce(&[1u8], None, ReduceOp::Sum, u32::MAX)),
    ("output", "reduce without place at the root", |c| c.reduce(&[1u8], None, ReduceOp::Sum, 0)),
    ("output", "reduce with a place elsewhere", |c| c.reduce(&[1u8], Some(&mut [0]), ReduceOp::Sum, 1)),
    ("place", "broadcast from one buffer to another", |c| {
        let mut output = [0u8];
        let buffers = Buffers::Separate { input: Buffer::of(&[1u8]), output: BufferMut::of(&mut output) };
        let descriptor = Descriptor { root: Some(0), ..Descriptor::new(Collective::Broadcast, DType::U8, 1) };
        c.issue(Call::new(descriptor, buffers)).map(drop)
    }),
    ("output", "gather without place at the root", |c| c.gather(&[1u8], None, 0)),
    ("input", "scatter of nothing at the root", |c| c.scatter(None, &mut [1u8], 0)),
    ("input", "scatter of something elsewhere", |c| c.scatter(Some(&[1u8]), &mut [1u8], 1)),
    ("op", "bit_and of floats", |c| c.all_reduce(&mut [1.0f32], ReduceOp::BitAnd)),
    ("op", "sum of bool", |c| c.all_reduce(&mut [Bool(1)], ReduceOp::Sum)),
    ("op", "sum of opaque elements", |c| c.all_reduce(&mut [Parcel::zeroed()], ReduceOp::Sum)),
    ("op", "maximum of complex numbers", |c| {
        c.all_reduce(&mut [Complex::new(1.0f32, 2.0)], ReduceOp::Max).inspect_err(|error| {
            assert!(
                error.to_string().contains("max is not defined on complex64: complex numbers have no order")
            );
        })
    }),
    ("op", "pre-multiplied sum of integers", |c| c.all_reduce(&mut [1u8], ReduceOp::PreMulSum(0.5))),
    ("op", "asynchronous bit_or of floats", |c| {
        c.all_reduce_async(vec![1.0f64], ReduceOp::BitOr).wait().map(|_| ())
    }),
    ("peer", "send to nobody", |c| c.send(&[1u8], c.group().size(), 0)),
    ("peer", "receive from nobody", |c| c.recv(&mut [1u8], Peer::Rank(u32::MAX), 0).map(|_| ())),
    ("counts", "all_gather_v with a count missing", |c| c.all_gather_v(&[1u8], &mut [0; 1], &[1])),
    ("input", "all_gather_v of another share", |c| {
        c.all_gather_v(
            &[1u8; 3],
            &mut vec![0; c.group().size() as usize],
            &vec![1; c.group().size() as usize],
        )
    }),
    ("counts", "all_to_all_v with two shares for itself", |c| {
        let mut lengths = vec![1; c.group().size() as usize];
        let (input, mut output) = (vec![1u8; lengths.len()], vec![0; lengths.len() + 1]);
        let send = lengths.clone();
        lengths[c.group().rank() as usize] = 2;
        c.all_to_all_v(&input, &send, &mut output, &lengths)
    }),
    ("count", "scatter_v of more than there can be", |c| {
        c.scatter_v(Some(&[1u64]), &mut [0], &vec![usize::MAX; c.group().size() as usize], 0)
    }),
    ("label", "a label that is too long", |c| c.with(CallOptions::new().label(&"x".repeat(33))).barrier()),
    ("op", "a user operator whose name is too long", |c| {
        let op = UserOp::commutative(&"x".repeat(33));
        c.all_reduce_user(&mut [1u32], op, |left, _, out| out.copy_from_slice(left))
    }),
    ("algorithm", "an algorithm that does not exist", |c| {
        c.with(CallOptions::new().algorithm("by_pigeon")).all_reduce(&mut [1u8], ReduceOp::Sum)
    }),
    ("algorithm", "an algorithm of another collective", |c| {
        c.with(CallOptions::new().algorithm("dissemination")).all_reduce(&mut [1u8], ReduceOp::Sum)
    }),
];

/// Fails unless the error names a call of this file.
fn names_its_line(error: &Error) {
    let text = error.to_string();
    assert!(text.contains(", in ") && text.contains(concat!(" at ", file!(), ":")), "{text}");
}

/// One rank alone makes the mistake; the next call of all ranks works, so nothing was sent and nothing counted.
pub fn bad_arguments_change_nothing(backend: &dyn Backend) {
    // Where there are no algorithms every name is refused, right or wrong: `algorithms::wrong_names` sees to it.
    let is_known = |argument: &str| argument != "algorithm" || backend.algorithms() != Algorithms::None;
    run_each(backend, &[2, 3, 5], |comm| {
        for (argument, what, call) in WRONG.iter().filter(|(argument, ..)| is_known(argument)) {
            if comm.group().rank() == 0 {
                let error = call(comm).expect_err(what);
                let is_named =
                    matches!(&error, Error::InvalidArgument { argument: named, .. } if named == argument);
                assert!(is_named && error.is_before_start(), "{what} must name {argument}: {error}");
                names_its_line(&error);
            }
            let mut value = [1i32];
            comm.all_reduce(&mut value, ReduceOp::Sum).unwrap();
            assert_eq!(value, [comm.group().size() as i32], "after {what}");
        }
    });
}

/// Closing twice is allowed; calling afterwards is not.
pub fn closed_communicators_say_so(backend: &dyn Backend) {
    run(backend, backend.ranks_max().min(3), &options(), |comm| {
        comm.barrier().unwrap();
        comm.close().unwrap();
        comm.close().unwrap();
        let results = [
            comm.barrier(),
            comm.all_reduce_async(vec![1u8], ReduceOp::Sum).wait().map(|_| ()),
            comm.send(&[1u8], 0, 0),
        ];
        for result in results {
            assert!(matches!(result, Err(Error::Closed { .. })), "{result:?}");
            names_its_line(&result.unwrap_err());
        }
        let barrier = Descriptor::new(Collective::Barrier, DType::U8, 0);
        let derived = [
            comm.duplicate().map(drop),
            comm.subgroup(&[0]).map(drop),
            comm.shrink().map(drop),
            comm.agree(true).map(drop),
            comm.scope(ParentCall::new("late", barrier), &CallOptions::new()).map(drop),
        ];
        for result in derived {
            let named = matches!(&result, Err(Error::Closed { call: Some(_) }));
            assert!(named, "{result:?}");
        }
    });
}

/// A receive that waits for a message ends when its own rank closes.
pub fn closing_ends_receives(backend: &dyn Backend) {
    run(backend, backend.ranks_max().min(2), &options(), |comm| {
        let work = comm.recv_async(vec![0u8; 4], Peer::Any, 1).into_work();
        comm.close().unwrap();
        let error = work.wait().unwrap_err();
        assert!(matches!(error, Error::Closed { .. }), "{error}");
    });
}
