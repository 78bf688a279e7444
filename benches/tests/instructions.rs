//! The instructions of a short call, counted by callgrind: a call grows by a few at a time, which no clock shows.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that says its figure")]

use std::path::Path;
use std::process::Command;

use unisono_tests::skip;

/// The calls of the short run and of the long one. Their difference leaves out all that a program does once.
const CALLS: [u64; 2] = [1_000, 4_000];

/// Forms of a call of 64 bytes by 2 ranks, an `all_reduce` or a send and a receive, and its instructions. Other
/// compilers may need 5 % more. Tests are compiled for a fast build: a release needs two thirds as many, or half
/// (benches/lab/measurements.md).
const FORMS: [(&str, u64); 3] = [("plain", 4_600), ("prepared", 3_900), ("message", 4_600)];

/// All instructions of a run; `None` without callgrind.
fn instructions(calls: u64, form: &str) -> Option<u64> {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("callgrind.{form}.{calls}"));
    let ran = Command::new("valgrind")
        .args(["--tool=callgrind", &format!("--callgrind-out-file={}", out.display())])
        .args([env!("CARGO_BIN_EXE_call_cost"), &calls.to_string(), form])
        .output()
        .ok()?;
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let text = std::fs::read_to_string(out).unwrap();
    let total =
        text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    Some(total.unwrap().trim().parse().unwrap())
}

#[test]
fn a_short_call_has_few_instructions() {
    for (form, most) in FORMS {
        let counted = CALLS.map(|calls| instructions(calls, form));
        let [Some(short), Some(long)] = counted else { return skip("valgrind", "no program of this name") };
        let each = (long - short) / (CALLS[1] - CALLS[0]);
        println!("{form}: {each} instructions, at most {most} and 5 %");
        assert!(each * 100 <= most * 105, "{form}: {each} instructions, and {most} were enough");
    }
}
