//! Ranks of several hosts meet by a name: it may not be there yet, mean loopback on its own host, and be spelt in
//! several ways. Hosts are network namespaces with a name and an `/etc/hosts` of their own.

use std::fs;
use std::process::Command;

use super::joining::{Terminal, User, WAITING};
use crate::network::{INTERFACE, Network};

/// Gives the process a host's name and `/etc/hosts`, and starts a command.
const BECOME: &str =
    "echo \"$1\" >/proc/sys/kernel/hostname && mount --bind \"$2\" /etc/hosts && shift 2 && exec \"$@\"";

struct Hosts {
    network: Network,
    user: User,
    secret: String,
}

impl Hosts {
    /// Two hosts with these lines in their `/etc/hosts`.
    fn or_skip(files: [&str; 2]) -> Option<Hosts> {
        let network = Network::or_skip(2)?;
        let user = User::new();
        let secret = user.secret_file().1;
        let hosts = Hosts { network, user, secret };
        (0..).zip(files).for_each(|(host, text)| hosts.write(host, text));
        Some(hosts)
    }

    fn write(&self, host: usize, text: &str) {
        fs::write(self.user.path(&format!("hosts-{host}")), text).unwrap();
    }

    /// A rank on a host, for which rank 0 is at `master`.
    fn rank(&self, host: usize, (rank, ranks): (u32, u32), master: &str, more: &[(&str, &str)]) -> Terminal {
        let file = self.user.path(&format!("hosts-{host}")).display().to_string();
        let name = ["node-a", "node-b"][host];
        let unshare =
            ["unshare", "--uts", "--mount", "sh", "-c", BECOME, "sh", name, &file].map(str::to_owned);
        let by = [&self.network.entering(host)[..], &unshare].concat();
        let own = [("MASTER_ADDR", master), ("UNISONO_SECRET_FILE", &self.secret)];
        self.user.start_by(&by, (rank, ranks), &[&own[..], more].concat())
    }
}

const DEBIAN: &str = "127.0.0.1 localhost\n127.0.1.1 node-a.example node-a\n";
const OTHERS: &str = "10.0.0.1 node-a node-a.example\n";

#[test]
fn a_name_that_means_loopback_on_its_own_host_leads_there_all_the_same() {
    let Some(hosts) = Hosts::or_skip([DEBIAN, OTHERS]) else { return };
    let local = |rank| [("LOCAL_WORLD_SIZE", "2"), ("LOCAL_RANK", rank)];
    let ranks = [
        hosts.rank(0, (0, 3), "node-a", &local("0")),
        hosts.rank(0, (1, 3), "node-a.example", &local("1")),
        hosts.rank(1, (2, 3), "10.0.0.1", &[("LOCAL_WORLD_SIZE", "1")]),
    ];
    assert_eq!(ranks.map(|rank| rank.end().0), ["joined"; 3]);
}

#[test]
fn a_name_of_another_host_that_means_loopback_is_refused() {
    let Some(hosts) = Hosts::or_skip([OTHERS, DEBIAN]) else { return };
    let end = hosts.rank(1, (1, 2), "node-a", &[]).end().0;
    assert!(end.starts_with("MASTER_ADDR=node-a: on this host the name means a loopback address"), "{end}");
}

#[test]
fn a_name_that_does_not_resolve_yet_is_looked_up_again() {
    let Some(hosts) = Hosts::or_skip([OTHERS, ""]) else { return };
    let ranks = [0, 1].map(|rank| hosts.rank(rank, (rank as u32, 2), "node-a", &[]));
    let line = ranks[1].line(WAITING);
    assert!(line.contains("the name of the store's host"), "{line}");
    hosts.write(1, OTHERS);
    assert_eq!(ranks.map(|rank| rank.end().0), ["joined"; 2]);
}

/// The address of the first host leads to no machine, as where a firewall drops all packets.
#[test]
fn a_host_that_is_silent_is_named_with_the_ports_that_a_firewall_must_pass() {
    let Some(hosts) = Hosts::or_skip([OTHERS, OTHERS]) else { return };
    let [first, rest @ ..] = hosts.network.entering(1);
    let nowhere = ["ip", "neigh", "replace", "10.0.0.1", "lladdr", "02:00:00:00:00:99", "dev", INTERFACE];
    assert!(Command::new(first).args(rest).args(nowhere).status().unwrap().success());
    let end = hosts.rank(1, (1, 2), "node-a", &[("UNISONO_JOIN_TIMEOUT_S", "2")]).end().0;
    let expected = "10.0.0.1:29501 is silent: its host is down, or a firewall drops the packets (hosts of a job need \
                    TCP to port 29501, and to each other's ports of net.ipv4.ip_local_port_range)";
    assert!(end.contains(expected), "{end}");
}

/// As the agents of torchrun count, when a rank of the first host has failed.
#[test]
fn hosts_of_torchrun_meet_that_count_different_restarts() {
    let Some(hosts) = Hosts::or_skip([OTHERS, OTHERS]) else { return };
    let ranks = [(0, "1"), (1, "0")].map(|(rank, restarts)| {
        let run = [("TORCHELASTIC_RUN_ID", "run"), ("TORCHELASTIC_RESTART_COUNT", restarts)];
        hosts.rank(rank, (rank as u32, 2), "node-a", &[&run[..], &[("LOCAL_WORLD_SIZE", "1")]].concat())
    });
    assert_eq!(ranks.map(|rank| rank.end().0), ["joined"; 2]);
}
