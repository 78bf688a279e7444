//! `cargo xtask torch`: hands over to the tools of the package for torch, by the Python of an environment with torch.

use std::env::var_os;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::tool::{Outcome, repository};

const TOOLS: &str = "crates/unisono-python/torch/tools.py";

/// Becomes the tools, which understand `words`.
pub(crate) fn run(words: &[&str]) -> Outcome {
    let folder = var_os("VIRTUAL_ENV");
    let python = folder.map_or("python3".into(), |folder| PathBuf::from(folder).join("bin/python"));
    Err(Command::new(python).arg(repository().join(TOOLS)).args(words).exec().to_string())
}
