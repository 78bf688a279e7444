//! `unisono demo`: the main job, end to end between processes.

use serde_json::Value;

use crate::support::{operations, start_by, unisono};

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
    assert!(training["bytes_on_wire"].as_u64().unwrap() >= 690 * 2 * 4 * 4810, "{training}");
    assert!(first.get("compression").is_none(), "{first}");
    let hashes = training["weights_hash"].as_array().unwrap();
    assert!(
        hashes.len() == 2 && hashes[0] == hashes[1] && hashes[0].as_str().unwrap().len() == 64,
        "{hashes:?}"
    );
    assert_eq!(&document("2")["training"]["weights_hash"], &training["weights_hash"]);
}

#[test]
fn a_person_reads_a_table_and_the_hash_of_every_rank() {
    let done = unisono(&["demo", "-n", "3"]);
    assert!(done.status.success(), "{}", done.err);
    for op in operations() {
        assert!(
            done.out.lines().any(|line| line.starts_with(op) && line.ends_with(" 0")),
            "{op}\n{}",
            done.out
        );
    }
    let figures = "
# predicted: with built-in figures of TCP over loopback; `unisono calibrate` measures";
    assert!(done.out.contains(figures), "{}", done.out);
    for told in [
        "3 processes on this machine, talking through memory, for about 9 seconds",
        "# #wrong: ",
        "# leaders:2: ",
    ] {
        assert!(done.out.contains(told), "{told}\n{}", done.out);
    }
    assert!(done.out.contains("test accuracy 9"), "{}", done.out);
    assert_eq!(done.out.lines().filter(|line| line.contains("weights")).count(), 3, "{}", done.out);
    let next =
        done.out.lines().skip_while(|line| *line != "Next:").filter(|line| line.starts_with("  unisono "));
    assert_eq!(next.count(), 3, "{}", done.out);
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

/// If no file may become as large as a flight record, that is a line of each survivor, and the training goes on.
#[test]
fn a_limit_on_the_size_of_files_ends_no_survivor() {
    let folder = tempfile::tempdir().unwrap();
    let variable = format!("UNISONO_FLIGHT_DIR={}", folder.path().display());
    let limited = ["env", &variable, "sh", "-c", "ulimit -f 2; exec \"$0\" \"$@\""];
    let done = start_by(&limited, &["demo", "-n", "3", "--kill", "1@300", "--json"]).finish();
    assert!(done.status.success(), "{}", done.err);
    // The ranks say that they cannot share memory, and a rank writes again when a report replaces the first cause.
    let mut lines: Vec<&str> = done.err.lines().filter(|line| !line.contains("share no memory")).collect();
    lines.sort_unstable();
    lines.dedup();
    let is_it = |line: &&str| line.contains("write the flight record ") && line.contains("too large");
    assert_eq!((lines.len(), lines.iter().filter(|line| is_it(line)).count()), (2, 2), "{}", done.err);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left half written");
}

#[test]
fn a_kill_that_cannot_be_is_refused() {
    for (ranks, kill, said) in [
        ("4", "4@3", "of 4 ranks, one of 0 to 3 can die"),
        ("1", "0@3", "no rank would be left"),
        ("4", "1@690", "the training has 690 steps; 1 to 689"),
        ("4", "1", "RANK@STEP, the first step is 1"),
    ] {
        let refused = unisono(&["demo", "--ranks", ranks, "--kill", kill]);
        assert!(refused.status.code() == Some(2) && refused.err.contains(said), "{}", refused.err);
    }
}

/// The reports of the trainings with these codecs.
fn compression(arguments: &[&str]) -> Vec<Value> {
    let document = document_of(&[&["demo", "--json"], arguments].concat());
    let exact = &document["compression"][0];
    assert_eq!(
        (&exact["codec"], &exact["test_accuracy"]),
        (&"none".into(), &document["training"]["test_accuracy"])
    );
    document["compression"].as_array().unwrap().clone()
}

fn number(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("{key} of {report}"))
}

fn accuracy(report: &Value) -> f64 {
    report["test_accuracy"].as_f64().unwrap()
}

#[test]
fn every_codec_trains_as_well_as_none_with_fewer_bytes_and_the_same_weights_on_all_ranks() {
    let reports = compression(&["--ranks", "2", "--compress", "all"]);
    let codecs: Vec<&str> = reports.iter().map(|report| report["codec"].as_str().unwrap()).collect();
    assert_eq!(codecs, ["none", "sign", "int8", "int4", "bf16"]);
    let exact_step = 2 * 4 * 4810;
    // At least so many times less than exact, scales and statuses included.
    for (report, (warmup_steps, less)) in
        reports.iter().zip([(0, 1.0), (138, 28.0), (0, 3.8), (0, 7.4), (0, 1.9)])
    {
        assert!(accuracy(report) >= 0.95 && accuracy(report) >= accuracy(&reports[0]) - 0.01, "{report}");
        assert_eq!(
            (number(report, "warmup_steps"), number(report, "steps")),
            (warmup_steps, 690 - warmup_steps)
        );
        assert_eq!(number(report, "warmup_bytes"), warmup_steps * exact_step);
        let per_step = number(report, "bytes_on_wire") as f64 / number(report, "steps") as f64;
        assert!(per_step > 0.0 && per_step * less <= exact_step as f64, "{report}");
        assert!(report["seconds"].as_f64().unwrap() > 0.0 && report["recovery"].is_null(), "{report}");
        let hashes = report["weights_hash"].as_array().unwrap();
        assert!(hashes.len() == 2 && hashes[0] == hashes[1] && hashes[0].is_string(), "{report}");
        let curve = report["curve"].as_array().unwrap();
        let sent = number(report, "warmup_bytes") + number(report, "bytes_on_wire");
        assert_eq!((number(&curve[59], "step"), number(&curve[59], "bytes")), (690, sent), "{report}");
        assert!(curve[0]["loss"].as_f64().unwrap() > 5.0 * curve[59]["loss"].as_f64().unwrap(), "{report}");
    }
    let of = |codec| reports.iter().find(|report| report["codec"] == codec).unwrap();
    assert_ne!(of("sign")["weights_hash"], of("none")["weights_hash"]);
    let again = compression(&["--ranks", "2", "--compress", "sign"]);
    assert_eq!(again.len(), 2, "the exact one is beside it");
    assert_eq!(again[1]["weights_hash"], of("sign")["weights_hash"]);
}

#[test]
fn compressed_training_goes_on_without_a_killed_rank() {
    // At the end of the warm-up of 1-bit Adam, and long after.
    for (kill, victim) in [("0@138", 0), ("2@400", 2)] {
        let reports = compression(&["--ranks", "3", "--compress", "sign,int8", "--kill", kill]);
        assert_eq!(reports.len(), 3);
        let survivors: Vec<usize> = (0..3).filter(|rank| *rank != victim).collect();
        for report in &reports {
            assert_eq!(report["recovery"]["lost"], serde_json::json!([victim]), "{report}");
            assert_eq!(report["recovery"]["survivors"], serde_json::json!(survivors), "{report}");
            let step: u64 = kill.split_once('@').unwrap().1.parse().unwrap();
            let resumed = number(&report["recovery"], "step");
            assert!(resumed == step || resumed + 1 == step, "{kill}: from step {resumed}");
            assert!(accuracy(report) >= 0.95, "{report}");
            let hashes = report["weights_hash"].as_array().unwrap();
            assert!(hashes.len() == 3 && hashes[victim].is_null(), "{report}");
            assert_eq!(hashes[survivors[0]], hashes[survivors[1]], "{report}");
            assert_eq!(number(report, "steps") + number(report, "warmup_steps"), 690, "{report}");
        }
    }
}

#[test]
fn one_rank_trains_with_every_codec_and_sends_nothing() {
    for report in compression(&["--ranks", "1", "--compress", "all"]) {
        assert!(accuracy(&report) >= 0.95, "{report}");
        assert_eq!((number(&report, "warmup_bytes"), number(&report, "bytes_on_wire")), (0, 0), "{report}");
    }
}

#[test]
fn a_person_reads_a_line_for_each_codec() {
    let done = unisono(&["demo", "-np", "2", "--compress", "int4", "--seed", "7"]);
    assert!(done.status.success(), "{}", done.err);
    for codec in ["none ", "int4 "] {
        let lines = done.out.lines().filter(|line| line.starts_with(codec) && line.contains(" 9"));
        assert_eq!(lines.count(), 1, "{codec}\n{}", done.out);
    }
}

#[test]
fn a_data_set_that_cannot_be_read_and_options_that_mean_nothing_are_refused() {
    let refused = unisono(&["demo", "--ranks", "2", "--compress", "int8", "--data", "/no/such/folder"]);
    assert!(
        !refused.status.success() && refused.err.contains("/no/such/folder/train-images"),
        "{}",
        refused.err
    );
    for (arguments, said) in [
        (&["demo", "--compress", "int2"][..], "unknown codec \"int2\", one of: none, sign"),
        (&["demo", "--compress"], "--compress"),
        (&["demo", "--seed", "3"], "--compress"),
        (&["demo", "--data", "x"], "--compress"),
    ] {
        let refused = unisono(arguments);
        assert!(refused.status.code() == Some(2) && refused.err.contains(said), "{}", refused.err);
    }
}
