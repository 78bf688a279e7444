//! The settings of HCCL: the place of CANN's libraries.

use std::path::PathBuf;

use unisono_communicator::Result;
use unisono_communicator::settings::{HOW_CALLS_ARE_DONE, KnobGroup, Source, check_absolute, knob};

/// The settings of HCCL.
#[rustfmt::skip]
pub const SETTINGS: KnobGroup = KnobGroup { title: HOW_CALLS_ARE_DONE, knobs: &[
    knob("UNISONO_HCCL_DIR", "path", "", &[],
        "folder with libhccl.so and libascendcl.so of Huawei's CANN, an absolute path; else the system's loader \
         finds them"),
] };

/// The place of the libraries.
#[derive(Clone, Debug, Default)]
pub struct HcclSettings {
    /// The folder with the libraries of CANN, HCCL's among them; an absolute path.
    pub directory: Option<PathBuf>,
}

impl HcclSettings {
    /// The settings in a source with the rows of [`SETTINGS`].
    pub fn from_source(source: &Source<'_>) -> HcclSettings {
        HcclSettings { directory: source.path("UNISONO_HCCL_DIR") }
    }

    /// Checks all that can be known without the libraries.
    ///
    /// # Errors
    /// As [`check_absolute`].
    pub fn check(&self) -> Result<()> {
        check_absolute("UNISONO_HCCL_DIR", self.directory.as_deref())
    }
}
