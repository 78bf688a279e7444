//! What the program is told.

use std::path::PathBuf;

use clap::{Args, Parser, ValueEnum};
use unisono_tests::doubles;

#[derive(Parser)]
#[command(about = "Checks and measures unisono's CUDA kernels, and NCCL with them, on a card.", version)]
pub(crate) struct Options {
    /// The number of the card
    #[arg(long, default_value_t = 0)]
    pub(crate) device: u32,
    /// The path of libcuda.so.1, where the system does not find it
    #[arg(long)]
    pub(crate) driver: Option<PathBuf>,
    /// The path of libnccl.so.2, where the system does not find it
    #[arg(long)]
    pub(crate) nccl: Option<PathBuf>,
    /// Only check, on the test doubles of the driver and of NCCL, which are built from the repository
    #[arg(long, conflicts_with_all = ["driver", "nccl"])]
    pub(crate) double: bool,
    /// The seed of the checks' inputs
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Only these parts
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<Part>,
    /// Compare fewer calls of each kernel
    #[arg(long)]
    pub(crate) quick: bool,
    /// The size of the measured vector, in MiB
    #[arg(long, default_value_t = 256)]
    pub(crate) size_mib: usize,
    /// Measurements of each kernel, and bursts of calls of NCCL, in turns
    #[arg(long, default_value_t = 21)]
    pub(crate) rounds: usize,
    /// How long the ranks of one part of NCCL's checks may take, in seconds
    #[arg(long, default_value_t = 300)]
    pub(crate) part_timeout_s: u64,
    /// A python3 with torch, if there is one
    #[arg(long, default_value = "python3")]
    pub(crate) python: String,
    /// Where the results go
    #[arg(long, default_value = "gpu-check.json")]
    pub(crate) json: PathBuf,
    /// Only compile the kernels by the NVRTC at `--nvrtc`, into this folder; needs no card
    #[arg(long, requires = "nvrtc", value_name = "FOLDER")]
    pub(crate) compile_to: Option<PathBuf>,
    /// The path of libnvrtc.so, in place of the kernels that this program holds
    #[arg(long)]
    pub(crate) nvrtc: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) rank: Option<RankOptions>,
}

/// What the program tells itself when it starts a rank.
#[derive(Args, Clone)]
#[group(requires_all = ["part", "results"])]
pub(crate) struct RankOptions {
    /// The part of the checks that this process does as a rank; its number comes by the environment
    #[arg(long, hide = true, required = false)]
    pub(crate) part: Part,
    /// Where the lines of this rank go
    #[arg(long, hide = true, required = false)]
    pub(crate) results: PathBuf,
}

/// A part of the checks. All but the first are done by processes of their own: what goes wrong in one harms no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// The kernels of compression, which are measured too
    Compression,
    /// The kernels that add messages; they need no NCCL
    Arithmetic,
    /// Calls of NCCL's backend
    Calls,
    /// Compressed calls whose messages stay on the card
    Compressed,
    /// A call that one of two ranks does not make
    Late,
    /// What a call costs beside NCCL's own function
    Overhead,
}

impl Part {
    /// Its word on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Part::Compression => "compression",
            Part::Arithmetic => "arithmetic",
            Part::Calls => "calls",
            Part::Compressed => "compressed",
            Part::Late => "late",
            Part::Overhead => "overhead",
        }
    }
}

impl Options {
    /// Whether a part is to be done.
    pub(crate) fn has(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// NCCL's file, if one is named.
    pub(crate) fn nccl_file(&self) -> Option<PathBuf> {
        if self.double { Some(doubles::nccl()) } else { self.nccl.clone() }
    }

    /// The file of the driver that NCCL's checks use, if one is named.
    pub(crate) fn driver_file(&self) -> Option<PathBuf> {
        if self.double { Some(doubles::nccl()) } else { self.driver.clone() }
    }
}
