//! The address that a rank listens on: the one that a setting names, else the one from which this host reaches the
//! other ranks; never the wildcard address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use unisono_communicator::{Error, Result};

use super::plan::{Meeting, is_literal_loopback, meeting};
use crate::config::{Config, Interfaces, configuration};

/// Chooses the address to listen on: `UNISONO_ADDRESS`, an address of an interface of `UNISONO_INTERFACE`, loopback
/// when all ranks are on this host, else the address from which this host reaches the store.
///
/// # Errors
/// [`Error::Configuration`] when no interface matches, or when the store's name does not resolve or leads to a loopback
/// address that other hosts could not reach.
pub fn listen_address(config: &Config) -> Result<IpAddr> {
    if let Some(address) = config.address {
        return Ok(address);
    }
    if let Some(interfaces) = &config.interfaces {
        return of_interface(interfaces);
    }
    match meeting(config)? {
        Meeting::Solo | Meeting::SameHost => Ok(Ipv4Addr::LOCALHOST.into()),
        Meeting::Launched { store, .. } => {
            let host = store.rsplit_once(':').map_or(store.as_str(), |(host, _)| host);
            towards(host.trim_matches(['[', ']']), resolve(&store)?)
        }
        Meeting::AtRankZero { host, port, .. } => towards(&host, resolve(&join_host(&host, port))?),
    }
}

/// `host:port`, with brackets around an IPv6 address.
pub(super) fn join_host(host: &str, port: u16) -> String {
    match host.parse() {
        Ok(ip @ IpAddr::V6(_)) => SocketAddr::new(ip, port).to_string(),
        _ => format!("{host}:{port}"),
    }
}

/// The address of `store`, given as `host:port`; one that is not loopback if there is one.
pub(super) fn resolve(store: &str) -> Result<SocketAddr> {
    let refused = |problem: String| configuration("UNISONO_STORE", store, problem);
    let found: Vec<SocketAddr> =
        store.to_socket_addrs().map_err(|error| refused(error.to_string()))?.collect();
    let elsewhere = found.iter().find(|address| !address.ip().is_loopback());
    elsewhere.or(found.first()).copied().ok_or_else(|| refused("it has no address".into()))
}

/// The address from which packets to `store` leave.
fn towards(host: &str, store: SocketAddr) -> Result<IpAddr> {
    if store.ip().is_loopback() && !is_literal_loopback(host) {
        let problem = "on this host the name means a loopback address, which others cannot reach: set \
                       UNISONO_INTERFACE or UNISONO_ADDRESS";
        return Err(configuration("UNISONO_STORE", host, problem));
    }
    let any: IpAddr =
        if store.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Connecting a datagram socket asks for the route and sends nothing.
    let route = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(store)?;
        socket.local_addr()
    });
    let route = route.map_err(|error| Error::system(format!("find the route to {store}"), &error))?;
    Ok(route.ip())
}

fn of_interface(wanted: &Interfaces) -> Result<IpAddr> {
    let found =
        if_addrs::get_if_addrs().map_err(|error| Error::system("list the network interfaces", &error))?;
    let usable = |ip: &IpAddr| !matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let mut fitting: Vec<IpAddr> = found
        .iter()
        .filter(|interface| wanted.matches(&interface.name))
        .map(if_addrs::Interface::ip)
        .filter(usable)
        .collect();
    // Loopback only if it is the only one asked for; IPv4 before IPv6, as most clusters route it.
    fitting.sort_by_key(|ip| (ip.is_loopback(), ip.is_ipv6()));
    fitting.first().copied().ok_or_else(|| {
        let mut names: Vec<_> = found.iter().map(|interface| interface.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let problem = format!("no interface with an address matches; there are {}", names.join(", "));
        configuration(&wanted.name, &wanted.value, problem)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(variables: &[(&str, &str)]) -> Result<IpAddr> {
        let lookup =
            |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string());
        listen_address(&Config::from_lookup(&lookup).unwrap())
    }

    #[test]
    fn loopback_unless_others_are_elsewhere() {
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        assert_eq!(listen(&[]).unwrap(), loopback);
        let ranks = [("RANK", "0"), ("WORLD_SIZE", "2")];
        assert_eq!(listen(&ranks).unwrap(), loopback);
        for store in ["127.0.0.1:4000", "localhost:4000"] {
            let launched = [&ranks[..], &[("UNISONO_STORE", store), ("UNISONO_SECRET_FILE", "/s")]].concat();
            assert!(listen(&launched).unwrap().is_loopback(), "{store}");
        }
        let bad = [&ranks[..], &[("UNISONO_STORE", "nowhere"), ("UNISONO_SECRET_FILE", "/s")]].concat();
        assert!(listen(&bad).unwrap_err().to_string().starts_with("UNISONO_STORE=nowhere: "));
    }

    #[test]
    fn the_named_address_or_interface() {
        assert_eq!(listen(&[("UNISONO_ADDRESS", "::1")]).unwrap(), IpAddr::from(Ipv6Addr::LOCALHOST));
        assert_eq!(listen(&[("UNISONO_INTERFACE", "=lo")]).unwrap(), IpAddr::from(Ipv4Addr::LOCALHOST));
        let text = listen(&[("NCCL_SOCKET_IFNAME", "=nosuch0")]).unwrap_err().to_string();
        assert!(text.starts_with("NCCL_SOCKET_IFNAME==nosuch0: no interface"), "{text}");
        assert!(text.contains("lo"), "{text}");
    }

    #[test]
    fn a_name_that_means_loopback_here_is_refused() {
        let store = SocketAddr::from(([127, 0, 1, 1], 4000));
        assert!(towards("myhost", store).unwrap_err().to_string().contains("UNISONO_INTERFACE"));
        assert_eq!(towards("127.0.1.1", store).unwrap(), IpAddr::from(Ipv4Addr::LOCALHOST));
    }

    #[test]
    fn addresses_of_stores_are_written_as_they_are_read() {
        assert_eq!(join_host("::1", 80), "[::1]:80");
        assert_eq!(resolve(&join_host("::1", 80)).unwrap(), "[::1]:80".parse().unwrap());
        assert_eq!(join_host("node7", 80), "node7:80");
    }
}
