//! `cargo xtask test`: everything that must hold before a change is taken, cheapest first.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::tidy;

/// What is asked of cargo, in order. Each inherits the terminal, so that cargo's own closing lines are the report.
const CARGO: &[&[&str]] = &[
    &["fmt", "--all", "--check"],
    &["clippy", "--workspace", "--all-targets", "--all-features", "--", "--deny", "warnings"],
    &["test", "--workspace", "--all-features"],
];

/// A package that uses the library from outside the workspace.
const EXAMPLE: &str = "examples/bidirectional-ring";

/// What is asked of cargo there. The last is what its author runs all the time: without most of the library.
const CARGO_IN_EXAMPLE: &[&[&str]] = &[
    &["fmt", "--check"],
    &["clippy", "--all-targets", "--", "--deny", "warnings"],
    &["test"],
    &["check", "--no-default-features", "--all-targets"],
];

/// Runs all of it, up to the first that fails.
pub(crate) fn run(repository: &Path) -> bool {
    tidy::run(repository) && CARGO.iter().all(|arguments| cargo(repository, arguments)) && example(repository)
}

/// Checks the example with the versions and in the target folder of the workspace, so that what both use is compiled
/// once.
fn example(repository: &Path) -> bool {
    let folder = repository.join(EXAMPLE);
    if let Err(error) = std::fs::copy(repository.join("Cargo.lock"), folder.join("Cargo.lock")) {
        println!("{EXAMPLE}/Cargo.lock: {error}");
        return false;
    }
    CARGO_IN_EXAMPLE.iter().all(|arguments| cargo(&folder, arguments))
}

/// Where the workspace is compiled.
fn target_folder() -> PathBuf {
    crate::repository().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

fn cargo(folder: &Path, arguments: &[&str]) -> bool {
    let place = folder.strip_prefix(crate::repository()).unwrap_or(folder).display();
    let command = format!("{} {place}", arguments.join(" "));
    let command = command.trim_end();
    println!("\n== cargo {command}");
    let start = Instant::now();
    let mut started = Command::new(env!("CARGO"));
    started.args(arguments).current_dir(folder).env("CARGO_TARGET_DIR", target_folder());
    let status = started.status();
    let (passed, verdict) = match status {
        Ok(status) if status.success() => (true, "passed".to_owned()),
        Ok(status) => (false, format!("failed: {status}")),
        Err(error) => (false, format!("did not start: {error}")),
    };
    println!("== cargo {command}: {verdict} after {} s", start.elapsed().as_secs());
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_a_failure() {
        let repository = crate::repository();
        assert!(cargo(repository, &["--version"]));
        assert!(!cargo(repository, &["no-such-command"]));
    }
}
