//! The short form of `cargo xtask two-hosts`. The program checks every result itself; no time is
//! asserted.

#[path = "../../../../tests/src/skip.rs"]
mod skip;

use std::process::Command;

/// Ours chooses, and a ring is forced in the calls that have one; no peer takes part.
#[test]
fn two_hosts_of_two_ranks_have_right_results_at_every_speed() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = ["two-hosts", "--gbit", "1,unshaped", "--sizes", "64,256K", "--rounds", "1", "--no-peers"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono-compare"));
    command.args(words).args(["--algorithms", "ring", "--out"]).arg(folder.path());
    let output = command.output().expect("the program");
    let said = String::from_utf8_lossy(&output.stdout);
    let text = format!("{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}");
    if let Some(reason) = said.strip_prefix("SKIP two-hosts: ") {
        skip::skip("namespaces", reason.trim());
        return;
    }
    let summary = std::fs::read_to_string(folder.path().join("summary.json")).expect("the figures");
    let rows: serde_json::Value = serde_json::from_str(&summary).expect("JSON");
    let rows = rows.as_array().expect("rows");
    // Two speeds, three operations, two sizes; an all-to-all has no ring.
    assert_eq!(rows.len(), 2 * 3 * 2, "{text}");
    for row in rows {
        let systems = if row["operation"] == "all_to_all" { 1 } else { 2 };
        assert_eq!(row["systems"].as_array().map(Vec::len), Some(systems), "{row}");
    }
    let limited = rows.iter().filter(|row| row["of_limit"].is_number());
    assert_eq!(limited.count(), rows.len() / 2, "{text}");
    assert!(folder.path().join("two-hosts.svg").exists());
}
