//! Groups with options of their own, groups by colour and key, and groups by rows (rows A7 and A8).

use std::sync::Barrier;
use std::time::Duration;

use unisono_collectives::{Collectives, CollectivesAsync, CollectivesPrepared};
use unisono_communicator::{
    BufferMut, Buffers, Call, CallOptions, Collective, Communicator, DType, Descriptor, Determinism, Error,
    GroupBackend, GroupOptions, Peer, Place, ReduceOp, ShortText,
};

use crate::backend::Backend;
use crate::capabilities::Algorithms;
use crate::sample::mix;
use crate::waits::Waits;
use crate::world::{options, run, run_each};

fn job_ranks(comm: &dyn Communicator) -> Vec<u32> {
    comm.group().job_ranks().iter().map(|rank| rank.get()).collect()
}

fn everybody(comm: &dyn Communicator) -> Vec<u32> {
    (0..comm.size()).collect()
}

/// The ranks of a group show who they are.
fn check_members(group: &dyn Communicator, own: u32, expected: &[u32]) {
    let mut all = vec![0; group.size() as usize];
    group.all_gather(&[own], &mut all).unwrap();
    assert_eq!((all.as_slice(), job_ranks(group).as_slice()), (expected, expected));
}

/// The sum of ones, and the name of the algorithm that ran.
fn sum_of_ones(comm: &dyn Communicator) -> (f32, &'static str) {
    let mut sum = [1.0f32];
    let descriptor = Descriptor {
        op: Some(ReduceOp::Sum),
        place: Place::InPlace,
        ..Descriptor::new(Collective::AllReduce, DType::F32, 1)
    };
    let outcome = comm.issue(Call::new(descriptor, Buffers::InOut(BufferMut::of(&mut sum)))).unwrap();
    (sum[0], outcome.algorithm)
}

/// Every option holds for the calls of the group and of groups made from it, and for no other.
pub fn a7_options_hold_in_the_group_and_in_what_is_made_from_it(backend: &dyn Backend) {
    run_each(backend, &[1, 3], |comm| {
        let own = GroupOptions::new().label("pipeline").timeout(Duration::from_secs(50));
        // Without an algorithm of ours a library has no fixed order.
        let order = match backend.algorithms() {
            Algorithms::None => Determinism::AnyOrder,
            Algorithms::Open | Algorithms::BuiltIn | Algorithms::Named => Determinism::Fixed,
        };
        let own = own.determinism(order);
        let group = comm.subgroup_with(&everybody(comm), &own).unwrap().unwrap();
        let longer = GroupOptions::new().timeout(Duration::from_secs(70));
        let inner = group.subgroup_with(&everybody(comm), &longer).unwrap().unwrap();
        let copy = inner.duplicate().unwrap();
        assert_eq!(*group.group().options(), own);
        assert_eq!(*copy.group().options(), longer.or(&own));
        assert_eq!(*comm.group().options(), GroupOptions::new());
        if comm.size() > 1 {
            let ids = [comm.group().id(), group.group().id(), inner.group().id(), copy.group().id()];
            let mut all = vec![[0; 4]; comm.size() as usize];
            comm.all_gather(&ids, all.as_flattened_mut()).unwrap();
            assert!(all.iter().all(|of_rank| *of_rank == ids), "{all:?}");
            assert!((0..4).all(|one| !ids[one + 1..].contains(&ids[one])), "{ids:?}");
        }
        for group in [&group, &inner, &copy] {
            let expected = sum_of_ones(&comm.with(CallOptions::new().determinism(order)));
            assert_eq!(sum_of_ones(&**group), expected);
            assert_eq!(expected.0, comm.size() as f32);
        }
        // Nobody aborts before all have their sums.
        comm.barrier().unwrap();
        copy.abort().unwrap();
        assert_eq!(*copy.shrink().unwrap().communicator.group().options(), longer.or(&own));
    });
}

/// A label and a label, one of the group and one of the call: errors show the call's own.
pub fn a7_the_label_of_a_group_is_on_its_calls(backend: &dyn Backend) {
    run(backend, 2, &options(), |comm| {
        let labelled = GroupOptions::new().label("of the group");
        let group = comm.subgroup_with(&[0, 1], &labelled).unwrap().unwrap();
        let counts = if comm.rank() == 0 { 3 } else { 4 };
        let error = group.all_reduce(&mut vec![1i32; counts], ReduceOp::Sum).unwrap_err();
        let Error::Mismatch { calls, .. } = error.root_cause() else { panic!("{error}") };
        let labels = calls.each_ref().map(|(_, call)| call.descriptor.label);
        assert_eq!(labels, [Some(ShortText::new("of the group")); 2]);
    });
}

/// The shortest path of an inference: prepared calls in a group whose waiting ranks do not sleep, with any operator and
/// in any group.
pub fn b4_prepared_calls_of_a_group_that_spins(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 4], |comm| {
        let spins = GroupOptions::new().spin(Duration::from_millis(20));
        let ranks: Vec<u32> = (0..comm.size().div_ceil(2)).collect();
        let whole = comm.subgroup_with(&everybody(comm), &spins).unwrap();
        let half = comm.subgroup_with(&ranks, &spins).unwrap();
        for group in [whole, half].iter().flatten() {
            assert_eq!(group.group().options().spin, Some(Duration::from_millis(20)));
            let [sum, max] =
                [ReduceOp::Sum, ReduceOp::Max].map(|op| group.prepare_all_reduce::<i32>(9, op).unwrap());
            for step in 0..30 {
                // A rank that is late for longer than it takes to fall asleep.
                if group.rank() == 0 && step % 10 == 0 {
                    std::thread::sleep(Duration::from_millis(2));
                }
                let own = step + group.rank() as i32;
                let (mut sums, mut greatest) = ([own; 9], [own; 9]);
                sum.call(&mut sums).unwrap();
                max.call(&mut greatest).unwrap();
                let last = group.size() as i32 - 1;
                assert_eq!(sums, [(last + 1) * step + last * (last + 1) / 2; 9]);
                assert_eq!(greatest, [step + last; 9]);
            }
        }
        comm.barrier().unwrap();
    });
}

/// Beside a vendor's library a group can be the companion's; elsewhere that changes nothing.
pub fn a7_a_group_without_the_library(backend: &dyn Backend) {
    run_each(backend, &[1, 2], |comm| {
        let plain = GroupOptions::new().backend(GroupBackend::Companion);
        let group = comm.subgroup_with(&everybody(comm), &plain).unwrap().unwrap();
        assert_eq!(group.backend() == comm.backend(), backend.algorithms().are_ours());
        // Unknown where the rank is another process.
        if let Some(companion) = comm.companion() {
            assert_eq!(group.backend(), companion.backend());
        }
        check_members(&*group, comm.rank(), &everybody(comm));
        let inner = group.subgroup(&everybody(comm)).unwrap().unwrap();
        assert_eq!(inner.backend(), group.backend());
        comm.barrier().unwrap();
    });
}

/// The algorithm of a group is used where a collective has it.
pub fn a7_the_algorithm_of_a_group(backend: &dyn Backend) {
    if backend.algorithms() == Algorithms::None {
        return;
    }
    run(backend, 4, &options(), |comm| {
        let ring = GroupOptions::new().algorithm("ring");
        let group = comm.subgroup_with(&everybody(comm), &ring).unwrap().unwrap();
        let (sum, algorithm) = sum_of_ones(&*group);
        // With the library's name behind it, over a library.
        assert!(sum == 4.0 && algorithm.starts_with("ring"), "{sum} by {algorithm}");
        group.barrier().unwrap();
        let unknown = GroupOptions::new().algorithm("rong");
        let error = comm.subgroup_with(&everybody(comm), &unknown).err().unwrap();
        let text = error.to_string();
        assert!(text.contains("rong") && text.contains("ring"), "{text}");
        let never = GroupOptions::new().timeout(Duration::ZERO);
        let error = comm.subgroup_with(&everybody(comm), &never).err().unwrap();
        assert!(matches!(error, Error::InvalidArgument { argument: "timeout", .. }), "{error}");
        comm.barrier().unwrap();
        group.close().unwrap();
    });
}

/// Ranks that give different options are told which, where they first meet: in the first call, or when the library
/// makes its own group.
pub fn a7_a_difference_names_the_option(backend: &dyn Backend) {
    run(backend, 3, &options(), |comm| {
        let seconds = if comm.rank() == 1 { 41 } else { 40 };
        let own = GroupOptions::new().label("same").timeout(Duration::from_secs(seconds));
        let error = comm
            .subgroup_with(&everybody(comm), &own)
            .and_then(|group| group.unwrap().barrier())
            .unwrap_err();
        let Error::Refused { problem } = &error else { panic!("{error}") };
        let named = ["timeout \"40s\"", "timeout \"41s\""].map(|text| problem.contains(text));
        assert!(named == [true; 2] && !problem.contains("same"), "{problem}");
        comm.barrier().unwrap();
    });
}

/// The group's deadline ends its calls and the calls of its copy, and the parent, whose deadline is another, goes on. A
/// call's own deadline goes before the group's, also where it is longer.
pub fn a8_a_group_has_its_own_deadline(backend: &dyn Backend) {
    let deadline = Duration::from_millis(100);
    run(backend, 3, &options(), |comm| {
        let hurried = GroupOptions::new().timeout(deadline);
        let (mut of_groups, mut of_calls) = (Waits::default(), Waits::default());
        for turn in 0..3 {
            let is_async = turn == 1;
            let mut hurried = comm.subgroup_with(&everybody(comm), &hurried).unwrap().unwrap();
            if turn == 2 {
                hurried = hurried.duplicate().unwrap();
            }
            let patient = comm.duplicate().unwrap();
            // One rank waits, so it does not matter whose deadline ends first on a busy machine.
            if comm.rank() == 0 {
                let barrier = || if is_async { hurried.barrier_async().wait() } else { hurried.barrier() };
                let error = of_groups.time(deadline, || barrier().unwrap_err());
                let Error::Timeout { not_arrived, .. } = error.root_cause() else { panic!("{error}") };
                assert!(not_arrived.iter().all(|awaited| awaited.rank.get() != 0), "{error}");
                assert!(!not_arrived.is_empty(), "{error}");
                let own = patient.with(CallOptions::new().timeout(deadline));
                let recv = || match is_async {
                    true => own.recv_async(vec![0u8], Peer::Rank(1), 3).wait().map(drop),
                    false => own.recv(&mut [0u8], Peer::Rank(1), 3).map(drop),
                };
                let error = of_calls.time(deadline, || recv().unwrap_err());
                assert!(matches!(error.root_cause(), Error::Timeout { .. }), "{error}");
            }
            comm.barrier().unwrap();
        }
        if comm.rank() == 0 {
            of_groups.are_in_time();
            of_calls.are_in_time();
        }
        let late = comm.subgroup_with(&everybody(comm), &hurried).unwrap().unwrap();
        if comm.rank() == 2 {
            std::thread::sleep(4 * deadline);
        }
        late.with(CallOptions::new().timeout(Duration::from_secs(50))).barrier().unwrap();
    });
}

/// Random colours and keys, against MPI's definition: sorted by colour, key, rank.
pub fn a7_split_by_colour_and_key(backend: &dyn Backend) {
    run_each(backend, &[1, 2, 4, 8], |comm| {
        let (own, ranks) = (comm.rank(), comm.size());
        for turn in 0..12 {
            // Every rank draws for all.
            let all: Vec<(Option<u32>, i64, u32)> = (0..ranks)
                .map(|rank| {
                    let random = mix(turn << 32 | u64::from(rank));
                    (((random >> 40) as u32 % 4).checked_sub(1), (random % 5) as i64 - 2, rank)
                })
                .collect();
            let (colour, key, _) = all[own as usize];
            let group = comm.split(colour, key).unwrap();
            let mut expected = all.clone();
            expected.retain(|one| one.0 == colour);
            expected.sort_by_key(|&(_, key, rank)| (key, rank));
            match (colour, group) {
                (None, group) => assert!(group.is_none()),
                (Some(_), group) => {
                    let expected: Vec<u32> = expected.iter().map(|one| one.2).collect();
                    check_members(&*group.expect("a rank with a colour"), own, &expected);
                }
            }
        }
        comm.barrier().unwrap();
    });
}

/// Rows that each rank may give alone; rows with a common rank are refused, on the rank that sees both at once, and by
/// name where each rank sees its own.
pub fn a7_rows(backend: &dyn Backend) {
    let agreed = Barrier::new(3);
    run(backend, 4, &options(), |comm| {
        let own = comm.rank();
        let rows: [&[u32]; 2] = [&[2, 0], &[1, 3]];
        let row = rows[own as usize % 2];
        check_members(&*comm.subgroups(&rows).unwrap().unwrap(), own, row);
        check_members(&*comm.subgroups(&[row]).unwrap().unwrap(), own, row);
        let twice: [&[u32]; 2] = [&[2, 0], &[1, 2]];
        let error = comm.subgroups(&twice).err().unwrap();
        assert!(matches!(error, Error::InvalidArgument { argument: "rows", .. }), "{error}");
        let overlapping: [&[u32]; 4] = [&[0, 1], &[0, 1], &[1, 2], &[3]];
        // A group that fails while a library makes it may keep the device for ever: HCCL cannot be interrupted there.
        let is_in_turn = own != 3 && backend.algorithms() != Algorithms::Open;
        if is_in_turn && own == 2 {
            agreed.wait();
        }
        let group = comm.subgroups(&[overlapping[own as usize]]).map(Option::unwrap);
        match group.as_ref().map_err(Error::clone).and_then(|group| group.barrier()) {
            // Ranks 0 and 1 agree, and may be done before rank 2 comes.
            Ok(()) => assert_ne!(own, 2),
            Err(Error::Refused { problem }) => {
                assert!(own != 3 && problem.contains("[0, 1]") && problem.contains("[1, 2]"), "{problem}");
            }
            Err(error) => panic!("rank {own}: {error}"),
        }
        if is_in_turn && own != 2 {
            agreed.wait();
        }
        comm.barrier().unwrap();
        // Rank 2 could not be told by a group that is gone.
        drop(group);
    });
}
