//! The address of the first host at which the ranks of all hosts meet.

use std::ffi::OsString;
use std::net::{IpAddr, TcpListener, ToSocketAddrs};

use unisono_job::config::Config;
use unisono_job::rendezvous::listen_address;
use unisono_job::settings::{GROUPS, Source};

use super::message::AgentPlan;
use crate::problem::{Problem, Result};

/// The variable of sshd: address and port of the client, then of this host.
const SSH_CONNECTION: &str = "SSH_CONNECTION";

/// Chooses an address of this host, the first one of a job. In this order: the settings `UNISONO_ADDRESS` and
/// `UNISONO_INTERFACE`; loopback where there is no other host; the address that the host's name means here, unless it
/// is loopback, as Debian has it in /etc/hosts; the address at which ssh reached this host; the address of the default
/// route.
///
/// # Errors
/// As `listen_address`.
pub(super) fn meeting_address(plan: &AgentPlan) -> Result<IpAddr> {
    let settings = Source::of_environment(&GROUPS);
    let of_plan = |name: &str| {
        let found = plan.ranks.variables.iter().find(|(set, _)| set == name);
        found.and_then(|(_, value): &(OsString, OsString)| value.to_str().map(str::to_owned))
    };
    let ranks = &plan.ranks;
    let lookup = |name: &str| match name {
        "UNISONO_RANK" => Some(ranks.first_rank.to_string()),
        "UNISONO_WORLD_SIZE" => Some(ranks.ranks.to_string()),
        "UNISONO_LOCAL_WORLD_SIZE" => Some(ranks.local_ranks.to_string()),
        "UNISONO_ADDRESS" => of_plan(name).or_else(|| settings.text(name)),
        "UNISONO_INTERFACE" | "NCCL_SOCKET_IFNAME" | "GLOO_SOCKET_IFNAME" => {
            of_plan(name).or_else(|| settings.foreign(name))
        }
        _ => None,
    };
    let mut config = Config::from_lookup(&lookup)?;
    // A meeting of unknown hosts: nothing is at this path, and nothing looks there.
    config.meeting_file = (ranks.hosts > 1).then(|| "/".into());
    let is_said = config.address.is_some() || config.interfaces.is_some() || ranks.hosts == 1;
    let found = if is_said { None } else { by_name(&plan.host).or_else(|| by_ssh(&settings)) };
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
