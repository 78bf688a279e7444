//! A world over oneCCL and one over TCP in each process: their calls take turns, and each outlives the other.

use std::process::Command;

use unisono::{Backend, Config, SecondInit, World};
use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{Communicator, ReduceOp};
use unisono_tests::{ccl, watchdog};

const SECONDS_MAX: u64 = 120;
const RANKS: usize = 2;
/// Tells a process of this test that it is a rank.
const IS_RANK: &str = "TEST_IS_RANK";

fn open(backend: Backend) -> World {
    let config = Config::from_environment().unwrap().with_backend(backend);
    unisono::init_with(&config.with_second_init(SecondInit::Another)).unwrap()
}

fn add(world: &World, count: usize) {
    let mut sums = vec![world.rank() as i64 + 1; count];
    world.all_reduce(&mut sums, ReduceOp::Sum).unwrap();
    assert_eq!(sums, vec![3; count], "over {}", world.backend());
}

fn run_rank() {
    for order in [[Backend::Ccl, Backend::Tcp], [Backend::Tcp, Backend::Ccl]] {
        let [first, second] = order.map(open);
        assert_eq!([first.backend(), second.backend()], order.map(Backend::name));
        for count in [1, 1000, 100_000] {
            add(&first, count);
            let started = second.all_reduce_async(vec![world_rank(&second); count], ReduceOp::Max);
            add(&first, count);
            assert_eq!(started.wait().unwrap(), vec![1; count]);
        }
        first.close().unwrap();
        drop(first);
        add(&second, 10);
        second.close().unwrap();
    }
}

fn world_rank(world: &World) -> i64 {
    i64::from(world.rank())
}

/// Rows: A3, A18
#[test]
fn worlds_over_oneccl_and_over_tcp_live_in_one_process() {
    if std::env::var_os(IS_RANK).is_some() {
        return watchdog(SECONDS_MAX, "a rank of two worlds", run_rank);
    }
    let Some(environment) = ccl::ccl_environment() else { return };
    watchdog(SECONDS_MAX, "two worlds", || {
        let job = format!("two-worlds-{}", std::process::id());
        let test = "ccl::two_worlds::worlds_over_oneccl_and_over_tcp_live_in_one_process";
        let start = |rank: usize| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", test, "--nocapture"]);
            command.envs(environment.iter().map(|(name, value)| (name, value))).env(IS_RANK, "");
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", RANKS.to_string());
            command.env("UNISONO_JOB", &job).spawn().unwrap()
        };
        let ranks: Vec<_> = (0..RANKS).map(start).collect();
        let statuses: Vec<_> = ranks.into_iter().map(|mut rank| rank.wait().unwrap()).collect();
        assert!(statuses.iter().all(std::process::ExitStatus::success), "{statuses:?}");
    });
}
