//! Settings of backends that work on a device: which device, whose libraries, and what becomes of memory of the host.

use std::path::PathBuf;

use unisono_communicator::Result;

use super::{Backend, Config};
use crate::settings::Source;

/// What a backend for devices does with memory of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostMemorySetting {
    /// Over TCP if nobody has named the backend; else calls on it are refused.
    #[default]
    Auto,
    /// Calls on it are refused.
    Refused,
    /// It is copied to the device and back.
    Staged,
    /// Calls on it go over TCP.
    Tcp,
}

/// What backends for devices are given.
#[derive(Clone, Debug, Default)]
pub struct DeviceSettings {
    /// The device's number; see [`Config::device`].
    pub number: Option<u32>,
    /// NCCL's library, by an absolute path.
    pub nccl_library: Option<PathBuf>,
    /// NVIDIA's driver, by an absolute path.
    pub cuda_library: Option<PathBuf>,
    /// NVIDIA's run-time compiler, by an absolute path.
    pub nvrtc_library: Option<PathBuf>,
    /// The folder with the libraries of CANN, HCCL's among them, by an absolute path.
    pub hccl_directory: Option<PathBuf>,
    /// The way of calls on memory of the host.
    pub host_memory: HostMemorySetting,
}

impl DeviceSettings {
    pub(super) fn from_source(source: &Source<'_>) -> Result<DeviceSettings> {
        Ok(DeviceSettings {
            number: source.number("UNISONO_DEVICE", 0, u64::from(u32::MAX))?.map(|number| number as u32),
            nccl_library: source.path("UNISONO_NCCL_LIB"),
            cuda_library: source.path("UNISONO_CUDA_LIB"),
            nvrtc_library: source.path("UNISONO_NVRTC_LIB"),
            hccl_directory: source.path("UNISONO_HCCL_DIR"),
            host_memory: match source
                .choice("UNISONO_HOST_MEMORY", &["auto", "refused", "staged", "tcp"])?
                .as_str()
            {
                "refused" => HostMemorySetting::Refused,
                "staged" => HostMemorySetting::Staged,
                "tcp" => HostMemorySetting::Tcp,
                _ => HostMemorySetting::Auto,
            },
        })
    }
}

impl Config {
    /// The number of the device that this rank works on, of so many: the number that is set, else one device for each
    /// rank of the host in turn.
    pub fn device(&self, devices: u32) -> u32 {
        let in_turn =
            || self.placement.local_rank().unwrap_or_else(|| self.placement.rank()) % devices.max(1);
        self.devices.number.unwrap_or_else(in_turn)
    }

    /// Whether the files are there is found out together with the other ranks, of which some may have them.
    pub(super) fn check_vendors(&self) -> Result<()> {
        let files = [
            ("UNISONO_CCL_DIR", &self.ccl_directory),
            ("UNISONO_NCCL_LIB", &self.devices.nccl_library),
            ("UNISONO_CUDA_LIB", &self.devices.cuda_library),
            ("UNISONO_NVRTC_LIB", &self.devices.nvrtc_library),
            ("UNISONO_HCCL_DIR", &self.devices.hccl_directory),
        ];
        let relative = files.into_iter().find_map(|(name, path)| {
            path.as_ref().filter(|path| !path.is_absolute()).map(|path| (name, path))
        });
        if let Some((name, path)) = relative {
            let problem =
                "an absolute path is needed: what it means must not depend on the working directory";
            return Err(self.refused(name, &path.display().to_string(), problem));
        }
        if self.backend != Backend::Ccl {
            return Ok(());
        }
        let from_outside = self.algorithms.first().map(|algorithm| algorithm.name);
        self.algorithm.as_deref().or(from_outside).map_or(Ok(()), |algorithm| {
            let problem = "oneCCL chooses among algorithms of its own; unset it, or set UNISONO_BACKEND=tcp";
            Err(self.refused("UNISONO_ALGORITHM", algorithm, problem))
        })
    }
}
