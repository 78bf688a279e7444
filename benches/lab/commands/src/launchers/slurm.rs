//! A cluster of Slurm of two nodes, for as long as their hosts live.

use std::fs;
use std::io;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use super::hosts::{Hosts, NAMES};
use super::jobs::Job;
use super::local::Found;
use super::way::Way;
use crate::workspaces::succeed;

const PROGRAMS: [&str; 5] = ["slurmctld", "slurmd", "srun", "sbatch", "munged"];
const START_MAX: Duration = Duration::from_secs(30);

/// The daemons, which end with their hosts.
pub(super) struct Cluster<'h> {
    hosts: &'h Hosts,
}

impl<'h> Cluster<'h> {
    /// Starts it; an error says why this machine cannot.
    pub(super) fn start(hosts: &'h Hosts) -> Result<Cluster<'h>, String> {
        for program in PROGRAMS {
            let found = Command::new("sh").args(["-c", "command -v \"$0\" >/dev/null", program]).status();
            if !found.is_ok_and(|status| status.success()) {
                let packages = "Debian has slurmctld, slurmd, slurm-client and munge";
                return Err(format!("{program} is not here; {packages}"));
            }
        }
        let folder = &hosts.folder;
        let problem = |error: io::Error| format!("{}: {error}", folder.display());
        fs::create_dir_all(folder.join("state")).map_err(problem)?;
        fs::write(folder.join("slurm.conf"), configuration(hosts)).map_err(problem)?;
        let cluster = Cluster { hosts };
        let done = |host: usize, words: &[&str]| {
            let unable = |_| format!("{} fails here; {} has the logs", words[0], folder.display());
            succeed(&mut cluster.command(host, words)).map_err(unable)
        };
        done(0, &["sh", "-c", "umask 077; head -c 64 /dev/urandom >munge.key"])?;
        // By force, because the folders above this one may be open to a group.
        let files = [("socket", "munge.socket"), ("key-file", "munge.key"), ("log-file", "munged.log")];
        let files = files.into_iter().chain([("pid-file", "munged.pid"), ("seed-file", "munged.seed")]);
        let files = files.map(|(option, name)| format!("--{option}={}", folder.join(name).display()));
        let files: Vec<String> = files.collect();
        done(
            0,
            &[&["munged", "--force"][..], &files.iter().map(String::as_str).collect::<Vec<_>>()].concat(),
        )?;
        done(0, &["slurmctld", "-c"])?;
        for (host, name) in NAMES.iter().enumerate() {
            done(host, &["slurmd", "-N", name])?;
        }
        let until = Instant::now() + START_MAX;
        while Instant::now() < until {
            let states = cluster.command(0, &["sinfo", "-h", "-N", "-o", "%t"]).output().map_err(problem)?;
            let states = String::from_utf8_lossy(&states.stdout).into_owned();
            if states.lines().filter(|state| *state == "idle").count() == NAMES.len() {
                return Ok(cluster);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Err(format!("no nodes within {START_MAX:?}; {} has the logs", folder.display()))
    }

    fn command(&self, host: usize, words: &[&str]) -> Command {
        let mut command = self.hosts.command(host, words);
        command.env("SLURM_CONF", self.hosts.folder.join("slurm.conf"));
        command
    }

    fn version(&self) -> String {
        let said = self.command(0, &["srun", "--version"]).output().map(|output| output.stdout);
        let said = String::from_utf8_lossy(&said.unwrap_or_default()).into_owned();
        said.split_whitespace().last().unwrap_or("unknown").to_owned()
    }

    /// Waits for a batch script, which runs on the first node of both, and gives its output.
    fn batch(&self, launcher: &str, line: &str) -> io::Result<Output> {
        let folder = &self.hosts.folder;
        fs::write(folder.join("line"), line)?;
        fs::write(folder.join("script"), format!("#!/bin/sh\n{launcher} sh line\n"))?;
        let words = ["sbatch", "--wait", "-N", "2", "-n", "4", "-o", "out", "-e", "err", "script"];
        let output = self.command(0, &words).output()?;
        let [stdout, stderr] = [fs::read(folder.join("out"))?, fs::read(folder.join("err"))?];
        Ok(Output { stdout, stderr, ..output })
    }

    /// srun, and the managers that are here, in an allocation.
    pub(super) fn ways<'c>(&'c self, managers: &[Found]) -> Vec<Way<'c>> {
        let version = self.version();
        let srun = |options: &'static str, jobs, recording: Option<(usize, &str)>| {
            let words = ["srun", "-n", "4"].into_iter().chain(options.split(' '));
            let words: Vec<&str> = words.chain(["sh", "-c"]).collect();
            let start = move |line: &str| self.command(0, &[&words[..], &[line]].concat()).output();
            let named = recording.map(|(rank, name)| (rank, format!("slurm-{version}-{name}")));
            let recordings = named.into_iter().collect();
            Way { name: format!("srun -n 4 {options}"), jobs, recordings, start: Box::new(start) }
        };
        let in_two = |line: &str| self.batch("srun -N 1 -n 4 --mpi=pmi2", line);
        let mut ways = vec![
            srun("-N 1", Job::ON_ONE_HOST, None),
            srun("-N 2", Job::ON_TWO_HOSTS, Some((3, "srun"))),
            srun("-N 2 --mpi=pmi2", Job::ON_TWO_HOSTS, None),
            Way {
                name: "srun -n 4 -N 1 --mpi=pmi2 in an allocation of two hosts".into(),
                jobs: Job::ON_ONE_HOST,
                recordings: vec![(2, format!("slurm-{version}-pmi2"))],
                start: Box::new(in_two),
            },
        ];
        for Found { manager, program, recorded } in managers {
            let Ok(program) = program else { continue };
            let launcher = format!("{} {}", program.display(), manager.on_two);
            let start = move |line: &str| self.batch(&launcher, line);
            let name = format!("{} in an allocation of two hosts", manager.name);
            let name_of = |end: &str| format!("slurm-{version}-{recorded}{end}");
            let recordings =
                manager.recorded_on_two.iter().map(|(rank, end)| (*rank, name_of(end))).collect();
            ways.push(Way { name, jobs: manager.jobs_on_two, recordings, start: Box::new(start) });
        }
        ways
    }
}

fn configuration(hosts: &Hosts) -> String {
    let folder = hosts.folder.display();
    let node = |(host, name): (usize, &&str)| {
        format!(
            "NodeName={name} NodeHostname={name} NodeAddr={} CPUs=4 State=UNKNOWN\n",
            Hosts::address(host)
        )
    };
    format!(
        "ClusterName=unisono\nSlurmctldHost={}({})\nSlurmUser=root\nSlurmdUser=root\nMpiDefault=none\n\
         AuthType=auth/munge\nAuthInfo=socket={folder}/munge.socket\nCredType=cred/munge\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
         SelectType=select/linear\nSwitchType=switch/none\nSlurmdParameters=config_overrides\nReturnToService=2\n\
         StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool-%n\n\
         SlurmctldPidFile={folder}/slurmctld.pid\nSlurmdPidFile={folder}/%n.pid\n\
         SlurmctldLogFile={folder}/slurmctld.log\nSlurmdLogFile={folder}/%n.log\n{}\
         PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
        NAMES[0],
        Hosts::address(0),
        NAMES.iter().enumerate().map(node).collect::<String>(),
    )
}
