//! Link-local addresses of IPv6. Every interface may have the same, so each goes with an interface, its scope, whose
//! number differs from host to host: it does not travel, and each rank puts its own in.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use if_addrs::Interface;

/// Whether an address is good for one link only.
pub(super) fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// The host `fe80::1%eth0` at this port; `None` for any other host.
pub(super) fn scoped(host: &str, port: u16) -> Option<Result<SocketAddr, String>> {
    let (ip, scope) = host.split_once('%').map_or((host, None), |(ip, scope)| (ip, Some(scope)));
    let ip: Ipv6Addr = ip.parse().ok().filter(|ip| is_link_local(IpAddr::V6(*ip)))?;
    Some(match scope {
        None => Err(format!("a link-local address needs its interface: {ip}%eth0")),
        Some(scope) => number_of(scope).map(|scope| SocketAddrV6::new(ip, port, 0, scope).into()),
    })
}

/// The number of an interface of this host, given by its name or its number.
fn number_of(scope: &str) -> Result<u32, String> {
    let found = interfaces()?;
    let number = |one: &Interface| one.index.filter(|index| one.name == scope || index.to_string() == scope);
    found.iter().find_map(number).ok_or_else(|| {
        let mut names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        format!("there is no interface {scope:?} with an address; there are {}", names.join(", "))
    })
}

/// An address to listen at, for an address of this host, with any port.
///
/// # Errors
/// The reason why the interface cannot be told.
pub(crate) fn at_own(ip: IpAddr) -> Result<SocketAddr, String> {
    let any_port = SocketAddr::new(ip, 0);
    if ip.is_ipv4() || !is_link_local(ip) {
        return Ok(any_port);
    }
    let found = interfaces()?;
    let own: Vec<&Interface> = found.iter().filter(|one| one.ip() == ip).collect();
    match &own[..] {
        [] => Err(format!("no interface of this host has {ip}")),
        [one] => Ok(with_scope(any_port, one.index.unwrap_or(0))),
        several => {
            let names: Vec<&str> = several.iter().map(|one| one.name.as_str()).collect();
            Err(format!("{} have this address: set UNISONO_INTERFACE in its place", names.join(" and ")))
        }
    }
}

/// The same address on that interface, if it is link-local.
pub(super) fn with_scope(mut address: SocketAddr, scope: u32) -> SocketAddr {
    if let SocketAddr::V6(v6) = &mut address
        && v6.ip().is_unicast_link_local()
    {
        v6.set_scope_id(scope);
    }
    address
}

/// An address of another rank as a rank reaches it that listens at `own`.
pub(super) fn seen_from(own: SocketAddr, other: SocketAddr) -> SocketAddr {
    match own {
        SocketAddr::V6(own) => with_scope(other, own.scope_id()),
        SocketAddr::V4(_) => other,
    }
}

fn interfaces() -> Result<Vec<Interface>, String> {
    if_addrs::get_if_addrs().map_err(|error| format!("cannot list the network interfaces: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_link_local_addresses_have_a_scope() {
        for other in ["::1", "10.0.0.1", "node7", "fd00::1%lo", "fe80::1::2%lo", "node7%lo"] {
            assert!(scoped(other, 80).is_none(), "{other}");
        }
        let lo = number_of("lo").unwrap();
        let expected = SocketAddr::from(SocketAddrV6::new("fe80::1".parse().unwrap(), 80, 0, lo));
        for scope in ["lo", &lo.to_string()] {
            assert_eq!(scoped(&format!("fe80::1%{scope}"), 80), Some(Ok(expected)));
        }
        let text = scoped("fe80::1", 80).unwrap().unwrap_err();
        assert!(text.contains("fe80::1%eth0"), "{text}");
        let text = scoped("fe80::1%nosuch0", 80).unwrap().unwrap_err();
        assert!(text.contains("\"nosuch0\"") && text.contains("lo"), "{text}");
    }

    #[test]
    fn each_rank_puts_its_own_scope_in() {
        let local = |scope| SocketAddr::from(SocketAddrV6::new("fe80::1".parse().unwrap(), 80, 0, scope));
        assert_eq!(seen_from(local(3), local(0)), local(3));
        let others: [SocketAddr; 2] = ["[fd00::1]:80", "10.0.0.1:80"].map(|other| other.parse().unwrap());
        for other in others {
            assert_eq!(seen_from(local(3), other), other);
            assert_eq!(seen_from(other, local(0)), local(0));
        }
        let loopback = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(at_own(loopback), Ok(SocketAddr::new(loopback, 0)));
        assert!(at_own("fe80::dead:beef:0:1".parse().unwrap()).unwrap_err().contains("no interface"));
    }
}
