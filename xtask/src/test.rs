//! `cargo xtask test`: everything that must hold before a change is taken, cheapest first.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::tidy;

/// What is asked of cargo, in order. Each inherits the terminal, so that cargo's own closing lines are the report.
const CARGO: &[&[&str]] = &[
    &["fmt", "--all", "--check"],
    &["clippy", "--workspace", "--all-targets", "--all-features", "--", "--deny", "warnings"],
    // The program has the library's name, and would write over its pages.
    &["doc", "--workspace", "--lib", "--no-deps", "--all-features"],
    // Apart from the tests, so that the time of each is seen.
    &["test", "--workspace", "--all-features", "--no-run"],
    // One run shows everything that fails.
    &["test", "--workspace", "--all-features", "--no-fail-fast"],
];

/// A package that uses the library from outside the workspace.
const EXAMPLE: &str = "examples/bidirectional-ring";

/// What is asked of cargo there. The last is what its author runs all the time: without most of the library.
const CARGO_IN_EXAMPLE: &[&[&str]] = &[
    &["fmt", "--check"],
    &["clippy", "--all-targets", "--", "--deny", "warnings"],
    &["test", "--no-fail-fast"],
    &["check", "--no-default-features", "--all-targets"],
];

/// The variable of Rust's test harness that says how many tests of a binary run at once.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// Many tests wait most of the time, for deadlines and for other processes.
const TESTS_PER_CORE: usize = 2;

/// A part of the work, and what it came to.
struct Part {
    command: String,
    verdict: String,
    passed: bool,
    seconds: f64,
}

/// Runs all of it, up to the first that fails, and ends with the time of each part.
pub(crate) fn run(repository: &Path) -> bool {
    let mut parts = vec![timed("tidy", || if tidy::run(repository) { Ok(()) } else { Err("failed".into()) })];
    let in_workspace = CARGO.iter().map(|arguments| (repository.to_owned(), *arguments));
    let in_example = CARGO_IN_EXAMPLE.iter().map(|arguments| (repository.join(EXAMPLE), *arguments));
    for (folder, arguments) in in_workspace.chain(in_example) {
        if parts.iter().all(|part| part.passed) {
            parts.push(cargo(&folder, arguments));
        }
    }
    println!("\n  seconds");
    parts.iter().for_each(|part| println!("{:9.0}  {}: {}", part.seconds, part.command, part.verdict));
    parts.iter().all(|part| part.passed)
}

fn timed(command: &str, work: impl FnOnce() -> Result<(), String>) -> Part {
    let start = Instant::now();
    let (passed, verdict) = match work() {
        Ok(()) => (true, "passed".to_owned()),
        Err(problem) => (false, problem),
    };
    Part { command: command.to_owned(), verdict, passed, seconds: start.elapsed().as_secs_f64() }
}

/// Where the workspace is compiled.
pub(crate) fn target_folder() -> PathBuf {
    crate::repository().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Asks cargo in one folder. The example is checked with the versions and in the target folder of the workspace, so
/// that what both use is compiled once.
fn cargo(folder: &Path, arguments: &[&str]) -> Part {
    let place = folder.strip_prefix(crate::repository()).unwrap_or(folder).display();
    let command = format!("cargo {} {place}", arguments.join(" "));
    let command = command.trim_end();
    println!("\n== {command}");
    let part = timed(command, || {
        let lock = "Cargo.lock";
        if folder != crate::repository() {
            std::fs::copy(crate::repository().join(lock), folder.join(lock))
                .map_err(|error| format!("{lock}: {error}"))?;
        }
        let mut started = Command::new(env!("CARGO"));
        started.args(arguments).current_dir(folder).env("CARGO_TARGET_DIR", target_folder());
        if std::env::var_os(TEST_THREADS).is_none() {
            let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            started.env(TEST_THREADS, (TESTS_PER_CORE * cores).to_string());
        }
        match started.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("failed: {status}")),
            Err(error) => Err(format!("did not start: {error}")),
        }
    });
    println!("== {}: {} after {:.0} s", part.command, part.verdict, part.seconds);
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_a_failure() {
        let repository = crate::repository();
        assert!(cargo(repository, &["--version"]).passed);
        assert!(!cargo(repository, &["no-such-command"]).passed);
    }
}
