//! Messages as users of MPI know them: sends and receives at once, batches, probes, any tag, nobody as the peer, waits
//! for several handles.

use std::time::Duration;

use unisono_collectives::{Batch, Collectives, CollectivesAsync, CollectivesOfObjects, PointToPoint};
use unisono_communicator::{
    CallOptions, Communicator, Error, Peer, Received, ReduceOp, Tag, Work, wait_all, wait_any,
    wait_any_timeout,
};

use crate::backend::Backend;
use crate::world::run_each;

/// Nothing, little, the longest message that is sent at once, and one element more.
const LENGTHS: &[usize] = &[0, 1, 1000, 131_072, 131_073, 300_000];

fn message(rank: u32, length: usize) -> Vec<u32> {
    (0..length as u32).map(|index| index.wrapping_mul(17).wrapping_add(rank)).collect()
}

/// The ranks after and before this one in a ring.
fn ring(comm: &dyn Communicator) -> (u32, u32) {
    let (rank, ranks) = (comm.rank(), comm.size());
    ((rank + 1) % ranks, (rank + ranks - 1) % ranks)
}

/// Long messages in a ring would wait for each other if each rank sent first.
pub fn b24_both_ways_at_once(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (next, previous) = ring(comm);
        for &length in LENGTHS {
            let mut room = vec![7; length + 1];
            let received =
                comm.send_recv(&message(comm.rank(), length), next, &mut room, previous, 3).unwrap();
            assert_eq!(received, Received { source: Some(previous), tag: 3, count: length });
            assert!(room[..length] == message(previous, length) && room[length] == 7);
            // The other way round, from anybody.
            let mut room = vec![0; length];
            let received =
                comm.send_recv(&message(comm.rank(), length), previous, &mut room, Peer::Any, 4).unwrap();
            assert_eq!((received.source, room == message(next, length)), (Some(next), true));
            comm.barrier().unwrap();
        }
    });
}

/// The edges of a row have no neighbour.
pub fn b24_nobody_beyond_the_edges(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 4], |comm| {
        let (rank, ranks) = (comm.rank(), comm.size());
        let (left, right) = (rank.checked_sub(1), (rank + 1 < ranks).then_some(rank + 1));
        let mut room = [9u32; 2];
        let received = comm.send_recv(&[rank, rank], right, &mut room, left, 5).unwrap();
        match left {
            Some(left) => assert_eq!((received.source, received.count, room), (Some(left), 2, [left; 2])),
            None => assert_eq!((received.source, received.count, room), (None, 0, [9; 2])),
        }
        comm.send(&[1u8], Peer::None, 5).unwrap();
        assert_eq!(comm.recv(&mut [3u8], Peer::None, 5).unwrap().source, None);
        assert_eq!(comm.send_async(vec![1u8, 2], Peer::None, 5).wait().unwrap(), [1, 2]);
        let (buffer, received) = comm.recv_async(vec![4u8], Peer::None, Tag::Any).wait().unwrap();
        assert_eq!((buffer, received.source, received.count), (vec![4], None, 0));
        assert!(comm.recv_vec::<f32>(Peer::None, 1).unwrap().0.is_empty());
        let nobody = comm.probe(Peer::None, 1).unwrap();
        assert_eq!((nobody.source(), nobody.count::<f64>()), (None, Some(0)));
        assert!(comm.try_probe(Peer::None, 1).unwrap().is_some());
        assert!(matches!(comm.recv_object::<String>(Peer::None, 1), Err(Error::InvalidArgument { .. })));
        assert!(matches!(
            comm.send(&[0u8], Peer::Any, 1),
            Err(Error::InvalidArgument { argument: "peer", .. })
        ));
        let wrong = comm.send_recv(&[0u8], ranks, &mut [0u8], left, 1).unwrap_err();
        assert!(matches!(wrong, Error::InvalidArgument { argument: "peer", .. }), "{wrong}");
        comm.barrier().unwrap();
    });
}

/// Any tag, from one source and from any: the oldest message comes first, and its tag is known.
pub fn b24_any_tag(backend: &dyn Backend) {
    run_each(backend, &[2, 3], |comm| {
        let (next, previous) = ring(comm);
        for &length in &[2, 150_000] {
            let works: Vec<Work> = [5, u32::MAX, 0, 5]
                .map(|tag| comm.send_async(message(tag, length), next, tag).into_work())
                .into_iter()
                .collect();
            for (source, wanted, tag) in [
                (Peer::Rank(previous), Tag::Any, 5),
                (Peer::Any, Tag::Is(0), 0),
                (Peer::Any, Tag::Any, u32::MAX),
                (Peer::Rank(previous), Tag::Any, 5),
            ] {
                let mut room = vec![0; length];
                let received = comm.recv(&mut room, source, wanted).unwrap();
                assert_eq!(received, Received { source: Some(previous), tag, count: length });
                assert!(room == message(tag, length));
            }
            works.iter().for_each(|work| assert!(work.wait().is_ok()));
            // Receives that wait: each message goes to the first that fits.
            let post = |tag: Tag| comm.recv_async(vec![0u32; length], previous, tag);
            let waiting = [post(Tag::Is(8)), post(Tag::Any), post(Tag::Is(9)), post(Tag::Any)];
            comm.barrier().unwrap();
            for tag in [9, 8, 9, 9] {
                comm.send(&message(tag, length), next, tag).unwrap();
            }
            let tags = waiting.map(|work| work.wait().unwrap().1.tag);
            assert_eq!(tags, [8, 9, 9, 9]);
            comm.barrier().unwrap();
        }
    });
}

/// Every rank names its messages in another order, and long ones are among them.
pub fn b16_batches(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 4], |comm| {
        let (rank, ranks) = (comm.rank(), comm.size());
        for &length in LENGTHS {
            let of_pair = |from: u32, to: u32| message(from * 100 + to, length);
            let sent: Vec<Vec<u32>> = (0..ranks).map(|to| of_pair(rank, to)).collect();
            let mut rooms: Vec<Vec<u32>> = (0..ranks).map(|_| vec![0; length]).collect();
            let mut batch = Batch::new();
            for peer in (0..ranks).map(|turn| (turn + rank) % ranks) {
                batch.send(&sent[peer as usize], peer, 6);
            }
            for (peer, room) in (0..ranks).zip(&mut rooms).rev() {
                batch.recv(room, peer, 6);
            }
            let received = comm.exchange(batch).unwrap();
            let expected =
                (0..ranks).rev().map(|peer| Received { source: Some(peer), tag: 6, count: length });
            assert_eq!(received, expected.collect::<Vec<_>>());
            (0..ranks).zip(rooms).for_each(|(peer, room)| assert!(room == of_pair(peer, rank)));
        }
        assert_eq!(comm.exchange(Batch::new()).unwrap(), []);
        // The third of them is wrong, so none starts.
        let (mut first, mut third) = ([0u8], [0u8]);
        let mut batch = Batch::new();
        batch.recv(&mut first, rank, 1).send(&[1u8], rank, 1).recv(&mut third, ranks, 1);
        let wrong = comm.exchange(batch).unwrap_err();
        assert!(matches!(wrong, Error::InvalidArgument { argument: "peer", .. }), "{wrong}");
        assert!(comm.try_probe(rank, 1).unwrap().is_none(), "the second message of the batch was sent");
        comm.barrier().unwrap();
    });
}

/// A receive that refuses its message disturbs no other of the batch.
pub fn b16_a_batch_with_a_short_buffer(backend: &dyn Backend) {
    run_each(backend, &[2, 3], |comm| {
        let (next, previous) = ring(comm);
        for &length in &[3, 200_000] {
            let (sent, mut short, mut room) =
                (message(comm.rank(), length), vec![0u32; 2], vec![0u32; length]);
            let mut batch = Batch::new();
            batch.recv(&mut short, previous, 1).recv(&mut room, previous, 2);
            batch.send(&sent, next, 1).send(&sent, next, 2);
            let error = comm.exchange(batch).unwrap_err();
            assert!(matches!(error, Error::Truncated { tag: 1, .. }), "{error}");
            assert!(room == message(previous, length));
            let mut sum = [1i32];
            comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
            assert_eq!(sum, [comm.size() as i32]);
        }
    });
}

/// A probe tells the source, the tag and the length, and its message is received by nobody else.
pub fn b24_probes(backend: &dyn Backend) {
    run_each(backend, backend.rank_counts(), |comm| {
        let (next, previous) = ring(comm);
        assert!(comm.try_probe(Peer::Any, Tag::Any).unwrap().is_none());
        comm.barrier().unwrap();
        for &length in LENGTHS {
            let works = [1, 2].map(|tag| comm.send_async(message(tag, length), next, tag));
            let found = comm.probe(Peer::Any, 2).unwrap();
            assert_eq!((found.source(), found.tag()), (Some(previous), 2));
            assert_eq!((found.count::<u32>(), found.count::<f32>()), (Some(length), None));
            assert!(comm.try_probe(previous, 2).unwrap().is_none(), "the message was found already");
            let first = loop {
                if let Some(found) = comm.try_probe(previous, Tag::Any).unwrap() {
                    break found;
                }
            };
            let mut room = vec![5; length + 1];
            let received = first.recv(&mut room).unwrap();
            assert_eq!(received, Received { source: Some(previous), tag: 1, count: length });
            assert!(room[..length] == message(1, length) && room[length] == 5);
            assert!(found.recv_vec::<u32>().unwrap() == message(2, length));
            wait_all(works).unwrap();
            comm.barrier().unwrap();
        }
    });
}

/// A message that was found and not received goes back to its place; and so does a message whose receive is refused.
pub fn b24_found_messages_go_back(backend: &dyn Backend) {
    run_each(backend, &[1, 2], |comm| {
        let (next, previous) = ring(comm);
        for &length in &[1, 140_000] {
            let works = [10, 20, 30].map(|value| comm.send_async(message(value, length), next, 4));
            let [first, second, third] = [0; 3].map(|_| comm.probe(previous, 4).unwrap());
            drop(second);
            let refused = first.recv(&mut [0i16; 1]).unwrap_err();
            assert!(
                matches!(refused, Error::InvalidArgument { argument: "dtype", .. } | Error::Truncated { .. }),
                "{refused}"
            );
            let receive = || comm.recv_vec::<u32>(previous, 4).unwrap().0;
            assert!(receive() == message(10, length), "the first was put back first");
            drop(third);
            assert!(receive() == message(20, length) && receive() == message(30, length));
            wait_all(works).unwrap();
            // Put back while a receive waits for it.
            let work = comm.send_async(message(40, length), next, 5);
            let found = comm.probe(previous, 5).unwrap();
            let waiting = comm.recv_async(vec![0u32; length], previous, 5);
            assert!(waiting.as_work().wait_timeout(Duration::from_millis(5)).is_none());
            drop(found);
            assert!(waiting.wait().unwrap().0 == message(40, length));
            work.wait().unwrap();
        }
    });
}

/// A message whose finder drops it is there for its next probe, also while another thread moves all messages.
pub fn b24_found_messages_are_found_again(backend: &dyn Backend) {
    run_each(backend, &[1, 2], |comm| {
        let (next, previous) = ring(comm);
        let sent = comm.send_async(message(10, 3), next, 4);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| comm.recv(&mut [0u8], previous, 6).unwrap());
            for _ in 0..200 {
                drop(comm.probe(previous, 4).unwrap());
                assert!(comm.try_probe(previous, 4).unwrap().is_some(), "it went back");
            }
            assert!(comm.recv_vec::<u32>(previous, 4).unwrap().0 == message(10, 3));
            comm.send(&[1u8], next, 6).unwrap();
            waiting.join().unwrap();
        });
        sent.wait().unwrap();
    });
}

/// A probe that waits has a deadline, as a receive has.
pub fn b24_a_probe_has_a_deadline(backend: &dyn Backend) {
    run_each(backend, &[1, 2], |comm| {
        let own = comm.duplicate().unwrap();
        let brief = own.with(CallOptions::new().timeout(Duration::from_millis(50)));
        let error = brief.probe(Peer::Any, 1).unwrap_err();
        assert!(error.to_string().contains("recv(0 x u8, any peer, tag 1)"), "{error}");
        comm.barrier().unwrap();
    });
}

/// The wait for any of several handles, of one communicator and of two, and for a handle whose call fails.
pub fn b16_waits_for_any(backend: &dyn Backend) {
    run_each(backend, &[1, 2], |comm| {
        let (next, previous) = ring(comm);
        let other = comm.duplicate().unwrap();
        assert_eq!(wait_any::<Work>(&[]), None);
        for comms in [[comm, comm, comm], [comm, &*other, comm]] {
            let post = |index: usize| comms[index].recv_async(vec![0u32; 3], previous, index as u32);
            let mut receives: Vec<_> = (0..3).map(|index| (index, post(index))).collect();
            assert_eq!(wait_any_timeout(&works(&receives), Duration::from_millis(3)), None);
            comm.barrier().unwrap();
            let mut order = Vec::new();
            for index in [1, 2, 0] {
                comms[index].send(&message(index as u32, 3), next, index as u32).unwrap();
                let ended = wait_any(&works(&receives)).unwrap();
                let (index, work) = receives.remove(ended);
                assert_eq!(work.wait().unwrap().0, message(index as u32, 3));
                order.push(index);
                comm.barrier().unwrap();
            }
            assert_eq!(order, [1, 2, 0]);
        }
        // A call that has ended already, beside a receive without a message.
        let works = [comm.barrier_async().into_work(), comm.recv_async(vec![0u8], previous, 77).into_work()];
        works[0].wait().unwrap();
        assert_eq!(wait_any(&works), Some(0));
        comm.send(&[1u8], next, 77).unwrap();
        works.iter().for_each(|work| assert!(work.wait().is_ok()));
        // A call that fails has ended, beside a receive of another communicator that has no message.
        let brief = other.with(CallOptions::new().timeout(Duration::from_millis(50)));
        let failing = brief.recv_async(vec![0u8], previous, 78).into_work();
        let works = [comm.recv_async(vec![0u8], previous, 79).into_work(), failing];
        assert_eq!(wait_any(&works), Some(1));
        assert!(matches!(works[1].wait().unwrap_err().root_cause(), Error::Timeout { .. }));
        comm.barrier().unwrap();
        comm.send(&[1u8], next, 79).unwrap();
        works[0].wait().unwrap();
    });
}

fn works<R>(all: &[(usize, unisono_communicator::TypedWork<R>)]) -> Vec<&Work> {
    all.iter().map(|(_, work)| work.as_work()).collect()
}

/// Three threads exchange on one communicator at once: a thread that does not hold the links copies.
pub fn b24_threads_exchange_at_once(backend: &dyn Backend) {
    run_each(backend, &[2, 3], |comm| {
        let (next, previous) = ring(comm);
        std::thread::scope(|threads| {
            for tag in 0..3 {
                threads.spawn(move || {
                    for turn in 0..40 {
                        let length = [1, 3000, 140_000][turn as usize % 3];
                        let mut room = vec![0; length];
                        comm.send_recv(&message(turn + tag, length), next, &mut room, previous, tag).unwrap();
                        assert!(room == message(turn + tag, length), "tag {tag}, turn {turn}");
                        if turn % 4 == 0 {
                            comm.send(&[turn], next, 100 + tag).unwrap();
                            let found = comm.probe(previous, 100 + tag).unwrap();
                            assert_eq!(found.recv_vec::<u32>().unwrap(), [turn]);
                        }
                    }
                });
            }
        });
        comm.barrier().unwrap();
    });
}
