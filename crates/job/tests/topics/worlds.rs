//! Whole jobs in one process: connections open from both sides, bytes arrive, goodbyes are not failures.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use unisono_collectives::Collectives;
use unisono_communicator::{Communicator, Error, Peer, ReduceOp};
use unisono_job::Job;
use unisono_job::flight::FlightRecord;
use unisono_job::rendezvous::Membership;

use crate::TRANSPORT;
use crate::support::{config, on_each, worlds};

fn sum_of_ranks(communicator: &dyn Communicator, elements: usize) {
    let (rank, size) = (communicator.group().rank(), communicator.group().size());
    let mut values: Vec<u64> = (0..elements as u64).map(|index| index * 3 + u64::from(rank)).collect();
    communicator.all_reduce(&mut values, ReduceOp::Sum).expect("all_reduce");
    let (p, extra) = (u64::from(size), u64::from(size * (size - 1) / 2));
    let wrong = (0u64..).zip(&values).find(|&(index, &value)| value != index * 3 * p + extra);
    assert_eq!(wrong, None, "rank {rank} of {size}, {elements} elements");
}

/// The world of `unisono::init` is a communicator only.
#[test]
fn a_record_can_be_had_through_the_process() {
    let ours = on_each(worlds(2, &config(&[])), |world, communicator| {
        drop(world);
        communicator.barrier().unwrap();
        let records: Vec<_> = Job::joined().iter().map(Job::flight_record).collect();
        communicator.barrier().unwrap();
        let own = |record: &&FlightRecord| record.rank == communicator.group().rank();
        let barriers = |record: &FlightRecord| {
            record.entries.iter().any(|entry| entry.profiling_name == "unisono:barrier")
        };
        records.iter().filter(own).any(barriers)
    });
    assert_eq!(ours, [true, true]);
}

#[test]
fn short_and_long_calls_give_the_right_sums() {
    for ranks in 1..=8 {
        on_each(worlds(ranks, &config(&[])), |_world, communicator| {
            for elements in [0, 1, 7, 1000, 200_000, 3, 1 << 20] {
                sum_of_ranks(&*communicator, elements);
            }
            communicator.close().expect("close");
        });
    }
}

#[test]
fn simultaneous_dials_leave_one_connection() {
    // Every rank sends first, to everybody, in a fresh world: both sides of every pair dial at once.
    for _ in 0..40 {
        on_each(worlds(4, &config(&[])), |_world, communicator| {
            let (rank, size) = (communicator.group().rank(), communicator.group().size());
            let input: Vec<u32> = (0..size).map(|to| rank * 100 + to).collect();
            let mut output = vec![0; size as usize];
            communicator.all_to_all(&input, &mut output).expect("all_to_all");
            let expected: Vec<u32> = (0..size).map(|from| from * 100 + rank).collect();
            assert_eq!(output, expected);
            sum_of_ranks(&*communicator, 100_000);
        });
    }
}

#[test]
fn messages_pass_between_pairs() {
    on_each(worlds(3, &config(&[])), |_world, communicator| {
        let (rank, size) = (communicator.group().rank(), communicator.group().size());
        let next = (rank + 1) % size;
        let before = (rank + size - 1) % size;
        for (tag, elements) in [(1, 10usize), (2, 200_000)] {
            let message = vec![rank as f32; elements];
            let mut received = vec![0f32; elements];
            if rank == 0 {
                communicator.send(&message, next, tag).expect("send");
                communicator.recv(&mut received, Peer::Rank(before), tag).expect("recv");
            } else {
                communicator.recv(&mut received, Peer::Rank(before), tag).expect("recv");
                communicator.send(&message, next, tag).expect("send");
            }
            assert_eq!(received, vec![before as f32; elements]);
        }
        communicator.close().expect("close");
    });
}

#[test]
fn ranks_may_come_late_and_leave_early() {
    on_each(worlds(3, &config(&[])), |world, communicator| {
        let rank = communicator.group().rank();
        std::thread::sleep(Duration::from_millis(60) * rank);
        let mut values = [u64::from(rank)];
        communicator.broadcast(&mut values, 0).expect("broadcast");
        assert_eq!(values, [0]);
        sum_of_ranks(&*communicator, 5);
        // Rank 0 is gone while the others go on without it.
        let rest = communicator.subgroup(&[2, 1]).expect("subgroup");
        communicator.close().expect("close");
        drop((communicator, world));
        assert_eq!(rest.is_some(), rank != 0);
        if let Some(rest) = rest {
            std::thread::sleep(Duration::from_millis(200));
            assert_eq!(rest.group().rank(), 2 - rank);
            for _ in 0..20 {
                sum_of_ranks(&*rest, 50_000);
            }
            rest.close().expect("close");
        }
    });
}

#[test]
fn derived_communicators_do_not_disturb_each_other() {
    on_each(worlds(4, &config(&[])), |_world, whole| {
        let rank = whole.group().rank();
        let copy = whole.duplicate().expect("duplicate");
        let half: Vec<u32> = (0..4).filter(|other| other % 2 == rank % 2).collect();
        // Not the same list everywhere, but every list where it is needed: disjoint halves.
        let half = whole.subgroup(&half).expect("subgroup").expect("we are in it");
        let other = std::thread::spawn(move || (0..30).for_each(|_| sum_of_ranks(&*copy, 1000)));
        (0..30).for_each(|_| sum_of_ranks(&*half, 1000));
        (0..30).for_each(|_| sum_of_ranks(&*whole, 1000));
        other.join().expect("the other thread");
    });
}

#[test]
fn different_lists_are_refused_by_name() {
    let errors = on_each(worlds(3, &config(&[])), |_world, whole| {
        let list: &[u32] = if whole.group().rank() == 0 { &[0, 1] } else { &[0, 1, 2] };
        let group = whole.subgroup(list).expect("subgroup")?;
        Some(group.barrier().expect_err("the lists differ"))
    });
    for (rank, error) in errors.into_iter().enumerate() {
        let error: Error = error.expect("every rank is in some list");
        let is_named =
            matches!(error.root_cause(), Error::Refused { problem } if problem.contains("different groups"));
        assert!(is_named, "rank {rank}: {error}");
    }
}

#[test]
fn unequal_numbers_of_calls_are_found_at_close() {
    let results = on_each(worlds(2, &config(&[])), |_world, communicator| {
        sum_of_ranks(&*communicator, 4);
        if communicator.group().rank() == 1 {
            // A root that only sends needs nobody to finish.
            communicator.broadcast(&mut [1u8; 8], 1).expect("a broadcast that nobody takes");
        }
        communicator.close()
    });
    let found = results.iter().filter(|result| matches!(result, Err(Error::Mismatch { .. }))).count();
    assert!(found >= 1, "{results:?}");
}

#[test]
fn two_jobs_run_side_by_side() {
    let first = worlds(3, &config(&[]));
    let second = worlds(2, &config(&[]));
    let other = std::thread::spawn(|| {
        on_each(second, |_world, communicator| (0..50).for_each(|_| sum_of_ranks(&*communicator, 3000)))
    });
    on_each(first, |_world, communicator| (0..50).for_each(|_| sum_of_ranks(&*communicator, 3000)));
    other.join().expect("the other job");
}

#[test]
fn unauthenticated_connections_have_no_effect() {
    let config = config(&[("UNISONO_HANDSHAKE_TIMEOUT_MS", "300")]);
    let (listeners, members) = crate::support::listeners(3, &config);
    let addresses = members.addresses.clone();
    let worlds: Vec<_> = (0..)
        .zip(listeners)
        .map(|(rank, listener)| {
            let members = Membership { rank, ..members.clone() };
            Job::start(members, listener, &config, &TRANSPORT).expect("start")
        })
        .collect();
    let unauthenticated = std::thread::spawn(move || {
        let mut open = Vec::new();
        for turn in 0..400usize {
            let Ok(mut stream) = TcpStream::connect(addresses[turn % 3]) else { continue };
            let _ = match turn % 4 {
                0 => stream.write_all(b"GET / HTTP/1.0\r\n\r\n"),
                1 => stream.write_all(&[0x9b; 88]),
                2 => stream.write_all(b"\x9bunisono"),
                _ => Ok(()),
            };
            open.push(stream);
        }
        open
    });
    on_each(worlds, |_world, communicator| {
        for _ in 0..30 {
            sum_of_ranks(&*communicator, 2000);
            let copy = communicator.duplicate().expect("duplicate");
            sum_of_ranks(&*copy, 2000);
        }
    });
    assert!(!unauthenticated.join().expect("unauthenticated connections").is_empty());
}

#[test]
fn who_leaves_at_once_waits_for_those_who_come_late() {
    let config = config(&[]);
    let (listeners, members) = crate::support::listeners(3, &config);
    let starts = (0..).zip(listeners).map(|(rank, listener)| {
        let (members, config) = (Membership { rank, ..members.clone() }, config.clone());
        move || Job::start(members, listener, &config, &TRANSPORT).expect("start")
    });
    let mut starts: Vec<_> = starts.collect();
    let hasty = starts.pop().expect("three ranks");
    let left = std::thread::spawn(move || drop(hasty()));
    std::thread::sleep(Duration::from_millis(400));
    let late = starts.into_iter().map(|start| start()).collect();
    on_each(late, |_world, communicator| {
        let other = 1 - communicator.group().rank();
        // Longer than a rank may be silent: a rank that took rank 2 for dead would have said so.
        for pause in [0, 1500] {
            std::thread::sleep(Duration::from_millis(pause));
            let mut received = [0u32];
            match other {
                1 => communicator.send(&[7u32], other, 0).expect("send"),
                _ => communicator.recv(&mut received, Peer::Rank(other), 0).map(drop).expect("recv"),
            }
        }
    });
    left.join().expect("rank 2");
}

#[test]
fn all_ranks_beat_as_rank_0_says() {
    let of_rank_0 = config(&[]);
    let slow = config(&[("UNISONO_HEARTBEAT_MS", "3000"), ("UNISONO_SUSPECT_AFTER_MS", "9000")]);
    let (listeners, members) = crate::support::listeners(2, &of_rank_0);
    let worlds = (0..).zip(listeners).zip([of_rank_0, slow]).map(|((rank, listener), config)| {
        Job::start(Membership { rank, ..members.clone() }, listener, &config, &TRANSPORT).expect("start")
    });
    on_each(worlds.collect(), |_world, communicator| {
        // Longer than rank 0 lets another rank be silent, and shorter than the beat that rank 1 itself has set.
        communicator.barrier().expect("barrier");
        std::thread::sleep(Duration::from_millis(2000));
        communicator.barrier().expect("nobody is lost");
    });
}
