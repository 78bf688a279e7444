//! The program itself, on the test doubles of the driver and of NCCL: that it checks everything, and finds what is
//! wrong.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use unisono_offload_nccl::NcclLibrary;
use unisono_tests::cuda::kernels_for_host;
use unisono_tests::{doubles, watchdog};

const SECONDS_MAX: u64 = 120;

/// Whether it succeeded, what it printed, and its report.
struct Run {
    succeeded: bool,
    said: String,
    report: Value,
}

/// Runs the program with these words, and the variables of the doubles.
fn run(words: &[&str], variables: &[(&str, &str)]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("report.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono-gpu-check"));
    command.args(words).arg("--json").arg(&json).envs(variables.iter().copied()).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let said = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    let report = fs::read_to_string(json).map_or(Value::Null, |text| serde_json::from_str(&text).unwrap());
    Run { succeeded: status.success(), said, report }
}

impl Run {
    /// The names of the checks that have failed, and why.
    fn failures(&self) -> Vec<(&str, &str)> {
        let checks = self.report["checks"].as_array().unwrap();
        checks.iter().filter_map(|one| Some((one["name"].as_str()?, one["failure"].as_str()?))).collect()
    }

    fn passed(&self, name: &str) -> bool {
        let checks = self.report["checks"].as_array().unwrap();
        checks.iter().any(|one| one["name"] == name && one["failure"].is_null())
    }
}

/// Runs `body`, unless there is no compiler for the doubles' kernels.
fn test(name: &str, body: impl FnOnce() + Send + 'static) {
    if kernels_for_host().is_some() {
        watchdog(SECONDS_MAX, name, body);
    }
}

#[test]
fn everything_is_checked_on_the_doubles() {
    test("everything", || {
        let run = run(&["--double", "--quick"], &[]);
        assert!(run.succeeded, "{}", run.said);
        assert_eq!(run.failures(), []);
        for name in [
            "kernel SignEncode",
            "kernel combine, sum of f64",
            "kernel combine, max of f16",
            "typed calls of bf16, rank 0 of 1",
            "typed calls of bf16, rank 1 of 2",
            "all_reduce, rank 0 of 1",
            "all_to_all, rank 1 of 2",
            "all_reduce by ring, rank 0 of 2",
            "all_reduce by recursive_doubling, rank 1 of 2",
            "fixed order, rank 1 of 2",
            "compressed all_reduce of 9001 by int4, rank 0 of 1",
            "compressed all_reduce of 1 by bf16, rank 1 of 2",
            "a call that one rank does not make, rank 0 of 2",
            "a call that one rank does not make, rank 1 of 2",
            "NCCL's own all_reduce and unisono's, rank 1 of 2",
            "Calls, process of rank 1 of 2",
        ] {
            assert!(run.passed(name), "{name}: {}", run.said);
        }
        let report = &run.report;
        assert!(report["double"] == true && report["measured"].is_null(), "{report}");
        assert!(report["overhead"].as_array().unwrap().is_empty(), "{report}");
        assert!(report["card"].as_str().unwrap().contains("test double"), "{report}");
        assert!(report["nccl"].as_str().unwrap().starts_with("2.30.4 in "), "{report}");
        assert!(report["date"].as_str().unwrap().ends_with("UTC"), "{report}");
    });
}

/// A function that says that it has done what it has not, on every rank.
fn finds(part: &'static str, fault: &'static str, words: &'static [&'static str]) {
    test(fault, move || {
        let run = run(&["--double", "--only", part], &[("UNISONO_DOUBLE_INJECT", fault)]);
        assert!(!run.succeeded, "{}", run.said);
        let failures = run.failures();
        let named = |word: &&str| {
            failures.iter().any(|(name, why)| name.contains(word) && why.contains("instead of"))
        };
        assert!(words.iter().all(named), "{failures:?}");
        assert!(run.said.contains("FAILED"), "{}", run.said);
    });
}

#[test]
fn a_wrong_all_reduce_is_found() {
    finds("calls", "ncclAllReduce:3:0", &["rank 0 of 1", "rank 0 of 2", "rank 1 of 2"]);
}

#[test]
fn a_wrong_gather_is_found() {
    finds("calls", "ncclAllGather:2:0", &["typed calls", "rank 1 of 2"]);
}

#[test]
fn a_kernel_that_does_not_run_is_found() {
    finds("arithmetic", "cuLaunchKernel:30:0", &["kernel combine"]);
}

#[test]
fn a_wrong_message_of_a_compressed_call_is_found() {
    finds("compressed", "ncclGroupEnd:12:0", &["compressed all_reduce", "rank 0 of 2"]);
}

#[test]
fn a_wrong_result_in_the_measurement_is_found() {
    // The first one of two ranks is that in which they connect.
    finds("overhead", "ncclAllReduce:2:0", &["NCCL's own all_reduce and unisono's, rank 0 of 2"]);
}

#[test]
fn ranks_that_hang_are_ended_and_named() {
    test("hang", || {
        let fault = [("UNISONO_DOUBLE_INJECT", "ncclCommInitRankConfig:1:hang")];
        let run = run(&["--double", "--only", "calls", "--part-timeout-s", "2"], &fault);
        assert!(!run.succeeded, "{}", run.said);
        let (name, why) = run.failures()[0];
        assert_eq!(name, "Calls, process of rank 0 of 1");
        assert!(why.starts_with("it did not end in time, and was killed"), "{why}");
    });
}

#[test]
fn an_older_nccl_is_checked_with_one_rank() {
    test("older", || {
        let run = run(&["--double", "--only", "overhead"], &[("UNISONO_DOUBLE_VERSION", "22809")]);
        assert!(run.succeeded, "{}", run.said);
        assert!(run.passed("Overhead, process of rank 0 of 1"));
        assert!(!run.passed("Overhead, process of rank 0 of 2"));
        let why = "LEFT OUT: 2 ranks on one device, which need NCCL 2.30.0: this is 2.28.9";
        assert!(run.said.contains(why), "{}", run.said);
    });
}

#[test]
fn without_nccl_it_says_so() {
    if NcclLibrary::open(&None).is_ok() {
        return;
    }
    test("without", || {
        let driver = doubles::nccl();
        let words = ["--driver", driver.to_str().unwrap(), "--only", "calls"];
        let without = run(&words, &[]);
        assert!(without.succeeded, "{}", without.said);
        assert!(
            without.said.contains("LEFT OUT: everything of NCCL, which is not found"),
            "{}",
            without.said
        );
        assert!(without.report["nccl"].is_null());
        // A file that is named must be there.
        let named = run(&[&words[..], &["--nccl", "/nowhere/libnccl.so.2"]].concat(), &[]);
        assert!(!named.succeeded && named.said.contains("/nowhere/libnccl.so.2"), "{}", named.said);
    });
}
