//! Ranks that wait for each other in several communicators: each of them is told so, and none is called lost.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesAsync};
use unisono_communicator::{CallOptions, Communicator, Error, Peer, ReduceOp};

use crate::support::{config, on_each, worlds};

/// The deadline of the rank that gives up first. The others would wait for far longer.
const FIRST_TIMEOUT: Duration = Duration::from_secs(3);

/// The part of a rank: it waits in the group of this name and these ranks, and has another group too.
#[derive(Clone, Copy)]
struct Part {
    waits_in: (&'static str, [u32; 2]),
    has: (&'static str, [u32; 2]),
    act: fn(&dyn Communicator, Duration) -> Result<(), Error>,
}

fn adds(group: &dyn Communicator, timeout: Duration) -> Result<(), Error> {
    group.with(CallOptions::new().timeout(timeout)).all_reduce(&mut [1u32], ReduceOp::Sum)
}

fn receives(group: &dyn Communicator, timeout: Duration) -> Result<(), Error> {
    let from = Peer::Rank(1 - group.group().rank());
    group.with(CallOptions::new().timeout(timeout)).recv(&mut [0u32], from, 7).map(drop)
}

/// The errors of the ranks, which leave all groups with it. Rank 0 gives up first.
fn errors(parts: &'static [Part]) -> Vec<String> {
    on_each(worlds(parts.len() as u32, &config(&[])), |world, whole| {
        let rank = whole.group().rank() as usize;
        let Part { waits_in, has, act } = parts[rank];
        let other = world.make_group(has.0, &has.1).expect("a good list");
        let group = world.make_group(waits_in.0, &waits_in.1).expect("a good list");
        let timeout = if rank == 0 { FIRST_TIMEOUT } else { crate::support::TEST_TIME_MAX };
        let error = act(&*group, timeout).expect_err("nobody comes");
        drop((group, other));
        // The rank lives on.
        whole.barrier().expect("the failure of a group is that of no other");
        error.to_string()
    })
}

/// All ranks report the deadline of rank 0, and how the ranks wait for each other.
fn all_tell(parts: &'static [Part], circle: &str) {
    for (rank, error) in errors(parts).iter().enumerate() {
        assert!(error.contains("timed out on rank 0 after"), "rank {rank}: {error}");
        assert!(error.contains(&format!("ranks {circle} wait for each other")), "rank {rank}: {error}");
        for false_text in ["has not called anything yet", "lost rank", "before its first call"] {
            assert!(!error.contains(false_text), "rank {rank}: {error}");
        }
    }
}

#[test]
fn two_groups_in_two_orders() {
    const ORDERS: [Part; 2] = [
        Part { waits_in: ("a", [0, 1]), has: ("b", [1, 0]), act: adds },
        Part { waits_in: ("b", [1, 0]), has: ("a", [0, 1]), act: adds },
    ];
    all_tell(&ORDERS, "0 -> 1 -> 0");
}

#[test]
fn a_receive_against_a_collective() {
    const PARTS: [Part; 2] = [
        Part { waits_in: ("messages", [0, 1]), has: ("sums", [0, 1]), act: receives },
        Part { waits_in: ("sums", [0, 1]), has: ("messages", [0, 1]), act: adds },
    ];
    all_tell(&PARTS, "0 -> 1 -> 0");
}

#[test]
fn three_groups_in_a_circle() {
    const PARTS: [Part; 3] = [
        Part { waits_in: ("x", [0, 1]), has: ("z", [2, 0]), act: adds },
        Part { waits_in: ("y", [1, 2]), has: ("x", [0, 1]), act: adds },
        Part { waits_in: ("z", [2, 0]), has: ("y", [1, 2]), act: receives },
    ];
    all_tell(&PARTS, "0 -> 1 -> 2 -> 0");
}

#[test]
fn rows_and_columns() {
    const PARTS: [Part; 4] = [
        Part { waits_in: ("row 0", [0, 1]), has: ("column 0", [0, 2]), act: adds },
        Part { waits_in: ("column 1", [1, 3]), has: ("row 0", [0, 1]), act: adds },
        Part { waits_in: ("column 0", [0, 2]), has: ("row 1", [2, 3]), act: adds },
        Part { waits_in: ("row 1", [2, 3]), has: ("column 1", [1, 3]), act: adds },
    ];
    all_tell(&PARTS, "0 -> 1 -> 3 -> 2 -> 0");
}

/// A rank whose asynchronous call goes on waits for nobody: it is only slow.
#[test]
fn a_rank_that_has_started_a_call_elsewhere_is_in_no_circle() {
    let gives_up = Arc::new(Barrier::new(2));
    let told = on_each(worlds(2, &config(&[])), move |world, whole| {
        let [first, second] =
            ["first", "second"].map(|key| world.make_group(key, &[0, 1]).expect("a good list"));
        if whole.group().rank() == 1 {
            let started = second.all_reduce_async(vec![1u32], ReduceOp::Sum);
            gives_up.wait();
            drop(started);
            return String::new();
        }
        let error = adds(&*first, FIRST_TIMEOUT).expect_err("rank 1 is slow").to_string();
        gives_up.wait();
        error
    });
    assert!(!told[0].contains("each other"), "{}", told[0]);
}
