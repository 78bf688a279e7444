//! Groups that one member has left before another one makes them, perhaps long before.

use unisono_collectives::Collectives;
use unisono_communicator::{Certainty, Error};
use unisono_job::Job;

use crate::support::{config, on_each, worlds};

/// The number of other groups that both ranks make and leave before the late one comes.
const OTHER_GROUPS: u32 = 700;

/// The number of uses of a key before the late rank comes, and the groups among these that it uses.
const USES: usize = 10_000;
const USED: [usize; 4] = [0, 4999, 9000, USES - 1];

/// The group of both ranks under `key` is of no use: rank 0 has left it.
fn finds_rank_0_gone(world: &Job, key: &str) {
    let group = world.make_group(key, &[0, 1]).expect("a good list");
    match group.barrier() {
        Err(Error::PeerLost { culprits, certainty: Certainty::Confirmed, evidence, .. }) => {
            assert_eq!(culprits.iter().map(|one| one.rank.get()).collect::<Vec<_>>(), [0], "{evidence}");
            assert_eq!(evidence, "it left this communicator unused");
        }
        other => panic!("rank 0 has left the group {key:?}: {other:?}"),
    }
}

#[test]
fn a_member_that_comes_late_hears_who_has_left_whatever_has_happened_since() {
    on_each(worlds(2, &config(&[])), |world, whole| {
        let (own, both) = (whole.group().rank(), [0, 1]);
        if own == 0 {
            drop(world.make_group("late", &both).expect("a good list"));
        }
        for _ in 0..OTHER_GROUPS {
            drop(world.make_group("others", &both).expect("a good list"));
        }
        whole.barrier().expect("both come");
        if own == 1 {
            finds_rank_0_gone(&world, "late");
        }
        whole.barrier().expect("the failure of a group is that of no other");
    });
}

#[test]
fn a_key_that_was_used_ten_thousand_times_has_lost_none_of_them() {
    on_each(worlds(2, &config(&[])), |world, whole| {
        if whole.group().rank() == 0 {
            (0..USES).for_each(|_| drop(world.make_group("again", &[0, 1]).expect("a good list")));
        }
        whole.barrier().expect("both come");
        for number in 0..USES {
            match whole.group().rank() {
                1 if USED.contains(&number) => finds_rank_0_gone(&world, "again"),
                1 => drop(world.make_group("again", &[0, 1]).expect("a good list")),
                _ => {}
            }
        }
        whole.barrier().expect("the failure of a group is that of no other");
    });
}
