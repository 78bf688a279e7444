//! The workspace of the product, the workspace of the laboratory, and cargo in each.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the product, which this program was built from.
pub(crate) fn repository() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(3).unwrap_or(package)
}

/// The folder where both are compiled.
pub(crate) fn target_folder() -> PathBuf {
    repository().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Cargo in the product's workspace.
pub(crate) fn cargo(subcommand: &str) -> Command {
    cargo_of("Cargo.toml", subcommand)
}

/// Cargo in the laboratory's workspace.
pub(crate) fn lab_cargo(subcommand: &str) -> Command {
    cargo_of("benches/lab/Cargo.toml", subcommand)
}

fn cargo_of(manifest: &str, subcommand: &str) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args([subcommand, "--manifest-path", manifest]);
    command.current_dir(repository()).env("CARGO_TARGET_DIR", target_folder());
    command
}

/// Becomes a program of the laboratory in its release build, so that Ctrl-C reaches it. False when it did not start.
pub(crate) fn become_program(program: &str, prepare: impl FnOnce(&mut Command) -> &mut Command) -> bool {
    let mut command = lab_cargo("run");
    command.args(["--release", "--package", program, "--bin", program, "--"]);
    println!("{program}: {}", prepare(&mut command).exec());
    false
}

/// Runs a command to its end.
///
/// # Errors
/// A text with the program's name, when it does not start or fails.
pub(crate) fn succeed(command: &mut Command) -> Result<(), String> {
    let status = command.status();
    let name = Path::new(command.get_program()).file_name().unwrap_or_default().display();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name}: {status}")),
        Err(error) => Err(format!("{name}: {error}")),
    }
}
