//! `cargo xtask compare python`: makes the wheel of the package for Python, and hands over to the comparison with
//! mpi4py, which fetches it if it is absent.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::compare::peers_folder;
use crate::workspaces::{cargo, repository, succeed, target_folder};

const COMPARISON: &str = "benches/lab/python/compare.py";

/// Obeys `words`, the options of the comparison. False when it did not start.
pub(crate) fn run(words: &[&str]) -> bool {
    let is_help = words.iter().any(|word| ["--help", "-h"].contains(word));
    let problem = match if is_help { Ok(PathBuf::new()) } else { wheel() } {
        Ok(wheel) => {
            let mut command = Command::new("python3");
            command.arg(repository().join(COMPARISON)).arg(wheel).arg(peers_folder(&[])).args(words);
            command.exec().to_string()
        }
        Err(problem) => problem,
    };
    println!("compare python: {problem}");
    false
}

/// Makes the wheel, the only file of its folder.
fn wheel() -> Result<PathBuf, String> {
    succeed(cargo("run").args(["--quiet", "--package", "xtask", "--", "python", "build"]))?;
    let folder = target_folder().join("python/wheels/dist");
    let first = std::fs::read_dir(&folder).ok().and_then(|mut files| files.next()?.ok());
    first.map(|file| file.path()).ok_or_else(|| format!("{}: no wheel", folder.display()))
}
