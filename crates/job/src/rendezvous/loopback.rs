//! Whether this host reaches itself. Ranks of one host meet at a loopback address, and containers and network
//! namespaces may have a loopback interface that nobody has switched on.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::Duration;

use unisono_communicator::{Error, Result};

/// A connection within a host is there at once. Where packets vanish, nothing ever comes.
const PATIENCE: Duration = Duration::from_secs(3);

/// Checks that this host reaches itself at the loopback address `ip`, by a connection.
///
/// The address and the routes do not tell: an interface that was switched off keeps its address, and then the default
/// route takes the packets.
///
/// # Errors
/// [`Error::System`] with the remedy where the loopback interface is down; also where the system refuses the check.
pub fn check_loopback(ip: IpAddr) -> Result<()> {
    let Err(error) = connect_to_itself(ip) else { return Ok(()) };
    let remedy = match error.kind() {
        ErrorKind::NetworkUnreachable
        | ErrorKind::HostUnreachable
        | ErrorKind::AddrNotAvailable
        | ErrorKind::TimedOut => {
            let or_switched_off = if ip.is_ipv6() { ", or has no IPv6" } else { "" };
            format!(
                "; the loopback interface is down{or_switched_off}: `ip link set lo up` switches it on, by root in \
                 the network namespace of the ranks"
            )
        }
        _ => String::new(),
    };
    Err(Error::System { what: format!("reach this host at {ip}"), text: format!("{error}{remedy}") })
}

fn connect_to_itself(ip: IpAddr) -> io::Result<()> {
    let listener = TcpListener::bind((ip, 0))?;
    // The kernel completes the connection: nobody needs to accept it.
    TcpStream::connect_timeout(&listener.local_addr()?, PATIENCE).map(drop)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::Ipv4Addr;
    use std::process::Command;

    use super::super::tests::watched;
    use super::*;
    use crate::config::Config;
    use crate::program::words;
    use crate::rendezvous::listen_address;

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// The states of a new network namespace's loopback in the test: never on, off beside another way out, and off
    /// after it was on.
    const WAYS: [&str; 3] = [
        "true",
        "ip link add one type veth peer name two && ip link set two up && ip addr add 10.0.0.2/24 dev one && \
         ip link set one up && ip route add default via 10.0.0.1",
        "ip link set lo up && ip link set lo down && ip link add one type veth peer name two && ip link set two up && \
         ip addr add 10.0.0.2/24 dev one && ip link set one up && ip route add default via 10.0.0.1",
    ];

    /// In a network namespace whose loopback interface is down.
    pub(crate) fn one_process_without_loopback() {
        let ranks = [("RANK", "0"), ("WORLD_SIZE", "2")];
        let launched = [("UNISONO_STORE", "127.0.0.1:4000"), ("UNISONO_SECRET_FILE", "/s")];
        for more in [&[][..], &launched] {
            let lookup = |name: &str| {
                let mut all = ranks.iter().chain(more);
                all.find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned())
            };
            let error = listen_address(&Config::from_lookup(&lookup).unwrap()).unwrap_err();
            assert!(matches!(error, Error::System { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.starts_with("reach this host at 127.0.0.1: "), "{text}");
            assert!(text.contains("`ip link set lo up`"), "{text}");
        }
        // A rank that is alone needs nobody.
        assert_eq!(listen_address(&Config::from_lookup(&|_| None).unwrap()).unwrap(), LOOPBACK);
    }

    #[test]
    fn ranks_of_one_host_are_told_that_loopback_is_down() {
        check_loopback(LOOPBACK).unwrap();
        let apart = |line: &str, arguments: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(["--net", "sh", "-c", line, "sh"]).args(arguments);
            command
        };
        let may = apart("ip link add one type veth peer name two", &[]).output();
        if !may.is_ok_and(|output| output.status.success()) {
            return crate::skip::skip("network-namespaces", "no network namespace can be made here");
        }
        let words = words("without_loopback");
        let words: Vec<&str> = std::iter::once("env").chain(words.iter().map(String::as_str)).collect();
        let all = WAYS.map(|way| {
            let line = format!("{way} && exec \"$@\"");
            (way, apart(&line, &words))
        });
        watched(move || {
            for (way, mut command) in all {
                let done = command.output().unwrap();
                let told = String::from_utf8_lossy(&done.stdout);
                assert!(done.status.success() && told.contains("1 passed"), "{way}: {told}");
            }
        });
    }
}
