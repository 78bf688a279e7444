//! Groups that their members make and drop over and over leave no descriptor, no thread and no memory, also when they
//! overlap, have options, and each member makes them in an order of its own. In a process of its own, since it counts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_collectives::Collectives;
use unisono_communicator::{Communicator, Error, GroupOptions, ReduceOp};
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

/// The most that may come on top: descriptors of the last groups that are on their way out, no thread, and bytes. The
/// ring of calls of one communicator takes a quarter of a MiB, so a few hundred that are left are far more.
const GROWTH_MAX: [usize; 3] = [100, 0, 64 << 20];

/// The resources that this process holds: descriptors, threads, bytes of memory.
fn held() -> [usize; 3] {
    let count = |path: &str| std::fs::read_dir(path).expect("a directory of this process").count();
    let pages = std::fs::read_to_string("/proc/self/statm").expect("a file of this process");
    let pages: usize = pages.split(' ').nth(1).expect("a second field").parse().expect("a number");
    [count("/proc/self/fd"), count("/proc/self/task"), pages * 4096]
}

/// Uses a group of these ranks of the job once. Every second one is closed, the others are only dropped.
fn live(group: &dyn Communicator, ranks: &[u32], is_closed: bool) {
    assert_eq!(group.group().job_ranks(), ranks);
    let mut sum = [group.group().own_job_rank().get()];
    group.all_reduce(&mut sum, ReduceOp::Sum).expect("all members come");
    assert_eq!(sum, [ranks.iter().sum::<u32>()]);
    if is_closed {
        group.close().expect("close");
    }
}

/// Groups of every kind, with options of their own: by members only, of the ranks of a communicator, and by colour.
fn cycles(world: &Job, count: u32) {
    let own = world.group().rank();
    let whole = world.communicator().expect("the communicator of all ranks");
    let lists: [(&str, &[u32]); 3] = [("low", &[0, 1]), ("high", &[2, 1]), ("all", &[1, 2, 0])];
    for cycle in 0..count {
        let is_closed = cycle % 2 == 0;
        let options = GroupOptions::new().timeout(Duration::from_secs(50)).label("cycle");
        let mut order: Vec<usize> = (0..3).filter(|&index| lists[index].1.contains(&own)).collect();
        let first = own as usize % order.len();
        order.rotate_left(first);
        let make = |index: usize| {
            let (key, ranks) = lists[index];
            let group = world.make_group_companion(key, ranks, &options).expect("a good list").communicator();
            (index, group)
        };
        let mut made: Vec<(usize, Arc<dyn Communicator>)> = order.into_iter().map(make).collect();
        made.sort_by_key(|(index, _)| *index);
        for (index, group) in made {
            assert_eq!(group.group().options(), &options);
            live(&*group, lists[index].1, is_closed);
        }
        if let Some(pair) = whole.subgroup_with(&[2, 0], &options).expect("a good list") {
            assert_eq!(pair.group().options(), &options);
            live(&*pair, &[2, 0], is_closed);
        }
        let colour =
            whole.split(Some(own % 2), -i64::from(own)).expect("split").expect("each rank has a colour");
        live(&*colour, if own == 1 { &[1] } else { &[2, 0] }, is_closed);
    }
}

/// Runs `cycles` long enough, and counts the resources that they leave.
fn count(config: Config, cycles: fn(&Job, u32)) {
    on_each(worlds(RANKS, &config), move |world, communicator| {
        cycles(&world, WARM_UP);
        communicator.barrier().expect("barrier");
        let before = held();
        communicator.barrier().expect("barrier");
        cycles(&world, CYCLES);
        communicator.barrier().expect("barrier");
        // The next sweeps find the connections that both sides have given up.
        let deadline = Instant::now() + crate::support::TEST_TIME_MAX / 2;
        let is_more = |now: [usize; 3]| (0..3).any(|kind| now[kind] > before[kind] + GROWTH_MAX[kind]);
        while world.group().rank() == 0 && is_more(held()) {
            assert!(Instant::now() < deadline, "descriptors, threads, bytes: {before:?}, then {:?}", held());
            std::thread::sleep(Duration::from_millis(20));
        }
        communicator.barrier().expect("barrier");
    });
}

#[test]
fn a7_a_thousand_cycles_with_options_leave_nothing() {
    alone("topics::member_groups::a7_a_thousand_cycles_with_options_leave_nothing", || {
        count(config(&[]), cycles)
    });
}

/// The groups of all ranks fail, one after the other, in a job that writes flight records.
#[test]
fn a_thousand_failures_leave_nothing() {
    alone("topics::member_groups::a_thousand_failures_leave_nothing", || {
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
