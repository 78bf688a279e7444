//! `unisono demo`: the main job, end to end between processes.

use serde_json::Value;

use crate::support::unisono;

const OPERATIONS: [&str; 10] = [
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "barrier",
    "sendrecv",
];

fn document(ranks: &str) -> Value {
    let done = unisono(&["demo", "--ranks", ranks, "--json"]);
    assert!(done.status.success(), "{}", done.err);
    assert_eq!(done.err, "", "nothing to complain about, and no progress bar without a terminal");
    serde_json::from_str(&done.out).expect("one document")
}

#[test]
fn every_collective_is_right_and_training_ends_with_the_same_weights_in_every_run() {
    let first = document("2");
    for op in OPERATIONS {
        let rows: Vec<_> =
            first["collectives"].as_array().unwrap().iter().filter(|row| row["op"] == op).collect();
        assert_eq!(rows.len(), if op == "barrier" { 1 } else { 3 }, "{op}");
        for row in rows {
            assert_eq!((&row["wrong"], &row["ranks"]), (&0.into(), &2.into()), "{row}");
            assert!(row["median_us"].as_f64().unwrap() > 0.0, "{row}");
            assert!(row["busbw_gb_per_s"].is_f64() && row["bytes"].is_u64(), "{row}");
        }
    }
    let training = &first["training"];
    assert!(training["test_accuracy"].as_f64().unwrap() >= 0.95, "{training}");
    assert!(training["epochs"].as_u64().unwrap() > 0 && training["seconds"].as_f64().unwrap() > 0.0);
    // Each of two ranks sends at least half the gradient to be summed and half of the sum, in each of 690 steps.
    assert!(training["bytes_on_wire"].as_u64().unwrap() >= 690 * 2 * 4 * 4811, "{training}");
    let hashes = training["weights_hash"].as_array().unwrap();
    assert!(
        hashes.len() == 2 && hashes[0] == hashes[1] && hashes[0].as_str().unwrap().len() == 64,
        "{hashes:?}"
    );
    assert_eq!(&document("2")["training"]["weights_hash"], &training["weights_hash"]);
}

#[test]
fn a_person_reads_a_table_and_the_hash_of_every_rank() {
    let done = unisono(&["demo", "--ranks", "3"]);
    assert!(done.status.success(), "{}", done.err);
    for op in OPERATIONS {
        assert!(
            done.out.lines().any(|line| line.starts_with(op) && line.ends_with(" 0")),
            "{op}\n{}",
            done.out
        );
    }
    assert!(done.out.contains("test accuracy 9"), "{}", done.out);
    assert_eq!(done.out.lines().filter(|line| line.contains("weights")).count(), 3, "{}", done.out);
}
