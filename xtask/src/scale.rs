//! `cargo xtask scale`: what a job of many ranks costs, by simulated jobs of the control plane.

use std::path::Path;
use std::process::Command;

/// Prints a table and writes a picture.
pub(crate) fn run(repository: &Path) -> bool {
    let status = Command::new(env!("CARGO"))
        .args(["test", "--release", "--quiet", "-p", "unisono-control", "--lib", "--"])
        .args(["--exact", "scale::jobs_of_many_ranks", "--ignored", "--nocapture"])
        .current_dir(repository)
        .status();
    match status {
        Ok(status) => status.success(),
        Err(error) => {
            println!("scale: {error}");
            false
        }
    }
}
