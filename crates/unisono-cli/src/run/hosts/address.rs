//! The address of the first host at which the ranks of all hosts meet, and whether another host reaches it.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use unisono_job::config::Config;
use unisono_job::rendezvous::listen_address;
use unisono_job::settings::Source;

use super::message::AgentPlan;
use crate::problem::{Problem, Result};

/// The variable of sshd: address and port of the client, then of this host.
const SSH_CONNECTION: &str = "SSH_CONNECTION";

/// The time that a connection between two hosts may take. Where packets vanish, nothing ever comes.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Checks that this host reaches the meeting, so that a firewall is named before a rank waits for another one.
///
/// # Errors
/// With the remedies.
pub(super) fn check_reach(store: SocketAddr) -> Result<()> {
    let failed = |error| {
        let remedy = "allow TCP between the hosts, or name their interface with -x UNISONO_INTERFACE=NAME";
        Problem::failed(
            format!("no connection to {store}, where the ranks meet"),
            format!("{error}; {remedy}"),
        )
    };
    TcpStream::connect_timeout(&store, CONNECT_WAIT).map(drop).map_err(failed)
}

/// Chooses an address of this host, the first one of a job. In this order: the settings `UNISONO_ADDRESS` and
/// `UNISONO_INTERFACE`; loopback where there is no other host; the address that the host's name means here, unless it
/// is loopback, as Debian has it in /etc/hosts; the address at which ssh reached this host; the address of the default
/// route.
///
/// # Errors
/// As `listen_address`.
pub(super) fn meeting_address(plan: &AgentPlan, settings: &Source<'_>) -> Result<IpAddr> {
    let ranks = &plan.ranks;
    let lookup = |name: &str| match name {
        "UNISONO_RANK" => Some(ranks.first_rank.to_string()),
        "UNISONO_WORLD_SIZE" => Some(ranks.ranks.to_string()),
        "UNISONO_LOCAL_WORLD_SIZE" => Some(ranks.local_ranks.to_string()),
        "UNISONO_ADDRESS" | "UNISONO_INTERFACE" | "NCCL_SOCKET_IFNAME" | "GLOO_SOCKET_IFNAME" => {
            settings.foreign(name)
        }
        _ => None,
    };
    let mut config = Config::from_lookup(&lookup)?;
    // A meeting of unknown hosts: nothing is at this path, and nothing looks there.
    config.meeting_file = (ranks.hosts > 1).then(|| "/".into());
    let is_said = config.address.is_some() || config.interfaces.is_some() || ranks.hosts == 1;
    let found = if is_said { None } else { by_name(&plan.host).or_else(|| by_ssh(settings)) };
    match found {
        Some(address) => Ok(address),
        None => Ok(listen_address(&config).map_err(Problem::from)?),
    }
}

fn by_name(host: &str) -> Option<IpAddr> {
    let name = host.rsplit('@').next()?;
    let found = (name, 0).to_socket_addrs().ok()?.map(|address| address.ip());
    found.into_iter().find(|address| is_reachable_here(*address))
}

fn by_ssh(settings: &Source<'_>) -> Option<IpAddr> {
    let words = settings.foreign(SSH_CONNECTION)?;
    let address = words.split_whitespace().nth(2)?.parse().ok()?;
    is_reachable_here(address).then_some(address)
}

/// Whether other hosts may reach this address, and it is ours.
fn is_reachable_here(address: IpAddr) -> bool {
    !address.is_loopback() && TcpListener::bind((address, 0)).is_ok()
}
