//! The libraries of the doubles of vendors' libraries (`tests/doubles`), which Cargo builds because this package
//! depends on theirs. What they are told while they run goes by `unisono_double_common::control`.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use unisono_communicator::Result;
pub use unisono_double_common::control::Control;
use unisono_double_common::file;
use unisono_offload::Vendor;
use unisono_offload_hccl::{Hccl, HcclOptions};
use unisono_offload_nccl::{Nccl, NcclOptions};

use crate::cuda::{double_kernels, kernels_for_host};
use crate::on_device::VendorDouble;

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

/// The names by which CANN's libraries are looked for.
const CANN: [&str; 4] = ["libascendcl.so", "libhccl.so", "libnnopbase.so", "libopapi.so"];

/// A folder in which the double has the names of CANN's libraries.
///
/// # Panics
/// When the double is not beside this program, or the folder cannot be made.
pub fn hccl_folder() -> PathBuf {
    let library = hccl();
    let folder = library.with_extension("cann");
    fs::create_dir_all(&folder).unwrap();
    name_as_cann(&library, &folder);
    folder
}

/// Gives a double of HCCL the names of CANN's libraries in `folder`, unless it has them. All are one library.
///
/// # Panics
/// When that cannot be written.
pub fn name_as_cann(library: &Path, folder: &Path) {
    for name in CANN {
        match symlink(library, folder.join(name)) {
            // Processes of ranks begin together.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            named => named.unwrap(),
        }
    }
}

/// Whether NCCL's double has our kernels, in the library that all share; false, after a line, without g++.
///
/// # Panics
/// As [`nccl`].
pub fn nccl_has_kernels() -> bool {
    let Some(kernels) = kernels_for_host() else { return false };
    // It stays open: a library that is loaded again has none.
    static CONTROL: OnceLock<Control> = OnceLock::new();
    CONTROL.get_or_init(NcclDouble::control).load_kernels(kernels)
}

/// NCCL's double on the device of this number.
///
/// # Errors
/// As [`Nccl::open`].
///
/// # Panics
/// As [`nccl`].
pub fn open_nccl(device: u32) -> Result<Nccl> {
    let double = Some(nccl());
    // The double's file of kernels is named in its environment, if there is one.
    let kernels = double_kernels(&[90]);
    let options = NcclOptions { library: double.clone(), driver: double, device, kernels, blocking: false };
    Nccl::open(&options).inspect(is_marked)
}

/// HCCL's double on the device of this number.
///
/// # Errors
/// As [`Hccl::open`].
///
/// # Panics
/// As [`hccl_folder`].
pub fn open_hccl(device: u32) -> Result<Hccl> {
    Hccl::open(&HcclOptions { directory: Some(hccl_folder()), device }).inspect(is_marked)
}

/// A column of the table of calls names a test double only where the suite has run over one.
fn is_marked(vendor: &impl Vendor) {
    assert!(vendor.version().ends_with("(test double)"), "{}", vendor.version());
}

/// NCCL's.
pub struct NcclDouble;

impl VendorDouble for NcclDouble {
    type Vendor = Nccl;

    fn open(device: u32) -> Result<Nccl> {
        open_nccl(device)
    }

    fn control() -> Control {
        Control::open(&nccl()).unwrap()
    }

    fn computes() -> bool {
        nccl_has_kernels()
    }
}

/// HCCL's.
pub struct HcclDouble;

impl VendorDouble for HcclDouble {
    type Vendor = Hccl;

    fn open(device: u32) -> Result<Hccl> {
        open_hccl(device)
    }

    fn control() -> Control {
        Control::open(&hccl()).unwrap()
    }
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
