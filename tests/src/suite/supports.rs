//! `supports` refuses what the call itself refuses before anything is sent, and nothing else; and it waits for nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use unisono_collectives::Collectives;
use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, CallOptions, Collective, Communicator, Counts, DType, Descriptor,
    Determinism, Error, MemoryKind, Operation, Peer, Place, ReduceOp, Result, UserFunction, UserOp, lengths,
};

use crate::backend::Backend;
use crate::sample::mix;
use crate::suite::borrowed::reaches_a_device;
use crate::suite::reductions::has_user_operators;
use crate::world::{options, run, run_each};

/// Requests that are drawn for each world.
const DRAWN: u64 = 1500;

/// Draws numbers; the same on every rank.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(1);
        (mix(self.0) % end as u64) as usize
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

fn operator(draw: &mut Draw) -> ReduceOp {
    let long = "x".repeat(33);
    match draw.below(8) {
        0 => ReduceOp::PreMulSum(0.5),
        1 => ReduceOp::User(UserOp::ordered("left")),
        2 => ReduceOp::User(UserOp::commutative(if draw.one_in(4) { &long } else { "any" })),
        _ => draw.of(ReduceOp::PLAIN),
    }
}

/// A request of which about half could be made, and the others have something wrong.
fn request(draw: &mut Draw, ranks: u32) -> (Descriptor, CallOptions) {
    let operations: Vec<Operation> = Operation::all().collect();
    let operation = draw.of(&operations);
    let collective = operation.collective();
    let is = |wanted: bool, draw: &mut Draw| wanted != draw.one_in(20);
    let dtype = match draw.below(5) {
        0 => DType::opaque(3).unwrap(),
        _ => draw.of(DType::ALL),
    };
    let is_barrier = collective == Some(Collective::Barrier) && !draw.one_in(10);
    let (dtype, count) = if is_barrier { (DType::U8, 0) } else { (dtype, draw.below(9) as u64) };
    let uneven = draw.one_in(6);
    // With uneven counts it is these that can be too large, and the request does not tell them.
    let count = if !uneven && draw.one_in(30) { u64::MAX - draw.below(2) as u64 } else { count };
    let has_place =
        matches!(collective, Some(Collective::Broadcast)) || collective.is_some() && draw.one_in(3);
    let peers = [Peer::Any, Peer::Rank(draw.below(ranks as usize + 1) as u32)];
    let mut call = CallOptions::new();
    if draw.one_in(5) {
        call = call.determinism(Determinism::Fixed);
    }
    if draw.one_in(5) {
        call = call.algorithm(draw.of(&["ring", "recursive_doubling", "direct", "by_pigeon"]));
    }
    let descriptor = Descriptor {
        op: is(collective.is_some_and(Collective::reduces), draw).then(|| operator(draw)),
        root: is(collective.is_some_and(Collective::is_rooted), draw)
            .then(|| draw.below(ranks as usize + 1) as u32),
        peer: is(collective.is_none(), draw).then(|| draw.of(&peers)),
        place: if is(has_place, draw) { Place::InPlace } else { Place::Separate },
        uneven,
        ..Descriptor::new(operation, dtype, count)
    };
    (descriptor, call)
}

/// Makes the call that was asked about, with buffers and counts that fit it.
fn execute(comm: &dyn Communicator, descriptor: Descriptor, options: CallOptions) -> Result<()> {
    let ranks = comm.group().size() as usize;
    let each = vec![descriptor.count; ranks];
    let counts = match (descriptor.uneven, descriptor.operation.collective()) {
        (false, _) => Counts::Even,
        (true, Some(Collective::AllToAll)) => Counts::PerPair { send: each.clone(), receive: each },
        (true, _) => Counts::PerRank(each),
    };
    let wanted = lengths(&descriptor, &counts, comm.group());
    // What is too large is refused before its buffers are looked at.
    let room = |elements: u64| {
        vec![0u8; if elements > 1 << 20 { 0 } else { elements as usize * descriptor.dtype.bytes() }]
    };
    let (input, mut output, mut both) =
        (room(wanted.input), room(wanted.output), room(wanted.input.max(wanted.output)));
    let buffers = match descriptor.place {
        Place::Separate => {
            Buffers::Separate { input: Buffer::of(&input), output: BufferMut::of(&mut output) }
        }
        Place::InPlace => Buffers::InOut(BufferMut::of(&mut both)),
    };
    let first: UserFunction = Arc::new(|left: &[u8], _: &[u8], out: &mut [u8]| out.copy_from_slice(left));
    let user_function = matches!(descriptor.op, Some(ReduceOp::User(_))).then_some(first);
    comm.issue(Call { counts, options, user_function, ..Call::new(descriptor, buffers) }).map(drop)
}

/// A message that every other rank receives from, or sends to, the peer of the descriptor.
fn exchange(comm: &dyn Communicator, descriptor: Descriptor, options: CallOptions) -> Result<()> {
    let (own, ranks) = (comm.group().rank(), comm.group().size());
    let hub = match descriptor.peer {
        Some(Peer::Rank(rank)) => rank,
        Some(Peer::Any | Peer::None) | None => 0,
    };
    if own != hub {
        return execute(comm, descriptor, options);
    }
    for other in (0..ranks).filter(|other| *other != own) {
        let operation =
            if descriptor.operation == Operation::Send { Operation::Recv } else { Operation::Send };
        let answer = Descriptor { operation, peer: Some(Peer::Rank(other)), ..descriptor };
        execute(comm, answer, options)?;
    }
    Ok(())
}

/// What an error says first: its kind, and the argument that it names.
fn named(error: &Error) -> String {
    match error {
        Error::InvalidArgument { argument, .. } => format!("{} {argument}", error.code()),
        other => other.code().to_string(),
    }
}

/// Random requests: where any rank refuses, that rank's call is refused in the same way; where none does, the call of
/// all ranks succeeds.
///
/// Rows: A13, D10
pub fn what_is_refused_is_what_the_call_refuses(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 3, 4], |comm| {
        let (mut draw, mut supported) = (Draw(u64::from(comm.group().size()) << 32), 0);
        for nth in 0..DRAWN {
            let (mut descriptor, options) = request(&mut draw, comm.group().size());
            // Only the root of a reduce has one buffer, and all ranks of an exscan but rank 0.
            let has_output = match descriptor.operation.collective() {
                Some(Collective::Reduce) => descriptor.root == Some(comm.group().rank()),
                Some(Collective::Exscan) => comm.group().rank() > 0,
                Some(_) | None => true,
            };
            if !has_output && nth % 2 == 0 {
                descriptor.place = Place::Separate;
            }
            let answer = comm.supports(&descriptor, &options, MemoryKind::Host);
            let on_device = comm.supports(&descriptor, &options, MemoryKind::Device);
            let is_refused = on_device.is_err_and(|error| error.is_before_start());
            assert!(is_refused || reaches_a_device(comm), "{descriptor} on a device");
            let mut all_can = [i8::from(answer.is_ok())];
            comm.all_reduce(&mut all_can, ReduceOp::Min).unwrap();
            match answer {
                Err(refusal) => {
                    let error = execute(comm, descriptor, options).expect_err(&descriptor.to_string());
                    assert_eq!(
                        named(&error),
                        named(&refusal),
                        "{descriptor} {options:?}: {error}; {refusal}"
                    );
                    assert!(error.is_before_start(), "{error}");
                }
                Ok(()) if all_can == [1] => {
                    supported += 1;
                    let result = match descriptor.operation {
                        Operation::Collective(_) => execute(comm, descriptor, options),
                        Operation::Send | Operation::Recv => exchange(comm, descriptor, options),
                    };
                    result.unwrap_or_else(|error| panic!("{descriptor} {options:?}: {error}"));
                }
                Ok(()) => {}
            }
        }
        let supported_min = if backend.algorithms().are_ours() { DRAWN / 10 } else { DRAWN / 40 };
        assert!(supported > supported_min, "only {supported} of {DRAWN} are supported");
    });
}

/// A call that holds everything that a call can hold keeps nobody from asking: in a function of the user's, or where
/// there are none, while it waits for the other rank.
pub fn a_running_call_keeps_nobody_waiting(backend: &dyn Backend) {
    let is_answered = &Arc::new(AtomicBool::new(false));
    run(backend, 2, &options(), |comm| {
        let (is_inside, has_function) = (Arc::new(AtomicBool::new(false)), has_user_operators(comm));
        std::thread::scope(|scope| {
            let (inside, answered) = (is_inside.clone(), is_answered.clone());
            let until_answered = move || {
                while !answered.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
            };
            scope.spawn(move || {
                if !has_function {
                    // The first call waits for the second, which comes when somebody has been answered.
                    if comm.group().rank() == 1 {
                        until_answered();
                    }
                    inside.store(true, Ordering::SeqCst);
                    return comm.all_reduce(&mut [1i32], ReduceOp::Sum).unwrap();
                }
                let wait = move |left: &[u32], _: &[u32], out: &mut [u32]| {
                    inside.store(true, Ordering::SeqCst);
                    until_answered();
                    out.copy_from_slice(left);
                };
                comm.all_reduce_user(&mut [1u32], UserOp::commutative("wait"), wait).unwrap();
            });
            if comm.group().rank() == 0 {
                while !is_inside.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                let sum = Descriptor {
                    op: Some(ReduceOp::Sum),
                    place: Place::InPlace,
                    ..Descriptor::new(Collective::AllReduce, DType::F32, 1 << 20)
                };
                let with = comm.with(CallOptions::new().algorithm("by_pigeon"));
                let supports = |comm: &dyn Communicator| {
                    comm.supports(&sum, &CallOptions::new(), MemoryKind::Host).is_ok()
                };
                assert!(supports(comm));
                assert!(!supports(&with), "options of `with` count");
                is_answered.store(true, Ordering::SeqCst);
            }
        });
    });
    assert!(is_answered.load(Ordering::SeqCst));
}

/// A backend has operations of its own; a call by name is the call; no backend has memory that
/// all ranks address.
pub fn a13_a15_natives_and_calls_by_name(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let natives = comm.native_collectives();
        let expected = backend.algorithms().are_ours().then_some(Collective::ALL.len());
        assert!(expected.is_none_or(|all| natives.len() == all), "{natives:?}");
        assert!(natives.contains(&Collective::AllReduce) && comm.rank() < comm.size());
        let copy = comm.duplicate().unwrap();
        assert_eq!(copy.native_collectives(), natives);

        let other = Descriptor {
            op: Some(ReduceOp::Sum),
            ..Descriptor::new(Collective::ReduceScatter, DType::I32, 1)
        };
        let descriptor = Descriptor { place: Place::InPlace, ..other };
        let mut sum = [1i32];
        let mut run =
            |name| comm.run_collective(name, Call::new(descriptor, Buffers::InOut(BufferMut::of(&mut sum))));
        let unknown = run("all_reduse");
        assert!(matches!(unknown, Err(Error::InvalidArgument { argument: "name", .. })), "{unknown:?}");
        assert_eq!(run("all_reduce").unwrap().bytes, 4);
        assert_eq!(sum, [comm.size() as i32]);
        let none = comm.symmetric_memory(1 << 20).unwrap_err();
        assert!(matches!(&none, Error::Unsupported { what, .. } if what.contains("1048576 bytes")), "{none}");
        comm.barrier().unwrap();
    });
}
