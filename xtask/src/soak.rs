//! `cargo xtask soak`: builds the soak program in release mode and hands over to it.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Does not come back unless it could not start.
pub(crate) fn run(repository: &Path, words: &[&str]) -> bool {
    let error = Command::new(env!("CARGO"))
        .args(["run", "--release", "--quiet", "-p", "unisono-soak", "--"])
        .args(words)
        .current_dir(repository)
        .exec();
    println!("soak: {error}");
    false
}
