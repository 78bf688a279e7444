//! A job to start, and the plan of each of its hosts.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::cores::Binding;
use super::hosts::{Hosts, Share};
use super::plan::HostPlan;
use crate::problem::{Problem, Result};

/// The time that ranks have for their end after they have been asked to.
const GRACE: Duration = Duration::from_secs(5);

/// A job to start.
pub(crate) struct Job {
    pub(crate) ranks: u32,
    /// The hosts of the ranks, if they are not all here.
    pub(crate) hosts: Option<Hosts>,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    /// Additional variables of every rank.
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// The folder in which ranks find a vendor's libraries, as an absolute path; by default the folder of the
    /// launcher's environment.
    pub(crate) vendor_directory: Option<PathBuf>,
    /// Whether the others go on when a rank fails.
    pub(crate) keep_going: bool,
    /// A rank that is going to be killed: its death is no failure.
    pub(crate) victim: Option<u32>,
    /// The time that the job may take.
    pub(crate) timeout: Option<Duration>,
    /// Time between asking the ranks to end and SIGKILL.
    pub(crate) grace: Duration,
    pub(crate) binding: Binding,
    /// A folder for a file of each rank's output.
    pub(crate) log_directory: Option<PathBuf>,
    /// Whether the ranks record their calls.
    pub(crate) records_calls: bool,
    /// The rank that gets this process's standard input.
    pub(crate) stdin: Option<u32>,
}

impl Job {
    /// This program again, with other arguments.
    pub(crate) fn of_this_program(ranks: u32, arguments: Vec<OsString>) -> Result<Job> {
        let program = std::env::current_exe().map_err(|error| Problem::failed("own program", error))?;
        Ok(Job {
            ranks,
            hosts: None,
            program: program.into(),
            arguments,
            variables: Vec::new(),
            vendor_directory: None,
            keep_going: false,
            victim: None,
            timeout: None,
            grace: GRACE,
            binding: Binding::Auto,
            log_directory: None,
            records_calls: false,
            stdin: None,
        })
    }

    /// The plan of a job whose ranks are all on this host.
    pub(crate) fn plan_here(&self) -> HostPlan {
        HostPlan {
            program: self.program.clone(),
            arguments: self.arguments.clone(),
            first_rank: 0,
            local_ranks: self.ranks,
            ranks: self.ranks,
            host: 0,
            hosts: 1,
            variables: self.variables.clone(),
            vendor_directory: self.vendor_directory.clone().map(Into::into),
            binding: self.binding,
            records_calls: self.records_calls,
        }
    }

    /// The plan of each of these hosts.
    pub(crate) fn plans_on(&self, hosts: &Hosts) -> Vec<HostPlan> {
        let plan = |(host, share): (u32, &Share)| HostPlan {
            first_rank: share.numbers.start,
            local_ranks: share.numbers.len() as u32,
            host,
            hosts: hosts.shares.len() as u32,
            variables: [hosts.variables_of(share), self.variables.clone()].concat(),
            ..self.plan_here()
        };
        (0..).zip(&hosts.shares).map(plan).collect()
    }
}
