//! The address that a rank listens on: a setting's, else the address from which this host reaches the other ranks;
//! never the wildcard address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use unisono_communicator::{Error, Result};

use super::join::Retry;
use super::loopback::check_loopback;
use super::plan::{Meeting, is_literal_loopback, meeting};
use super::scope::{at_own, is_link_local, scoped, with_scope};
use super::waiting::{WaitConfig, Waiting};
use crate::config::{Config, Interfaces};
use crate::environment::Placement;
use crate::settings::configuration;
use crate::task_thread::TaskThread;

/// The longest pause before a name is looked up again: all ranks of a job may ask one name service.
const LOOK_UP_PAUSE_MAX: Duration = Duration::from_secs(2);

/// The bytes of a name, and of each part of it between dots (RFC 1035).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;
/// The numbers of an IPv4 address.
const IPV4_NUMBERS: usize = 4;

/// Chooses the address to listen on: `UNISONO_ADDRESS`, an address of an interface of `UNISONO_INTERFACE`, loopback
/// when all ranks are on this host, else the address from which this host reaches the store.
///
/// # Errors
/// [`Error::Configuration`] when no interface matches, or when the store's name does not resolve or means loopback
/// where it is not this host's own name.
pub fn listen_address(config: &Config) -> Result<IpAddr> {
    let thread = TaskThread::start("unisono-resolve")?;
    thread.wait_for(listen_at(config)).map(|address| address.ip())
}

/// The same, with any port, and with the interface of a link-local address.
pub(crate) async fn listen_at(config: &Config) -> Result<SocketAddr> {
    if let Some(address) = config.address {
        let refused = |problem: String| config.refused("UNISONO_ADDRESS", &address.to_string(), problem);
        return at_own(address).map_err(refused);
    }
    if let Some(interfaces) = wanted_interfaces(config) {
        return address_of_interface(interfaces);
    }
    let meeting = meeting(config)?;
    let store = match &meeting {
        Meeting::Solo => return Ok((Ipv4Addr::LOCALHOST, 0).into()),
        Meeting::SameHost => {
            check_loopback(Ipv4Addr::LOCALHOST.into())?;
            return Ok((Ipv4Addr::LOCALHOST, 0).into());
        }
        Meeting::File(_) | Meeting::Program { .. } | Meeting::Pmi { .. } => return Ok(outward(config)),
        Meeting::Launched { store, .. } => store.clone(),
        Meeting::AtRankZero { host, port, .. } => join_host(host, *port),
    };
    let wait = WaitConfig::new(config, &meeting);
    let mut waiting = Waiting::new(&wait, config.placement.rank(), config.placement.world_size());
    let found = resolve(&store, &mut waiting).await?;
    let (host, _) = split_store(&store).map_err(|problem| configuration(&wait.variable, &store, problem))?;
    if found.ip().is_loopback() && is_own_name(host) {
        // Debian gives a host's own name a loopback address.
        let ours = outward(config);
        if !ours.ip().is_loopback() {
            return Ok(ours);
        }
    }
    towards(host, found, &wait.variable)
}

/// The interfaces that count. Other tools' variables are for ranks on several hosts: a machine has them set for all its
/// jobs.
pub(crate) fn wanted_interfaces(config: &Config) -> Option<&Interfaces> {
    let is_of_one_host = || match config.placement {
        Placement::Ranked { world_size, local_world_size: Some(local), .. } => local == world_size,
        Placement::Ranked { .. } | Placement::Solo => {
            matches!(meeting(config), Ok(Meeting::Solo | Meeting::SameHost))
        }
    };
    config.interfaces.as_ref().filter(|wanted| wanted.name == "UNISONO_INTERFACE" || !is_of_one_host())
}

/// Whether `host` is the name of this host, with or without a domain.
fn is_own_name(host: &str) -> bool {
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let first = |name: &str| name.trim().split('.').next().unwrap_or_default().to_ascii_lowercase();
    !first(host).is_empty() && first(host) == first(&own)
}

/// The address at which a store listens that is said to be at `store`, if this name means only loopback on this host,
/// which listens at `listen` itself: rank 0 is on this host, and listens where others reach it.
pub(super) fn beyond_loopback(store: &str, found: &[SocketAddr], listen: SocketAddr) -> Option<SocketAddr> {
    let (host, port) = split_store(store).ok()?;
    let is_only_loopback = found.iter().all(|address| address.ip().is_loopback());
    (is_only_loopback && is_own_name(host)).then(|| SocketAddr::new(listen.ip(), port))
}

/// The fault of a name that no host can have, so that nobody waits for it.
fn check_name(host: &str) -> Result<(), String> {
    let name = host.strip_suffix('.').unwrap_or(host);
    let labels: Vec<&str> = name.split('.').collect();
    let is_label = |label: &&str| {
        let are_letters = label.chars().all(|letter| letter.is_alphanumeric() || "-_".contains(letter));
        are_letters && (1..=LABEL_BYTES_MAX).contains(&label.len()) && !label.starts_with('-')
    };
    if labels.len() >= IPV4_NUMBERS
        && labels.iter().all(|label| label.bytes().all(|byte| byte.is_ascii_digit()))
    {
        return Err("it is no IPv4 address: that has four numbers from 0 to 255".to_owned());
    }
    if name.len() > NAME_BYTES_MAX || !labels.iter().all(is_label) {
        return Err(format!(
            "no host can have this name: it has 1 to {LABEL_BYTES_MAX} letters, digits, - and _ between dots"
        ));
    }
    Ok(())
}

/// Host and port of a store that is given as `host:port`; an IPv6 address is in brackets.
///
/// # Errors
/// The fault of the text.
pub(crate) fn split_store(store: &str) -> Result<(&str, u16), String> {
    let form =
        "the form is host:port, with a port from 1 to 65535: node7:29500, 10.0.0.7:29500 or [::1]:29500";
    let (host, port) = store.rsplit_once(':').ok_or_else(|| format!("the port is missing; {form}"))?;
    let port: u16 = match port.parse() {
        Ok(port @ 1..) => port,
        _ => return Err(format!("{port:?} is no port; {form}")),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match bare {
        None if host.contains(':') => Err(format!("an IPv6 address needs brackets; {form}")),
        None if host.contains(char::is_whitespace) => Err(format!("{host:?} is no host; {form}")),
        None if host.is_empty() => Err(format!("the host is missing; {form}")),
        _ => Ok((bare.unwrap_or(host), port)),
    }
}

/// `host:port`, with brackets around an IPv6 address.
pub(super) fn join_host(host: &str, port: u16) -> String {
    match host.parse() {
        Ok(ip @ IpAddr::V6(_)) => SocketAddr::new(ip, port).to_string(),
        _ if scoped(host, port).is_some() => format!("[{host}]:{port}"),
        _ => format!("{host}:{port}"),
    }
}

/// A store at a link-local address; `None` for any other store.
fn scoped_store(store: &str) -> Option<Result<SocketAddr, String>> {
    let (host, port) = split_store(store).ok()?;
    scoped(host, port)
}

/// The address of `store`, given as `host:port`; not a loopback address if there is another. A name that does not
/// resolve yet is tried again for a while, see [`WaitConfig::resolve`].
pub(super) async fn resolve(store: &str, waiting: &mut Waiting<'_>) -> Result<SocketAddr> {
    let WaitConfig { variable, value, resolve: patience, .. } = waiting.config;
    let refused = |problem: String| configuration(variable, value, problem);
    if let Some(found) = scoped_store(store) {
        return found.map_err(refused);
    }
    if store.parse::<SocketAddr>().is_err() {
        split_store(store).and_then(|(host, _)| check_name(host)).map_err(refused)?;
    }
    let until = Instant::now() + *patience;
    let mut retry = Retry::new(until).up_to(LOOK_UP_PAUSE_MAX);
    loop {
        let problem = match look_up(store, waiting, until).await {
            Ok(found) => {
                let elsewhere = found.iter().find(|address| !address.ip().is_loopback());
                if let Some(address) = elsewhere.or(found.first()) {
                    return Ok(*address);
                }
                "it has no address".to_owned()
            }
            Err(problem) => problem,
        };
        waiting.on_time(&format!("the name of the store's host does not resolve: {problem}"));
        if !retry.pause().await {
            return Err(refused(format!(
                "the host's name does not resolve, tried for {patience:?}: {problem}"
            )));
        }
    }
}

/// Looks a name up, on a thread of its own: that may take longer than anybody wants to wait in silence.
pub(super) async fn look_up(
    store: &str,
    waiting: &mut Waiting<'_>,
    until: Instant,
) -> Result<Vec<SocketAddr>, String> {
    if let Some(found) = scoped_store(store) {
        return found.map(|address| vec![address]);
    }
    if let Ok(address) = store.parse() {
        return Ok(vec![address]);
    }
    let (done, result) = oneshot::channel();
    let name = store.to_owned();
    let ask = move || {
        let found = name.to_socket_addrs().map(Vec::from_iter).map_err(|error| error.to_string());
        // Nobody waits any longer if it took too long.
        let _ = done.send(found);
    };
    let thread = std::thread::Builder::new().name("unisono-resolve".into()).spawn(ask);
    thread.map_err(|error| format!("no thread to ask: {error}"))?;
    let result = tokio::time::timeout_at(until.into(), result);
    match waiting.beside("the name of the store's host is being looked up", result).await {
        Ok(Ok(found)) => found,
        Ok(Err(_closed)) => Err("the name service was given up".into()),
        Err(_elapsed) => Err("the name service does not answer".into()),
    }
}

/// An address of this host, with any port, at which unknown hosts reach it: ranks that see one file may be on several
/// hosts, or in containers of one. The address of the default route, else of an interface; loopback where the settings
/// say that all ranks are here.
fn outward(config: &Config) -> SocketAddr {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    match config.placement {
        Placement::Ranked { world_size, local_world_size: None, .. } if world_size > 1 => {}
        Placement::Ranked { world_size, local_world_size: Some(local), .. } if local < world_size => {}
        Placement::Ranked { .. } | Placement::Solo => return loopback,
    }
    // Addresses for documentation (RFC 5737, RFC 3849), which no host has: the route to them is the default one.
    let (v4, v6) = (Ipv4Addr::new(192, 0, 2, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
    let mut found = [v4.into(), v6.into()].map(|ip: IpAddr| route(SocketAddr::new(ip, 9))).into_iter();
    if let Some(mut address) = found.find_map(io::Result::ok) {
        address.set_port(0);
        return address;
    }
    let any = Interfaces { name: "UNISONO_INTERFACE".to_owned(), value: "^".to_owned() };
    address_of_interface(&any).unwrap_or(loopback)
}

/// The address from which packets to `store` leave.
fn towards(host: &str, store: SocketAddr, variable: &str) -> Result<SocketAddr> {
    if store.ip().is_loopback() && !is_literal_loopback(host) {
        let problem = "on this host the name means a loopback address, which others cannot reach: set \
                       UNISONO_INTERFACE or UNISONO_ADDRESS";
        return Err(configuration(variable, host, problem));
    }
    if store.ip().is_loopback() {
        check_loopback(store.ip())?;
    }
    let mut route =
        route(store).map_err(|error| Error::system(format!("find the route to {store}"), &error))?;
    route.set_port(0);
    Ok(route)
}

/// The end of the route to `address` on this host. Connecting a datagram socket asks for it and sends nothing.
fn route(address: SocketAddr) -> io::Result<SocketAddr> {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(address)?;
    socket.local_addr()
}

/// An address of the interfaces that a user wants, with any port.
pub(crate) fn address_of_interface(wanted: &Interfaces) -> Result<SocketAddr> {
    let found =
        if_addrs::get_if_addrs().map_err(|error| Error::system("list the network interfaces", &error))?;
    let mut fitting: Vec<SocketAddr> = found
        .iter()
        .filter(|interface| wanted.matches(&interface.name))
        .map(|interface| with_scope(SocketAddr::new(interface.ip(), 0), interface.index.unwrap_or(0)))
        .collect();
    // Loopback only if it is the only one asked for, and before that an address that is good for this link only; IPv4
    // before IPv6, as most clusters route it.
    fitting.sort_by_key(|one| (one.ip().is_loopback(), is_link_local(one.ip()), one.is_ipv6()));
    fitting.first().copied().ok_or_else(|| {
        let mut names: Vec<_> = found.iter().map(|interface| interface.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let problem = format!("no interface with an address matches; there are {}", names.join(", "));
        configuration(&wanted.name, &wanted.value, problem)
    })
}

/// The addresses of this host, for messages.
pub(crate) fn interfaces_text() -> String {
    let found = if_addrs::get_if_addrs().unwrap_or_default();
    let texts: Vec<String> = found.iter().map(|one| format!("{} ({})", one.ip(), one.name)).collect();
    texts.join(", ")
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
        let on_two = [
            ("RANK", "0"),
            ("WORLD_SIZE", "2"),
            ("LOCAL_WORLD_SIZE", "1"),
            ("NCCL_SOCKET_IFNAME", "=nosuch0"),
        ];
        let text = listen(&on_two).unwrap_err().to_string();
        assert!(text.starts_with("NCCL_SOCKET_IFNAME==nosuch0: no interface"), "{text}");
        assert!(text.contains("lo"), "{text}");
    }

    #[test]
    fn interfaces_of_other_tools_count_between_hosts_only() {
        for name in ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"] {
            let ranks = [("RANK", "0"), ("WORLD_SIZE", "2"), (name, "nosuch0")];
            let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
            assert_eq!(listen(&ranks).unwrap(), loopback);
            assert_eq!(listen(&[&ranks[..], &[("LOCAL_WORLD_SIZE", "2")]].concat()).unwrap(), loopback);
            let text = listen(&[&ranks[..], &[("LOCAL_WORLD_SIZE", "1")]].concat()).unwrap_err().to_string();
            assert!(text.starts_with(&format!("{name}=nosuch0: no interface")), "{text}");
        }
        let ours = [("RANK", "0"), ("WORLD_SIZE", "2"), ("UNISONO_INTERFACE", "nosuch0")];
        assert!(
            listen(&ours).unwrap_err().to_string().starts_with("UNISONO_INTERFACE=nosuch0: no interface")
        );
    }

    #[test]
    fn a_name_that_no_host_can_have_is_known() {
        let (label, long) = ("x".repeat(63), vec!["x".repeat(60); 5].join("."));
        for good in ["node7", "node_7.rack-2.", "10.1", "7", &label, "knoten-\u{e4}"] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in ["10.0.0.256", "1.2.3.4.5", "a..b", ".", ".a", "-a", "a,b", &format!("{label}x"), &long] {
            check_name(bad).unwrap_err();
        }
    }

    #[test]
    fn a_name_that_means_loopback_here_is_refused() {
        let store = SocketAddr::from(([127, 0, 1, 1], 4000));
        let text = towards("myhost", store, "MASTER_ADDR").unwrap_err().to_string();
        assert!(text.starts_with("MASTER_ADDR=myhost: ") && text.contains("UNISONO_INTERFACE"), "{text}");
        let ours = towards("127.0.1.1", store, "MASTER_ADDR").unwrap();
        assert_eq!(ours, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    }

    #[test]
    fn addresses_of_stores_are_written_as_they_are_read() {
        assert_eq!(join_host("::1", 80), "[::1]:80");
        assert_eq!(split_store(&join_host("::1", 80)), Ok(("::1", 80)));
        assert_eq!(join_host("node7", 80), "node7:80");
        assert_eq!(split_store("node7:80"), Ok(("node7", 80)));
        assert_eq!(join_host("fe80::1%eth0", 80), "[fe80::1%eth0]:80");
        assert_eq!(split_store("[fe80::1%eth0]:80"), Ok(("fe80::1%eth0", 80)));
        for bad in ["node7", "node7:", "node7:0", "node7:99999", "node7:x", "::1:80", ":80", "[::1]"] {
            let text = split_store(bad).unwrap_err();
            assert!(text.contains("the form is host:port"), "{bad}: {text}");
        }
    }
}
