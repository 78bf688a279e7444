//! The mark that the ranks of one job on one host have in common when no variable says it, and the identity of a host.

use std::fs;
use std::os::unix::fs::MetadataExt;

use sha2::{Digest, Sha256};
use unisono_communicator::Process;
use unisono_control::roster::message::{HOST_ID_BYTES, HostClaim, ProcessBirth, RankProcess};

use crate::config::Config;
use crate::environment::{Launcher, Placement};

/// The number of ancestors that are searched for a proxy.
const ANCESTORS_MAX: usize = 64;

/// The beginning of the key of a job whose ranks have nothing in common but the process that started them.
pub(super) const PARENT: &str = "parent process";

/// Before the part of such a key that is for programs only: when that process has started.
const START: &str = ", started at tick ";

/// The part of a key that a person needs.
pub(super) fn key_words(key: &str) -> &str {
    key.split(START).next().unwrap_or(key)
}

/// The key of this job among all jobs of this user on this host.
///
/// A process is named by its pid and its start time, so that a recycled pid names another one.
pub(super) fn job_key(config: &Config) -> String {
    let proxy = || {
        matches!(config.placement, Placement::Ranked { launcher: Launcher::Pmi, .. }).then(proxy).flatten()
    };
    let known = config.job_key.clone().or_else(proxy);
    known.or_else(|| config.slurm_step.as_ref().map(|step| format!("slurm {step}"))).unwrap_or_else(parent)
}

#[derive(Debug, PartialEq)]
struct Ancestor {
    name: String,
    parent: u32,
    start: u64,
}

/// Reads `/proc/PID/stat`: `pid (name) state parent ...`, the start time in field 22. A name may contain blanks and
/// parentheses.
fn parse_stat(stat: &str) -> Option<Ancestor> {
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let fields: Vec<&str> = stat.get(close + 1..)?.split_whitespace().collect();
    let name = stat.get(open + 1..close)?.to_owned();
    Some(Ancestor { name, parent: fields.get(1)?.parse().ok()?, start: fields.get(19)?.parse().ok()? })
}

fn ancestor(pid: u32) -> Option<Ancestor> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The nearest ancestor that is the per-host proxy of MPICH or Intel MPI.
fn proxy() -> Option<String> {
    let mut pid = std::os::unix::process::parent_id();
    for _ in 0..ANCESTORS_MAX {
        let found = ancestor(pid)?;
        if is_proxy(&found.name) {
            return Some(format!("proxy {pid} {}", found.start));
        }
        pid = found.parent;
    }
    None
}

fn is_proxy(name: &str) -> bool {
    name.starts_with("hydra_") || name == "pmi_proxy"
}

fn parent() -> String {
    let pid = std::os::unix::process::parent_id();
    format!("{PARENT} {pid}{START}{}", ancestor(pid).map_or(0, |parent| parent.start))
}

/// This rank's claim about its host. The host is identified by the setting, else by host name, boot and network
/// namespace: two namespaces may lose their way to each other while both go on. Containers with host names of their own
/// count as hosts. Ranks in different time namespaces never share a host, because ranks of one host compare their
/// clocks.
pub(super) fn host_claim(config: &Config) -> HostClaim {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let namespace = |kind: &str| fs::metadata(format!("/proc/self/ns/{kind}")).map_or(0, |found| found.ino());
    let found = || {
        let (name, boot) = (read("/proc/sys/kernel/hostname"), read("/proc/sys/kernel/random/boot_id"));
        format!("{name} {boot} {}", namespace("net"))
    };
    let id = format!("{} {}", config.host_id.clone().unwrap_or_else(found), namespace("time"));
    let digest: [u8; 32] = Sha256::digest(id.as_bytes()).into();
    let mut id = [0; HOST_ID_BYTES];
    id.copy_from_slice(&digest[..HOST_ID_BYTES]);
    let local_ranks = match config.placement {
        Placement::Ranked { local_world_size, .. } => local_world_size,
        Placement::Solo => None,
    };
    HostClaim { id, is_named: config.host_id.is_some(), local_ranks }
}

/// This process, as errors of other ranks name it.
pub fn own_process() -> RankProcess {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if name.trim().is_empty() { "an unnamed host" } else { name.trim() };
    let process = Process { host: host.into(), pid: std::process::id() };
    let birth = own_birth(process.pid);
    RankProcess { process, birth }
}

/// `None` where `/proc` is not mounted, or belongs to another namespace, in which this process has another pid.
fn own_birth(pid: u32) -> Option<ProcessBirth> {
    let in_proc = fs::read_link("/proc/self").ok()?;
    if in_proc.to_str()?.parse() != Ok(pid) {
        return None;
    }
    let pid_namespace = fs::metadata("/proc/self/ns/pid").ok()?.ino();
    Some(ProcessBirth { pid_namespace, start_ticks: process_start_ticks(pid)? })
}

/// When a process of this host has started, in ticks of the kernel's clock since the boot.
pub(crate) fn process_start_ticks(pid: u32) -> Option<u64> {
    ancestor(pid).map(|process| process.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_read_whatever_they_are_called() {
        let stat = "4711 (a) b (c) S 17 4711 4711 0 -1 4194560 1 0 0 0 1 2 3 4 20 0 1 0 987654 1 2 3";
        let expected = Ancestor { name: "a) b (c".into(), parent: 17, start: 987_654 };
        assert_eq!(parse_stat(stat), Some(expected));
        for broken in ["", "1 (x", ") 1 (", "1 (x) S", "1 (x) S y 1 2 3"] {
            assert_eq!(parse_stat(broken), None, "{broken}");
        }
        let own = ancestor(std::process::id()).unwrap();
        assert_eq!(own.parent, std::os::unix::process::parent_id());
        assert!(own.start > 0);
    }

    #[test]
    fn proxies_are_known_by_the_first_15_letters_of_their_names() {
        assert!(["hydra_pmi_proxy", "hydra_bstrap_pr", "pmi_proxy"].into_iter().all(is_proxy));
        assert!(!["bash", "mpiexec", "python3"].into_iter().any(is_proxy));
    }

    #[test]
    fn hosts_differ_by_their_setting() {
        let with = |id: &str| {
            let lookup = |name: &str| (name == "UNISONO_HOST_ID" && !id.is_empty()).then(|| id.to_owned());
            host_claim(&Config::from_lookup(&lookup).unwrap()).id
        };
        assert_eq!(with(""), with(""));
        assert_eq!(with("a"), with("a"));
        assert_ne!(with("a"), with("b"));
        assert_ne!(with("a"), with(""));
    }
}
