//! The words of Slurm's variables. Their meaning depends on their setter: of a step that srun has started for the ranks
//! they describe the ranks; of a step in which another launcher's daemon runs they describe the daemons.

use unisono_communicator::Result;
use unisono_control::handshake::JobId;

use super::rows::{
    LauncherRow, SLURM_HOST_COUNTS, SLURM_HOST_LISTS, SLURM_JOB_HOST_LISTS, SLURM_JOBS, SLURM_SIZES,
    SLURM_STEPS, Sourced, first,
};
use crate::settings::{Source, configuration};

/// Job and step of the Slurm step that we run in.
pub(super) fn step(source: &Source<'_>) -> Option<String> {
    // From this number on they are not steps that srun started, but the batch script, the shell of an allocation, ...
    const RESERVED_STEPS: u32 = 0xffff_fff0;
    let (_, step) = first(source, SLURM_STEPS)?;
    step.parse().ok().filter(|step: &u32| *step < RESERVED_STEPS)?;
    let (_, job) = first(source, SLURM_JOBS)?;
    Some(format!("{job}.{step}"))
}

/// The variable that says that the step is on one host, if we are in such a step.
pub(super) fn one_host(source: &Source<'_>) -> Option<String> {
    step(source)?;
    first(source, SLURM_HOST_COUNTS).filter(|(_, hosts)| hosts == "1").map(|(name, _)| name)
}

/// Whether the values of this row are srun's own word, as with `srun --mpi=pmi2`.
pub(super) fn is_of_srun(source: &Source<'_>, row: &LauncherRow) -> bool {
    let value = |names: &[&str]| first(source, names).map(|(_, value)| value);
    let numbers = |rank: &[&str], size: &[&str]| Some((value(rank)?, value(size)?));
    let in_step = step(source).and_then(|_| numbers(&["SLURM_PROCID"], SLURM_SIZES));
    in_step.is_some() && numbers(row.rank, row.world_size) == in_step
}

/// The first host of the step, and of the allocation; `None` where no variable lists the hosts.
pub(super) type FirstHosts = (Option<Sourced<String>>, Option<Sourced<String>>);

/// The first hosts that the variables say.
///
/// # Errors
/// [`unisono_communicator::Error::Configuration`] for a list that is cut short, whose first host may be another one.
pub(super) fn first_hosts(source: &Source<'_>) -> Result<FirstHosts> {
    let host = |names: &[&str]| {
        let checked = |(source, list): (String, String)| -> Result<Sourced<String>> {
            check_list(&list).map_err(|problem| configuration(&source, &list, problem))?;
            Ok(Sourced { value: first_host(&list), source })
        };
        first(source, names).map(checked).transpose()
    };
    Ok((host(SLURM_HOST_LISTS)?, host(SLURM_JOB_HOST_LISTS)?))
}

/// Checks that each host of a Slurm list has a name, each bracket its end, and each place in a bracket a number.
fn check_list(list: &str) -> Result<(), String> {
    let cut = |what: &str| Err(format!("{what}, so the list of hosts is damaged or cut short"));
    let (mut inside, mut piece) = (false, 0);
    for letter in list.chars() {
        match (letter, inside) {
            ('[', false) => (inside, piece) = (true, 0),
            ('[', true) => return cut("a bracket is within another one"),
            (']', false) => return cut("a bracket ends that does not begin"),
            (']' | ',' | '-', true) | (',', false) if piece == 0 => return cut("a host is missing"),
            // A host that ends with a bracket has a name.
            (']', true) => (inside, piece) = (false, 1),
            (',', _) | ('-', true) => piece = 0,
            _ => piece += 1,
        }
    }
    match (inside, piece) {
        (true, _) => cut("a bracket does not end"),
        (false, 0) => cut("a host is missing"),
        (false, _) => Ok(()),
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

/// A port from the mark that the ranks have in common, below the range from which systems give out ports by themselves.
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
            assert_eq!(check_list(list), Ok(()), "{list}");
            assert_eq!(first_host(list), host, "{list}");
        }
    }

    #[test]
    fn a_slurm_list_that_is_cut_short_is_refused() {
        for (list, word) in [
            ("n[1", "does not end"),
            ("n[", "does not end"),
            ("n[1-", "does not end"),
            ("n[1-4,", "does not end"),
            ("n[1-]", "missing"),
            ("n[]", "missing"),
            ("n[1[2]]", "within"),
            ("n1-4]", "does not begin"),
            ("n1,", "missing"),
            (",n1", "missing"),
            ("n[1-4],,m", "missing"),
        ] {
            let problem = check_list(list).unwrap_err();
            assert!(problem.contains(word) && problem.ends_with("cut short"), "{list}: {problem}");
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
