//! Threads that meet where NCCL forbids it, and connections that are made late.

use std::thread;
use std::time::Duration;

use crate::api::Api;
use crate::rank::{I32, Rank, SUM, enter, exit, new_id, run_well};

/// Longer than any thread takes to come.
const LONG: Duration = Duration::from_secs(20);

/// In a communicator, and on a device.
const IN_COMMUNICATOR: [Duration; 2] = [LONG, Duration::ZERO];
const ON_DEVICE: [Duration; 2] = [Duration::ZERO, LONG];

/// Both at once, each on a thread with device 0, where they meet in one of the two ways: how many races there were.
fn at_once(
    api: &Api,
    [in_communicator, of_device]: [Duration; 2],
    one: impl FnOnce() + Send,
    other: impl FnOnce() + Send,
) -> u64 {
    let before = api.control.races();
    let on_device = |body: Box<dyn FnOnce() + Send + '_>| {
        enter(api, 0);
        body();
        exit(api, 0);
    };
    api.control.meet(in_communicator, of_device);
    thread::scope(|scope| {
        scope.spawn(|| on_device(Box::new(one)));
        scope.spawn(|| on_device(Box::new(other)));
    });
    api.control.meet(Duration::ZERO, Duration::ZERO);
    api.control.races() - before
}

#[test]
fn two_threads_in_one_communicator_meet() {
    let api = &Api::open("communicator");
    run_well(api, 1, |rank| {
        let ask = || assert_eq!(rank.async_error(), 0);
        assert_eq!(at_once(api, IN_COMMUNICATOR, ask, ask), 1);
        let own = rank.put_numbers(&[1]);
        let call = || assert_eq!(api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream), 0);
        assert_eq!(at_once(api, IN_COMMUNICATOR, call, ask), 1);
        // One after the other.
        call();
        thread::scope(|scope| drop(scope.spawn(ask).join()));
        assert_eq!(api.control.races(), 2);
        rank.take_numbers(own, 1);
    });
}

#[test]
fn two_communicators_of_one_device_meet_on_two_threads() {
    let api = &Api::open("device");
    enter(api, 0);
    let make = || {
        let mut comm = 0;
        assert_eq!(api.init_rank(&mut comm, 1, new_id(api), 0), 0);
        Rank { api, rank: 0, comm, stream: 0 }
    };
    let ranks = [make(), make()];
    let memory = ranks.map(|rank| rank.put_numbers(&[1]));
    let call = |index: usize| {
        let (own, comm) = (memory[index], ranks[index].comm);
        assert_eq!(api.all_reduce(own, own, 1, I32, SUM, comm, 0), 0);
    };
    // One thread may take both.
    (0..2).for_each(call);
    assert_eq!(api.control.races(), 0);
    assert_eq!(at_once(api, ON_DEVICE, || call(0), || call(1)), 1);
    let another = || {
        make();
    };
    assert_eq!(at_once(api, ON_DEVICE, || call(0), another), 1);
    assert_eq!(at_once(api, ON_DEVICE, || call(1), || assert_eq!(api.destroy(ranks[0].comm), 0)), 1);
    ranks.iter().zip(memory).for_each(|(rank, own)| drop(rank.take_numbers(own, 1)));
    exit(api, 0);
}

/// Ranks that wait for each other in their first call; the second one returns at once.
#[test]
fn ranks_may_connect_in_their_first_call() {
    let api = &Api::open("connect=late");
    let (second, third) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    run_well(api, 2, |rank| {
        let own = rank.put_numbers(&[1]);
        let call = || api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream);
        if rank.rank == 0 {
            thread::scope(|scope| {
                let first = scope.spawn(|| {
                    enter(api, 0);
                    assert_eq!(call(), 0);
                    exit(api, 0);
                });
                thread::sleep(Duration::from_millis(20));
                assert!(!first.is_finished(), "the other rank has not come");
                second.wait();
                first.join().unwrap();
            });
            assert_eq!(call(), 0);
            third.wait();
        } else {
            second.wait();
            assert_eq!(call(), 0);
            third.wait();
            assert_eq!(call(), 0);
        }
        assert_eq!(rank.take_numbers(own, 1), [4]);
    });
}
