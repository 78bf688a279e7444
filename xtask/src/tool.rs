//! The common ground of the commands: places in the repository, programs that must succeed, folders.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use regex::Regex;

/// The outcome of a command: nothing to add, or one line about the problem.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// The repository that this program was built from.
pub(crate) fn repository() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

/// The folder in which the workspace is compiled.
pub(crate) fn target_folder() -> PathBuf {
    repository().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// The expression of a pattern, which is compiled once.
pub(crate) fn regex(pattern: &'static str) -> &'static Regex {
    static COMPILED: Mutex<BTreeMap<&str, &Regex>> = Mutex::new(BTreeMap::new());
    #[expect(clippy::expect_used, reason = "the patterns are constants, and tests use them")]
    let compile = || &*Box::leak(Box::new(Regex::new(pattern).expect("a pattern")));
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    compiled.entry(pattern).or_insert_with(compile)
}

/// Cargo in the repository.
pub(crate) fn cargo<'a>(words: impl IntoIterator<Item = &'a str>) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(words).current_dir(repository());
    cargo
}

/// A command of pip for this Python, which says nothing but problems.
pub(crate) fn pip(python: impl AsRef<OsStr>, command: &str) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", command, "--quiet", "--disable-pip-version-check"]);
    pip
}

pub(crate) fn succeed(command: &mut Command) -> Outcome {
    let name = command.get_program().display().to_string();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name}: {status}")),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// The words for a problem with a file.
pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

pub(crate) fn read(path: &Path) -> Outcome<String> {
    fs::read_to_string(path).map_err(at(path))
}

/// Makes an empty folder, in place of an old one if there is one.
pub(crate) fn fresh(folder: &Path) -> Outcome {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(at(folder))?;
    }
    fs::create_dir_all(folder).map_err(at(folder))
}

/// Gives a workspace of its own the versions of the root's.
pub(crate) fn seed_lock(folder: &Path) -> Outcome {
    let lock = folder.join("Cargo.lock");
    fs::copy(repository().join("Cargo.lock"), &lock).map(drop).map_err(at(&lock))
}
