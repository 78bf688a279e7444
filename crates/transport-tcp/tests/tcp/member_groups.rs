//! Groups that their members make and drop over and over leave neither descriptors nor memory, also when they overlap
//! and each member makes them in an order of its own. In a process of its own, since it counts.

use std::time::{Duration, Instant};

use unisono_communicator::{Collectives, Communicator, Error, ReduceOp};
use unisono_job::Job;
use unisono_job::config::Config;

use crate::child::alone;
use crate::support::{config, on_each, worlds};

const RANKS: u32 = 3;
const CYCLES: u32 = 1000;

/// Groups that two ranks make and drop, each with a piece of news, while another member has yet to come.
const NEWS_IN_BETWEEN: u32 = 1500;

/// Cycles before the first count, in which everything that is kept for later has been made.
const WARM_UP: u32 = 100;

/// A communicator's ring of calls alone takes a quarter of a MiB, so a few hundred that are left are far more.
const GROWTH_BYTES_MAX: usize = 64 << 20;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a directory of this process").count()
}

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("a file of this process");
    let pages: usize = pages.split(' ').nth(1).expect("a second field").parse().expect("a number");
    pages * 4096
}

fn cycles(world: &Job, count: u32) {
    let own = world.group().rank();
    let lists: [(&str, &[u32]); 3] = [("low", &[0, 1]), ("high", &[2, 1]), ("all", &[1, 2, 0])];
    for _ in 0..count {
        let mut order: Vec<usize> = (0..3).filter(|&index| lists[index].1.contains(&own)).collect();
        let first = own as usize % order.len();
        order.rotate_left(first);
        let mut made: Vec<_> = order
            .into_iter()
            .map(|index| (index, world.make_group(lists[index].0, lists[index].1).expect("a good list")))
            .collect();
        made.sort_by_key(|(index, _)| *index);
        for (index, group) in made {
            let mut sum = [own];
            group.all_reduce(&mut sum, ReduceOp::Sum).expect("all members come");
            assert_eq!(sum, [lists[index].1.iter().sum::<u32>()]);
        }
    }
}

/// Runs `cycles` long enough, and counts what they leave.
fn count(config: Config, cycles: fn(&Job, u32)) {
    on_each(worlds(RANKS, &config), move |world, communicator| {
        cycles(&world, WARM_UP);
        communicator.barrier().expect("barrier");
        let is_counting = world.group().rank() == 0;
        let (few, small) = (descriptors() + 100, resident_bytes() + GROWTH_BYTES_MAX);
        communicator.barrier().expect("barrier");
        cycles(&world, CYCLES);
        communicator.barrier().expect("barrier");
        // What both sides have given up is found by the next sweeps.
        let deadline = Instant::now() + crate::support::TEST_TIME_MAX / 2;
        while is_counting && (descriptors() > few || resident_bytes() > small) {
            assert!(
                Instant::now() < deadline,
                "{} descriptors, {few} are few; {} bytes, {small} are few",
                descriptors(),
                resident_bytes()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        communicator.barrier().expect("barrier");
    });
}

#[test]
fn a_thousand_cycles_leave_nothing() {
    alone("member_groups::a_thousand_cycles_leave_nothing", || count(config(&[]), cycles));
}

/// The groups of all ranks fail, one after the other, in a job that writes flight records.
#[test]
fn a_thousand_failures_leave_nothing() {
    alone("member_groups::a_thousand_failures_leave_nothing", || {
        let folder = std::env::temp_dir().join(format!("unisono-failures-{}", std::process::id()));
        count(config(&[("UNISONO_FLIGHT_DIR", &folder.to_string_lossy())]), |world, count| {
            let whole = world.communicator().expect("that of all ranks");
            for _ in 0..count {
                let group = world.make_group("all", &[0, 1, 2]).expect("a good list");
                group.barrier().expect("all members come");
                // A rank that is still in the barrier of the group would fail with it on a busy machine.
                whole.barrier().expect("all members come");
                group.revoke(Error::closed()).expect("revoke");
            }
        });
        let files = std::fs::read_dir(&folder).expect("a folder of records").count();
        std::fs::remove_dir_all(&folder).expect("remove it");
        assert_eq!(files, RANKS as usize, "one for each rank");
    });
}

/// Ranks 0 and 2 are to meet in a group. Rank 0 gives it up, long before rank 2 makes it.
#[test]
fn a_member_that_comes_late_learns_the_first_cause_whatever_has_happened_since() {
    let config = config(&[("UNISONO_CALL_TIMEOUT_S", "20")]);
    let errors = on_each(worlds(RANKS, &config), |world, communicator| {
        if world.group().rank() == 0 {
            let group = world.make_group("late", &[0, 2]).expect("a good list");
            group.revoke(Error::System { what: "disk".into(), text: "full".into() }).expect("revoke");
        }
        communicator.barrier().expect("barrier");
        if world.group().rank() != 2 {
            for _ in 0..NEWS_IN_BETWEEN {
                world.make_group("other", &[0, 1]).expect("a good list");
            }
        }
        communicator.barrier().expect("barrier");
        let comes_late = world.group().rank() == 2;
        let late = || world.make_group("late", &[0, 2]).expect("a good list");
        let error = comes_late.then(|| late().barrier().expect_err("given up"));
        communicator.barrier().expect("barrier");
        error
    });
    let error = errors.into_iter().flatten().next().expect("rank 2 has called");
    assert!(matches!(error.root_cause(), Error::System { what, .. } if what == "disk"), "{error}");
}
