//! Sends and receives: tags, sources, lengths, and their freedom from the order of collectives.

use std::collections::BTreeSet;

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{Element, Error, Peer, ReduceOp, Work};

use crate::backend::Backend;
use crate::sample::{Parcel, Sample};
use crate::world::run_each;

/// Nothing, little, all that travels without asking and one more, several buffers full.
const LENGTHS: &[usize] = &[0, 1, 100, 20_000, 131_072, 131_073, 400_000];

fn message(rank: u32, length: usize) -> Vec<u32> {
    (0..length as u32).map(|index| index.wrapping_mul(31).wrapping_add(rank)).collect()
}

/// Every rank sends to the next one and receives from the previous.
///
/// Rows: B15
pub fn ring_of_messages(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        for &length in LENGTHS {
            let work = comm.send_async(message(rank, length), next, 1).into_work();
            let mut buffer = vec![0; length];
            let received = comm.recv(&mut buffer, Peer::Rank(previous), 1).unwrap();
            assert_eq!((received.source, received.tag, received.count), (Some(previous), 1, length));
            assert!(buffer == message(previous, length), "{length} elements from {previous}");
            work.wait().unwrap();
        }
    });
}

/// A receive takes the message with its tag, also when others came first.
///
/// Rows: B15
pub fn tags_choose(backend: &dyn Backend) {
    run_each(backend, &[2, 4], |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        for &length in &[1, 150_000] {
            let works: Vec<Work> = if rank == 0 {
                let tags = (1..ranks).flat_map(|to| [5, u32::MAX, 0].map(|tag| (to, tag)));
                tags.map(|(to, tag)| comm.send_async(message(tag, length), to, tag).into_work()).collect()
            } else {
                for tag in [0, 5, u32::MAX] {
                    let mut buffer = vec![0; length];
                    let received = comm.recv(&mut buffer, Peer::Rank(0), tag).unwrap();
                    assert_eq!((received.tag, buffer), (tag, message(tag, length)));
                }
                Vec::new()
            };
            works.into_iter().for_each(|work| assert!(work.wait().is_ok()));
        }
    });
}

/// Messages of one pair and tag keep their order, whatever their lengths, and a receive takes no message of another
/// source.
///
/// Rows: B15
pub fn order_per_pair_and_tag(backend: &dyn Backend) {
    run_each(backend, &[2, 3], |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        let lengths: Vec<usize> = (0..40).map(|turn| [3, 30_000, 0, 900][turn % 4] + turn).collect();
        let value = |from: u32, to: u32, length: usize| from * 10_000 + to * 1000 + length as u32;
        let works: Vec<Work> = (0..ranks)
            .filter(|&to| to != rank)
            .flat_map(|to| lengths.iter().map(move |&length| (to, length)))
            .map(|(to, length)| (to, message(value(rank, to, length), length)))
            .map(|(to, message)| comm.send_async(message, to, 8).into_work())
            .collect();
        // The farthest comes first, so that messages of the other sources lie there.
        for from in (0..ranks).rev().filter(|&from| from != rank) {
            for &length in &lengths {
                let mut buffer = vec![0; 40_000];
                let received = comm.recv(&mut buffer, Peer::Rank(from), 8).unwrap();
                assert_eq!((received.source, received.tag, received.count), (Some(from), 8, length));
                assert!(buffer[..length] == message(value(from, rank, length), length), "from {from}");
            }
        }
        works.into_iter().for_each(|work| assert!(work.wait().is_ok()));
    });
}

/// A receive from anybody gets each message once, with its sender.
///
/// Rows: B15
pub fn any_source(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        for &length in &[1, 150_000] {
            let work = comm.send_async(message(rank, length), 0, 4).into_work();
            if rank == 0 {
                let mut sources = BTreeSet::new();
                for _ in 0..ranks {
                    let mut buffer = vec![0; length];
                    let received = comm.recv(&mut buffer, Peer::Any, 4).unwrap();
                    let source = received.source.unwrap();
                    assert!(buffer == message(source, length));
                    assert!(sources.insert(source), "two messages from rank {source}");
                }
                assert_eq!(sources.len(), ranks as usize);
            }
            work.wait().unwrap();
            comm.barrier().unwrap();
        }
    });
}

/// What is beyond the message stays as it was.
pub fn longer_receives(backend: &dyn Backend) {
    run_each(backend, &[1, 2], |comm| {
        let ranks = comm.group().size();
        let (to, from) = (comm.group().rank() ^ (ranks - 1), comm.group().rank() ^ (ranks - 1));
        for &length in LENGTHS {
            let work = comm.send_async(message(9, length), to, 2).into_work();
            let mut buffer = vec![77; length + 3];
            assert_eq!(comm.recv(&mut buffer, Peer::Rank(from), 2).unwrap().count, length);
            assert!(buffer[..length] == message(9, length));
            assert_eq!(buffer[length..], [77; 3]);
            work.wait().unwrap();
        }
    });
}

/// A message that does not fit fails its receive, and nothing else.
pub fn truncation_is_harmless(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 3], |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        for (length, room) in [(10, 4), (1, 0), (20_000, 19_999), (400_000, 5)] {
            let works = [length, 3].map(|length| comm.send_async(message(rank, length), next, 6).into_work());
            let mut buffer = vec![0u32; room];
            let error = comm.recv(&mut buffer, Peer::Rank(previous), 6).unwrap_err();
            let (sent, free) = (length as u64 * 4, room as u64 * 4);
            assert!(
                matches!(error, Error::Truncated { source_rank, tag: 6, sent_bytes, room_bytes }
                    if (source_rank.get(), sent_bytes, room_bytes) == (previous, sent, free)),
                "{length} into {room}: {error}"
            );
            let mut buffer = vec![0; 3];
            assert_eq!(comm.recv(&mut buffer, Peer::Rank(previous), 6).unwrap().count, 3);
            assert_eq!(buffer, message(previous, 3));
            works.into_iter().for_each(|work| assert!(work.wait().is_ok()));
            let mut value = [1i32];
            comm.all_reduce(&mut value, ReduceOp::Sum).unwrap();
            assert_eq!(value, [ranks as i32]);
        }
    });
}

/// `irecv; all_reduce; wait` against `all_reduce; send`, and the other way round.
pub fn receive_posted_before_a_collective(backend: &dyn Backend) {
    run_each(backend, &[2, 4, 8], |comm| {
        let rank = comm.group().rank();
        let (peer, is_receiver) = (rank ^ 1, rank.is_multiple_of(2));
        for &length in LENGTHS {
            if is_receiver {
                let work = comm.recv_async(vec![0u32; length], Peer::Rank(peer), 3).into_work();
                comm.all_reduce(&mut vec![1.0f32; 1000], ReduceOp::Sum).unwrap();
                assert_eq!(work.wait().unwrap().bytes, length as u64 * 4);
                let work = comm.send_async(message(rank, length), peer, 3).into_work();
                comm.barrier().unwrap();
                work.wait().unwrap();
            } else {
                comm.all_reduce(&mut vec![1.0f32; 1000], ReduceOp::Sum).unwrap();
                comm.send(&message(rank, length), peer, 3).unwrap();
                comm.barrier().unwrap();
                comm.recv(&mut vec![0u32; length], Peer::Rank(peer), 3).unwrap();
            }
        }
    });
}

/// More messages than any queue holds, while a collective runs.
///
/// Rows: B16
pub fn many_in_flight(backend: &dyn Backend) {
    run_each(backend, &[2, 3], |comm| {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        let works: Vec<Work> = (0..300)
            .map(|tag| comm.send_async(message(tag, 1000 + tag as usize), next, tag % 7).into_work())
            .collect();
        comm.all_reduce(&mut vec![1i8; 100_000], ReduceOp::Max).unwrap();
        for tag in (0..7).rev() {
            for number in (0..300).filter(|number| number % 7 == tag) {
                let mut buffer = vec![0; 1000 + number as usize];
                comm.recv(&mut buffer, Peer::Rank(previous), tag).unwrap();
                assert!(buffer == message(number, buffer.len()), "message {number}");
            }
        }
        works.into_iter().for_each(|work| assert!(work.wait().is_ok()));
    });
}

/// A rank is its own peer too.
pub fn messages_to_oneself(backend: &dyn Backend) {
    run_each(backend, &[1, 2], |comm| {
        let rank = comm.group().rank();
        for &length in LENGTHS {
            let receive = comm.recv_async(vec![0u32; length], Peer::Rank(rank), 9).into_work();
            comm.send(&message(rank, length), rank, 9).unwrap();
            let outcome = receive.wait().unwrap();
            assert_eq!((outcome.source, outcome.bytes), (Some(rank), length as u64 * 4));
            let work = comm.send_async(message(rank, length), rank, 10).into_work();
            let mut buffer = vec![0u32; length];
            comm.recv(&mut buffer, Peer::Any, 10).unwrap();
            assert!(buffer == message(rank, length));
            work.wait().unwrap();
        }
    });
}

/// Elements of another type or size are refused and dropped; the next message arrives.
pub fn elements_of_another_size(backend: &dyn Backend) {
    run_each(backend, &[2], |comm| {
        for length in [3, 40_000] {
            let parcels: Vec<Parcel> = (0..length).map(|index| Parcel::any(index as u64)).collect();
            if comm.group().rank() == 0 {
                comm.send(&parcels, 1, 1).unwrap();
                comm.send(&parcels, 1, 2).unwrap();
                continue;
            }
            let mut buffer = vec![0u8; size_of_val(&parcels[..])];
            let error = comm.recv(&mut buffer, Peer::Rank(0), 1).unwrap_err();
            let named = matches!(&error, Error::InvalidArgument { argument: "dtype", .. });
            assert!(named && error.to_string().contains(&format!("sent {}", Parcel::DTYPE)), "{error}");
            let mut buffer = vec![Parcel::any(9); length];
            assert_eq!(comm.recv(&mut buffer, Peer::Rank(0), 2).unwrap().count, length);
            assert_eq!(buffer, parcels);
        }
    });
}
