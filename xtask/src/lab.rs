//! The commands that measure: the programs of `benches/lab`, a workspace of its own, and tests of the control plane.

use std::os::unix::process::CommandExt;

use crate::tool::{Outcome, cargo, repository, seed_lock, succeed, target_folder};

/// Its folder in the repository.
pub(crate) const FOLDER: &str = "benches/lab";

/// Becomes the laboratory's program, which understands `words`.
pub(crate) fn run(words: &[&str]) -> Outcome {
    seed_lock(&repository().join(FOLDER))?;
    let program =
        ["run", "--quiet", "--manifest-path", "benches/lab/Cargo.toml", "--package", "unisono-lab", "--"];
    let mut command = cargo(program);
    Err(command.args(words).env("CARGO_TARGET_DIR", target_folder()).exec().to_string())
}

/// The cost of a job of many ranks, by meetings at a real store and by simulated jobs of the control plane: prints the
/// tables and writes a picture.
pub(crate) fn scale() -> Outcome {
    for (package, test) in [
        ("unisono-job", "rendezvous::scale_tests::meetings_of_many_ranks"),
        ("unisono-control", "scale::jobs_of_many_ranks"),
    ] {
        let words = ["test", "--release", "--quiet", "-p", package, "--lib", "--"];
        succeed(cargo(words).args(["--exact", test, "--ignored", "--nocapture"]))?;
    }
    Ok(())
}
