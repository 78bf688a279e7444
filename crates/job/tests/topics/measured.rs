//! The measurements of ranks about other hosts: their clocks, and the time for which the network holds bytes.
//!
//! A time namespace gives a rank another clock, network namespaces make hosts; where they cannot be made, the tests say
//! so and pass.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use unisono_collectives::Collectives;
use unisono_communicator::{LinkTime, ReduceOp};
use unisono_job::Job;
use unisono_job::config::Config;

use crate::TRANSPORT;
use crate::child::{Rank, say, words};
use crate::network::{Network, skip};
use crate::support::TEST_TIME_MAX;

/// The time by which the clock of the rank in the time namespace is ahead.
const AHEAD_S: i64 = 1000;

/// The options that start a program in it.
const TIME_NAMESPACE: [&str; 6] =
    ["--user", "--map-current-user", "--time", "--monotonic=1000", "--fork", "--kill-child"];

/// The program of a rank.
pub(crate) fn one_rank() {
    let mut lines = std::io::stdin().lines().map_while(std::io::Result::ok);
    let task = lines.next().unwrap();
    let world = Job::join(&Config::from_environment().unwrap(), &TRANSPORT).unwrap();
    let companion = world.companion().unwrap();
    let (communicator, control) = (companion.communicator(), companion.gate().control());
    match task.split_once(' ') {
        None => {
            communicator.barrier().unwrap();
            let until = Instant::now() + TEST_TIME_MAX;
            while control.clock_offsets().is_empty() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            for offset in control.clock_offsets() {
                say(&format!("{} {}", offset.offset_ns, offset.error_ns));
            }
            // The other rank may still be measuring.
            communicator.barrier().unwrap();
        }
        Some((calls, elements)) => {
            let mut data = vec![1.0f32; elements.parse().unwrap()];
            for _ in 0..calls.parse().unwrap() {
                communicator.all_reduce(&mut data, ReduceOp::Avg).unwrap();
            }
            let network_us = |link: LinkTime| link.network_us.to_string();
            let links: Vec<String> = control.link_times().into_iter().map(network_us).collect();
            say(&links.join(" "));
        }
    }
    drop(lines);
    communicator.close().unwrap();
}

#[test]
fn i6_a_rank_with_another_clock_is_on_another_host_and_its_clock_is_found() {
    let probe = Command::new("unshare").args(TIME_NAMESPACE).arg("true").output();
    if !probe.as_ref().is_ok_and(|output| output.status.success()) {
        return skip("namespaces", &format!("unshare --time: {probe:?}"));
    }
    let ranks = [0, 1].map(|rank| {
        let mut command = Command::new(if rank == 0 { "env" } else { "unshare" });
        if rank == 1 {
            command.args(TIME_NAMESPACE).arg("env");
        }
        command
            .args(words("measured"))
            .env("UNISONO_RANK", rank.to_string())
            .env("UNISONO_WORLD_SIZE", "2")
            .env("UNISONO_JOB", format!("clocks-{}", std::process::id()));
        let mut rank = Rank::start(format!("rank {rank}"), &mut command);
        rank.tell("clocks");
        rank
    });
    for (rank, sign) in ranks.iter().zip([1, -1]) {
        let said = rank.hear();
        let numbers: Vec<i64> = said.split(' ').map(|word| word.parse().unwrap()).collect();
        let wrong_ns = numbers[0] - sign * AHEAD_S * 1_000_000_000;
        assert!(wrong_ns.abs() <= numbers[1], "wrong by {wrong_ns} ns, at most by {} ns", numbers[1]);
    }
    ranks.into_iter().for_each(Rank::end);
}

/// Threads that keep the processors busy as long as this is there.
pub(crate) fn with_busy_machine(body: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            threads.spawn(|| {
                let until = Instant::now() + TEST_TIME_MAX;
                while !is_over.load(Ordering::Relaxed) && Instant::now() < until {
                    std::hint::spin_loop();
                }
            });
        }
        let _over = Over(&is_over);
        body();
    });
}

/// Ends the threads also when the body panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn i13_the_network_holds_bytes_on_the_slow_link_alone_however_busy_the_machine_is() {
    let Some(network) = Network::or_skip(3) else { return };
    network.shape_host(1, 200_000_000).unwrap();
    with_busy_machine(|| {
        let ranks = [0, 1, 2].map(|rank| {
            let mut command = network.rank((rank, 0), (rank, 3), "env".as_ref());
            command.args(words("measured")).env("UNISONO_ALGORITHM", "ring");
            let mut rank = Rank::start(format!("rank {rank}"), &mut command);
            rank.tell("60 262144");
            rank
        });
        let slowest = ranks.each_ref().map(|rank| {
            let said = rank.hear();
            said.split(' ').map(|word| word.parse::<u64>().unwrap()).max().unwrap()
        });
        // The acknowledgements to rank 0 pass the slow link too.
        assert!(slowest[1] > slowest[0] && slowest[1] > 5 * slowest[2], "{slowest:?}");
        ranks.into_iter().for_each(Rank::end);
    });
}
