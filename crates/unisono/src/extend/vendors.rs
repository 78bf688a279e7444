//! The vendors' libraries of this build, opened as settings describe them and as [`init_with`](crate::init_with) opens
//! them: for programs that look at a library first, or make a communicator of it with other options.

use unisono_communicator::Result;
#[cfg(feature = "nccl")]
use unisono_cuda::{Driver, KernelCode};

#[cfg(feature = "ccl")]
pub use unisono_offload_ccl::{
    Ccl, CclComm, CclOptions, CclSettings, CclVendor, SyclFunctions, Version as CclVersion,
};
#[cfg(feature = "hccl")]
pub use unisono_offload_hccl::{Hccl, HcclComm, HcclLibrary, HcclOptions, HcclSettings, Product};
#[cfg(feature = "nccl")]
pub use unisono_offload_nccl::{
    CudaDevice, Nccl, NcclComm, NcclLibrary, NcclOptions, NcclSettings, Version as NcclVersion,
};

use crate::config::process::Config;

/// oneCCL on memory of the host.
///
/// # Errors
/// As [`Ccl::open`].
#[cfg(feature = "ccl")]
pub fn ccl(config: &Config) -> Result<CclVendor> {
    Ccl::open(&CclOptions { directory: config.ccl.directory.clone() }).map(CclVendor::on_host)
}

/// NCCL on the device of this rank.
///
/// # Errors
/// As [`Nccl::open`].
#[cfg(feature = "nccl")]
pub fn nccl(config: &Config) -> Result<Nccl> {
    let NcclSettings { library, driver, compiler } = config.nccl.clone();
    let device = config.device(Driver::open(driver.as_deref())?.devices()?);
    let kernels = KernelCode::Nvrtc(compiler);
    Nccl::open(&NcclOptions { library, driver, device, kernels, blocking: false })
}

/// HCCL on the device of this rank.
///
/// # Errors
/// As [`Hccl::open`].
#[cfg(feature = "hccl")]
pub fn hccl(config: &Config) -> Result<Hccl> {
    let directory = config.hccl.directory.clone();
    let device = config.device(HcclLibrary::open(&directory)?.devices()?);
    Hccl::open(&HcclOptions { directory, device })
}
