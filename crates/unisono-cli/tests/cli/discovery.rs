//! `unisono doctor --discovery`: which rank a process is, and by which variables.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Finished, start_by, unisono};

/// The doctor with these variables and no other that could count.
fn discover(variables: &[&str], options: &[&str]) -> Finished {
    let by = [&["env", "-i"][..], variables].concat();
    start_by(&by, &[&["doctor", "--discovery"], options].concat()).finish()
}

fn document(variables: &[&str]) -> Value {
    let done = discover(variables, &["--json"]);
    assert!(done.status.success() && done.err.is_empty(), "{}", done.err);
    serde_json::from_str(&done.out).unwrap()
}

#[test]
fn each_value_has_its_source_and_what_lost_its_reason() {
    let found = document(&[
        "OMPI_COMM_WORLD_RANK=3",
        "OMPI_COMM_WORLD_SIZE=4",
        "OMPI_COMM_WORLD_LOCAL_RANK=1",
        "OMPI_COMM_WORLD_LOCAL_SIZE=2",
        "AZUREML_EXPERIMENT_ID=x",
        "AZ_BATCH_MASTER_NODE=10.0.0.4:6000",
        "LOCAL_RANK=0",
    ]);
    let expected = json!({
        "rank": 3, "world_size": 4, "local_rank": 1, "local_world_size": 2, "cross_rank": null, "cross_size": null,
        "address": "10.0.0.4", "port": 6105,
        "source": {
            "rank": "OMPI_COMM_WORLD_RANK", "world_size": "OMPI_COMM_WORLD_SIZE",
            "local_rank": "OMPI_COMM_WORLD_LOCAL_RANK", "local_world_size": "OMPI_COMM_WORLD_LOCAL_SIZE",
            "cross_rank": null, "cross_size": null,
            "address": "AZ_BATCH_MASTER_NODE", "port": "the default on Azure ML",
        },
        "platform": "Azure ML",
        "lost": [{
            "from": "settings", "variables": {"LOCAL_RANK": "0"}, "reason": "the rank is that of Open MPI",
        }],
    });
    assert_eq!(found, expected);
}

#[test]
fn a_process_alone_and_discovery_that_is_off_are_told_as_such() {
    let alone = document(&[]);
    assert_eq!(
        (&alone["rank"], &alone["world_size"], &alone["address"]),
        (&json!(0), &json!(1), &Value::Null)
    );
    assert_eq!((&alone["lost"], &alone["platform"]), (&json!([]), &Value::Null));
    let off = document(&["PMI_RANK=1", "PMI_SIZE=4", "UNISONO_DISCOVERY=off"]);
    assert_eq!((&off["world_size"], &off["lost"][0]["reason"]), (&json!(1), &json!("UNISONO_DISCOVERY=off")));
}

#[test]
fn rows_that_contradict_each_other_end_it_with_both_names() {
    let done = discover(&["RANK=0", "WORLD_SIZE=1", "PMI_RANK=2", "PMI_SIZE=4"], &["--json"]);
    assert_eq!((done.status.code(), done.out.as_str()), (Some(1), ""));
    assert!(
        done.err.starts_with("unisono: RANK=0: with WORLD_SIZE=1 it contradicts PMI_RANK=2"),
        "{}",
        done.err
    );
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
}

#[test]
fn people_get_a_table() {
    let done = discover(&["RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=fd00::4", "UNISONO_RANK=0"], &[]);
    assert!(done.status.success(), "{}", done.err);
    for row in [
        "rank              0        UNISONO_RANK",
        "world_size        2        WORLD_SIZE",
        "local_rank        unknown",
        "address           fd00::4  MASTER_ADDR",
        "port              29500    the default of torchrun and DeepSpeed",
        "RANK=1           settings  UNISONO_RANK is set, and comes first",
    ] {
        assert!(done.out.lines().any(|line| line == row), "{row} in {}", done.out);
    }
    assert!(discover(&[], &[]).out.ends_with("every variable about this process counts\n"));
}

#[test]
fn ranks_of_our_launcher_know_their_place() {
    let program = env!("CARGO_BIN_EXE_unisono");
    let done = unisono(&["run", "-n", "2", "--tag-output", "off", "--", program, "doctor", "--discovery"]);
    assert!(done.status.success(), "{}", done.err);
    let ranks: BTreeSet<&str> = done.out.lines().filter(|line| line.starts_with("rank ")).collect();
    assert_eq!(ranks.len(), 2, "{}", done.out);
    assert!(
        done.out.lines().any(|line| line.starts_with("cross_size") && line.ends_with("CROSS_SIZE")),
        "{}",
        done.out
    );
}
