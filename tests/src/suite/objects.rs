//! Objects: values whose length other ranks do not know, and messages of unknown length.

use std::collections::BTreeMap;

use unisono_collectives::{
    Collectives, CollectivesAsync, CollectivesOfObjects, OBJECT_BYTES_MAX, Object, Serialized,
};
use unisono_communicator::{
    Bytes, CallOptions, Communicator, DType, Descriptor, Error, Operation, OwnedBuffer, OwnedBuffers,
    OwnedCall, OwnedMemory, Peer, ReduceOp, Result, Tag, Work,
};

use crate::backend::Backend;
use crate::suite::arguments::WrongCall;
use crate::suite::groups::rotated;
use crate::world::{options, run, run_each};

/// Nothing, little, all that the first call carries with one less and one more, and much.
const SIZES: [usize; 6] = [0, 1, 999, 1000, 1001, 1 << 20];

/// The object of that many bytes that goes from one rank to another.
fn object(from: usize, to: usize, size: usize) -> Bytes {
    (0..size).map(|index| (from * 31 + to * 17 + index + index / 251) as u8).collect()
}

/// Works on every rank, so nothing has revoked the communicator, and no rank is a call ahead.
fn is_usable(comm: &dyn Communicator) {
    let mut value = [1i32];
    comm.with(CallOptions::new().host_by_companion()).all_reduce(&mut value, ReduceOp::Sum).unwrap();
    assert_eq!(value, [comm.size() as i32]);
    let ranks: Vec<String> = comm.all_gather_object(comm.rank().to_string()).unwrap();
    assert_eq!(ranks, (0..comm.size()).map(|rank| rank.to_string()).collect::<Vec<_>>());
}

fn is_invalid<T: std::fmt::Debug>(result: Result<T>, argument: &str, text: &str) {
    let error = result.unwrap_err();
    let is_named = matches!(&error, Error::InvalidArgument { argument: named, .. } if *named == argument);
    assert!(is_named && error.is_before_start(), "it must name {argument}: {error}");
    assert!(error.to_string().contains(text), "{error}");
}

/// Every collective, where rank r's object has `size_of(r)` bytes.
fn all_collectives(comm: &dyn Communicator, root: usize, size_of: impl Fn(usize) -> usize) {
    let (rank, ranks) = (comm.rank() as usize, comm.size() as usize);
    let of_rank = |from: usize| object(from, ranks, size_of(from));
    let all: Vec<Bytes> = (0..ranks).map(of_rank).collect();
    let is_root = rank == root;

    let from_root = comm.broadcast_object(is_root.then(|| of_rank(root)), root as u32).unwrap();
    assert!(from_root == all[root], "broadcast from {root}");
    assert!(comm.all_gather_object(of_rank(rank)).unwrap() == all, "all-gather");
    let gathered = comm.gather_object(of_rank(rank), root as u32).unwrap();
    assert!(gathered == is_root.then(|| all.clone()), "gather to {root}");
    let shares = || (0..ranks).map(|to| object(root, to, size_of(to))).collect();
    let share = comm.scatter_object(is_root.then(shares), root as u32).unwrap();
    assert!(share == object(root, rank, size_of(rank)), "scatter from {root}");
}

/// Objects of one size on all ranks, and of another size on each rank.
pub fn b19_objects_of_every_size(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let ranks = comm.size() as usize;
        for (turn, size) in SIZES.into_iter().enumerate() {
            all_collectives(comm, turn % ranks, |_| size);
            all_collectives(comm, (turn + 1) % ranks, |rank| SIZES[(rank + turn) % SIZES.len()]);
        }
        // Only one rank has a long object.
        for long in 0..ranks {
            all_collectives(comm, 0, |rank| if rank == long { 1001 } else { rank });
        }
    });
}

/// Every collective at every root, and a message, in a group in whose order no rank has its number of the world.
pub fn b19_objects_in_a_group(backend: &dyn Backend) {
    run_each(backend, &[2, 3, 4], |comm| {
        let group = comm.subgroup(&rotated(comm)).unwrap().unwrap();
        let (rank, ranks) = (group.rank(), group.size());
        for root in 0..ranks as usize {
            all_collectives(&*group, root, |rank| SIZES[(rank + root) % SIZES.len()]);
        }
        group.send_object(format!("{rank}"), (rank + 1) % ranks, 2).unwrap();
        let previous = (rank + ranks - 1) % ranks;
        let (got, received) = group.recv_object::<String>(Peer::Rank(previous), 2).unwrap();
        assert_eq!((got, received.source), (format!("{previous}"), Some(previous)));
    });
}

/// Texts, vectors of bytes, and values of serde, by collectives and by messages.
pub fn b19_texts_and_values(backend: &dyn Backend) {
    type Value = (u32, String, Vec<Option<f64>>);
    let value = |rank: u32| -> Value {
        (rank, "\u{e9}t\u{e9} ".repeat(rank as usize * 200), vec![None, Some(f64::from(rank))])
    };
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.rank(), comm.size());
        let values: Vec<Serialized<Value>> = comm.all_gather_object(Serialized(value(rank))).unwrap();
        assert_eq!(values, (0..ranks).map(|rank| Serialized(value(rank))).collect::<Vec<_>>());
        let text = comm.broadcast_object((rank == ranks - 1).then(|| value(5).1), ranks - 1).unwrap();
        assert_eq!(text, value(5).1);
        let share: Vec<u8> = comm
            .scatter_object((rank == 0).then(|| (0..ranks).map(|to| vec![to as u8; 3]).collect()), 0)
            .unwrap();
        assert_eq!(share, [rank as u8; 3]);

        let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        // The second object of the same sender is received first, by its tag.
        comm.send_object(format!("{rank}"), next, 4).unwrap();
        comm.send_object(Serialized(value(rank)), next, 3).unwrap();
        let (Serialized(got), received) = comm.recv_object::<Serialized<Value>>(Peer::Any, 3).unwrap();
        assert_eq!((got, received.source, received.tag), (value(previous), Some(previous), 3));
        let (got, received) = comm.recv_object::<String>(Peer::Rank(previous), 4).unwrap();
        assert_eq!((got, received.source, received.tag), (format!("{previous}"), Some(previous), 4));
        // Of two senders with one tag, the object of the named one is received first.
        if rank > 0 {
            comm.send_object(format!("from {rank}"), 0, 5).unwrap();
        } else {
            for from in (1..ranks).rev() {
                let (got, received) = comm.recv_object::<String>(Peer::Rank(from), 5).unwrap();
                assert_eq!((got, received.source), (format!("from {from}"), Some(from)));
            }
        }
    });
}

/// The caller's bytes, or no text: the last byte is the first half of a character.
fn half_a_character(size: usize) -> Bytes {
    let mut bytes = vec![b'a'; size];
    bytes[size - 1] = 0xc3;
    bytes.into()
}

/// Bytes that are no value of the type are an error where they are decoded, and nowhere else.
pub fn b19_malformed_objects_harm_nobody(backend: &dyn Backend) {
    run_each(backend, &[2, 3], |comm| {
        for size in [1, 1000, 5000] {
            // Rank 1 takes the bytes as they are, the others want a text.
            if comm.rank() == 1 {
                assert_eq!(
                    comm.all_gather_object(half_a_character(size)).unwrap().len(),
                    comm.size() as usize
                );
                assert_eq!(comm.broadcast_object(Some(half_a_character(size)), 1).unwrap().len(), size);
                assert_eq!(comm.gather_object(half_a_character(size), 0).unwrap(), None);
                comm.send_object(half_a_character(size), 0, 4).unwrap();
                is_usable(comm);
                continue;
            }
            is_invalid(
                comm.all_gather_object("fine".to_owned()),
                "object",
                "the object of rank 1 is malformed",
            );
            let line = format!("broadcast_object at {}:{}", file!(), line!() + 1);
            let malformed = comm.broadcast_object::<String>(None, 1);
            is_invalid(malformed.clone(), "object", "the object of rank 1 is malformed");
            assert!(malformed.unwrap_err().to_string().contains(&line));
            let gathered = comm.gather_object("fine".to_owned(), 0);
            if comm.rank() == 0 {
                is_invalid(gathered, "object", "the object of rank 1 is malformed");
                is_invalid(comm.recv_object::<String>(Peer::Rank(1), 4), "object", "rank 1 is malformed");
            } else {
                assert_eq!(gathered.unwrap(), None);
            }
            is_usable(comm);
        }
        let of_serde = comm.all_gather_object(Serialized(7u32)).unwrap();
        assert_eq!(of_serde, vec![Serialized(7); comm.size() as usize]);
    });
}

/// Bytes of a valid version that nest a million deep, or that name more elements than there are, overflow no stack and
/// take no time.
pub fn b19_objects_that_nest_or_lie_harm_nobody(backend: &dyn Backend) {
    type Units = Vec<Option<BTreeMap<u8, Vec<()>>>>;
    #[derive(Debug, serde::Serialize, serde::Deserialize)]
    struct Linked(Option<Box<Linked>>);
    run_each(backend, &[2], |comm| {
        let endless = || Bytes::from(vec![1; 2 << 20]);
        let lie = || Bytes::from([&[1, 1, 1, 1, 0][..], &[0xff; 9], &[1]].concat());
        if comm.rank() == 0 {
            comm.send_object(endless(), 1, 4).unwrap();
            comm.send_object(lie(), 1, 4).unwrap();
            assert_eq!(comm.all_gather_object(endless()).unwrap().len(), 2);
        } else {
            let received = comm.recv_object::<Serialized<Linked>>(Peer::Any, 4);
            is_invalid(received, "object", "rank 0 is malformed: no value of its type: more than 128 levels");
            let received = comm.recv_object::<Serialized<Units>>(Peer::Any, 4);
            is_invalid(received, "object", "more than 1048576 elements without bytes");
            let gathered = comm.all_gather_object(Serialized(Linked(None)));
            is_invalid(gathered, "object", "more than 128 levels");
        }
        is_usable(comm);
    });
}

/// An object that some rank has too long, or cannot encode.
#[derive(Clone, Debug)]
enum Unfit {
    TooLong,
    NotEncoded,
    Fine,
}

impl Object for Unfit {
    fn encode(self) -> std::result::Result<Bytes, String> {
        match self {
            // The system gives no memory for zeros that nobody touches.
            Unfit::TooLong => Ok(vec![0; OBJECT_BYTES_MAX as usize + 1].into()),
            Unfit::NotEncoded => Err("in a test".to_owned()),
            Unfit::Fine => Ok(Bytes::from_static(b"fine")),
        }
    }

    fn decode(_: Bytes) -> std::result::Result<Unfit, String> {
        Ok(Unfit::Fine)
    }
}

/// All ranks learn of such an object from the first call, and none waits for a second one.
pub fn b19_objects_that_cannot_travel(backend: &dyn Backend) {
    run_each(backend, &[2, 3], |comm| {
        let (rank, last) = (comm.rank(), comm.size() - 1);
        let is_last = rank == last;
        let elsewhere = format!("rank {last} could not encode its object");
        let texts = [
            (Unfit::TooLong, format!("{} bytes on rank {last}, at most", OBJECT_BYTES_MAX + 1)),
            (Unfit::NotEncoded, if is_last { "in a test".to_owned() } else { elsewhere }),
        ];
        for (unfit, text) in texts {
            let own = if is_last { unfit.clone() } else { Unfit::Fine };
            is_invalid(comm.all_gather_object(own.clone()), "object", &text);
            is_usable(comm);
            is_invalid(comm.gather_object(own, 0), "object", &text);
            is_invalid(comm.broadcast_object(is_last.then(|| unfit.clone()), last), "object", &text);
            is_usable(comm);
            let shares = || [vec![unfit.clone()], vec![Unfit::Fine; last as usize]].concat();
            is_invalid(comm.scatter_object(is_last.then(shares), last), "object", &text);
            // Nothing is sent to the only rank that could wait.
            let problem = if matches!(unfit, Unfit::TooLong) { "at most" } else { "in a test" };
            is_invalid(comm.send_object(unfit.clone(), (rank + 1) % comm.size(), 6), "object", problem);
            is_usable(comm);
        }
    });
}

/// On rank 0 of two ranks and more.
const WRONG: &[WrongCall] = &[
    ("root", "broadcast_object from nobody", |c| c.broadcast_object(Some(Bytes::new()), c.size()).map(drop)),
    ("root", "gather_object to nobody", |c| c.gather_object(Bytes::new(), u32::MAX).map(drop)),
    ("root", "scatter_object from nobody", |c| c.scatter_object::<Bytes>(None, c.size()).map(drop)),
    ("object", "broadcast_object of nothing", |c| c.broadcast_object::<Bytes>(None, 0).map(drop)),
    ("object", "broadcast_object of two", |c| c.broadcast_object(Some(Bytes::new()), 1).map(drop)),
    ("objects", "scatter_object of nothing", |c| c.scatter_object::<Bytes>(None, 0).map(drop)),
    ("objects", "scatter_object of too few", |c| {
        c.scatter_object(Some(vec![Bytes::new(); c.size() as usize - 1]), 0).map(drop)
    }),
    ("objects", "scatter_object from elsewhere", |c| {
        c.scatter_object(Some(vec![Bytes::new(); c.size() as usize]), 1).map(drop)
    }),
    ("peer", "send_object to nobody", |c| c.send_object(Bytes::new(), c.size(), 0)),
    ("peer", "recv_object from nobody", |c| c.recv_object::<Bytes>(Peer::Rank(c.size()), 0).map(drop)),
    ("peer", "recv_vec from nobody", |c| c.recv_vec::<u64>(Peer::Rank(u32::MAX), 0).map(drop)),
];

/// One rank alone makes the mistake; the next call of all ranks works, so nothing was sent and nothing counted.
pub fn b19_wrong_arguments_change_nothing(backend: &dyn Backend) {
    run_each(backend, &[2, 3], |comm| {
        for (argument, what, call) in WRONG {
            if comm.rank() == 0 {
                let error = call(comm).expect_err(what);
                assert!(error.to_string().contains(concat!(" at ", file!(), ":")), "{what}: {error}");
                is_invalid(Err::<(), _>(error), argument, "");
            }
            is_usable(comm);
        }
    });
}

/// Two operations on objects are two calls, also if their first calls are alike; and a scope takes none.
pub fn b19_other_operations_are_a_mismatch(backend: &dyn Backend) {
    run(backend, 2, &options(), |comm| {
        let parent = super::scopes::parent("outer", 8);
        let scope = comm.scope(parent, &CallOptions::new()).unwrap();
        let refused = scope.all_gather_object(Bytes::new());
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
        drop(scope);
        is_usable(comm);
        let error = match comm.rank() {
            0 => comm.all_gather_object("one".to_owned()).unwrap_err(),
            _ => comm.gather_object("two".to_owned(), 0).unwrap_err(),
        };
        assert!(matches!(error.root_cause(), Error::Mismatch { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("all_gather_object") && text.contains("gather_object(1008 x u8, root 0)"),
            "{text}"
        );
    });
}

fn words(from: u32, length: usize) -> Vec<u32> {
    (0..length as u32).map(|index| index.wrapping_mul(31).wrapping_add(from)).collect()
}

/// A receive takes a message of any length, whether the message lies there or comes later, also from the rank itself.
pub fn b19_messages_of_unknown_length(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.rank(), comm.size());
        let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        for length in [0, 1, 20_000, 131_072, 131_073, 400_000] {
            let posted = comm.recv_vec_async::<u32>(Peer::Rank(previous), 1);
            let works = [1, 2].map(|tag| comm.send_async(words(rank, length), next, tag).into_work());
            let (early, received) = posted.wait().unwrap();
            assert_eq!((received.source, received.tag, received.count), (Some(previous), 1, length));
            let (late, received) = comm.recv_vec::<u32>(Peer::Any, 2).unwrap();
            assert_eq!((received.source, received.tag, received.count), (Some(previous), 2, length));
            assert!([early, late].iter().all(|message| *message == words(previous, length)), "{length}");
            works.into_iter().for_each(|work| assert!(work.wait().is_ok()));
        }
    });
}

/// A message of another type, or of more bytes than the receive allows, is dropped; the next one arrives.
pub fn b19_refused_messages_harm_nobody(backend: &dyn Backend) {
    run_each(backend, &[1, 2], |comm| {
        let (rank, last) = (comm.rank(), comm.size() - 1);
        for length in [11, 700_000] {
            let mut sent: Vec<Work> = Vec::new();
            if rank == 0 {
                let mut send = |tag| sent.push(comm.send_async(vec![7u8; length], last, tag).into_work());
                [1, 2, 3].into_iter().for_each(&mut send);
            }
            if rank == last {
                is_invalid(comm.recv_vec::<f32>(Peer::Rank(0), 1), "dtype", "rank 0 sent");
                let descriptor = Descriptor {
                    peer: Some(Peer::Any),
                    tag: Tag::Is(2),
                    ..Descriptor::new(Operation::Recv, DType::U8, 0)
                };
                let output = OwnedMemory::One(OwnedBuffer::for_message::<u8>(10));
                let buffers = OwnedBuffers::Separate { input: OwnedMemory::of(Vec::<u8>::new()), output };
                let error = comm.start(OwnedCall::new(descriptor, buffers)).wait().unwrap_err();
                let expected =
                    format!("message of {length} bytes from rank 0, tag 2, does not fit into 10 bytes");
                assert!(error.to_string().starts_with(&expected), "{error}");
                assert!(matches!(error, Error::Truncated { .. }) && error.is_before_start(), "{error}");
                assert_eq!(comm.recv_object::<Vec<u8>>(Peer::Any, 3).unwrap().0, vec![7; length]);
            }
            sent.into_iter().for_each(|work| assert!(work.wait().is_ok()));
            is_usable(comm);
        }
    });
}

/// Two threads receive from anybody with one tag: each message reaches one of them, whole.
pub fn b19_threads_do_not_steal_from_each_other(backend: &dyn Backend) {
    const EACH: usize = 30;
    let size = |turn: usize| [3, 1001, 0, 600_000, 40_000][turn % 5] + turn;
    run_each(backend, &[2, 3], |comm| {
        let (rank, ranks) = (comm.rank() as usize, comm.size() as usize);
        if rank > 0 {
            for turn in 0..2 * EACH {
                comm.send_object(object(rank, turn, size(turn)), 0, 5).unwrap();
            }
            return is_usable(comm);
        }
        let take = || -> Vec<(u32, Bytes)> {
            let receive = |_| comm.recv_object::<Bytes>(Peer::Any, 5).unwrap();
            (0..EACH * (ranks - 1))
                .map(receive)
                .map(|(bytes, received)| (received.source.unwrap(), bytes))
                .collect()
        };
        let both = std::thread::scope(|threads| {
            let second = threads.spawn(take);
            [take(), second.join().unwrap()]
        });
        let mut by_source: BTreeMap<u32, Vec<Bytes>> = BTreeMap::new();
        both.into_iter().flatten().for_each(|(from, bytes)| by_source.entry(from).or_default().push(bytes));
        for from in 1..ranks {
            let mut got = by_source.remove(&(from as u32)).unwrap_or_default();
            let mut expected: Vec<Bytes> = (0..2 * EACH).map(|turn| object(from, turn, size(turn))).collect();
            got.sort();
            expected.sort();
            assert!(got == expected, "from {from}: {} objects", got.len());
        }
        is_usable(comm);
    });
}
