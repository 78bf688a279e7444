//! The short form of what `cargo xtask soak` does at length: a few jobs under random faults, a few pairs of survivors
//! and fresh runs, a few changed bits. The program judges itself, with a watchdog for every job; a failure prints the
//! seed that repeats it.

#![expect(clippy::expect_used, reason = "a test fails by panicking, in its helpers too")]

use std::process::Command;

/// Runs the program, which must find every promise kept.
fn soak(arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_unisono-soak")).args(arguments).output();
    let output = output.expect("the soak program");
    let said = String::from_utf8_lossy(&output.stdout);
    let text = format!("{arguments:?}: {said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains(": kept"), "{text}");
    eprintln!("{text}");
}

#[test]
fn ranks_survive_random_faults() {
    soak(&["--only", "faults", "--fault-runs", "10", "--seed", "1"]);
}

#[test]
fn survivors_come_to_the_bits_of_a_fresh_run() {
    soak(&["--only", "identical", "--identical-runs", "4"]);
}

#[test]
fn changed_bits_are_found_and_everybody_goes_on() {
    soak(&["--only", "flips", "--flips", "40"]);
}
