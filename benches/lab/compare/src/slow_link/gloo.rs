//! torch's Gloo on the hosts, with the rank of the comparison.

use std::path::Path;
use std::time::Duration;

use unisono::Collective;
use unisono_compare::{Command, ComparedOperation};

use super::model::Job;
use super::network::{INTERFACE, Network};
use super::record::{MeasuredCall, Sample};
use crate::instance::{Instance, Surroundings, Watch};
use crate::problem::{Problem, Result, While};
use crate::systems::{self, Medium, Peers, System, TORCH};

const START_MAX: Duration = Duration::from_secs(120);
const TURN_MAX: Duration = Duration::from_secs(120);
/// As in the comparison: the length of a block of calls, and of all blocks. There are three blocks at least.
const BLOCK_US: u64 = 5_000;
const BUDGET_US: u64 = 50_000;

/// Gloo, where it is installed.
#[derive(Debug)]
pub(crate) struct Gloo {
    system: System,
    job: Job,
    hosts: Vec<Vec<String>>,
}

impl Gloo {
    /// `None`, and a line that says so, where torch is not installed.
    pub(crate) fn find(peers: &Path, network: &Network, job: Job) -> Result<Option<Gloo>> {
        let folder = std::path::absolute(peers).during("the folder of the peers")?;
        let systems = systems::table(&Peers { folder }, Path::new(""), Medium::Tcp);
        let Some(mut system) = systems.into_iter().find(|system| system.name == TORCH) else {
            return Ok(None);
        };
        if let Some(path) = system.command.iter().find(|path| !Path::new(path).exists()) {
            eprintln!("SKIP {TORCH}: {path} is absent; `cargo xtask compare --install` installs it");
            return Ok(None);
        }
        // By itself it would take the interface of the host's name, which all namespaces share.
        system.environment.push(("GLOO_SOCKET_IFNAME".to_owned(), INTERFACE.to_owned()));
        let hosts = (0..job.hosts as usize).map(|host| network.entering(host).to_vec()).collect();
        Ok(Some(Gloo { system, job, hosts }))
    }

    /// Where and how it runs.
    pub(crate) fn around<'a>(&'a self, logs: &'a Path, watch: Watch<'a>) -> Surroundings<'a> {
        Surroundings {
            ranks: self.job.ranks(),
            hosts: &self.hosts,
            logs,
            watch,
            start_max: START_MAX,
            turn_max: TURN_MAX,
        }
    }

    /// Starts it; it waits for its rounds.
    pub(crate) fn start<'a>(&self, around: &'a Surroundings<'a>) -> Result<Started<'a>> {
        let instance = Instance::start(&self.system, around)?;
        let instance = instance.map_err(|failure| Problem::Refused(format!("{TORCH} {}", failure.0)))?;
        Ok(Started { instance, around })
    }
}

/// Gloo whose ranks wait for their turn.
pub(crate) struct Started<'a> {
    instance: Instance,
    around: &'a Surroundings<'a>,
}

impl Started<'_> {
    /// An exact all-reduce of each size. A wrong result is a failure.
    pub(crate) fn round(&mut self, sizes: &[u64], round: u32) -> Result<Vec<Sample>> {
        let mut sample = |&bytes: &u64| {
            let operation = ComparedOperation::from(Collective::AllReduce);
            let command = Command { id: 0, operation, bytes, block_us: BLOCK_US, budget_us: BUDGET_US };
            let outcome = self.instance.turn(command, self.around)?;
            let measured = outcome.map_err(|failure| Problem::Refused(format!("{TORCH}: {}", failure.0)))?;
            let system = TORCH.to_owned();
            Ok(Sample {
                call: MeasuredCall::AllReduce,
                system,
                route: None,
                round,
                bytes,
                median_us: measured.median_us,
                network_bytes: None,
                compressed: None,
            })
        };
        sizes.iter().map(&mut sample).collect()
    }
}
