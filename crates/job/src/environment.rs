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
//! a step, because a batch script has its variables too, and runs once. What `srun --mpi=pmi2` says as PMI is its own
//! row. Where no name is given, the parent process is the job.
//!
//! Two rows that do not agree are nested launchers, or one of them is left over. They are known to be nested when the
//! row that counts is of a larger world (each process of the outer one has started several), when a launcher that is
//! itself started by others has left its mark, and when the other row is that of a Slurm step in which a process
//! manager has its daemons. Everything else is refused: a `RANK=0 WORLD_SIZE=1` of somebody's shell would make each
//! process of `mpirun` a world of its own, without a word.

mod slurm;
#[cfg(test)]
mod tests;

use unisono_communicator::{Error, Result, beginning};
use unisono_control::RANKS_MAX;
use unisono_control::roster::message::RUN_BYTES_MAX;

use crate::settings::{Source, configuration, knobs, parse};
pub(crate) use slurm::{slurm_meeting, slurm_step};

/// The source of our rank.
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

/// The place of this process in the job.
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
        /// The launcher that said so.
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

/// Whether a row is set, and means us.
fn counts(source: &Source<'_>, row: &Row) -> bool {
    let is_ours = match row.launcher {
        Launcher::Slurm => slurm_step(source).is_some(),
        Launcher::Pmi => !slurm::is_of_srun(source, row),
        Launcher::Named | Launcher::OpenMpi | Launcher::Mvapich | Launcher::Pmix => true,
    };
    is_ours && first(source, row.rank).is_some()
}

/// The row of the process manager that has started this process, whatever names are set besides.
fn manager(source: &Source<'_>) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.launcher != Launcher::Named && counts(source, row))
}

pub(crate) fn placement(source: &Source<'_>) -> Result<Placement> {
    let Some(row) = ROWS.iter().find(|row| counts(source, row)) else {
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
    check_others(source, row, (rank, world_size))?;
    let local_rank = number(source, row.local_rank, 0, world_size - 1)?;
    let mut local_world_size = number(source, row.local_size, 1, world_size)?;
    if matches!(row.launcher, Launcher::Slurm | Launcher::Pmix) && slurm::is_one_host(source) {
        local_world_size = Some(world_size);
    }
    Ok(Placement::Ranked { rank, world_size, local_rank, local_world_size, launcher: row.launcher })
}

/// What launchers leave in the environment of a rank that are themselves started by others: torchrun, DeepSpeed, ours.
const NESTING: [&str; 3] = ["TORCHELASTIC_RUN_ID", "CROSS_SIZE", "UNISONO_STORE"];

/// Refuses a row that contradicts the counting row, which says `(rank, size)`.
fn check_others(source: &Source<'_>, row: &Row, (rank, size): (u32, u32)) -> Result<()> {
    let is_named = row.launcher == Launcher::Named;
    let is_other = |other: &&Row| match other.launcher {
        Launcher::Named => false,
        // Of it no size is known.
        Launcher::Pmix => false,
        Launcher::Slurm => is_named && counts(source, other),
        Launcher::OpenMpi | Launcher::Mvapich | Launcher::Pmi => {
            other.launcher != row.launcher && counts(source, other)
        }
    };
    let Some(other) = ROWS.iter().find(is_other) else { return Ok(()) };
    let told = |row: &Row| Some((first(source, row.rank)?, first(source, row.size)?));
    let (Some((own_rank, own_size)), Some((other_rank, other_size))) = (told(row), told(other)) else {
        return Ok(());
    };
    let numbers = (other_rank.1.trim().parse(), other_size.1.trim().parse());
    let is_nested = match numbers {
        (Ok(other_rank), Ok(other_size)) if (other_rank, other_size) == (rank, size) => true,
        (_, Ok(other_size)) if size > other_size => true,
        _ => {
            let is_marked = NESTING.iter().any(|name| source.foreign(name).is_some());
            is_named && is_marked && (size > 1 || other.launcher == Launcher::Slurm)
        }
    };
    if is_nested { Ok(()) } else { Err(contradiction([own_rank, own_size], [other_rank, other_size])) }
}

/// The error of two rows, each given by its rank and its size.
fn contradiction(own: [(String, String); 2], other: [(String, String); 2]) -> Error {
    let [[(rank, value), (size, size_value)], [(other_rank, other_value), (other_size, other_size_value)]] =
        [own, other];
    let problem = format!(
        "with {size}={size_value} it contradicts {other_rank}={other_value} with {other_size}={other_size_value}, and \
         nothing says which of the two launchers has started this process: unset {rank} and {size}, or \
         {other_rank} and {other_size}, whichever is left over"
    );
    configuration(&rank, &value, problem)
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
            // The ranks may spell the address in several ways, and a port belongs to one job at a time.
            Some(format!("MASTER_PORT={}", port?))
        }
        Launcher::OpenMpi | Launcher::Mvapich | Launcher::Pmix => {
            namespace(source).map(|namespace| format!("pmix {namespace}"))
        }
        Launcher::Slurm => slurm_step.map(|step| format!("slurm {step}")),
        Launcher::Pmi => None,
    }
}

/// The launcher's name of this run of the job, if it has started all ranks, so that all ranks of one run are told the
/// same. A port or a name that a user gives may be those of the run before.
pub(crate) fn launcher_run(source: &Source<'_>, placement: &Placement) -> Option<String> {
    let run = source.foreign("TORCHELASTIC_RUN_ID").map(|run| format!("torchrun's run {run}"));
    let run = run.or_else(|| {
        let row = manager(source)?;
        let (_, size) = first(source, row.size)?;
        let has_all = size.trim().parse() == Ok(placement.world_size());
        match row.launcher {
            Launcher::Slurm => slurm_step(source).map(|step| format!("Slurm's step {step}")),
            Launcher::OpenMpi | Launcher::Mvapich | Launcher::Pmix => {
                namespace(source).map(|namespace| format!("the PMIx namespace {namespace}"))
            }
            Launcher::Pmi | Launcher::Named => None,
        }
        .filter(|_| has_all)
    });
    run.map(|run| beginning(&run, RUN_BYTES_MAX).to_owned())
}

/// The name that a PMIx server gives to all ranks that it has started together.
fn namespace(source: &Source<'_>) -> Option<String> {
    let names = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"];
    first(source, &names).map(|(_, namespace)| namespace)
}

/// The host of rank 0 as a setting says it, an IPv6 address with or without brackets.
pub(crate) fn master_address(source: &Source<'_>) -> Option<String> {
    let address = source.text("UNISONO_MASTER_ADDRESS")?;
    let bare = address.strip_prefix('[').and_then(|address| address.strip_suffix(']'));
    Some(bare.map(str::to_owned).unwrap_or(address))
}
