//! What Slurm's variables say. Their meaning depends on who has set them: of a step that srun has started for the ranks
//! they describe the ranks; of a step in which another launcher's daemon runs they describe the daemons.

use unisono_control::handshake::JobId;

use super::{Launcher, Row, SLURM_SIZES, first, manager};
use crate::environment::Placement;
use crate::settings::Source;

const STEP_HOSTS: &[&str] = &["SLURM_STEP_NUM_NODES", "SLURM_NNODES"];
const STEP_LIST: &[&str] = &["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];
/// Of the allocation, in every step of it.
const JOB_LIST: &[&str] = &["SLURM_JOB_NODELIST", "SLURM_NODELIST"];

/// Job and step of the Slurm step that we run in.
pub(crate) fn slurm_step(source: &Source<'_>) -> Option<String> {
    // From this number on they are not steps that srun started, but the batch script, the shell of an allocation, ...
    const RESERVED_STEPS: u32 = 0xffff_fff0;
    let (_, step) = first(source, &["SLURM_STEP_ID", "SLURM_STEPID"])?;
    step.parse().ok().filter(|step: &u32| *step < RESERVED_STEPS)?;
    let (_, job) = first(source, &["SLURM_JOB_ID", "SLURM_JOBID"])?;
    Some(format!("{job}.{step}"))
}

/// Whether the step is on one host, if we are in one.
pub(super) fn is_one_host(source: &Source<'_>) -> bool {
    slurm_step(source).is_some() && first(source, STEP_HOSTS).is_some_and(|(_, hosts)| hosts == "1")
}

/// Whether what this row says is srun's own word, as with `srun --mpi=pmi2`.
pub(super) fn is_of_srun(source: &Source<'_>, row: &Row) -> bool {
    let value = |names: &[&str]| first(source, names).map(|(_, value)| value);
    let numbers = |rank: &[&str], size: &[&str]| Some((value(rank)?, value(size)?));
    let step = slurm_step(source).and_then(|_| numbers(&["SLURM_PROCID"], SLURM_SIZES));
    step.is_some() && numbers(row.rank, row.size) == step
}

/// The host of rank 0 and a port on it, where the ranks of a Slurm job on several hosts may meet: `None` when that is
/// not certain.
pub(crate) fn slurm_meeting(
    source: &Source<'_>,
    placement: &Placement,
    job_key: Option<&str>,
) -> Option<(String, u16)> {
    let host = |names: &[&str]| first(source, names).map(|(_, list)| first_host(&list));
    match manager(source)?.launcher {
        Launcher::Named => None,
        Launcher::Slurm | Launcher::Pmix => Some((host(STEP_LIST)?, port(&slurm_step(source)?))),
        // Their daemons are one step on all hosts. A step of one host is something else.
        Launcher::Pmi | Launcher::Mvapich if is_one_host(source) => None,
        Launcher::Pmi | Launcher::Mvapich => Some((host(STEP_LIST)?, port(&slurm_step(source)?))),
        // mpirun starts the ranks of its own host itself, and srun only the daemons of the others: the ranks share no
        // step, but the allocation. Rank 0 is on its first host, unless it sees that it is not.
        Launcher::OpenMpi => {
            let host = host(JOB_LIST)?;
            let own = source.foreign("SLURMD_NODENAME").filter(|_| placement.rank() == 0);
            own.is_none_or(|own| own == host).then_some((host, port(job_key?)))
        }
    }
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

/// A port for what the ranks have in common, below the range from which systems give out ports by themselves.
pub(super) fn port(key: &str) -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 10_000;
    let digest = JobId::from_key(key).0;
    FIRST + u16::from_le_bytes([digest[0], digest[1]]) % COUNT
}

#[cfg(test)]
mod tests {
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
    fn ports_stay_in_their_range() {
        let ports: Vec<u16> = (0..1000).map(|step| port(&format!("4711.{step}"))).collect();
        assert!(ports.iter().all(|port| (20_000..30_000).contains(port)));
        assert_eq!(port("4711.0"), ports[0]);
        assert!(ports.iter().any(|port| *port != ports[0]));
    }
}
