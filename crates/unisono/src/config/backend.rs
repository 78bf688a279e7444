//! The library that does the collectives of a world.

use std::fmt;
use std::str::FromStr;

/// The library that does the collectives of a world: a value of `UNISONO_BACKEND`.
///
/// ```
/// use unisono::Backend;
/// assert_eq!("nccl".parse(), Ok(Backend::Nccl));
/// assert!("ncl".parse::<Backend>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backend {
    /// NCCL where every rank has it and a device, else TCP; a world of one without any network.
    #[default]
    Auto,
    /// This library over TCP.
    Tcp,
    /// Intel's oneCCL.
    Ccl,
    /// NVIDIA's NCCL.
    Nccl,
    /// Huawei's HCCL.
    Hccl,
}

impl Backend {
    /// Every backend, also a backend that this build lacks.
    pub const ALL: [Backend; 5] = [Backend::Auto, Backend::Tcp, Backend::Ccl, Backend::Nccl, Backend::Hccl];

    /// The value of `UNISONO_BACKEND` that means it.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Auto => "auto",
            Backend::Tcp => "tcp",
            Backend::Ccl => "ccl",
            Backend::Nccl => "nccl",
            Backend::Hccl => "hccl",
        }
    }

    /// The names of a list of backends, for messages.
    pub fn names(backends: &[Backend]) -> String {
        backends.iter().map(|backend| backend.name()).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// The text is the name of no backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownBackend;

impl fmt::Display for UnknownBackend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "one of {} is needed", Backend::names(&Backend::ALL))
    }
}

impl std::error::Error for UnknownBackend {}

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(text: &str) -> Result<Backend, UnknownBackend> {
        Backend::ALL.into_iter().find(|backend| backend.name() == text).ok_or(UnknownBackend)
    }
}
