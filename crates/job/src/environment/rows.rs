//! The variables of launchers and platforms, as tables. A variable that is in none of them is not read, and the page of
//! settings prints them all.

use crate::settings::{Source, knobs};

/// The port of rank 0 that torchrun and DeepSpeed have where nobody sets one.
pub(super) const TORCH_PORT: u16 = 29_500;

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

impl Launcher {
    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Launcher::Named => "settings",
            Launcher::OpenMpi => "Open MPI",
            Launcher::Mvapich => "MVAPICH",
            Launcher::Pmi => "PMI",
            Launcher::Pmix => "PMIx",
            Launcher::Slurm => "Slurm",
        }
    }
}

/// The variables by which a launcher places a process: of each value, the first name that is set counts.
#[derive(Debug)]
pub struct LauncherRow {
    /// The launcher.
    pub launcher: Launcher,
    /// Our rank.
    pub rank: &'static [&'static str],
    /// The number of ranks.
    pub world_size: &'static [&'static str],
    /// Our place on this host.
    pub local_rank: &'static [&'static str],
    /// The number of ranks on this host.
    pub local_world_size: &'static [&'static str],
}

impl LauncherRow {
    /// All its names.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        [self.rank, self.world_size, self.local_rank, self.local_world_size].into_iter().flatten().copied()
    }
}

pub(super) const SLURM_SIZES: &[&str] = &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"];

/// The launchers, in the order in which they count. The names of the first row are settings, which have also others.
pub const LAUNCHERS: [LauncherRow; 6] = [
    LauncherRow {
        launcher: Launcher::Named,
        rank: &["UNISONO_RANK"],
        world_size: &["UNISONO_WORLD_SIZE"],
        local_rank: &["UNISONO_LOCAL_RANK"],
        local_world_size: &["UNISONO_LOCAL_WORLD_SIZE"],
    },
    LauncherRow {
        launcher: Launcher::OpenMpi,
        rank: &["OMPI_COMM_WORLD_RANK"],
        world_size: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_world_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
    },
    LauncherRow {
        launcher: Launcher::Mvapich,
        rank: &["MV2_COMM_WORLD_RANK"],
        world_size: &["MV2_COMM_WORLD_SIZE"],
        local_rank: &["MV2_COMM_WORLD_LOCAL_RANK"],
        local_world_size: &["MV2_COMM_WORLD_LOCAL_SIZE"],
    },
    LauncherRow {
        launcher: Launcher::Pmi,
        rank: &["PMI_RANK"],
        world_size: &["PMI_SIZE"],
        local_rank: &["MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID"],
        local_world_size: &["MPI_LOCALNRANKS", "PALS_LOCAL_SIZE"],
    },
    LauncherRow {
        launcher: Launcher::Pmix,
        rank: &["PMIX_RANK"],
        world_size: SLURM_SIZES,
        local_rank: &["SLURM_LOCALID"],
        local_world_size: &[],
    },
    LauncherRow {
        launcher: Launcher::Slurm,
        rank: &["SLURM_PROCID"],
        world_size: SLURM_SIZES,
        local_rank: &["SLURM_LOCALID"],
        local_world_size: &[],
    },
];

pub(super) const SLURM_STEPS: &[&str] = &["SLURM_STEP_ID", "SLURM_STEPID"];
pub(super) const SLURM_JOBS: &[&str] = &["SLURM_JOB_ID", "SLURM_JOBID"];
pub(super) const SLURM_HOST_COUNTS: &[&str] = &["SLURM_STEP_NUM_NODES", "SLURM_NNODES"];
pub(super) const SLURM_HOST_LISTS: &[&str] = &["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];
/// Of the allocation, in every step of it.
pub(super) const SLURM_JOB_HOST_LISTS: &[&str] = &["SLURM_JOB_NODELIST", "SLURM_NODELIST"];
pub(super) const NAMESPACES: &[&str] =
    &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"];
pub(super) const PMI: &[&str] = &["PMI_FD"];
pub(super) const AZURE_ML: &[&str] = &["AZUREML_EXPERIMENT_ID"];
pub(super) const AZURE_ML_MASTERS: &[&str] = &["AZ_BATCH_MASTER_NODE", "AZ_BATCHAI_MPI_MASTER_NODE"];
pub(super) const SAGE_MAKER: &[&str] = &["SM_TRAINING_ENV"];
pub(super) const SAGE_MAKER_HOSTS: &[&str] = &["SM_HOSTS"];
pub(super) const DLTS: &[&str] = &["DLTS_JOB_ID"];

/// Variables of other tools that are read besides.
#[derive(Debug)]
pub struct ForeignRow {
    /// Their names; the first that is set counts.
    pub names: &'static [&'static str],
    /// The tool that sets them.
    pub from: &'static str,
    /// The decision that they make.
    pub doc: &'static str,
}

const fn row(names: &'static [&'static str], from: &'static str, doc: &'static str) -> ForeignRow {
    ForeignRow { names, from, doc }
}

/// The variables of other tools that are read besides [`LAUNCHERS`].
#[rustfmt::skip]
pub const FOREIGN: [ForeignRow; 16] = [
    row(&["TORCHELASTIC_RUN_ID"], "torchrun",
        "the name of the job and of this run; torchrun may be nested in another launcher"),
    row(&["TORCHELASTIC_RESTART_COUNT"], "torchrun",
        "part of the name of a job on one host; hosts count differently"),
    row(NAMESPACES, "Open MPI, PMIx", "the name of the job and of this run"),
    row(PMI, "MPICH, Intel MPI", "the descriptor at which ranks on several hosts ask where rank 0 is"),
    row(&["MPIRUN_ID"], "MVAPICH's mpirun_rsh", "the name of the job"),
    row(SLURM_JOBS, "Slurm", "the job, part of the name of the step"),
    row(SLURM_STEPS, "Slurm",
        "the step: without a step of srun, Slurm's numbers are those of a batch script and do not count"),
    row(SLURM_HOST_COUNTS, "Slurm", "1: all ranks of the step are on this host"),
    row(SLURM_HOST_LISTS, "Slurm", "its first host is the host of rank 0; the port follows from the step or the job"),
    row(&["SLURMD_NODENAME"], "Slurm", "whether rank 0 of Open MPI's mpirun is on the first host"),
    row(AZURE_ML, "Azure ML",
        "its presence: the two variables below name the host of rank 0, and the port is 6105 as in DeepSpeed"),
    row(&["AZ_BATCH_MASTER_NODE"], "Azure ML",
        "host:port of the first host; its port belongs to others. Preferred when ranks are on several hosts"),
    row(&["AZ_BATCHAI_MPI_MASTER_NODE"], "Azure ML",
        "the first host. Preferred when all ranks are on one host"),
    row(SAGE_MAKER, "SageMaker", "its presence: SM_HOSTS names the host of rank 0, and the port is 29500"),
    row(SAGE_MAKER_HOSTS, "SageMaker", "a JSON list of hosts; rank 0 is on the first one"),
    row(DLTS, "DLTS", "its presence: the variables of Azure ML do not count, and the launcher within says everything"),
];

/// Whether variables of launchers and platforms count besides the settings.
pub(super) fn discovers(source: &Source<'_>) -> bool {
    source.text("UNISONO_DISCOVERY").is_none_or(|value| value != "off")
}

/// A variable of a launcher or a platform, unless discovery is off.
pub(super) fn foreign(source: &Source<'_>, name: &str) -> Option<String> {
    debug_assert!(is_row(name), "{name} is in no table");
    discovers(source).then(|| source.foreign(name)).flatten()
}

fn is_row(name: &str) -> bool {
    let launchers = LAUNCHERS.iter().flat_map(LauncherRow::names);
    let others = FOREIGN.iter().flat_map(|row| row.names).copied();
    // A setting is a mark too.
    launchers.chain(others).any(|known| known == name)
        || knobs().any(|knob| knob.name == name || knob.also.contains(&name))
}

/// The first of these names that is set, with its value: a setting by any of its names, or a variable of a launcher.
pub(super) fn first(source: &Source<'_>, names: &[&str]) -> Option<(String, String)> {
    let named = |name: &&str| source.find(name).or_else(|| Some((name.to_string(), foreign(source, name)?)));
    names.iter().find_map(named)
}

/// A value, and the variable or the rule that gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// The variable or the rule that gave it.
    pub source: String,
}
