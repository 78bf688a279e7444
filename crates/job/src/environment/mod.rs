//! The words of launchers: our rank and the size of the job, whether all ranks are on one host, the name of the job.
//!
//! | launcher | rank, size, local rank, local size | name of the job |
//! | --- | --- | --- |
//! | ours, torchrun, DeepSpeed, by hand | the `UNISONO_*` and torch names | torchrun's run id, else the master's port |
//! | Open MPI | `OMPI_COMM_WORLD_*` | the PMIx namespace |
//! | MVAPICH | `MV2_COMM_WORLD_*` | the PMIx namespace, else `MPIRUN_ID` |
//! | MPICH, Intel MPI, PALS, Flux | `PMI_*`, `MPI_LOCAL*`, `PALS_LOCAL_*` | the nearest ancestor that is a proxy |
//! | another PMIx server | `PMIX_RANK`, Slurm's sizes | the PMIx namespace |
//! | srun | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS` | job and step |
//!
//! The first row whose rank is set counts: a launcher started within another one sets its own. Slurm counts only within
//! a step, because a batch script has its variables too, and runs once. The PMI variables of `srun --mpi=pmi2` are a
//! row of their own. Where no name is given, the parent process is the job. With `UNISONO_DISCOVERY=off` only the first
//! row counts.
//!
//! Two rows that do not agree are nested launchers, or one of them is left over. They are known to be nested when the
//! row that counts is of a larger world (each process of the outer one has started several), when a launcher that is
//! itself started by others has left its mark, and when the other row belongs to a Slurm step in which a process
//! manager has its daemons. Everything else is refused: a `RANK=0 WORLD_SIZE=1` of somebody's shell would make each
//! process of `mpirun` a world of its own, without a word. Of another PMIx server no size is known outside of Slurm, so
//! a world of one is refused beside its rank.
//!
//! | file | contents |
//! | --- | --- |
//! | `rows` | the names of all variables |
//! | `placement` | rank and sizes |
//! | `meeting` | the host of rank 0, its port, the name of the job |
//! | `slurm`, `platform` | the words of Slurm, and of Azure ML, SageMaker and DLTS, about both |
//! | `lost` | the variables that changed nothing |

mod lost;
mod meeting;
mod placement;
mod platform;
mod rows;
#[cfg(test)]
mod rows_tests;
mod slurm;
#[cfg(test)]
mod tests;

use unisono_communicator::Result;

use crate::settings::{GROUPS, Source};
pub use lost::{Lost, PLACES};
pub use placement::{Numbers, Placement};
pub use platform::Platform;
pub use rows::{FOREIGN, ForeignRow, LAUNCHERS, Launcher, LauncherRow, Sourced};

/// All that the environment says of the place of this process: each value with its source, and the variables that
/// changed nothing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Discovery {
    /// Our place; without sources.
    pub placement: Placement,
    /// Our rank and the sizes, with their sources.
    pub numbers: Numbers,
    /// The host of rank 0, if it is known. Ranks of a launcher that hosts their store meet there instead.
    pub address: Option<Sourced<String>>,
    /// The port of rank 0 that belongs to others, if it is known.
    pub port: Option<Sourced<u16>>,
    /// The platform around, if it is a known one.
    pub platform: Option<Platform>,
    /// The variables that changed nothing.
    pub lost: Vec<Lost>,
    /// The mark that the ranks of this job have in common, said by the user or the launcher.
    pub(crate) job_key: Option<String>,
    /// The launcher's name of this run, if it has started all ranks and says so.
    pub(crate) launcher_run: Option<String>,
    /// The Slurm job and step, if we are in one.
    pub(crate) slurm_step: Option<String>,
    /// The descriptor at which a launcher answers that speaks PMI.
    pub(crate) pmi: Option<i32>,
}

impl Discovery {
    /// The words of this process's environment.
    ///
    /// ```
    /// use unisono_job::environment::Discovery;
    ///
    /// let discovery = Discovery::from_environment()?;
    /// println!("rank {} by {}", discovery.numbers.rank.value, discovery.numbers.rank.source);
    /// # Ok::<(), unisono_communicator::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Configuration`] for the first value that is no number or out of range, and for
    /// rows that contradict each other.
    pub fn from_environment() -> Result<Discovery> {
        discover(&Source::of_environment(&GROUPS))
    }
}

/// The words of a source with the rows of [`GROUPS`].
pub(crate) fn discover(source: &Source<'_>) -> Result<Discovery> {
    source.choice("UNISONO_DISCOVERY", &["auto", "off"])?;
    let ranked = placement::ranked(source)?;
    let placement = ranked.as_ref().map_or(Placement::Solo, placement::Ranked::placement);
    let named = meeting::named(source)?;
    let job_key = meeting::job_key(source, ranked.as_ref(), &named);
    let master = meeting::master(source, ranked.as_ref(), named, job_key.as_deref())?;
    let address_by = master.address.as_ref().map(|address| address.source.as_str());
    let lost = lost::lost(source, ranked.as_ref(), address_by);
    Ok(Discovery {
        placement,
        numbers: ranked.map_or_else(Numbers::alone, |ranked| ranked.numbers),
        address: master.address,
        port: master.port,
        platform: platform::platform(source),
        lost,
        job_key,
        launcher_run: meeting::launcher_run(source, placement.world_size()),
        slurm_step: slurm::step(source),
        pmi: meeting::pmi(source, placement),
    })
}
