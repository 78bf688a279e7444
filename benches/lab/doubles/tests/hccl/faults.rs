//! What goes wrong: on request, by dead peers, and by calls that do not go together.

use std::process::{Child, Command};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::api::{Api, I32, Rank, RootInfo, SUM, await_that, run};

const RUNTIME_INTERNAL: i32 = 507_000;

#[test]
fn every_code_can_be_had() {
    let api = &Api::open("codes");
    run(api, 1, |rank| {
        let own = rank.put_numbers(&[1]);
        for code in 1..=24 {
            api.control.inject("HcclAllReduce", 1, code);
            assert_eq!(api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream), code);
            assert_eq!(api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream), 0);
        }
        api.control.inject("aclrtMalloc", 1, 207_001);
        assert_eq!(api.allocate(&mut 0, 4, 0), 207_001);
        rank.take_numbers(own, 1);
        api.control.inject_in_stream("HcclAllReduce", 1, 9);
        let own = rank.put_numbers(&[1]);
        assert_eq!(api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream), 0);
        assert_eq!(api.synchronize(rank.stream), RUNTIME_INTERNAL);
        assert_eq!(rank.error(), 9);
        assert_eq!(api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream), 9);
        assert_eq!(api.destroy(rank.comm), 0);
        assert_eq!(api.free(own), RUNTIME_INTERNAL, "the stream has failed");
    });
    assert_eq!(api.control.live_handles(), 0);
}

#[test]
fn hangs_end_with_the_reset() {
    let api = &Api::open("hangs");
    run(api, 1, |rank| {
        let own = rank.put_numbers(&[1]);
        for call in ["HcclAllReduce", "aclrtSynchronizeStream"] {
            api.control.hang(call, 1);
            thread::scope(|scope| {
                let hung = scope.spawn(|| {
                    assert_eq!(api.set_device(0), 0);
                    let code = api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream);
                    if code == 0 { api.synchronize(rank.stream) } else { code }
                });
                await_that("the hang", || api.control.hangs() == 1);
                assert!(!hung.is_finished());
                api.control.reset();
                assert!(hung.join().unwrap() != 0);
            });
        }
        api.control.hang_in_stream("HcclAllReduce", 1);
        assert_eq!(api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream), 0);
        await_that("the hang", || api.control.hangs() == 1);
        assert_eq!(api.synchronize_for(rank.stream, 5), 107_020);
        api.control.reset();
        assert_eq!(api.synchronize_for(rank.stream, 30_000), RUNTIME_INTERNAL);
        assert_eq!(rank.error(), 4);
        assert_eq!(api.destroy(rank.comm), 0);
        api.free(own);
    });
    assert_eq!(api.control.live_handles(), 0);
}

/// One card must not be in two calls at once.
#[test]
fn two_communicators_of_one_device_meet_on_two_threads() {
    let api = &Api::open("device");
    assert_eq!(api.set_device(0), 0);
    let make = || {
        let mut rank = Rank { api, rank: 0, comm: 0, stream: 0 };
        assert_eq!(api.init_rank(1, &api.new_root(), 0, &mut rank.comm), 0);
        assert_eq!(api.stream_create(&mut rank.stream), 0);
        rank
    };
    let ranks = [make(), make()];
    let memory = ranks.map(|rank| rank.put_numbers(&[1]));
    let call = |index: usize| {
        assert_eq!(api.set_device(0), 0);
        let (own, Rank { comm, stream, .. }) = (memory[index], ranks[index]);
        assert_eq!(api.all_reduce(own, own, 1, I32, SUM, comm, stream), 0);
    };
    (0..2).for_each(call);
    assert_eq!(api.control.races(), 0);
    let (long, zero) = (Duration::from_secs(20), Duration::ZERO);
    for (round, (other, meet)) in [(0, [zero, long]), (1, [long, zero])].into_iter().enumerate() {
        api.control.meet(meet[0], meet[1]);
        thread::scope(|scope| {
            scope.spawn(|| call(other));
            // The same communicator, and another one.
            scope.spawn(|| call(1));
        });
        api.control.meet(zero, zero);
        assert_eq!(api.control.races(), round as u64 + 1);
    }
    ranks.iter().zip(memory).for_each(|(rank, own)| drop(rank.take_numbers(own, 1)));
}

#[test]
fn calls_that_do_not_go_together_hang_and_are_counted() {
    let api = &Api::open("mismatch");
    let both = Barrier::new(2);
    run(api, 2, |rank| {
        let own = rank.put_numbers(&[1]);
        assert_eq!(api.all_reduce(own, own, 1, I32, rank.rank as i32, rank.comm, rank.stream), 0);
        await_that("the count", || api.control.hangs() == 2);
        assert_eq!((api.control.misuses(), rank.error()), (2, 0));
        assert_eq!(api.synchronize_for(rank.stream, 1), 107_020);
        both.wait();
        api.control.reset();
        assert_eq!(api.synchronize(rank.stream), RUNTIME_INTERNAL);
        assert_eq!(api.destroy(rank.comm), 0);
        api.free(own);
    });
}

#[test]
fn a_rank_that_has_left_is_an_error_of_the_others() {
    let api = &Api::open("left");
    run(api, 3, |rank| {
        if rank.rank == 2 {
            assert_eq!(api.destroy(rank.comm), 0);
            return;
        }
        let own = rank.put_numbers(&[1]);
        assert_eq!(api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream), 0);
        assert_eq!(api.synchronize(rank.stream), RUNTIME_INTERNAL);
        assert_eq!(rank.error(), 13);
        assert_eq!(api.destroy(rank.comm), 0);
        api.free(own);
    });
    assert_eq!(api.control.live_handles(), 0);
}

/// Where a child finds the root info; the test below is nothing without it.
const INFO: &str = "OF_DOUBLE_TEST_INFO";

#[test]
#[expect(clippy::disallowed_methods, reason = "variables of tests, no settings of the library")]
fn a_rank_that_is_a_process() {
    let Some(path) = std::env::var_os(INFO) else { return };
    let mut info = RootInfo([0; 4108]);
    info.0.copy_from_slice(&std::fs::read(path).unwrap());
    let api = Api::open("process");
    assert_eq!(api.set_device(1), 0);
    let mut rank = Rank { api: &api, rank: 1, comm: 0, stream: 0 };
    assert_eq!(api.init_rank(2, &info, 1, &mut rank.comm), 0);
    assert_eq!(api.stream_create(&mut rank.stream), 0);
    let own = rank.put_numbers(&[41]);
    assert_eq!(api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream), 0);
    assert_eq!(rank.take_numbers(own, 1), [42]);
    // Until it is killed.
    thread::sleep(Duration::from_secs(50));
}

fn spawn(path: &std::path::Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "faults::a_rank_that_is_a_process"]).env(INFO, path).spawn().unwrap()
}

#[test]
fn a_killed_process_is_an_error_of_the_others() {
    let api = &Api::open("killed");
    let info = api.new_root();
    let path = std::env::temp_dir().join(format!("unisono-double-info-{}", std::process::id()));
    std::fs::write(&path, info.0).unwrap();
    let mut child = spawn(&path);
    let mut rank = Rank { api, rank: 0, comm: 0, stream: 0 };
    assert_eq!(api.init_rank(2, &info, 0, &mut rank.comm), 0);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(api.stream_create(&mut rank.stream), 0);
    let own = rank.put_numbers(&[1]);
    assert_eq!(api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream), 0);
    assert_eq!(rank.take_numbers(own, 1), [42]);
    let own = rank.put_numbers(&[1]);
    assert_eq!(api.all_reduce(own, own, 1, I32, SUM, rank.comm, rank.stream), 0);
    assert_eq!(api.synchronize_for(rank.stream, 20), 107_020, "the peer is only late");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(api.synchronize(rank.stream), RUNTIME_INTERNAL);
    assert_eq!(rank.error(), 13);
    assert_eq!(api.destroy(rank.comm), 0);
    api.free(own);
}
