//! What goes wrong: on request, by dead peers, and by calls that do not go together.

use std::process::{Child, Command};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::api::{Api, UniqueId};
use crate::rank::{I32, Rank, SUM, await_that, begin_init, enter, new_id, run, run_well};

#[test]
fn every_code_can_be_had_of_every_call() {
    let api = &Api::open("codes");
    run_well(api, 1, |rank| {
        for code in 1..=7 {
            api.control.inject("ncclAllReduce", 2, code);
            api.control.inject("cuMemAlloc_v2", 1, code);
            let own = rank.put_numbers_after(code);
            assert_eq!(api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream), 0);
            assert_eq!(api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream), code);
            assert_eq!(api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream), 0);
            rank.take_numbers(own, 1);
        }
    });
    assert_eq!(api.control.live_handles(), 0);
}

impl Rank<'_> {
    /// Memory, when the first allocation fails.
    fn put_numbers_after(&self, code: i32) -> usize {
        assert_eq!(self.api.allocate(&mut 0, 4), code);
        self.put_numbers(&[1])
    }
}

#[test]
fn a_hang_in_a_call_is_ended_by_abort() {
    let api = &Api::open("hang-in-call");
    run(api, 1, |rank| {
        api.control.hang("ncclAllReduce", 1);
        let own = rank.put_numbers(&[1]);
        thread::scope(|scope| {
            let call = scope.spawn(|| api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream));
            await_that("the hang", || api.control.hangs() == 1);
            assert!(!call.is_finished());
            assert_eq!(api.abort(rank.comm), 0);
            assert_eq!(call.join().unwrap(), 3);
        });
        assert_eq!(rank.take_numbers(own, 1), [1]);
    });
    assert_eq!(api.control.live_handles(), 0);
}

#[test]
fn a_hang_in_the_stream_is_ended_by_abort() {
    let api = &Api::open("hang-in-stream");
    let both = Barrier::new(2);
    run(api, 2, |rank| {
        if rank.rank == 0 {
            api.control.hang_in_stream("ncclReduce", 1);
        }
        both.wait();
        let own = rank.put_numbers(&[1]);
        assert_eq!(api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream), 0);
        // Rank 1 may be the one whose call is the first.
        assert_eq!(api.reduce(own, own, 1, I32, SUM, 0, rank.comm, rank.stream), 0);
        both.wait();
        assert_eq!(api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream), 0);
        await_that("the hang", || api.control.hangs() == 1);
        assert_eq!(api.stream_query(rank.stream), 600);
        assert_eq!(rank.async_error(), 0);
        both.wait();
        assert_eq!(api.abort(rank.comm), 0);
        assert_eq!(api.stream_synchronize(rank.stream), 0, "no error of the stream");
        assert_eq!(api.free(own), 0);
    });
    assert_eq!(api.control.live_handles(), 0);
}

#[test]
fn a_hang_without_a_communicator_ends_with_the_reset() {
    let api = &Api::open("reset");
    for call in ["ncclGetUniqueId", "ncclCommInitRank"] {
        api.control.hang(call, 1);
        thread::scope(|scope| {
            let hung = scope.spawn(|| {
                let mut id = UniqueId([0; 128]);
                let code = api.unique_id(&mut id);
                if code == 0 { api.init_rank(&mut 0, 1, id, 0) } else { code }
            });
            await_that("the hang", || api.control.hangs() == 1);
            assert!(!hung.is_finished());
            api.control.reset();
            assert_eq!(hung.join().unwrap(), 3);
        });
    }
    assert_eq!(api.control.live_handles(), 0);
}

#[test]
fn an_init_that_hangs_is_ended_by_abort() {
    let api = &Api::open("init");
    api.control.hang_in_stream("ncclCommInitRankConfig", 1);
    let comm = begin_init(api, 1, new_id(api), 0);
    await_that("the hang", || api.control.hangs() == 1);
    let mut code = 0;
    assert_eq!(api.async_error(comm, &mut code), 0);
    assert_eq!(code, 7);
    assert_eq!(api.abort(comm), 0);
    assert_eq!(api.control.live_handles(), 0);
}

#[test]
fn work_that_fails_is_an_asynchronous_error() {
    let api = &Api::open("late");
    run(api, 1, |rank| {
        api.control.inject_in_stream("ncclAllReduce", 1, 2);
        let own = rank.put_numbers(&[1]);
        assert_eq!(api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream), 0);
        await_that("the error", || rank.async_error() == 2);
        assert_eq!(
            api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream),
            2,
            "calls fail from now on"
        );
        assert_eq!(api.stream_query(rank.stream), 600, "the work stays until the abort");
        assert_eq!(api.abort(rank.comm), 0);
        rank.take_numbers(own, 1);
    });
}

#[test]
fn calls_that_do_not_go_together_hang_and_are_counted() {
    let api = &Api::open("mismatch");
    run(api, 2, |rank| {
        let own = rank.put(&[1; 16]);
        assert_eq!(api.all_reduce(own, own, 3 + rank.rank, I32, SUM, rank.comm, rank.stream), 0);
        await_that("the count", || api.control.misuses() == 2);
        assert_eq!(api.stream_query(rank.stream), 600);
        assert_eq!(rank.async_error(), 0, "NCCL does not notice");
        assert_eq!(api.abort(rank.comm), 0);
        assert_eq!(api.free(own), 0);
    });
}

#[test]
fn a_leak_is_counted() {
    let api = &Api::open("leak");
    run(api, 1, |rank| {
        let before = api.control.live_handles();
        let own = rank.room(4);
        assert_eq!(api.control.live_handles(), before + 1);
        assert_eq!(api.free(own), 0);
    });
    assert_eq!(api.control.live_handles(), 1, "the communicator");
}

#[test]
fn a_dead_rank_is_an_error_of_the_others() {
    let api = &Api::open("dead");
    run(api, 3, |rank| {
        if rank.rank == 2 {
            assert_eq!(api.abort(rank.comm), 0);
            return;
        }
        let own = rank.put_numbers(&[1]);
        assert_eq!(api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream), 0);
        await_that("the loss", || rank.async_error() == 6);
        assert_eq!(api.stream_query(rank.stream), 600, "the work stays until the abort");
        assert_eq!(api.abort(rank.comm), 0);
        assert_eq!(api.stream_synchronize(rank.stream), 0);
        assert_eq!(api.free(own), 0);
    });
    assert_eq!(api.control.live_handles(), 0);
}

/// Where a child finds the id; the test below is nothing without it.
const ID: &str = "OF_DOUBLE_TEST_ID";

#[test]
#[expect(clippy::disallowed_methods, reason = "variables of tests, no settings of the library")]
fn a_rank_that_is_a_process() {
    let Some(id) = std::env::var_os(ID) else { return };
    let digits = id.into_string().unwrap();
    let mut bytes = [0; 128];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..][..2], 16).unwrap();
    }
    let api = Api::open("process");
    enter(&api, 1);
    let mut comm = 0;
    assert_eq!(api.init_rank(&mut comm, 2, UniqueId(bytes), 1), 0);
    let rank = Rank { api: &api, rank: 1, comm, stream: 0 };
    let own = rank.put_numbers(&[41]);
    assert_eq!(api.all_reduce(own, own, 1, I32, SUM, comm, 0), 0);
    assert_eq!(rank.take_numbers(own, 1), [42]);
    // Until it is killed.
    thread::sleep(Duration::from_secs(60));
}

fn spawn(id: UniqueId) -> Child {
    let digits: String = id.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "faults::a_rank_that_is_a_process"]).env(ID, digits).spawn().unwrap()
}

#[test]
fn a_killed_process_is_an_error_of_the_others() {
    let api = &Api::open("killed");
    let id = new_id(api);
    let mut child = spawn(id);
    enter(api, 0);
    let mut comm = 0;
    assert_eq!(api.init_rank(&mut comm, 2, id, 0), 0);
    let rank = Rank { api, rank: 0, comm, stream: 0 };
    let own = rank.put_numbers(&[1]);
    assert_eq!(api.all_reduce(own, own, 1, I32, SUM, comm, 0), 0);
    assert_eq!(rank.take_numbers(own, 1), [42]);
    let own = rank.put_numbers(&[1]);
    assert_eq!(api.all_reduce(own, own, 1, I32, SUM, comm, 0), 0);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(rank.async_error(), 0, "the peer is only late");
    child.kill().unwrap();
    child.wait().unwrap();
    await_that("the loss", || rank.async_error() == 6);
    assert_eq!(api.abort(comm), 0);
    rank.take_numbers(own, 1);
}
