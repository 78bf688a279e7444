//! The systems that take turns: unisono with the algorithms of its choice, unisono with algorithms by name, and peers.

use std::path::Path;

use unisono::Collective;
use unisono_compare::ComparedOperation;
use unisono_schedule::{Choice, Registry, Shape};

use super::arguments::TwoHostsArguments;
use crate::hosts::{self, Hosts, Job};
use crate::network::Network;
use crate::picture::OURS;
use crate::problem::{Problem, Result};
use crate::systems::{Role, Start, System, Waiting};

/// The ports of the hosts begin here; every system of ours has its own.
const FIRST_PORT: usize = 29_600;

/// A system that takes turns.
#[derive(Debug)]
pub(crate) struct Participant {
    pub(crate) system: System,
    /// The algorithm that it is told to use in calls that have it.
    algorithm: Option<String>,
}

impl Participant {
    /// Whether it takes turns at an operation: a forced algorithm only at operations that have it.
    pub(crate) fn takes(&self, operation: ComparedOperation, job: Job) -> bool {
        self.algorithm.as_deref().is_none_or(|name| has_algorithm(operation, name, job))
    }
}

fn has_algorithm(operation: ComparedOperation, name: &str, job: Job) -> bool {
    let named = |collective: Collective| {
        let choice = Choice::named(&Registry::built_in(), collective, name, &Shape::new(job.ranks()));
        choice.is_ok_and(|choice| choice.algorithm.supports(&choice.shape))
    };
    match operation {
        ComparedOperation::Collective(collective) => named(collective),
        ComparedOperation::SendRecv => false,
    }
}

/// Refuses a name that no operation of the run has.
pub(crate) fn check_algorithms(arguments: &TwoHostsArguments, job: Job) -> Result<()> {
    let is_known =
        |name: &&String| arguments.ops.iter().any(|operation| has_algorithm(*operation, name, job));
    match arguments.algorithms.iter().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => {
            let names: Vec<&str> = arguments.ops.iter().map(|operation| operation.name()).collect();
            Err(Problem::Refused(format!("{name} is no algorithm of {}", names.join(", "))))
        }
    }
}

/// All that take turns.
pub(crate) fn all(
    arguments: &TwoHostsArguments,
    network: &Network,
    on_hosts: &Hosts,
    logs: &Path,
) -> Result<Vec<Participant>> {
    let program = hosts::built_beside("unisono-compare-rank")?;
    let by_name = arguments.algorithms.iter().map(Some);
    let ours = [None].into_iter().chain(by_name).enumerate().map(|(index, algorithm)| Participant {
        system: ours(&program, network, FIRST_PORT + index, algorithm.map(String::as_str)),
        algorithm: algorithm.cloned(),
    });
    let mut all: Vec<Participant> = ours.collect();
    if !arguments.no_peers {
        let peers = [
            hosts::gloo(&arguments.peers_dir)?,
            hosts::open_mpi(&arguments.peers_dir, on_hosts, &logs.join("remote-shell"))?,
        ];
        all.extend(peers.into_iter().flatten().map(|system| Participant { system, algorithm: None }));
    }
    Ok(all)
}

/// Ranks that meet on the first host.
fn ours(program: &Path, network: &Network, port: usize, algorithm: Option<&str>) -> System {
    let settings = [
        ("UNISONO_MASTER_ADDRESS", Network::address(0).to_string()),
        ("UNISONO_MASTER_PORT", port.to_string()),
        ("UNISONO_SECRET_FILE", network.secret_file().display().to_string()),
    ];
    let forced = algorithm.map(|name| ("UNISONO_ALGORITHM", name.to_owned()));
    let environment = settings.into_iter().chain(forced).map(|(name, value)| (name.to_owned(), value));
    System {
        name: algorithm.map_or(OURS.to_owned(), |name| format!("{OURS} {name}")),
        role: Role::OursOwn,
        start: Start::EachRank,
        waiting: Waiting::Sleeps,
        environment: environment.collect(),
        command: vec![program.to_string_lossy().into_owned()],
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    const JOB: Job = Job { hosts: 2, ranks_per_host: 2 };

    #[test]
    fn an_algorithm_takes_turns_only_at_calls_that_have_it() {
        let has = |collective: Collective, name| has_algorithm(collective.into(), name, JOB);
        assert!(has(Collective::AllReduce, "ring") && has(Collective::AllReduce, "leaders:2"));
        assert!(!has(Collective::AllToAll, "ring") && !has(Collective::AllReduce, "leaders:3"));
        assert!(!has_algorithm(ComparedOperation::SendRecv, "ring", JOB));
    }

    #[test]
    fn a_name_that_no_operation_has_is_refused() {
        let check = |words: &[&str]| {
            let arguments = TwoHostsArguments::parse_from([&["two-hosts"], words].concat());
            check_algorithms(&arguments, JOB)
        };
        assert!(check(&[]).is_ok() && check(&["--algorithms", "ring,pairwise"]).is_ok());
        let problem = check(&["--algorithms", "pairwise", "--ops", "all_reduce"]).unwrap_err();
        assert_eq!(problem.to_string(), "pairwise is no algorithm of all_reduce");
    }
}
