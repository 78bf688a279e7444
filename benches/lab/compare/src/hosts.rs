//! Systems whose ranks run on several hosts: the namespaces of one network.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use unisono_compare::{Command, ComparedOperation};

use crate::guard::Guard;
use crate::instance::{Instance, Surroundings, Watch, interruption};
use crate::network::{INTERFACE, Network};
use crate::problem::{Problem, Result, While};
use crate::scheduling;
use crate::systems::{Peers, System};

const START_MAX: Duration = Duration::from_secs(120);
const TURN_MAX: Duration = Duration::from_secs(120);
/// As in the comparison: the length of a block of calls, and of all blocks. There are three blocks at least.
const BLOCK_US: u64 = 5_000;
const BUDGET_US: u64 = 50_000;

/// The hosts, and the ranks on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) hosts: u32,
    pub(crate) ranks_per_host: u32,
}

impl Job {
    pub(crate) fn ranks(self) -> u32 {
        self.hosts * self.ranks_per_host
    }
}

/// Measures on a new network of so many hosts. Where this machine cannot make one, it says SKIP and the reason.
pub(crate) fn on_network(
    part: &str,
    hosts: u32,
    measure: impl FnOnce(&Network, Watch<'_>) -> Result<()>,
) -> Result<()> {
    let network = match Network::new(hosts as usize) {
        Ok(network) => network,
        Err(reason) => {
            println!("SKIP {part}: {reason}");
            return Ok(());
        }
    };
    let interrupted = interruption()?;
    let _machine = scheduling::lock_machine()?;
    let guard = Guard::start()?;
    measure(&network, Watch { interrupted: &interrupted, guard: &guard })
}

/// A speed as the command line has it.
pub(crate) fn parse_speed(text: &str) -> std::result::Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (0.01..=400.0).contains(speed));
    speed.ok_or_else(|| format!("{text} is no speed from 0.01 to 400 Gbit/s"))
}

/// The words before a command, for each host of a job.
#[derive(Debug)]
pub(crate) struct Hosts {
    job: Job,
    words: Vec<Vec<String>>,
}

impl Hosts {
    pub(crate) fn of(network: &Network, job: Job) -> Hosts {
        Hosts { job, words: (0..job.hosts as usize).map(|host| network.entering(host).to_vec()).collect() }
    }

    pub(crate) fn around<'a>(&'a self, logs: &'a Path, watch: Watch<'a>) -> Surroundings<'a> {
        let Hosts { job, words } = self;
        Surroundings {
            ranks: job.ranks(),
            hosts: words,
            logs,
            watch,
            start_max: START_MAX,
            turn_max: TURN_MAX,
        }
    }

    /// The program that Open MPI's launcher takes for its remote shell: it enters the host's namespace. Each host gets
    /// a name of its own, because Open MPI takes hosts of one name for one host.
    fn write_remote_shell(&self, path: &Path) -> Result<()> {
        let case = |(host, words): (usize, &Vec<String>)| {
            format!("  {}) enter={:?};;\n", Network::address(host), words.join(" "))
        };
        let cases: String = self.words.iter().enumerate().map(case).collect();
        let script = format!(
            "#!/bin/sh\nhost=$1; shift\ncase $host in\n{cases}  *) echo \"no host $host\" >&2; exit 1;;\nesac\n\
             exec $enter unshare --uts -- sh -c \
             'echo \"$1\" > /proc/sys/kernel/hostname; exec sh -c \"$2\"' sh \"host-$host\" \"$*\"\n"
        );
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o755).open(path);
        file.and_then(|mut file| file.write_all(script.as_bytes())).during(path.display().to_string())
    }
}

/// torch's Gloo, where it is installed.
pub(crate) fn gloo(peers: &Path) -> Result<Option<System>> {
    // By itself it would take the interface of the host's name, which all namespaces share.
    let interface = ("GLOO_SOCKET_IFNAME".to_owned(), INTERFACE.to_owned());
    let mut system = Peers { folder: absolute(peers)? }.torch();
    system.environment.push(interface);
    Ok(installed(system))
}

/// Open MPI, where it is installed: through memory within a host, over TCP between hosts. `remote_shell` is the place
/// of a program that this function writes.
pub(crate) fn open_mpi(peers: &Path, hosts: &Hosts, remote_shell: &Path) -> Result<Option<System>> {
    let remote_shell = absolute(remote_shell)?;
    hosts.write_remote_shell(&remote_shell)?;
    let slots = |host| format!("{}:{}", Network::address(host), hosts.job.ranks_per_host);
    let slots: Vec<String> = (0..hosts.job.hosts as usize).map(slots).collect();
    let agent = remote_shell.to_string_lossy();
    let interface = ["--mca", "btl_tcp_if_include", INTERFACE, "--prtemca", "prte_if_include", INTERFACE];
    // Its ranks know of no other host that has the same cores, so they would spin without giving way to each other.
    let yields = ["--mca", "mpi_yield_when_idle", "1"];
    let between = ["--host", &slots.join(","), "--prtemca", "plm_ssh_agent", &agent];
    let peers = Peers { folder: absolute(peers)? };
    Ok(installed(peers.open_mpi("tcp,sm,self", &[&between[..], &interface, &yields].concat())))
}

/// A program that is built beside this one.
pub(crate) fn built_beside(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe().during("this program's path")?.with_file_name(name);
    if program.exists() {
        return Ok(program);
    }
    let error = io::Error::other("absent; the command of cargo xtask builds it");
    Err(Problem::Failed { what: program.display().to_string(), error })
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).during(path.display().to_string())
}

/// `None`, and a line that says so, if the peer is not installed.
fn installed(system: System) -> Option<System> {
    let files = system.command.iter().filter(|word| word.starts_with('/'));
    if let Some(path) = files.into_iter().find(|path| !Path::new(path).exists()) {
        eprintln!("SKIP {}: {path} is absent; `cargo xtask compare --install` installs it", system.name);
        return None;
    }
    Some(system)
}

/// A system whose ranks wait for their turn.
pub(crate) struct Started<'a> {
    name: String,
    instance: Instance,
    around: &'a Surroundings<'a>,
}

impl<'a> Started<'a> {
    pub(crate) fn start(system: &System, around: &'a Surroundings<'a>) -> Result<Started<'a>> {
        let name = system.name.clone();
        let instance = Instance::start(system, around)?;
        let instance = instance.map_err(|failure| Problem::Refused(format!("{name} {}", failure.0)))?;
        Ok(Started { name, instance, around })
    }

    /// The median time of a call in microseconds. A wrong result is a failure.
    pub(crate) fn measure(&mut self, operation: ComparedOperation, bytes: u64) -> Result<f64> {
        let command = Command { id: 0, operation, bytes, block_us: BLOCK_US, budget_us: BUDGET_US };
        let outcome = self.instance.turn(command, self.around)?;
        let failed = |problem: String| {
            Problem::Refused(format!("{}: {operation} of {bytes} bytes: {problem}", self.name))
        };
        Ok(outcome.map_err(|failure| failed(failure.0))?.median_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remote_shell_enters_the_host_that_it_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("remote-shell");
        let words = [["echo", "a"], ["echo", "b"]].map(|words| words.map(str::to_owned).to_vec());
        let hosts = Hosts { job: Job { hosts: 2, ranks_per_host: 1 }, words: words.to_vec() };
        hosts.write_remote_shell(&path).unwrap();
        let run = |host: &str| std::process::Command::new(&path).args([host, "x", "y"]).output().unwrap();
        let second = run("10.0.0.2");
        let said = String::from_utf8_lossy(&second.stdout);
        assert!(said.starts_with("b unshare --uts") && said.ends_with("sh host-10.0.0.2 x y\n"), "{said}");
        assert!(!run("10.0.0.3").status.success());
    }

    #[test]
    fn a_peer_that_is_not_installed_takes_no_part() {
        assert!(gloo(Path::new("/no/such/folder")).unwrap().is_none());
    }
}
