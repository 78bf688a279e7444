//! A cluster of Slurm for the length of one job: two nodes on this machine, each with a host name of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use super::{Outcome, command, judge};
use crate::workspaces::succeed;

const PROGRAMS: [&str; 5] = ["slurmctld", "slurmd", "srun", "sbatch", "munged"];
const NODES: [&str; 2] = ["node07", "node08"];
const START_MAX: Duration = Duration::from_secs(30);

/// Ports of the controller, and of the nodes.
const PORTS: [u16; 3] = [26_817, 26_821, 26_822];

/// Runs a command with the host name `$0`, in a namespace where the nodes' names resolve.
const ON_NODE: &str = r#"mount --bind "$CLUSTER/hosts" /etc/hosts && hostname "$0" && exec "$@""#;

/// The daemons, which end with this.
struct Cluster {
    folder: PathBuf,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let files = NODES.map(|node| format!("{node}.pid"));
        for file in files.iter().map(String::as_str).chain(["slurmctld.pid", "munged.pid"]) {
            let pid = fs::read_to_string(self.folder.join(file)).unwrap_or_default();
            if !pid.is_empty() {
                // A process that has ended already needs no signal.
                let _ = Command::new("kill").arg(pid.trim()).status();
            }
        }
    }
}

impl Cluster {
    fn on_node(&self, node: &str, words: &[&str]) -> Command {
        let mut command = command(Path::new("unshare"), None);
        command.args(["--mount", "--uts", "sh", "-c", ON_NODE, node]).args(words).current_dir(&self.folder);
        command.env("CLUSTER", &self.folder).env("SLURM_CONF", self.folder.join("slurm.conf"));
        command
    }

    fn start(folder: &Path) -> Result<Cluster, String> {
        let problem = |error: std::io::Error| format!("{}: {error}", folder.display());
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(problem)?;
        }
        fs::create_dir_all(folder.join("state")).map_err(problem)?;
        let address = address()?;
        let hosts: String = NODES.iter().map(|node| format!("{address} {node}\n")).collect();
        fs::write(folder.join("hosts"), format!("127.0.0.1 localhost\n{hosts}")).map_err(problem)?;
        fs::write(folder.join("slurm.conf"), configuration(folder, &address)).map_err(problem)?;
        let cluster = Cluster { folder: folder.to_owned() };
        let key = "umask 077; mkdir -p config/unisono; head -c 64 /dev/urandom > munge.key; \
                   head -c 32 /dev/urandom > config/unisono/secret";
        succeed(Command::new("sh").args(["-c", key]).current_dir(folder))?;
        let file = |option: &str, name: &str| format!("--{option}={}", folder.join(name).display());
        // By force, because the folders above this one may be open to a group.
        let files = [("socket", "munge.socket"), ("key-file", "munge.key"), ("log-file", "munged.log")];
        let files = files.into_iter().chain([("pid-file", "munged.pid"), ("seed-file", "munged.seed")]);
        let files = files.map(|(option, name)| file(option, name));
        succeed(Command::new("munged").arg("--force").args(files))?;
        succeed(&mut cluster.on_node(NODES[0], &["slurmctld", "-c"]))?;
        for node in NODES {
            succeed(&mut cluster.on_node(node, &["slurmd", "-N", node]))?;
        }
        let until = Instant::now() + START_MAX;
        while Instant::now() < until {
            let states =
                cluster.on_node(NODES[0], &["sinfo", "-h", "-N", "-o", "%t"]).output().map_err(problem)?;
            if String::from_utf8_lossy(&states.stdout).lines().filter(|state| *state == "idle").count() == 2 {
                return Ok(cluster);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Err(format!("no nodes within {START_MAX:?}; {} has the logs", folder.display()))
    }

    /// Waits for a script that runs on the first of both nodes, and gives its output.
    fn batch(&self, script: &str) -> std::io::Result<Output> {
        fs::write(self.folder.join("script"), format!("#!/bin/sh\n{script}\n"))?;
        let words = ["sbatch", "--wait", "-N", "2", "-n", "4", "-o", "out", "script"];
        let output = self.on_node(NODES[0], &words).output()?;
        Ok(Output { stdout: fs::read(self.folder.join("out"))?, ..output })
    }
}

fn configuration(folder: &Path, address: &str) -> String {
    let folder = folder.display();
    let [controller, first, second] = PORTS;
    let node = |name: &str, port: u16| {
        format!("NodeName={name} NodeHostname={name} NodeAddr={address} Port={port} CPUs=4 State=UNKNOWN\n")
    };
    format!(
        "ClusterName=unisono\nSlurmctldHost={}({address})\nSlurmUser=root\nSlurmdUser=root\nMpiDefault=none\n\
         AuthType=auth/munge\nAuthInfo=socket={folder}/munge.socket\nCredType=cred/munge\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
         SelectType=select/linear\nSwitchType=switch/none\nSlurmdParameters=config_overrides\nReturnToService=2\n\
         SlurmctldPort={controller}\nStateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool-%n\n\
         SlurmctldPidFile={folder}/slurmctld.pid\nSlurmdPidFile={folder}/%n.pid\n\
         SlurmctldLogFile={folder}/slurmctld.log\nSlurmdLogFile={folder}/%n.log\n{}{}\
         PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
        NODES[0],
        node(NODES[0], first),
        node(NODES[1], second),
    )
}

/// An address of this machine that its nodes reach each other by.
fn address() -> Result<String, String> {
    let output = Command::new("hostname").arg("-I").output().map_err(|error| format!("hostname: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let first = text.split_whitespace().next().map(str::to_owned);
    first.ok_or_else(|| "this machine has no address but loopback".to_owned())
}

/// Why no cluster can be started here.
fn obstacle() -> Option<String> {
    let is_there = |program: &&str| {
        let found = Command::new("sh").args(["-c", "command -v \"$0\" > /dev/null", program]).status();
        found.is_ok_and(|status| status.success())
    };
    if let Some(program) = PROGRAMS.iter().find(|program| !is_there(program)) {
        return Some(format!("{program} is not here; Debian has slurmctld, slurmd, slurm-client and munge"));
    }
    let namespaces = Command::new("unshare").args(["--mount", "--uts", "hostname", "node"]).output();
    let may = namespaces.is_ok_and(|output| output.status.success());
    (!may).then(|| "namespaces of mounts and host names need root".to_owned())
}

/// srun starts ranks on one node and on both, with PMI 2 and without; mpirun and mpiexec start them from a script.
pub(super) fn jobs(
    folder: &Path,
    program: &Path,
    managers: &[(&'static str, PathBuf)],
) -> Vec<(String, Outcome)> {
    let skipped = |why: String| vec![("Slurm".to_owned(), Outcome::Skipped(why))];
    if let Some(why) = obstacle() {
        return skipped(why);
    }
    let cluster = match Cluster::start(folder) {
        Ok(cluster) => cluster,
        Err(why) => return skipped(why),
    };
    let program = program.display();
    // Ranks on one host need no secret.
    let srun = |options: &str, config: &str| {
        let line = format!("XDG_CONFIG_HOME=$PWD/{config} srun -n 4 {options} {program}");
        (format!("srun {options}"), line)
    };
    let mut scripts: Vec<(String, String)> = vec![
        srun("-N 1", "none"),
        srun("-N 1 --mpi=pmi2", "none"),
        srun("-N 2", "config"),
        srun("-N 2 --mpi=pmi2", "config"),
    ];
    for (words, bin) in managers {
        let line = format!("XDG_CONFIG_HOME=$PWD/config PATH={}:$PATH {words} {program}", bin.display());
        scripts.push((format!("{words} on two hosts of Slurm"), line));
    }
    scripts.into_iter().map(|(name, script)| (name, judge(cluster.batch(&script)))).collect()
}
