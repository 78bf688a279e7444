//! What launchers say: our rank and the size of the job, whether all ranks are on one host, what the job is called.
//!
//! | launcher | rank, size, local rank, local size | name of the job |
//! | --- | --- | --- |
//! | ours, torchrun, DeepSpeed, by hand | the `UNISONO_*` and torch names | torchrun's run id, else the master |
//! | Open MPI | `OMPI_COMM_WORLD_*` | the PMIx namespace |
//! | MVAPICH | `MV2_COMM_WORLD_*` | |
//! | MPICH, Intel MPI, PALS, Flux | `PMI_*`, `MPI_LOCAL*`, `PALS_LOCAL_*` | the nearest ancestor that is a proxy |
//! | another PMIx server | `PMIX_RANK`, Slurm's sizes | the PMIx namespace |
//! | srun | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS` | job and step |
//!
//! The first row whose rank is set counts: a launcher started within another one sets its own. Slurm counts only within
//! a step, because a batch script has its variables too, and runs once. Where no name is given, the parent process is
//! the job.

use unisono_communicator::Result;

use crate::config::{RANKS_MAX, Source, configuration, knobs, parse};
use crate::handshake::JobId;

/// Who told us our rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// The `UNISONO_*` or torch names.
    Named,
    /// Open MPI's mpirun.
    OpenMpi,
    /// MVAPICH.
    Mvapich,
    /// MPICH, Intel MPI, and others that speak PMI.
    Pmi,
    /// A PMIx server other than Open MPI's.
    Pmix,
    /// srun.
    Slurm,
}

/// Who we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Nothing says that there are others.
    Solo,
    /// One of several.
    Ranked {
        /// Our rank, from 0.
        rank: u32,
        /// The number of ranks.
        world_size: u32,
        /// Our place on this host, if it is known.
        local_rank: Option<u32>,
        /// The number of ranks on this host, if it is known.
        local_world_size: Option<u32>,
        /// Who said so.
        launcher: Launcher,
    },
}

impl Placement {
    /// Our rank.
    pub fn rank(&self) -> u32 {
        match self {
            Placement::Solo => 0,
            Placement::Ranked { rank, .. } => *rank,
        }
    }

    /// The number of ranks.
    pub fn world_size(&self) -> u32 {
        match self {
            Placement::Solo => 1,
            Placement::Ranked { world_size, .. } => *world_size,
        }
    }

    /// Our place on this host, from 0, if it is known.
    pub fn local_rank(&self) -> Option<u32> {
        match self {
            Placement::Solo => Some(0),
            Placement::Ranked { local_rank, .. } => *local_rank,
        }
    }
}

struct Row {
    launcher: Launcher,
    rank: &'static [&'static str],
    size: &'static [&'static str],
    local_rank: &'static [&'static str],
    local_size: &'static [&'static str],
}

const SLURM_SIZES: &[&str] = &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"];

const ROWS: [Row; 6] = [
    Row {
        launcher: Launcher::Named,
        rank: &["UNISONO_RANK"],
        size: &["UNISONO_WORLD_SIZE"],
        local_rank: &["UNISONO_LOCAL_RANK"],
        local_size: &["UNISONO_LOCAL_WORLD_SIZE"],
    },
    Row {
        launcher: Launcher::OpenMpi,
        rank: &["OMPI_COMM_WORLD_RANK"],
        size: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
    },
    Row {
        launcher: Launcher::Mvapich,
        rank: &["MV2_COMM_WORLD_RANK"],
        size: &["MV2_COMM_WORLD_SIZE"],
        local_rank: &["MV2_COMM_WORLD_LOCAL_RANK"],
        local_size: &["MV2_COMM_WORLD_LOCAL_SIZE"],
    },
    Row {
        launcher: Launcher::Pmi,
        rank: &["PMI_RANK"],
        size: &["PMI_SIZE"],
        local_rank: &["MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID"],
        local_size: &["MPI_LOCALNRANKS", "PALS_LOCAL_SIZE"],
    },
    Row {
        launcher: Launcher::Pmix,
        rank: &["PMIX_RANK"],
        size: SLURM_SIZES,
        local_rank: &["SLURM_LOCALID"],
        local_size: &[],
    },
    Row {
        launcher: Launcher::Slurm,
        rank: &["SLURM_PROCID"],
        size: SLURM_SIZES,
        local_rank: &["SLURM_LOCALID"],
        local_size: &[],
    },
];

fn first(source: &Source<'_>, names: &[&str]) -> Option<(String, String)> {
    let named = |name: &&str| source.find(name).or_else(|| Some((name.to_string(), source.foreign(name)?)));
    names.iter().find_map(named)
}

fn number(source: &Source<'_>, names: &[&str], least: u32, most: u32) -> Result<Option<u32>> {
    let problem = format!("a whole number from {least} to {most} is needed");
    let checked = |(name, value): (String, String)| {
        parse(&name, &value, &problem, |number: &u32| (least..=most).contains(number))
    };
    first(source, names).map(checked).transpose()
}

pub(crate) fn placement(source: &Source<'_>) -> Result<Placement> {
    let counts = |row: &&Row| row.launcher != Launcher::Slurm || slurm_step(source).is_some();
    let set = |row: &&Row| first(source, row.rank).is_some();
    let Some(row) = ROWS.iter().filter(counts).find(set) else {
        // They mean nothing here, and a value that is no number is wrong all the same.
        number(source, &["UNISONO_LOCAL_RANK"], 0, RANKS_MAX - 1)?;
        number(source, &["UNISONO_LOCAL_WORLD_SIZE"], 1, RANKS_MAX)?;
        return match source.find("UNISONO_WORLD_SIZE") {
            Some((name, value)) if value.trim() != "1" => {
                Err(configuration(&name, &value, "the rank is missing: set UNISONO_RANK or RANK, from 0"))
            }
            _ => Ok(Placement::Solo),
        };
    };
    let Some(world_size) = number(source, row.size, 1, RANKS_MAX)? else {
        let (name, value) = first(source, row.rank).unwrap_or_default();
        let size = knobs().find(|knob| knob.name == row.size[0]).map_or(&[][..], |knob| knob.also);
        let names = [&row.size[..1], size].concat().join(" or ");
        return Err(configuration(&name, &value, format!("the world size is missing: set {names}")));
    };
    let Some(rank) = number(source, row.rank, 0, world_size - 1)? else { return Ok(Placement::Solo) };
    let local_rank = number(source, row.local_rank, 0, world_size - 1)?;
    let mut local_world_size = number(source, row.local_size, 1, world_size)?;
    if matches!(row.launcher, Launcher::Slurm | Launcher::Pmix) && slurm_is_one_host(source) {
        local_world_size = Some(world_size);
    }
    Ok(Placement::Ranked { rank, world_size, local_rank, local_world_size, launcher: row.launcher })
}

/// Job and step of the Slurm step that we run in.
pub(crate) fn slurm_step(source: &Source<'_>) -> Option<String> {
    // From this number on they are not steps that srun started, but the batch script, the shell of an allocation, ...
    const RESERVED_STEPS: u32 = 0xffff_fff0;
    let step = source.foreign("SLURM_STEP_ID").or_else(|| source.foreign("SLURM_STEPID"))?;
    step.parse().ok().filter(|step: &u32| *step < RESERVED_STEPS)?;
    let job = source.foreign("SLURM_JOB_ID").or_else(|| source.foreign("SLURM_JOBID"))?;
    Some(format!("{job}.{step}"))
}

fn slurm_is_one_host(source: &Source<'_>) -> bool {
    let hosts = first(source, &["SLURM_STEP_NUM_NODES", "SLURM_NNODES"]);
    slurm_step(source).is_some() && hosts.is_some_and(|(_, hosts)| hosts == "1")
}

/// What the ranks of this job have in common, if a variable says it; else it is to be found among the processes.
pub(crate) fn job_key(
    source: &Source<'_>,
    placement: &Placement,
    slurm_step: Option<&str>,
) -> Option<String> {
    if let Some(job) = source.text("UNISONO_JOB") {
        return Some(format!("UNISONO_JOB={job}"));
    }
    let Placement::Ranked { launcher, .. } = placement else { return None };
    match launcher {
        Launcher::Named => {
            let port = source.text("UNISONO_MASTER_PORT");
            if let Some(run) = source.foreign("TORCHELASTIC_RUN_ID") {
                let restart = source.foreign("TORCHELASTIC_RESTART_COUNT").unwrap_or_default();
                return Some(format!("torchrun {run} {} {restart}", port.unwrap_or_default()));
            }
            let address = master_address(source).map(|address| format!("MASTER_ADDR={address} and "));
            Some(format!("{}MASTER_PORT={}", address.unwrap_or_default(), port?))
        }
        Launcher::OpenMpi | Launcher::Mvapich | Launcher::Pmix => {
            let namespace =
                first(source, &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"]);
            namespace.map(|(_, namespace)| format!("pmix {namespace}"))
        }
        Launcher::Slurm => slurm_step.map(|step| format!("slurm {step}")),
        Launcher::Pmi => None,
    }
}

/// The host of rank 0 as a setting says it, an IPv6 address with or without brackets.
pub(crate) fn master_address(source: &Source<'_>) -> Option<String> {
    let address = source.text("UNISONO_MASTER_ADDRESS")?;
    let bare = address.strip_prefix('[').and_then(|address| address.strip_suffix(']'));
    Some(bare.map(str::to_owned).unwrap_or(address))
}

/// The first host of the Slurm step: where its rank 0 is.
pub(crate) fn slurm_master(source: &Source<'_>) -> Option<String> {
    slurm_step(source)?;
    let (_, list) = first(source, &["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"])?;
    Some(first_host(&list))
}

/// The first host of a Slurm list: of `gpu[007-012,20]-ib,login` it is `gpu007-ib`.
fn first_host(list: &str) -> String {
    let mut host = String::new();
    let mut rest = list;
    while let Some(end) = rest.find(['[', ',']) {
        host.push_str(&rest[..end]);
        let Some(close) = rest[end..].find(']').filter(|_| rest[end..].starts_with('[')) else { return host };
        let inside = &rest[end + 1..end + close];
        host.push_str(inside.split([',', '-']).next().unwrap_or_default());
        rest = &rest[end + close + 1..];
    }
    host.push_str(rest);
    host
}

/// A port for a Slurm step, below the range from which systems give out ports by themselves.
pub(crate) fn slurm_port(step: &str) -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 10_000;
    let digest = JobId::from_key(step).0;
    FIRST + u16::from_le_bytes([digest[0], digest[1]]) % COUNT
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn the_first_host_of_a_slurm_list() {
        let cases = [
            ("node1", "node1"),
            ("node1,node2", "node1"),
            ("node[01-04,7]", "node01"),
            ("node[3,5-7],login", "node3"),
            ("gpu[007-012]-ib,x", "gpu007-ib"),
            ("r[1-2]n[03-04]", "r1n03"),
        ];
        for (list, host) in cases {
            assert_eq!(first_host(list), host, "{list}");
        }
    }

    #[test]
    fn slurm_ports_stay_in_their_range() {
        let ports: Vec<u16> = (0..1000).map(|step| slurm_port(&format!("4711.{step}"))).collect();
        assert!(ports.iter().all(|port| (20_000..30_000).contains(port)));
        assert_eq!(slurm_port("4711.0"), ports[0]);
        assert!(ports.iter().any(|port| *port != ports[0]));
    }
}
