//! Recordings of the variables that launchers give to ranks, which the tests of `crates/job` read.

use std::fs;

use super::jobs::RANK;
use super::way::{Launcher, Way};
use crate::workspaces::repository;

const FOLDER: &str = "crates/job/src/environment/recorded";

/// The beginnings of names of variables that launchers set.
const OF_LAUNCHERS: &str = "GFORTRAN_UNBUFFERED GROUP_ HYDI_ HYDRA_ LOCAL_ MASTER_ MPI_ OMPI_ PMIX_ PMI_ PRTE_ \
                            RANK ROLE_ SLURMD_ SLURM_ TORCHELASTIC_ WORLD_SIZE";

/// Parts of the names of variables that are of the machine, or different in each run.
const UNSTABLE: &str = "_ADDR= _GID _HOST= _IPADDR _MCA_ _PID= _PORT _PRIO _UID _UMASK _URI _USER _UUID";

/// The machine's own name in recordings.
const MACHINE: &str = "vm";

/// Records all launchers that are here; false when one has failed.
pub(super) fn all(launchers: &[Launcher<'_>]) -> bool {
    let mut is_good = true;
    for (name, ways) in launchers {
        match ways {
            Ok(ways) => {
                for (way, problem) in ways.iter().filter_map(|way| Some((way, record(way).err()?))) {
                    println!("{}: FAILED: {problem}", way.name);
                    is_good = false;
                }
            }
            Err(why) => println!("SKIP {name}: {why}"),
        }
    }
    is_good
}

fn record(way: &Way<'_>) -> Result<(), String> {
    if way.recordings.is_empty() {
        return Ok(());
    }
    let line = format!("rank={RANK}; env | sed \"s/^/@$rank /\"");
    let output = (way.start)(&line).map_err(|error| error.to_string())?;
    let out = String::from_utf8_lossy(&output.stdout);
    for (rank, name) in &way.recordings {
        let start = format!("@{rank} ");
        let mut lines: Vec<String> =
            out.lines().filter_map(|line| stable(line.strip_prefix(&start)?)).collect();
        if lines.is_empty() {
            return Err(format!("rank {rank} has no variables: {}", String::from_utf8_lossy(&output.stderr)));
        }
        lines.sort();
        let head = format!("# {}, rank {rank}; by `cargo xtask launchers --record`.", way.name);
        let path = repository().join(FOLDER).join(format!("{name}.env"));
        let text = format!("{head}\n{}\n", lines.join("\n"));
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("{}: rank {rank}: {}", way.name, path.display());
    }
    Ok(())
}

/// A variable of a launcher as it is in each run and on each machine; `None` for all others.
fn stable(line: &str) -> Option<String> {
    let (name, value) = line.split_once('=')?;
    let is_kept = OF_LAUNCHERS.split(' ').any(|start| name.starts_with(start));
    let is_unstable =
        value.contains('/') || UNSTABLE.split(' ').any(|part| format!("{name}=").contains(part));
    if !is_kept || is_unstable && !name.starts_with("MASTER_") {
        return None;
    }
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut value = if value == machine.trim() { MACHINE.to_owned() } else { value.to_owned() };
    if let Some((host, _)) = value.strip_prefix("prterun-").and_then(|rest| rest.rsplit_once('-')) {
        // The host and the process of mpirun, and its first job.
        let host = if host == machine.trim() { MACHINE } else { host };
        value = format!("prterun-{host}-1@1");
    }
    Some(format!("{name}={value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_has_no_path_and_no_number_of_a_run() {
        for line in ["PATH=x", "SLURM_CONF=/etc/x", "OMPI_FILE_LOCATION=/tmp/x", "SLURM_TASK_PID=4", "none"] {
            assert_eq!(stable(line), None, "{line}");
        }
        for (line, expected) in [
            ("PMIX_NAMESPACE=prterun-node-07-4711@1", "PMIX_NAMESPACE=prterun-node-07-1@1"),
            ("SLURM_STEP_ID=0", "SLURM_STEP_ID=0"),
            ("MASTER_PORT=29400", "MASTER_PORT=29400"),
            ("RANK=3", "RANK=3"),
        ] {
            assert_eq!(stable(line).as_deref(), Some(expected));
        }
    }
}
