//! `cargo xtask converge`: finds or fetches the data set, builds the program, and hands over to the comparison.
//!
//! The data set is the Debian package dataset-fashion-mnist. Installed, it is used where it is; `--install` downloads
//! it with apt-get and unpacks it under `target/`, for which nobody has to be root.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspaces::{become_program, cargo, succeed, target_folder};

const PACKAGE: &str = "dataset-fashion-mnist";
/// The folder of the package's files, below a root.
const IN_PACKAGE: &str = "usr/share/datasets/fashion-mnist";

/// Obeys `words`. With `--install`, the data set is fetched if it is absent. Everything else is for the
/// comparison itself; see its `--help`.
pub(crate) fn run(words: &[&str]) -> bool {
    let is_install = words.contains(&"--install");
    let words: Vec<&str> = words.iter().copied().filter(|word| *word != "--install").collect();
    let is_help = words.iter().any(|word| ["--help", "-h"].contains(word));
    let prepared = (|| {
        let data = data(&words, is_install && !is_help)?;
        if !is_help {
            succeed(cargo("build").args(["--release", "--package", "unisono-cli"]))?;
        }
        Ok(data)
    })();
    match prepared {
        Ok(data) => hand_over(data, &words),
        Err(problem) => {
            let problem: String = problem;
            println!("converge: {problem}");
            false
        }
    }
}

/// The folder of the data set, unless the user names one or there is none.
fn data(words: &[&str], is_install: bool) -> Result<Option<PathBuf>, String> {
    if words.iter().any(|word| *word == "--data" || word.starts_with("--data=")) {
        return Ok(None);
    }
    let unpacked = target_folder().join(PACKAGE);
    let find = || {
        [Path::new("/"), &unpacked]
            .map(|root| root.join(IN_PACKAGE))
            .into_iter()
            .find(|folder| folder.is_dir())
    };
    if is_install && find().is_none() {
        install(&unpacked)?;
    }
    let found = find();
    if found.is_none() {
        println!(
            "Fashion-MNIST is not here (`cargo xtask converge --install` fetches it): training on the digits"
        );
    }
    Ok(found)
}

fn install(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    succeed(Command::new("apt-get").args(["download", "--quiet", PACKAGE]).current_dir(folder))?;
    let files = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let package =
        files.flatten().map(|file| file.path()).find(|path| path.extension() == Some(OsStr::new("deb")));
    let package = package.ok_or_else(|| format!("apt-get left no package in {}", folder.display()))?;
    succeed(Command::new("dpkg-deb").arg("--extract").arg(package).arg(folder))
}

fn hand_over(data: Option<PathBuf>, words: &[&str]) -> bool {
    become_program("unisono-converge", |command| {
        command.arg("--program").arg(target_folder().join("release/unisono"));
        if let Some(folder) = data {
            command.arg("--data").arg(folder);
        }
        command.args(words)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_the_user_names_is_the_one() {
        assert_eq!(data(&["--data", "/x"], false), Ok(None));
        assert_eq!(data(&["--ranks", "2", "--data=x"], true), Ok(None));
    }
}
