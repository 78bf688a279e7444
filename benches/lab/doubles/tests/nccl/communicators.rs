//! Communicators: what is refused, what does not block, and children.

use std::sync::Barrier;
use std::thread;

use crate::api::{Api, Config, UniqueId};
use crate::rank::{I32, Rank, SUM, await_that, begin_init, enter, exit, new_id, run, run_well};

#[test]
fn what_is_wrong_is_refused() {
    let api = &Api::open("devices=2");
    enter(api, 0);
    let id = new_id(api);
    let mut comm = 1;
    for (size, rank) in [(0, 0), (2, 2), (2, -1)] {
        assert_eq!(api.init_rank(&mut comm, size, id, rank), 4);
    }
    let mut cut = UniqueId([0; 128]);
    cut.0[..120].copy_from_slice(&id.0[..120]);
    assert_eq!(api.init_rank(&mut comm, 1, cut, 0), 4, "an id without its end");
    assert!(api.text(api.last_error(0)).contains("test double"));
    for config in [Config::new(2), Config::with_magic(0)] {
        assert_eq!(api.init_rank_config(&mut comm, 1, id, 0, &config), 4);
    }
    assert_eq!(api.group_end(), 5);
    exit(api, 0);
    run_well(api, 2, |rank| {
        let Rank { comm, stream, .. } = rank;
        let own = rank.room(16);
        let mut host = [0u8; 16];
        let pageable = host.as_mut_ptr() as usize;
        for (send, recv, count, dtype, op, comm, stream, code) in [
            (own, own, 4, I32, SUM, 0, stream, 4),
            (own, own, 4, I32, SUM, own, stream, 4),
            (own, own, 4, 12, SUM, comm, stream, 4),
            (own, own, 4, I32, 9, comm, stream, 4),
            (own, own, 5, I32, SUM, comm, stream, 4),
            (0, own, 4, I32, SUM, comm, stream, 4),
            (pageable, own, 4, I32, SUM, comm, stream, 4),
            (own, own, 4, I32, SUM, comm, own, 1),
            (0, 0, 0, I32, SUM, comm, stream, 0),
        ] {
            assert_eq!(api.all_reduce(send, recv, count, dtype, op, comm, stream), code);
        }
        assert_eq!(api.broadcast(own, own, 4, I32, 2, comm, stream), 4, "a root that there is not");
        assert_eq!(api.send(own, 4, I32, -1, comm, stream), 4);
        // A group of which one call was refused does nothing.
        assert_eq!(api.group_start(), 0);
        assert_eq!(api.send(own, 4, I32, 1 - rank.rank as i32, comm, stream), 0);
        assert_eq!(api.recv(own, 4, 99, 1 - rank.rank as i32, comm, stream), 4);
        assert_eq!(api.group_end(), 4);
        assert_eq!(api.stream_synchronize(stream), 0);
        assert_eq!(api.free(own), 0);
    });
    assert_eq!(api.control.live_handles(), 0);
}

#[test]
fn a_communicator_knows_its_place() {
    let api = &Api::open("place");
    run_well(api, 2, |rank| {
        let (mut count, mut own, mut device) = (0, 0, 0);
        assert_eq!(api.count(rank.comm, &mut count), 0);
        assert_eq!(api.user_rank(rank.comm, &mut own), 0);
        assert_eq!(api.device_of(rank.comm, &mut device), 0);
        assert_eq!((count, own, device), (2, rank.rank as i32, rank.rank as i32));
        let (mut memory, mut handle) = (0, 0);
        assert_eq!(api.mem_alloc(&mut memory, 64), 0);
        assert_eq!(api.register(rank.comm, memory, 65, &mut handle), 4);
        assert_eq!(api.register(rank.comm, memory, 64, &mut handle), 0);
        assert_eq!(api.deregister(rank.comm, handle), 0);
        assert_eq!(api.deregister(rank.comm, handle), 5);
        assert_eq!(api.mem_free(memory), 0);
    });
    assert_eq!(api.control.live_handles(), 0);
}

#[test]
fn two_ranks_on_one_device_are_refused() {
    let api = &Api::open("devices=1");
    let id = new_id(api);
    thread::scope(|scope| {
        for rank in 0..2 {
            scope.spawn(move || {
                let mut comm = 1;
                assert_eq!(api.init_rank(&mut comm, 2, id, rank), 5);
                assert_eq!(comm, 0);
                assert!(api.text(api.last_error(0)).contains("Duplicate GPU"));
            });
        }
    });
    assert_eq!(api.control.live_handles(), 0);
}

#[test]
fn calls_that_do_not_block_are_asked_for() {
    let api = &Api::open("asked");
    let both = &Barrier::new(2);
    let id = new_id(api);
    thread::scope(|scope| {
        for rank in 0..2 {
            scope.spawn(move || {
                enter(api, rank);
                let comm = begin_init(api, 2, id, rank);
                let own = Rank { api, rank, comm, stream: 0 };
                await_that("the communicator", || own.async_error() != 7);
                assert_eq!(own.async_error(), 0);
                let memory = own.put_numbers(&[rank as i32 + 1]);
                assert_eq!(api.stream_synchronize(0), 0);
                both.wait();
                api.control.hold_streams(true);
                both.wait();
                assert_eq!(api.all_reduce(memory, memory, 1, I32, SUM, comm, 0), 7);
                assert_eq!(api.all_reduce(memory, memory, 1, I32, SUM, comm, 0), 4, "while one is begun");
                both.wait();
                api.control.hold_streams(false);
                await_that("the call", || own.async_error() != 7);
                assert_eq!(own.take_numbers(memory, 1), [3]);
                assert_eq!(api.finalize(comm), 7);
                await_that("the end", || own.async_error() != 7);
                assert_eq!(api.destroy(comm), 0);
                exit(api, rank);
            });
        }
    });
    assert_eq!(api.control.live_handles(), 0);
}

#[test]
fn an_init_without_all_ranks_is_ended_by_abort() {
    let api = &Api::open("missing");
    let id = new_id(api);
    let comm = begin_init(api, 2, id, 0);
    thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(api.destroy(comm), 4, "it is not made");
    assert_eq!(api.abort(comm), 0);
    assert_eq!(api.control.live_handles(), 0);
    assert_eq!(api.abort(comm), 4, "it is gone");
}

#[test]
fn one_thread_makes_all_ranks_in_a_group() {
    let api = &Api::open("group");
    for device in 0..3 {
        enter(api, device);
    }
    let mut comms = [0; 3];
    assert_eq!(api.init_all(comms.as_mut_ptr(), 3, std::ptr::null()), 0);
    for (device, comm) in comms.into_iter().enumerate() {
        let mut rank = -1;
        assert_eq!(api.user_rank(comm, &mut rank), 0);
        assert_eq!(rank, device as i32);
    }
    // Without a group the first would wait for the others.
    assert_eq!(api.group_start(), 0);
    comms.iter().for_each(|comm| assert_eq!(api.finalize(*comm), 0));
    assert_eq!(api.group_end(), 0);
    comms.iter().for_each(|comm| assert_eq!(api.destroy(*comm), 0));
    (0..3).rev().for_each(|device| exit(api, device));
    assert_eq!(api.control.live_handles(), 0);
}

/// The sum of the ranks' numbers in a child, and the own rank there.
fn sum_in(rank: Rank<'_>, child: usize) -> (i32, i32) {
    let own = rank.put_numbers(&[10i32.pow(rank.rank as u32)]);
    assert_eq!(rank.api.all_reduce(own, own, 1, I32, SUM, child, rank.stream), 0);
    let mut place = -1;
    assert_eq!(rank.api.user_rank(child, &mut place), 0);
    (rank.take_numbers(own, 1)[0], place)
}

#[test]
fn a_split_makes_a_communicator_of_each_color() {
    let api = &Api::open("split");
    let results = run_well(api, 4, |rank| {
        // 0 and 2 change places, 1 is alone, and 3 is in none.
        let color = [5, 6, 5, -1][rank.rank];
        let mut child = 1;
        assert_eq!(api.split(rank.comm, color, -(rank.rank as i32), &mut child, std::ptr::null()), 0);
        if color < 0 {
            assert_eq!(child, 0);
            return (0, -1);
        }
        let result = sum_in(rank, child);
        assert_eq!(api.destroy(child), 0);
        result
    });
    assert_eq!(results, [(101, 1), (10, 0), (101, 0), (0, -1)]);
    assert_eq!(api.control.live_handles(), 0);
}

#[test]
fn survivors_make_a_smaller_communicator() {
    let api = &Api::open("shrink");
    let results = run(api, 3, |rank| {
        if rank.rank == 1 {
            assert_eq!(api.abort(rank.comm), 0);
            return (0, -1);
        }
        let own = rank.put_numbers(&[1]);
        assert_eq!(api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream), 0);
        await_that("the loss", || rank.async_error() == 6);
        let (mut child, excluded) = (0, [1]);
        let code = api.shrink(rank.comm, excluded.as_ptr(), 1, &mut child, std::ptr::null(), 1);
        assert_eq!(code, 0, "{}", api.text(api.last_error(0)));
        assert_eq!(api.abort(rank.comm), 0);
        let result = sum_in(rank, child);
        rank.take_numbers(own, 1);
        assert_eq!(api.destroy(child), 0);
        result
    });
    assert_eq!(results, [(101, 0), (0, -1), (101, 1)]);
    assert_eq!(api.control.live_handles(), 0);
}

#[test]
fn an_older_library_lacks_functions() {
    let names: Vec<&str> = unisono_double_nccl::NEWER
        .iter()
        .filter(|(_, since)| *since > 22703)
        .map(|(name, _)| *name)
        .collect();
    let api = Api::without("version=22703", &names);
    let mut version = 0;
    assert_eq!(api.version(&mut version), 0);
    assert_eq!(version, 22703);
    assert!(api.control.has("ncclCommShrink") && api.control.has("ncclAllGather"));
    assert!(["ncclAlltoAll", "ncclGather", "ncclScatter"].iter().all(|name| !api.control.has(name)));
    let newest = Api::open("newest");
    assert_eq!(newest.version(&mut version), 0);
    assert_eq!(version, 23004);
    assert!(newest.control.has("ncclAlltoAll"));
    assert!(newest.text(newest.error_string(6)).contains("test double"));
}
