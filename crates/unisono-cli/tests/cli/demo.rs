//! `unisono demo`: the main job, end to end between processes.

use serde_json::Value;

use crate::support::{operations, unisono};

fn document(ranks: &str) -> Value {
    document_of(&["demo", "--ranks", ranks, "--json"])
}

fn document_of(arguments: &[&str]) -> Value {
    let done = unisono(arguments);
    assert!(done.status.success(), "{}", done.err);
    assert_eq!(done.err, "", "nothing to complain about, and no progress bar without a terminal");
    serde_json::from_str(&done.out).expect("one document")
}

#[test]
fn every_collective_is_right_and_training_ends_with_the_same_weights_in_every_run() {
    let first = document("2");
    for op in operations() {
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
    for op in operations() {
        assert!(
            done.out.lines().any(|line| line.starts_with(op) && line.ends_with(" 0")),
            "{op}\n{}",
            done.out
        );
    }
    assert!(done.out.contains("test accuracy 9"), "{}", done.out);
    assert_eq!(done.out.lines().filter(|line| line.contains("weights")).count(), 3, "{}", done.out);
}

#[test]
fn training_goes_on_without_a_killed_rank() {
    for (ranks, victim, kill) in [(4, 2, "2@300"), (3, 0, "0@1"), (2, 1, "1@689")] {
        let ranks_text = ranks.to_string();
        let done = document_of(&["demo", "--ranks", &ranks_text, "--kill", kill, "--json"]);
        let (recovery, training) = (&done["recovery"], &done["training"]);
        let survivors: Vec<u32> = (0..ranks).filter(|&rank| rank != victim).collect();
        assert_eq!(recovery["lost"], serde_json::json!([victim]), "{kill}");
        assert_eq!(recovery["survivors"], serde_json::json!(survivors), "{kill}");
        // The victim was to do so many steps, which the others could then finish too.
        let step: u64 = kill.split_once('@').unwrap().1.parse().unwrap();
        let resumed = recovery["step"].as_u64().unwrap();
        assert!(resumed == step || resumed + 1 == step, "{kill}: from step {resumed}");
        assert!(training["test_accuracy"].as_f64().unwrap() >= 0.95, "{training}");
        let hashes = training["weights_hash"].as_array().unwrap();
        assert_eq!(hashes.len(), ranks as usize);
        for (rank, hash) in hashes.iter().enumerate() {
            assert_eq!(hash.is_null(), rank as u32 == victim, "{kill}, rank {rank}");
            assert!(hash.is_null() || *hash == hashes[survivors[0] as usize], "{kill}, rank {rank}");
        }
    }
}

#[test]
fn a_kill_that_cannot_be_is_refused() {
    for (ranks, kill, said) in [
        ("4", "4@3", "of 4 ranks, one of 0 to 3 can die"),
        ("1", "0@3", "no rank would be left"),
        ("4", "1@690", "RANK@STEP, with steps 1 to 689"),
        ("4", "1", "RANK@STEP, with steps 1 to 689"),
    ] {
        let refused = unisono(&["demo", "--ranks", ranks, "--kill", kill]);
        assert!(refused.status.code() == Some(2) && refused.err.contains(said), "{}", refused.err);
    }
}
