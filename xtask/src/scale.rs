//! `cargo xtask scale`: the cost of a job of many ranks, by meetings at a real store and by simulated jobs of the
//! control plane.

use std::path::Path;
use std::process::Command;

/// The measurements: the package and the test of each.
const MEASUREMENTS: [(&str, &str); 2] = [
    ("unisono-job", "rendezvous::scale_tests::meetings_of_many_ranks"),
    ("unisono-control", "scale::jobs_of_many_ranks"),
];

/// Prints the tables and writes a picture.
pub(crate) fn run(repository: &Path) -> bool {
    MEASUREMENTS.iter().all(|(package, test)| measure(repository, package, test))
}

fn measure(repository: &Path, package: &str, test: &str) -> bool {
    let status = Command::new(env!("CARGO"))
        .args(["test", "--release", "--quiet", "-p", package, "--lib", "--"])
        .args(["--exact", test, "--ignored", "--nocapture"])
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
