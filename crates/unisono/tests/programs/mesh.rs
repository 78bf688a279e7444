//! Device meshes: tables from torch's documentation and from torch itself, groups that exchange data, and refusals.

use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use unisono::in_process::{self, Groups, InProcessCommunicator};
use unisono::{Collectives, Communicator, Config, DeviceMesh, Error, GroupOptions, ReduceOp};

use crate::support::start_ranks;

/// Far above the time of any test, so that only a hang reaches it.
const TEST_TIME_MAX: Duration = Duration::from_secs(120);

/// Runs `body` on a thread for each rank, with the rank's number, and gives the results in rank order.
fn on_ranks<R: Send + 'static>(
    ranks: u32,
    body: impl Fn(u32, &dyn Communicator, &Arc<Groups>) -> R + Send + Sync + 'static,
) -> Vec<R> {
    let body = Arc::new(body);
    let start = |(rank, (comm, groups)): (u32, (Arc<InProcessCommunicator>, Groups))| {
        let (body, (done, finished)) = (body.clone(), mpsc::channel());
        std::thread::spawn(move || done.send(body(rank, &*comm, &Arc::new(groups))));
        finished
    };
    let started: Vec<_> = (0..).zip(in_process::world_with_groups(ranks)).map(start).collect();
    let result = |finished: mpsc::Receiver<R>| {
        finished.recv_timeout(TEST_TIME_MAX).expect("a rank hangs or has panicked")
    };
    started.into_iter().map(result).collect()
}

/// The mesh of each rank of a world that exchanges nothing.
fn meshes(dimensions: &[(&str, u32)]) -> Vec<DeviceMesh> {
    let ranks = dimensions.iter().map(|(_, size)| size).product();
    let mesh = |(_, groups)| DeviceMesh::new(&Arc::new(groups), dimensions).unwrap();
    in_process::world_with_groups(ranks).into_iter().map(mesh).collect()
}

/// The problem of an invalid argument, and its name; the error names this file.
fn refused<T>(result: unisono::Result<T>) -> (&'static str, String) {
    match result.err() {
        Some(Error::InvalidArgument { argument, problem, call: Some(call) }) => {
            assert!(call.starts_with("DeviceMesh::") && call.contains("mesh.rs:"), "{call}");
            (argument, problem)
        }
        other => panic!("{other:?}"),
    }
}

fn sum(group: &dyn Communicator, value: u32) -> u32 {
    let mut sum = [value];
    group.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    sum[0]
}

#[test]
fn a14_two_dimensions_as_in_torchs_documentation() {
    // For each rank: coordinate, group of dp, group of tp.
    let expected: [([u32; 2], [u32; 2], [u32; 4]); 8] = [
        ([0, 0], [0, 4], [0, 1, 2, 3]),
        ([0, 1], [1, 5], [0, 1, 2, 3]),
        ([0, 2], [2, 6], [0, 1, 2, 3]),
        ([0, 3], [3, 7], [0, 1, 2, 3]),
        ([1, 0], [0, 4], [4, 5, 6, 7]),
        ([1, 1], [1, 5], [4, 5, 6, 7]),
        ([1, 2], [2, 6], [4, 5, 6, 7]),
        ([1, 3], [3, 7], [4, 5, 6, 7]),
    ];
    for (mesh, (coordinate, dp, tp)) in meshes(&[("dp", 2), ("tp", 4)]).iter().zip(expected) {
        assert_eq!((mesh.names(), mesh.shape(), mesh.ndim()), (vec!["dp", "tp"], vec![2, 4], 2));
        assert_eq!((mesh.size(), mesh.ranks()), (8, (0..8).collect()));
        assert_eq!((mesh.size_of("dp").unwrap(), mesh.size_of("tp").unwrap()), (2, 4));
        assert_eq!(mesh.coordinate(), coordinate);
        assert_eq!([mesh.local_rank("dp").unwrap(), mesh.local_rank("tp").unwrap()], coordinate);
        let (rows, columns) = (mesh.submesh(&["tp"]).unwrap(), mesh.submesh(&["dp"]).unwrap());
        assert_eq!((rows.ranks(), columns.ranks()), (tp.to_vec(), dp.to_vec()));
        assert_eq!((rows.shape(), rows.coordinate(), rows.size()), (vec![4], vec![coordinate[1]], 4));
        assert_eq!(format!("{mesh:?}, {rows:?}"), "DeviceMesh(dp=2, tp=4), DeviceMesh(tp=4)");
    }
}

#[test]
fn a14_three_dimensions_as_torch_2_15_has_them() {
    // For each rank: group of pp, of dp, of tp, then the submesh of pp and tp, and pp with dp flattened.
    let expected = [
        ([[0, 4], [0, 2], [0, 1]], [[0, 1, 4, 5], [0, 2, 4, 6]]),
        ([[1, 5], [1, 3], [0, 1]], [[0, 1, 4, 5], [1, 3, 5, 7]]),
        ([[2, 6], [0, 2], [2, 3]], [[2, 3, 6, 7], [0, 2, 4, 6]]),
        ([[3, 7], [1, 3], [2, 3]], [[2, 3, 6, 7], [1, 3, 5, 7]]),
        ([[0, 4], [4, 6], [4, 5]], [[0, 1, 4, 5], [0, 2, 4, 6]]),
        ([[1, 5], [5, 7], [4, 5]], [[0, 1, 4, 5], [1, 3, 5, 7]]),
        ([[2, 6], [4, 6], [6, 7]], [[2, 3, 6, 7], [0, 2, 4, 6]]),
        ([[3, 7], [5, 7], [6, 7]], [[2, 3, 6, 7], [1, 3, 5, 7]]),
    ];
    for (mesh, (groups, [pp_tp, pp_dp])) in meshes(&[("pp", 2), ("dp", 2), ("tp", 2)]).iter().zip(expected) {
        let ranks = |names: &[&str]| mesh.submesh(names).unwrap().ranks();
        assert_eq!([ranks(&["pp"]), ranks(&["dp"]), ranks(&["tp"])], groups);
        assert_eq!(ranks(&["pp", "tp"]), pp_tp);
        let flat = mesh.submesh(&["pp", "dp"]).unwrap().flatten(&["pp", "dp"], "pp_dp").unwrap();
        let (names, shape, place) = (flat.names(), flat.shape(), mesh.local_rank("pp_dp").unwrap());
        assert_eq!((names, shape, flat.ranks()), (vec!["pp_dp"], vec![4], pp_dp.to_vec()));
        assert_eq!(flat.coordinate(), [2 * mesh.coordinate()[0] + mesh.coordinate()[1]]);
        assert_eq!(place, flat.coordinate()[0]);
        // The flattened dimension beside the third, and all three in one.
        let both = mesh.submesh(&["pp_dp", "tp"]).unwrap();
        assert_eq!((both.shape(), both.ranks()), (vec![4, 2], (0..8).collect()));
        let all = both.flatten(&["pp_dp", "tp"], "all").unwrap();
        assert_eq!((all.shape(), all.coordinate()), (vec![8], mesh.submesh(&["all"]).unwrap().coordinate()));
    }
}

#[test]
fn a14_another_order_of_ranks() {
    let world = in_process::world_with_groups(8).into_iter().zip([[0, 0], [1, 0], [0, 1], [1, 1]]);
    for ((_, groups), coordinate) in world {
        let (groups, shape) = (Arc::new(groups), [("dp", 2), ("tp", 4)]);
        let mesh = DeviceMesh::with_ranks(&groups, &shape, &[0, 2, 4, 6, 1, 3, 5, 7]).unwrap();
        assert_eq!((mesh.coordinate(), mesh.ranks()), (coordinate.to_vec(), vec![0, 2, 4, 6, 1, 3, 5, 7]));
        let (error, ranks) = (refused(DeviceMesh::with_ranks(&groups, &shape, &[0, 1, 2])), "ranks");
        assert_eq!(error, (ranks, "rank 3 is missing, but a mesh has all ranks of the world".to_owned()));
    }
}

/// Each rank asks for its groups in an order of its own, and then all call in one order.
#[test]
fn a14_groups_work_whatever_the_order_of_their_first_use() {
    on_ranks(12, |rank, _, groups| {
        let mesh = DeviceMesh::new(groups, &[("pp", 2), ("dp", 3), ("tp", 2)]).unwrap();
        mesh.flatten(&["pp", "dp"], "pp_dp").unwrap();
        let names = ["pp", "dp", "tp", "pp_dp"];
        for turn in 0..names.len() {
            let name = names[(turn + rank as usize) % names.len()];
            let group = mesh.group(name).unwrap();
            assert_eq!(
                (group.rank(), group.size()),
                (mesh.local_rank(name).unwrap(), mesh.size_of(name).unwrap())
            );
        }
        for name in names {
            let part = mesh.submesh(&[name]).unwrap();
            let expected = part.ranks().iter().map(|rank| 1 << rank).sum::<u32>();
            assert_eq!(sum(&*part.group(name).unwrap(), 1 << rank), expected, "rank {rank}, {name}");
        }
        let order: Vec<u32> = mesh.groups().unwrap().iter().map(|group| group.rank()).collect();
        assert_eq!(order, mesh.coordinate());
    });
}

#[test]
fn a14_the_ranks_of_a_group_are_in_the_order_of_the_mesh() {
    on_ranks(4, |rank, _, groups| {
        let mesh = DeviceMesh::with_ranks(groups, &[("dp", 2), ("tp", 2)], &[3, 2, 1, 0]).unwrap();
        let mut all = [9u32; 2];
        mesh.group("tp").unwrap().all_gather(&[rank], &mut all).unwrap();
        assert_eq!(all, if rank < 2 { [1, 0] } else { [3, 2] });
        assert_eq!(mesh.group("tp").unwrap().rank(), mesh.local_rank("tp").unwrap());
    });
}

/// Meshes of equal names, which the ranks use first in different orders, and a mesh that was refused in between.
#[test]
fn a14_two_meshes_do_not_mix() {
    on_ranks(4, |rank, _, groups| {
        let shape = [("dp", 2), ("tp", 2)];
        let first = DeviceMesh::new(groups, &shape).unwrap();
        if rank == 2 {
            refused(DeviceMesh::new(groups, &[("dp", 2), ("tp", 3)]));
        }
        let second = DeviceMesh::new(groups, &shape).unwrap();
        let in_turn = if rank.is_multiple_of(2) { [&first, &second] } else { [&second, &first] };
        for mesh in in_turn {
            mesh.groups().unwrap();
        }
        for name in ["dp", "tp"] {
            let (one, other) = (first.group(name).unwrap(), second.group(name).unwrap());
            assert!(!Arc::ptr_eq(&one, &other));
            // Were they one communicator, the second call of one rank would meet the first call of another.
            let sums =
                if rank < 2 { [sum(&*one, 1), sum(&*other, 10)] } else { [sum(&*one, 2), sum(&*other, 20)] };
            let expected = if name == "dp" {
                3
            } else if rank < 2 {
                2
            } else {
                4
            };
            assert_eq!(sums, [expected, 10 * expected], "rank {rank}, {name}");
        }
    });
}

/// Clones, submeshes and threads that ask at the same time get the same communicator.
#[test]
fn a14_a_group_is_made_once() {
    on_ranks(2, |_, _, groups| {
        let mesh = DeviceMesh::new(groups, &[("dp", 2), ("tp", 1)]).unwrap();
        let start = Arc::new(Barrier::new(8));
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let (mesh, start) = (mesh.clone(), start.clone());
                std::thread::spawn(move || {
                    start.wait();
                    let part = if thread % 2 == 0 { mesh.submesh(&["dp"]).unwrap() } else { mesh };
                    part.group("dp").unwrap()
                })
            })
            .collect();
        let made: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(made.iter().all(|group| Arc::ptr_eq(group, &made[0])));
        assert_eq!(sum(&*made[0], 1), 2);
        // A second name for the same ranks is another communicator.
        let other = mesh.flatten(&["dp", "tp"], "all").unwrap().group("all").unwrap();
        assert!(!Arc::ptr_eq(&other, &made[0]));
        assert_eq!(sum(&*other, 1), 2);
    });
}

#[test]
fn a14_wrong_names_are_refused_and_change_nothing() {
    on_ranks(8, |_, comm, groups| {
        let mesh = DeviceMesh::new(groups, &[("pp", 2), ("dp", 2), ("tp", 2)]).unwrap();
        let flat = mesh.flatten(&["pp", "dp"], "pp_dp").unwrap();
        mesh.flatten(&["pp", "tp"], "pp_tp").unwrap();
        let unknown = ("dimension", "\"cp\" is no dimension of DeviceMesh(pp=2, dp=2, tp=2)".to_owned());
        assert_eq!(refused(mesh.group("cp")), unknown);
        assert_eq!(refused(mesh.local_rank("cp")), unknown);
        assert_eq!(refused(mesh.size_of("cp")), unknown);
        assert_eq!(refused(mesh.set_options("cp", &GroupOptions::new())), unknown);
        assert_eq!(refused(mesh.submesh(&["pp", "cp"])), ("dimensions", unknown.1));
        assert_eq!(
            refused(flat.group("tp")),
            ("dimension", "\"tp\" is no dimension of DeviceMesh(pp_dp=4)".to_owned())
        );
        let bad: [&[&str]; 6] =
            [&[], &["tp", "dp"], &["pp", "pp"], &["pp_tp", "dp"], &["dp", "pp_tp"], &["pp_dp", "dp"]];
        for names in bad {
            let expected = match names {
                [] => "none, but a mesh has at least one".to_owned(),
                _ => format!("{names:?}, but each comes once, in the order of {mesh:?}"),
            };
            assert_eq!(refused(mesh.submesh(names)), ("dimensions", expected.clone()));
            assert_eq!(refused(mesh.flatten(names, "new")), ("dimensions", expected));
        }
        assert_eq!(refused(mesh.flatten(&["pp", "dp"], "")), ("name", "empty".to_owned()));
        for (names, taken) in [(["dp", "tp"], "pp_dp"), (["dp", "tp"], "tp"), (["pp", "dp"], "dp")] {
            let (argument, problem) = refused(mesh.flatten(&names, taken));
            let expected = format!("{taken:?} is a dimension already, in which this rank is in the group ");
            assert!(argument == "name" && problem.starts_with(&expected), "{problem}");
        }
        // The same meaning is no difference.
        assert_eq!(mesh.flatten(&["pp", "dp"], "pp_dp").unwrap().ranks(), flat.ranks());
        assert_eq!(mesh.flatten(&["dp"], "dp").unwrap().names(), ["dp"]);
        assert_eq!(refused(DeviceMesh::new(groups, &[("dp", 7)])).0, "dimensions");
        assert_eq!((sum(comm, 1), sum(&*mesh.group("pp_dp").unwrap(), 1)), (8, 4));
    });
}

#[test]
fn a14_a_dimension_has_options() {
    on_ranks(4, |_, _, groups| {
        let mesh = DeviceMesh::new(groups, &[("dp", 2), ("tp", 2)]).unwrap();
        let options = GroupOptions::new().timeout(Duration::from_secs(7)).label("data");
        let zero = refused(mesh.set_options("dp", &options.timeout(Duration::ZERO)));
        assert_eq!(zero, ("timeout", "0 s, in which no call ends".to_owned()));
        let (argument, problem) = refused(mesh.set_options("dp", &options.algorithm("rong")));
        assert!(argument == "algorithm" && problem.contains("ring"), "{argument}: {problem}");
        mesh.submesh(&["dp"]).unwrap().set_options("dp", &options).unwrap();
        let group = mesh.group("dp").unwrap();
        assert_eq!((group.group().options(), sum(&*group, 1)), (&options, 2));
        assert_eq!(mesh.group("tp").unwrap().group().options(), &GroupOptions::new());
        mesh.set_options("dp", &options).unwrap();
        let late = refused(mesh.set_options("dp", &options.label("late")));
        assert_eq!(late, ("options", "the group of \"dp\" was made with other options".to_owned()));
        assert_eq!(mesh.group("dp").unwrap().group().options(), &options);
    });
}

#[test]
fn a14_ranks_with_different_meshes_are_told_both_lists() {
    let errors = on_ranks(2, |rank, comm, groups| {
        let mesh = DeviceMesh::new(groups, &[("dp", 2 - rank), ("tp", 1 + rank)]).unwrap();
        let group = mesh.group("dp").unwrap();
        comm.barrier().unwrap();
        let result = group.barrier();
        comm.barrier().unwrap();
        result.map_err(|error| error.to_string())
    });
    let error = errors[0].as_ref().unwrap_err();
    assert!(error.contains("[0, 1]") && error.contains("[1]"), "{error}");
}

/// An error of making a group is not remembered. A closed world makes no group, but groups that it has made go on.
#[test]
fn a14_groups_and_the_life_of_a_world() {
    let over_tcp = |name: &str| (name == "UNISONO_BACKEND").then(|| "tcp".to_owned());
    for lookup in [&over_tcp as &dyn Fn(&str) -> Option<String>, &|_| None] {
        let world = unisono::init_with(&Config::from_lookup(lookup).unwrap()).unwrap();
        let mesh = DeviceMesh::new(&world, &[("dp", 1), ("tp", 1)]).unwrap();
        let unknown = mesh.set_options("dp", &GroupOptions::new().algorithm("nosuch"));
        if world.backend() == "tcp" {
            let (argument, problem) = refused(unknown);
            assert!(argument == "algorithm" && problem.contains("nosuch"), "{argument}: {problem}");
        } else {
            unknown.unwrap();
        }
        assert_eq!(sum(&*mesh.group("dp").unwrap(), 3), 3);
        world.close().unwrap();
        assert!(matches!(mesh.group("tp").map(drop), Err(Error::Closed { .. })));
        assert_eq!(sum(&*mesh.group("dp").unwrap(), 4), 4);
    }
}

pub(crate) fn program_with_a_mesh() {
    let world = unisono::init().unwrap();
    let mesh = DeviceMesh::new(&world, &[("dp", 2), ("tp", 2)]).unwrap();
    mesh.flatten(&["dp", "tp"], "all").unwrap();
    let rank = world.rank();
    let names = if rank.is_multiple_of(3) { ["dp", "tp", "all"] } else { ["all", "tp", "dp"] };
    for name in names {
        mesh.group(name).unwrap();
    }
    let sums = ["dp", "tp", "all"].map(|name| sum(&*mesh.group(name).unwrap(), 1 << rank));
    let expected = [[5, 3, 15], [10, 3, 15], [5, 12, 15], [10, 12, 15]];
    assert_eq!(sums, expected[rank as usize]);
    world.close().unwrap();
}

/// Three of four ranks, in an order of their own; the fourth has no mesh, and the next mesh is of all again.
pub(crate) fn program_with_a_mesh_of_a_part() {
    let world = unisono::init().unwrap();
    let mesh = DeviceMesh::of_part(&world, &[("dp", 3), ("tp", 1)], &[3, 0, 2]).unwrap();
    let sums = mesh.map(|mesh| (mesh.coordinate(), sum(&*mesh.group("dp").unwrap(), 1 << world.rank())));
    let expected = [Some((vec![1, 0], 13)), None, Some((vec![2, 0], 13)), Some((vec![0, 0], 13))];
    assert_eq!(sums, expected[world.rank() as usize]);
    let whole = DeviceMesh::new(&world, &[("all", 4)]).unwrap();
    assert_eq!(sum(&*whole.group("all").unwrap(), 1 << world.rank()), 15);
    world.close().unwrap();
}

#[test]
fn a14_a_mesh_of_a_part_of_a_world() {
    for program in start_ranks("mesh::program_with_a_mesh_of_a_part", "mesh-of-a-part", 4, &[]) {
        assert_eq!(program.end(), (true, Vec::new()));
    }
    let (_, groups) = in_process::world_with_groups(4).remove(0);
    let groups = Arc::new(groups);
    let wrong = |ranks: &[u32]| refused(DeviceMesh::of_part(&groups, &[("dp", 2)], ranks));
    assert_eq!(wrong(&[1, 1]), ("ranks", "1 twice".to_owned()));
    assert_eq!(wrong(&[1, 4]), ("ranks", "4, but the world has ranks 0 to 3".to_owned()));
    let few = "the product of dp=2 is not 3, the number of ranks".to_owned();
    assert_eq!(wrong(&[1, 2, 3]), ("dimensions", few));
}

#[test]
fn a14_a_mesh_over_processes() {
    for program in start_ranks("mesh::program_with_a_mesh", "mesh", 4, &[]) {
        assert_eq!(program.end(), (true, Vec::new()));
    }
}
