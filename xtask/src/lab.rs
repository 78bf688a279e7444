//! The commands that measure: the programs of `benches/lab`, a workspace of its own.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::test;

/// Its folder in the repository.
pub(crate) const FOLDER: &str = "benches/lab";

/// Becomes the laboratory's program, which understands `words`. False when it did not start.
pub(crate) fn run(repository: &Path, words: &[&str]) -> bool {
    let start = || {
        let mut command = Command::new(env!("CARGO"));
        command.args([
            "run",
            "--quiet",
            "--manifest-path",
            "benches/lab/Cargo.toml",
            "--package",
            "unisono-lab",
        ]);
        command.arg("--").args(words).current_dir(repository).env("CARGO_TARGET_DIR", test::target_folder());
        command.exec().to_string()
    };
    let seeded = test::seed_lock(&repository.join(FOLDER));
    let problem = seeded.map_or_else(|problem| problem, |()| start());
    println!("{}: {problem}", words.join(" "));
    false
}
