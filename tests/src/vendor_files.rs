//! What tests find of vendors' libraries on a machine.

use std::path::{Path, PathBuf};

use crate::skip;

/// What the variable names, if it is set.
fn named(variable: &str) -> Option<PathBuf> {
    std::env::var(variable).ok().filter(|named| !named.is_empty()).map(PathBuf::from)
}

/// The folder that `variable` names, else the one that `cargo xtask fetch-vendor NAME` has made, if `file` is in it.
/// `None`, after [`skip`], without one.
pub(crate) fn vendor_folder(name: &str, variable: &str, file: &str) -> Option<PathBuf> {
    named(variable).or_else(|| fetched(name, variable, file))
}

fn fetched(name: &str, variable: &str, file: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join("target/vendor").join(name);
    if folder.join(file).exists() {
        return Some(folder);
    }
    let reason =
        format!("{variable} is not set, and no {}: cargo xtask fetch-vendor {name}", folder.display());
    skip(name, &reason);
    None
}

/// A launcher of MPI: `file` in the folder that `cargo xtask fetch-vendor NAME` has made. `None`, after [`skip`],
/// without one.
pub fn mpi_launcher(name: &str, file: &str) -> Option<PathBuf> {
    Some(fetched(name, "its folder", file)?.join(file))
}

/// The real NCCL: the file that `UNISONO_NCCL_LIB` names, else what `cargo xtask fetch-vendor nccl` has made. `None`,
/// after [`skip`], without one.
pub fn nccl_library() -> Option<PathBuf> {
    const FILE: &str = "libnccl.so.2";
    let variable = "UNISONO_NCCL_LIB";
    named(variable).or_else(|| Some(fetched("nccl", variable, FILE)?.join(FILE)))
}
