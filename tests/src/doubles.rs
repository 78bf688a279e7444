//! The libraries of the doubles of vendors' libraries (`tests/doubles`), which Cargo builds because this package
//! depends on theirs. What they are told while they run goes by `unisono_double_common::control`.

use std::fs;
use std::path::{Path, PathBuf};

pub use unisono_double_common::control::Control;
use unisono_double_common::file;

/// The double of NCCL and of the CUDA driver, one file for both. All that open this file share one library.
///
/// # Panics
/// When it is not beside this program.
pub fn nccl() -> PathBuf {
    file::library("unisono_double_nccl").unwrap()
}

/// A copy in `folder`, with settings of its own (`unisono_double_common::settings`) such as `devices=2.some-test`: what
/// is set, injected and counted in it concerns no other. `version`, as `ncclGetVersion` counts, takes away what is
/// newer.
///
/// # Panics
/// When it cannot be written.
pub fn nccl_with(folder: &Path, settings: &str, version: Option<u32>) -> PathBuf {
    let Some(version) = version else { return copy(&nccl(), folder, settings, &[]) };
    let newer = unisono_double_nccl::NEWER.iter().filter(|(_, since)| *since > version);
    let newer: Vec<&str> = newer.map(|(symbol, _)| *symbol).collect();
    copy(&nccl(), folder, &format!("{settings}.version={version}"), &newer)
}

/// The double of HCCL, of ACL and of aclnn's operators, one file for all. All that open this file share one library.
///
/// # Panics
/// When it is not beside this program.
pub fn hccl() -> PathBuf {
    file::library("unisono_double_hccl").unwrap()
}

/// A copy in `folder`, with settings of its own such as `product=310p.some-test`, and without some functions.
///
/// # Panics
/// When it cannot be written, or lacks one of the functions already.
pub fn hccl_with(folder: &Path, settings: &str, without: &[&str]) -> PathBuf {
    copy(&hccl(), folder, settings, without)
}

fn copy(library: &Path, folder: &Path, settings: &str, without: &[&str]) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    file::copy(library, folder, settings, without).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_has_built_the_libraries() {
        let folder = tempfile::tempdir().unwrap();
        let older = fs::read(nccl_with(folder.path(), "older", Some(22703))).unwrap();
        let has = |symbol: &str| older.windows(symbol.len()).any(|window| window == symbol.as_bytes());
        assert!(has("\0ncclCommShrink\0") && !has("\0ncclAlltoAll\0"));
        assert!(hccl_with(folder.path(), "without", &["HcclBarrier"]).exists());
    }
}
