//! Groups that only their members make.

use std::sync::Barrier;
use std::time::Duration;

use unisono_collectives::Collectives;
use unisono_communicator::{CallOptions, Communicator, Error, ReduceOp};
use unisono_engine::EngineOptions;

use crate::backend::Backend;
use crate::world::{options, run_with_groups};

/// The sum of the job's ranks in a group, as each member must get it.
fn check(group: &dyn Communicator, members: &[u32], own: u32) {
    assert_eq!(group.group().job_ranks().iter().map(|rank| rank.get()).collect::<Vec<_>>(), members);
    let mut sum = [own];
    group.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    assert_eq!(sum, [members.iter().sum::<u32>()]);
}

/// Every pair of ranks, made by each rank in an order of its own, and nobody else.
pub fn overlapping_in_any_order(backend: &dyn Backend) {
    for ranks in backend.among(&[1, 2, 3, 5]) {
        run_with_groups(backend, ranks, &options(), |comm, groups| {
            let own = comm.group().rank();
            let mut pairs: Vec<[u32; 2]> = (0..ranks)
                .filter(|&other| other != own)
                .map(|other| [own.max(other), own.min(other)])
                .collect();
            if backend.algorithms().are_ours() {
                let first = own as usize % pairs.len().max(1);
                pairs.rotate_left(first);
            } else {
                // A library's communicator is there when all members have come: these have one order too.
                pairs.sort();
            }
            let mut made: Vec<_> = pairs
                .into_iter()
                .map(|pair| (pair, groups.make_group(&format!("{pair:?}"), &pair).unwrap()))
                .collect();
            // Calls wait for each other, so these have one order.
            made.sort_by_key(|(pair, _)| *pair);
            made.iter().for_each(|(pair, group)| check(&**group, pair, own));
            let alone = groups.make_group("alone", &[own]).unwrap();
            check(&*alone, &[own], own);
            comm.barrier().unwrap();
        });
    }
}

/// Each time it is a new communicator, also while the one before is still there.
pub fn made_again_and_again(backend: &dyn Backend) {
    let lists: [&[u32]; 3] = [&[1, 0], &[1, 2], &[0, 1, 2]];
    run_with_groups(backend, 3, &options(), |comm, groups| {
        let own = comm.group().rank();
        let mut before = Vec::new();
        for cycle in 0..40 {
            for (key, members) in lists.iter().enumerate().filter(|(_, members)| members.contains(&own)) {
                let group = groups.make_group(&key.to_string(), members).unwrap();
                check(&*group, members, own);
                if (cycle + own) % 3 == 0 {
                    before.push(group);
                }
            }
            if cycle % 7 == 0 {
                before.clear();
            }
        }
        comm.barrier().unwrap();
    });
}

/// Lists that no group can have change nothing.
pub fn refused_lists(backend: &dyn Backend) {
    run_with_groups(backend, 3, &options(), |comm, groups| {
        let own = comm.group().rank();
        let other = (own + 1) % 3;
        let bad: [&[u32]; 4] = [&[other], &[own, 3], &[own, own], &[]];
        for list in bad {
            let error = groups.make_group("bad", list).err().unwrap();
            assert!(matches!(error, Error::InvalidArgument { argument: "ranks", .. }), "{list:?}: {error}");
        }
        let whole = groups.make_group("bad", &[0, 1, 2]).unwrap();
        let error = groups.make_group("bad", &[2, 1, 0]).err().unwrap();
        let text = error.to_string();
        assert!(text.contains("[2, 1, 0]") && text.contains("another list of ranks"), "{text}");
        check(&*whole, &[0, 1, 2], own);
        check(&*groups.make_group("", &[2, 1, 0]).unwrap(), &[2, 1, 0], own);
    });
}

/// Members that do not mean the same group are told what each of them meant.
pub fn different_lists_name_both(backend: &dyn Backend) {
    let together = Barrier::new(3);
    run_with_groups(backend, 3, &options(), |comm, groups| {
        let own = comm.group().rank();
        let list: &[u32] = if own == 2 { &[2, 0] } else { &[0, 1, 2] };
        // A library's communicator is not even made.
        let made = groups.make_group("ours", list);
        let error = made.and_then(|group| group.all_reduce(&mut [own], ReduceOp::Sum)).unwrap_err();
        let Error::Refused { problem } = &error else { panic!("rank {own}: {error}") };
        assert!(problem.contains("[0, 1, 2]") && problem.contains("[2, 0]"), "rank {own}: {problem}");
        comm.barrier().unwrap();
        together.wait();
    });
}

/// The rank that does not come is named, and the others go on without the group.
pub fn a_member_that_never_comes(backend: &dyn Backend) {
    // A library's communicator is there when all members have come: it is late when it is made.
    let options = match backend.algorithms().are_ours() {
        true => options(),
        false => EngineOptions { timeout: Duration::from_secs(3), ..options() },
    };
    run_with_groups(backend, 3, &options, |comm, groups| {
        if comm.group().rank() != 1 {
            let made = groups.make_group("missing", &[0, 1, 2]);
            let hurried = CallOptions::new().timeout(Duration::from_millis(500));
            let error = made.and_then(|group| group.with(hurried).barrier()).unwrap_err();
            let Error::Timeout { not_arrived, .. } = &error else { panic!("{error}") };
            assert!(not_arrived.iter().any(|one| one.rank.get() == 1), "{error}");
        }
        comm.with(CallOptions::new().timeout(Duration::from_secs(60))).barrier().unwrap();
    });
}
