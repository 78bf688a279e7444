//! Ranks that call different things: every rank learns of it, from that call or its next one, with both calls.

use std::sync::Barrier;
use std::time::Duration;

use bytemuck::{Pod, Zeroable};
use unisono_collectives::{Collectives, CollectivesUneven};
use unisono_communicator::{
    BufferMut, Buffers, Call, CallInfo, CallOptions, Collective, Communicator, DType, Descriptor, Element,
    Error, MemoryKind, Place, ReduceOp, Result, UserOp,
};

use crate::backend::Backend;
use crate::capabilities::Algorithms;
use crate::sample::Parcel;
use crate::world::{options, run};

type Action = fn(&dyn Communicator) -> Result<()>;

type Rooted = fn(&dyn Communicator, u32) -> Result<()>;

/// A field in which two calls differ, the call of all ranks but one, and that of the last rank.
struct Row {
    field: &'static str,
    usual: Action,
    odd: Action,
    usual_descriptor: Descriptor,
    odd_descriptor: Descriptor,
}

fn usual(comm: &dyn Communicator) -> Result<()> {
    comm.all_reduce(&mut [1i32; 8], ReduceOp::Sum)
}

fn user(comm: &dyn Communicator, name: &'static str) -> Result<()> {
    let op = UserOp::commutative(name);
    comm.all_reduce_user(&mut [1i32; 8], op, |left, _, out| out.copy_from_slice(left))
}

fn algorithm(comm: &dyn Communicator, name: &str) -> Result<()> {
    usual(&comm.with(CallOptions::new().algorithm(name)))
}

fn label(comm: &dyn Communicator, name: &str) -> Result<()> {
    usual(&comm.with(CallOptions::new().label(name)))
}

fn labelled_by_hand(comm: &dyn Communicator, name: &str) -> Result<()> {
    let mut buffer = [1i32; 8];
    let descriptor = Descriptor {
        op: Some(ReduceOp::Sum),
        place: Place::InPlace,
        ..Descriptor::new(Collective::AllReduce, DType::I32, 8)
    };
    let call = Call::new(descriptor, Buffers::InOut(BufferMut::of(&mut buffer)));
    comm.issue(Call { options: CallOptions::new().label(name), ..call }).map(drop)
}

/// Calls with two labels, or with one and with none.
const LABELS: [(Action, Action); 3] = [
    (usual, |c| label(c, "odd")),
    (usual, |c| labelled_by_hand(c, "odd")),
    (|c| label(c, "usual"), |c| label(c, "odd")),
];

/// An opaque element of another size than [`Parcel`].
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(transparent)]
struct Other([u8; 20]);

impl Element for Other {
    const DTYPE: DType = DType::opaque_of::<Other>();
}

/// Against the usual call, unless two calls are given.
fn rows(backend: &dyn Backend) -> Vec<Row> {
    let all_reduce = Descriptor {
        op: Some(ReduceOp::Sum),
        place: Place::InPlace,
        ..Descriptor::new(Collective::AllReduce, DType::I32, 8)
    };
    let row = |field, odd: Action, odd_descriptor| Row {
        field,
        usual,
        odd,
        usual_descriptor: all_reduce,
        odd_descriptor,
    };
    let named = |name| Some(ReduceOp::User(UserOp::commutative(name)));
    let gather = |place| Descriptor { place, ..Descriptor::new(Collective::AllGather, DType::U8, 2) };
    let mut rows = vec![
        row("collective", |c| c.barrier(), Descriptor::new(Collective::Barrier, DType::U8, 0)),
        row(
            "dtype",
            |c| c.all_reduce(&mut [1f32; 8], ReduceOp::Sum),
            Descriptor { dtype: DType::F32, ..all_reduce },
        ),
        Row {
            usual: |c| {
                c.all_gather(&[Parcel::zeroed()], &mut vec![Parcel::zeroed(); c.group().size() as usize])
            },
            usual_descriptor: Descriptor::new(Collective::AllGather, Parcel::DTYPE, 1),
            ..row(
                "dtype",
                |c| c.all_gather(&[Other::zeroed()], &mut vec![Other::zeroed(); c.group().size() as usize]),
                Descriptor::new(Collective::AllGather, Other::DTYPE, 1),
            )
        },
        row("count", |c| c.all_reduce(&mut [1i32; 9], ReduceOp::Sum), Descriptor { count: 9, ..all_reduce }),
        row("count", |c| c.all_reduce(&mut [1i32; 0], ReduceOp::Sum), Descriptor { count: 0, ..all_reduce }),
        row(
            "op",
            |c| c.all_reduce(&mut [1i32; 8], ReduceOp::Max),
            Descriptor { op: Some(ReduceOp::Max), ..all_reduce },
        ),
        row(
            "place",
            |c| c.all_reduce_into(&[1i32; 8], &mut [0; 8], ReduceOp::Sum),
            Descriptor { place: Place::Separate, ..all_reduce },
        ),
        Row {
            usual: |c| user(c, "first"),
            usual_descriptor: Descriptor { op: named("first"), ..all_reduce },
            ..row("user op", |c| user(c, "second"), Descriptor { op: named("second"), ..all_reduce })
        },
        Row {
            usual: |c| c.all_gather(&[1u8; 2], &mut vec![0; 2 * c.group().size() as usize]),
            usual_descriptor: gather(Place::Separate),
            ..row(
                "place",
                |c| c.all_gather_in_place(&mut vec![0u8; 2 * c.group().size() as usize]),
                gather(Place::InPlace),
            )
        },
    ];
    rows.extend(LABELS.map(|(usual, odd)| Row { usual, ..row("label", odd, all_reduce) }));
    if backend.algorithms() != Algorithms::None {
        rows.push(Row {
            usual: |c| algorithm(c, "ring"),
            ..row("algorithm", |c| algorithm(c, "recursive_doubling"), all_reduce)
        });
    }
    rows
}

/// The fields that two ranks compare, as far as a header tells them.
fn compared(descriptor: &Descriptor) -> impl PartialEq + std::fmt::Debug + use<> {
    let op = descriptor.op.map(ReduceOp::code);
    (descriptor.operation, descriptor.dtype, descriptor.count, op, descriptor.root, descriptor.place)
}

/// The first cause that this rank learns of, from `call` or from the call after it.
pub(super) fn first_cause(
    comm: &dyn Communicator,
    call: impl FnOnce(&dyn Communicator) -> Result<()>,
) -> Error {
    let error = match call(comm) {
        Err(error) => error,
        Ok(()) => comm.barrier().expect_err("the call after a mismatch must tell of it"),
    };
    assert!(!error.is_before_start(), "{error}");
    error
}

fn mismatch_of(error: &Error) -> (&CallInfo, &CallInfo, u32, &str) {
    match error.root_cause() {
        Error::Mismatch { calls, difference } => (&calls[0].1, &calls[1].1, calls[0].0.get(), difference),
        other => panic!("not a mismatch: {other}"),
    }
}

/// Whether the calls of a row are ones that the backend refuses; they have been made and refused then.
fn is_refused(comm: &dyn Communicator, row: &Row) -> bool {
    let supports = comm.supports(&row.odd_descriptor, &CallOptions::new(), MemoryKind::Host);
    let Err(Error::Unsupported { .. }) = supports else { return false };
    for call in [row.odd, row.usual] {
        let error = call(comm).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
    comm.barrier().unwrap();
    true
}

/// Each field of a call that must be equal, on worlds in which the last rank differs.
pub fn every_compared_field(backend: &dyn Backend) {
    for ranks in backend.among(&[2, 3, 5]) {
        for row in rows(backend) {
            let what = format!("{} among {ranks}", row.field);
            let errors = run(backend, ranks, &options(), |comm| {
                let is_odd = comm.group().rank() == ranks - 1;
                if is_refused(comm, &row) {
                    return None;
                }
                Some(first_cause(comm, |comm| if is_odd { (row.odd)(comm) } else { (row.usual)(comm) }))
            });
            let all = errors.len();
            let errors: Vec<Error> = errors.into_iter().flatten().collect();
            assert!(errors.is_empty() || errors.len() == all, "{what}: refused on some ranks");
            if errors.is_empty() {
                continue;
            }
            let expected = [compared(&row.usual_descriptor), compared(&row.odd_descriptor)];
            let mut saw = 0;
            for (rank, error) in errors.iter().enumerate() {
                let (ours, theirs, reported_by, difference) = mismatch_of(error);
                saw += u32::from(reported_by as usize == rank);
                let found = [compared(&ours.descriptor), compared(&theirs.descriptor)];
                let is_both = found == expected || found[0] == expected[1] && found[1] == expected[0];
                assert!(is_both, "{what}: rank {rank} must name both calls: {error}");
                let name = if row.field == "place" { "in place" } else { row.field };
                assert!(difference.contains(name), "{what}: rank {rank} says {difference}");
            }
            assert!(saw > 0, "{what}: somebody must have seen it");
        }
    }
}

/// Two roots of a reduce may share no message at all.
pub fn different_roots(backend: &dyn Backend) {
    let calls: [Rooted; 4] = [
        |c, root| c.reduce_in_place(&mut [1i32; 4], ReduceOp::Sum, root),
        |c, root| c.broadcast(&mut [1u32; 4], root),
        |c, root| {
            let mut output = vec![0u32; 4 * c.group().size() as usize];
            c.gather(&[1; 4], (c.group().rank() == root).then_some(&mut output[..]), root)
        },
        |c, root| {
            let input = vec![0u32; 4 * c.group().size() as usize];
            c.scatter((c.group().rank() == root).then_some(&input[..]), &mut [0; 4], root)
        },
    ];
    for ranks in backend.among(&[2, 3, 4, 7]) {
        for (number, call) in calls.iter().enumerate() {
            let errors = run(backend, ranks, &options(), |comm| {
                let root = u32::from(comm.group().rank() == ranks - 1);
                first_cause(comm, |comm| call(comm, root))
            });
            for (rank, error) in errors.iter().enumerate() {
                let (ours, theirs, ..) = mismatch_of(error);
                let roots = [ours.descriptor.root, theirs.descriptor.root];
                // Who went on has a next call, whose number is compared with the old one.
                let is_next = theirs.descriptor.operation == Collective::Barrier.into()
                    || ours.descriptor.operation == Collective::Barrier.into();
                let is_both = roots.contains(&Some(0)) && roots.contains(&Some(1));
                assert!(is_both || is_next, "call {number} among {ranks}, rank {rank}: {error}");
            }
        }
    }
}

/// Uneven counts travel as a hash in the headers; the answer of the other rank shows them.
pub fn uneven_counts_differ(backend: &dyn Backend) {
    for ranks in backend.among(&[2, 3, 5]) {
        let errors = run(backend, ranks, &options(), |comm| {
            let rank = comm.group().rank();
            let mut counts = vec![2usize; ranks as usize];
            if rank == ranks - 1 {
                counts[0] = 3;
            }
            let (own, all) = (counts[rank as usize], counts.iter().sum());
            first_cause(comm, |comm| comm.all_gather_v(&vec![1u32; own], &mut vec![0; all], &counts))
        });
        for (rank, error) in errors.iter().enumerate() {
            let (.., difference) = mismatch_of(error);
            assert!(difference.contains("counts "), "rank {rank} of {ranks}: {error}");
        }
    }
}

/// A rank that closes without having made a call that the others made.
pub fn closing_after_unequal_calls(backend: &dyn Backend) {
    for ranks in backend.among(&[2, 3, 4]) {
        let together = Barrier::new(ranks as usize);
        let results = run(backend, ranks, &options(), |comm| {
            // A root has sent and gone on; the others never take part.
            let result = match comm.group().rank() {
                0 => comm.broadcast(&mut [1u32], 0),
                _ => Ok(()),
            };
            // Where the ranks meet first, the root waits for the others until they close.
            if backend.algorithms().are_ours() {
                together.wait();
            }
            result.and_then(|()| comm.close())
        });
        let errors: Vec<&Error> = results.iter().filter_map(|result| result.as_ref().err()).collect();
        // The last to come has heard from all the others.
        assert!(!errors.is_empty(), "nobody noticed among {ranks}");
        for error in errors {
            match error.root_cause() {
                // Told to the one that waits.
                Error::PeerLost { .. } if !backend.algorithms().are_ours() => {}
                _ => drop(mismatch_of(error)),
            }
        }
    }
}

/// Every rank is a root and waits for nobody, so no message shows that calls 1 and 2 differ. All ranks name the same
/// two calls, of the first number that differs; so does a rank that closes when the others wait no longer.
pub fn closing_names_the_first_difference(backend: &dyn Backend) {
    // Where the ranks meet first, call 1 fails.
    if !backend.algorithms().are_ours() {
        return;
    }
    let ranks = 4;
    for late_by in [Duration::ZERO, Duration::from_millis(300)] {
        // Two ranks of a busy machine may look for it at once, and then find two pairs.
        let found = (0..20).find_map(|_| {
            let together = Barrier::new(ranks as usize);
            let results = run(backend, ranks, &options(), |comm| {
                let own = comm.group().rank();
                let made = comm.barrier();
                let made = made.and_then(|()| comm.broadcast(&mut [own], own));
                let made = made.and_then(|()| comm.broadcast(&mut [own], own));
                together.wait();
                if own == 0 {
                    std::thread::sleep(late_by);
                }
                made.and_then(|()| comm.close())
            });
            let errors = results.iter().filter_map(|result| result.as_ref().err());
            let texts: Vec<String> = errors.map(Error::to_string).collect();
            let is_one = texts.len() == ranks as usize && texts.iter().all(|text| *text == texts[0]);
            is_one.then(|| texts[0].clone())
        });
        let found = found.expect("in 20 attempts not all ranks have said the same");
        let call = |rank: u32| format!("rank {rank} called call 1 broadcast(1 x u32, root {rank}, in place)");
        assert_eq!((0..ranks).filter(|rank| found.contains(&call(*rank))).count(), 2, "{found}");
    }
}
