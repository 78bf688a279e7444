//! The settings of NCCL: the files of its library and of NVIDIA's driver and compiler.

use std::path::PathBuf;

use unisono_communicator::Result;
use unisono_communicator::settings::{HOW_CALLS_ARE_DONE, KnobGroup, Source, check_absolute, knob};

/// The settings of NCCL.
#[rustfmt::skip]
pub const SETTINGS: KnobGroup = KnobGroup { title: HOW_CALLS_ARE_DONE, knobs: &[
    knob("UNISONO_NCCL_LIB", "path", "", &[],
        "the file of NCCL's library, an absolute path; else the system's loader finds libnccl.so.2"),
    knob("UNISONO_CUDA_LIB", "path", "", &[],
        "the file of NVIDIA's driver, an absolute path; else the system's loader finds libcuda.so.1"),
    knob("UNISONO_NVRTC_LIB", "path", "", &[],
        "the file of NVIDIA's run-time compiler, an absolute path; else the system's loader finds libnvrtc.so; \
         NCCL needs it for algorithms by name"),
] };

/// The places of the libraries; absolute paths.
#[derive(Clone, Debug, Default)]
pub struct NcclSettings {
    /// NCCL's library.
    pub library: Option<PathBuf>,
    /// NVIDIA's driver.
    pub driver: Option<PathBuf>,
    /// NVIDIA's run-time compiler.
    pub compiler: Option<PathBuf>,
}

impl NcclSettings {
    /// The settings in a source with the rows of [`SETTINGS`].
    pub fn from_source(source: &Source<'_>) -> NcclSettings {
        NcclSettings {
            library: source.path("UNISONO_NCCL_LIB"),
            driver: source.path("UNISONO_CUDA_LIB"),
            compiler: source.path("UNISONO_NVRTC_LIB"),
        }
    }

    /// Checks all that can be known without the libraries.
    ///
    /// # Errors
    /// As [`check_absolute`].
    pub fn check(&self) -> Result<()> {
        check_absolute("UNISONO_NCCL_LIB", self.library.as_deref())?;
        check_absolute("UNISONO_CUDA_LIB", self.driver.as_deref())?;
        check_absolute("UNISONO_NVRTC_LIB", self.compiler.as_deref())
    }
}
