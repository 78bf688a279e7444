//! `cargo xtask test`: everything that must hold before a change is taken, cheapest first.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::tidy;

/// What is asked of cargo, in order. Each inherits the terminal, so that cargo's own closing lines are the report.
const CARGO: &[&[&str]] = &[
    &["fmt", "--all", "--check"],
    &["clippy", "--workspace", "--all-targets", "--all-features", "--", "--deny", "warnings"],
    &["test", "--workspace", "--all-features"],
];

/// Runs all of it, up to the first that fails.
pub(crate) fn run(repository: &Path) -> bool {
    tidy::run(repository) && CARGO.iter().all(|arguments| cargo(repository, arguments))
}

fn cargo(repository: &Path, arguments: &[&str]) -> bool {
    let command = arguments.join(" ");
    println!("\n== cargo {command}");
    let start = Instant::now();
    let status = Command::new(env!("CARGO")).args(arguments).current_dir(repository).status();
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
