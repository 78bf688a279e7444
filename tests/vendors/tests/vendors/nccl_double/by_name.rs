//! A program that only names the backend has every call that takes no memory of its own. Ranks are processes.

use unisono::{Collectives, CollectivesOfObjects, Communicator, DeviceMesh, Error, ReduceOp};
use unisono_tests::watchdog;

use super::job::{Job, is_rank};
use super::on_device::SECONDS_MAX;

fn program() {
    let world = unisono::init().unwrap();
    assert_eq!(world.backend(), "nccl");
    world.barrier().unwrap();
    let mesh = DeviceMesh::new(&world, &[("dp", 2), ("tp", 1)]).unwrap();
    let groups = [
        world.make_group("pair", &[1, 0]).unwrap(),
        world.split(Some(0), 0).unwrap().unwrap(),
        mesh.group("dp").unwrap(),
        mesh.group("tp").unwrap(),
        world.duplicate().unwrap(),
    ];
    for group in &groups {
        assert_eq!(group.backend(), "nccl");
        group.barrier().unwrap();
        let texts = group.all_gather_object("text ".repeat(1000)).unwrap();
        assert_eq!(texts, vec!["text ".repeat(1000); group.size() as usize]);
        let error = group.all_reduce(&mut [1.0f32], ReduceOp::Sum).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("does not support memory of the host"), "{error}");
    }
    world.close().unwrap();
}

#[test]
fn a_program_has_the_calls_that_take_no_memory_of_its_own() {
    if is_rank() {
        return watchdog(SECONDS_MAX, "a rank", program);
    }
    watchdog(SECONDS_MAX, "by name", || {
        let test = "nccl_double::by_name::a_program_has_the_calls_that_take_no_memory_of_its_own";
        Job::start(test, 2, |_| vec![("UNISONO_BACKEND", "nccl".to_owned())]).end();
    });
}
