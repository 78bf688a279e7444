//! A way to start ranks, and the commands of launchers.

use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::jobs::Job;

/// The seconds after which a command is ended that does not end.
const WATCHDOG_S: &str = "90";

/// The beginnings and the names of variables that an outer launcher may have left.
const OF_LAUNCHERS: [&str; 8] =
    ["UNISONO_", "OMPI_", "PMI", "SLURM", "MV2_", "MPI_", "LOCAL_", "TORCHELASTIC_"];
const LEFT: [&str; 4] = ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];

/// Starts a shell line in each of four ranks.
pub(super) type Start<'a> = Box<dyn Fn(&str) -> io::Result<Output> + 'a>;

/// One way to start ranks.
pub(super) struct Way<'a> {
    pub(super) name: String,
    /// The jobs that are tried.
    pub(super) jobs: &'static [Job],
    /// Ranks whose environment is recorded, with the names of the recordings.
    pub(super) recordings: Vec<(usize, String)>,
    pub(super) start: Start<'a>,
}

/// A launcher: its name in `UNISONO_REQUIRE`, and its ways, or why there is none.
pub(super) type Launcher<'a> = (&'static str, Result<Vec<Way<'a>>, String>);

/// A command in whose environment no launcher has left anything.
pub(super) fn command(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after", "5", WATCHDOG_S]).arg(program).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if OF_LAUNCHERS.iter().any(|start| text.starts_with(start)) || LEFT.contains(&&*text) {
            command.env_remove(&name);
        }
    }
    // Ranks that do not find each other end soon.
    command.env("UNISONO_JOIN_TIMEOUT_S", "30");
    command
}
