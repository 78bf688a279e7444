//! The command line.

use std::path::PathBuf;

use clap::Parser;
use unisono_compare::ComparedOperation;

use crate::plan::{Congestion, Scheduling, Size};
use crate::systems::{Medium, parse_build, parse_variant};

/// Measures unisono beside Open MPI, MPICH, Intel MPI, oneCCL and torch's Gloo over TCP, or beside the first four
/// through shared memory, all in the same run.
///
/// Every system is started once per session and waits for its turns, which take some 50 ms each and are taken in
/// rotated order. A probe between turns tells slow phases of the machine; a round counts when all its probes were
/// good.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask compare", version)]
pub(crate) struct Arguments {
    /// Numbers of ranks.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4, 8])]
    pub(crate) ranks: Vec<u32>,
    /// Operations; without: those of the bar.
    #[arg(long, value_delimiter = ',')]
    pub(crate) ops: Vec<ComparedOperation>,
    /// Sizes such as 64, 16K, 64M; without: those of the bar.
    #[arg(long, value_delimiter = ',')]
    pub(crate) sizes: Vec<Size>,
    /// What the bytes go through. Through memory there is one congestion control, whatever is asked for, and no torch,
    /// whose Gloo has none.
    #[arg(long, value_enum, default_value = "tcp")]
    pub(crate) medium: Medium,
    /// Systems by name; without: all.
    #[arg(long, value_delimiter = ',')]
    pub(crate) systems: Vec<String>,
    /// Scheduling of the ranks: rr (SCHED_RR, slices of 4 ms), plain, and busy (plain, beside two busy loops).
    #[arg(long, value_delimiter = ',', default_values_t = [Scheduling::RoundRobin, Scheduling::Plain])]
    pub(crate) sched: Vec<Scheduling>,
    /// The namespace's default congestion control.
    #[arg(long, value_delimiter = ',', default_values_t = [Congestion::Bbr, Congestion::Reno])]
    pub(crate) congestion: Vec<Congestion>,
    /// Good rounds that a cell needs; with fewer it counts as not measured.
    #[arg(long, default_value_t = 11)]
    pub(crate) rounds: u32,
    /// Rounds after which a cell is given up.
    #[arg(long, default_value_t = 40)]
    pub(crate) rounds_max: u32,
    /// How often all systems are started anew in a configuration, so that one unlucky placement does not decide.
    #[arg(long, default_value_t = 3)]
    pub(crate) sessions: u32,
    /// Length of a block of back-to-back calls.
    #[arg(long, default_value_t = 5000)]
    pub(crate) block_us: u64,
    /// Length of all blocks of a turn.
    #[arg(long, default_value_t = 50_000)]
    pub(crate) budget_us: u64,
    /// A turn that takes longer is a failure of its system.
    #[arg(long, default_value_t = 20)]
    pub(crate) turn_timeout_s: u64,
    /// A start that takes longer is a failure of its system.
    #[arg(long, default_value_t = 120)]
    pub(crate) start_timeout_s: u64,
    /// Another build of `unisono-compare-rank`, as one more system: NAME=PATH. Through memory, the `unisono` beside it
    /// starts it.
    #[arg(long, value_parser = parse_build)]
    pub(crate) ours: Vec<(String, PathBuf)>,
    /// Settings of a build named by --ours, or of this build as one more system: NAME:KEY=VALUE,KEY=VALUE.
    #[arg(long, value_parser = parse_variant)]
    pub(crate) ours_env: Vec<(String, Vec<(String, String)>)>,
    /// Where the peers are installed.
    #[arg(long, env = "UNISONO_PEERS", default_value = "target/peers")]
    pub(crate) peers_dir: PathBuf,
    /// Where the figures go; without: a new folder in target/compare.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// Measures nothing: makes tables and pictures from these raw figures again.
    #[arg(long, conflicts_with_all = ["ranks", "ops", "sizes", "systems"])]
    pub(crate) report: Vec<PathBuf>,
}
