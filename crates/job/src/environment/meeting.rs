//! The host of rank 0 and its port, and the mark that the ranks of a job have in common.
//!
//! The address comes from the first source that has one: the settings with the names of torch, Slurm, the platform
//! around. A port that is set wins. Else the source of the address decides: the settings have the port of torch, so
//! that all ranks that know the address know the port; Slurm's follows from the step.

use unisono_communicator::{Result, beginning};
use unisono_control::roster::message::RUN_BYTES_MAX;

use super::placement::{Placement, Ranked, manager};
use super::rows::{Launcher, NAMESPACES, PMI, Sourced, TORCH_PORT, first, foreign};
use super::{platform, slurm};
use crate::settings::{Source, configuration};

/// The host of rank 0 and its port.
#[derive(Clone, Debug, Default)]
pub(super) struct Master {
    pub(super) address: Option<Sourced<String>>,
    pub(super) port: Option<Sourced<u16>>,
}

/// The host of rank 0 and its port, as settings say them.
pub(super) fn named(source: &Source<'_>) -> Result<Master> {
    let address = address(source)?;
    let port = source.find("UNISONO_MASTER_PORT").map(|(name, _)| name);
    let port = match (source.number("UNISONO_MASTER_PORT", 1, u64::from(u16::MAX) - 1)?, port) {
        (Some(value), Some(source)) => Some(Sourced { value: value as u16, source }),
        _ => address.as_ref().map(|_| Sourced {
            value: TORCH_PORT,
            source: "the default of torchrun and DeepSpeed".to_owned(),
        }),
    };
    Ok(Master { address, port })
}

/// The host of rank 0 as a setting says it, an IPv6 address with or without brackets.
fn address(source: &Source<'_>) -> Result<Option<Sourced<String>>> {
    let Some((name, value)) = source.find("UNISONO_MASTER_ADDRESS") else { return Ok(None) };
    let host = value.trim();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if platform::is_host(host) {
        return Ok(Some(Sourced { value: host.to_owned(), source: name }));
    }
    let problem = "a host name or an IP address is needed; the port has a variable of its own, MASTER_PORT";
    Err(configuration(&name, &value, problem))
}

/// The same, and where no setting says it, as Slurm or the platform do.
pub(super) fn master(
    source: &Source<'_>,
    ranked: Option<&Ranked>,
    named: Master,
    job_key: Option<&str>,
) -> Result<Master> {
    let (None, Some(ranked)) = (&named.address, ranked) else { return Ok(named) };
    let found = match slurm::first_hosts(source)? {
        (None, None) => platform::master(source, ranked.numbers.are_of_one_host())?,
        // Nothing beside Slurm is asked where Slurm is there: else some ranks would meet elsewhere than others.
        hosts => slurm_master(source, ranked, hosts, job_key),
    };
    let (address, port) = found.unzip();
    Ok(Master { address, port: named.port.or(port) })
}

/// The host of rank 0 and a port on it, where the ranks of a Slurm job on several hosts may meet: `None` when that is
/// not certain.
fn slurm_master(
    source: &Source<'_>,
    ranked: &Ranked,
    (of_step, of_job): slurm::FirstHosts,
    job_key: Option<&str>,
) -> Option<(Sourced<String>, Sourced<u16>)> {
    let with_port = |host: Sourced<String>, key: &str, by: &str| {
        let port = Sourced { value: slurm::port(key), source: format!("computed from Slurm's {by}") };
        (host, port)
    };
    match manager(source)?.launcher {
        Launcher::Named => None,
        Launcher::Slurm | Launcher::Pmix => Some(with_port(of_step?, &slurm::step(source)?, "step")),
        // Their daemons are one step on all hosts. A step of one host is something else.
        Launcher::Pmi | Launcher::Mvapich if slurm::one_host(source).is_some() => None,
        Launcher::Pmi | Launcher::Mvapich => Some(with_port(of_step?, &slurm::step(source)?, "step")),
        // mpirun starts the ranks of its own host itself, and srun only the daemons of the others: the ranks share no
        // step, but the allocation. Rank 0 is on its first host, unless it sees that it is not.
        Launcher::OpenMpi => {
            let host = of_job?;
            let own = foreign(source, "SLURMD_NODENAME").filter(|_| ranked.numbers.rank.value == 0);
            own.is_none_or(|own| own == host.value).then_some(with_port(host, job_key?, "job"))
        }
    }
}

/// The mark that the ranks of this job have in common, if a variable says it; else it is to be found among the
/// processes.
pub(super) fn job_key(source: &Source<'_>, ranked: Option<&Ranked>, named: &Master) -> Option<String> {
    if let Some(job) = source.text("UNISONO_JOB") {
        return Some(format!("UNISONO_JOB={job}"));
    }
    let ranked = ranked?;
    match ranked.launcher {
        Launcher::Named => {
            let port = named.port.as_ref().map(|port| port.value.to_string());
            if let Some(run) = foreign(source, "TORCHELASTIC_RUN_ID") {
                // The agent of each host counts the failures of its own ranks: hosts count differently. All ranks of
                // the run before have ended on all hosts before torchrun starts any again.
                let restart = foreign(source, "TORCHELASTIC_RESTART_COUNT");
                let restart = restart.filter(|_| ranked.numbers.are_of_one_host());
                let parts = ["torchrun".to_owned(), run].into_iter().chain(port).chain(restart);
                return Some(parts.collect::<Vec<_>>().join(" "));
            }
            // The ranks may spell the address in several ways, and a port belongs to one job at a time.
            Some(format!("MASTER_PORT={}", port?))
        }
        Launcher::OpenMpi | Launcher::Pmix => pmix_key(source),
        // The process that started the job has this number; without it ranks within shells would have no common parent.
        Launcher::Mvapich => {
            pmix_key(source).or_else(|| Some(format!("mpirun_rsh {}", foreign(source, "MPIRUN_ID")?)))
        }
        Launcher::Slurm => slurm::step(source).map(|step| format!("slurm {step}")),
        Launcher::Pmi => None,
    }
}

fn pmix_key(source: &Source<'_>) -> Option<String> {
    namespace(source).map(|namespace| format!("pmix {namespace}"))
}

/// The descriptor at which the launcher of this process answers, if it speaks PMI.
pub(super) fn pmi(source: &Source<'_>, placement: Placement) -> Option<i32> {
    match placement {
        Placement::Ranked { launcher: Launcher::Pmi, .. } => first(source, PMI)?.1.trim().parse().ok(),
        Placement::Ranked { .. } | Placement::Solo => None,
    }
}

/// The launcher's name of this run of the job, if it has started all ranks, so that all ranks of one run are told the
/// same. A port or a name that a user gives may belong to the run before.
pub(super) fn launcher_run(source: &Source<'_>, world_size: u32) -> Option<String> {
    let run = foreign(source, "TORCHELASTIC_RUN_ID").map(|run| format!("torchrun's run {run}"));
    let run = run.or_else(|| {
        let row = manager(source)?;
        let (_, size) = first(source, row.world_size)?;
        let has_all = size.trim().parse() == Ok(world_size);
        match row.launcher {
            Launcher::Slurm => slurm::step(source).map(|step| format!("Slurm's step {step}")),
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
    first(source, NAMESPACES).map(|(_, namespace)| namespace)
}
