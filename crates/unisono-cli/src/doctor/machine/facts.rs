//! The facts about this machine, each `None` or a problem in words where it cannot be read.

use std::fs::read_to_string;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::path::Path;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use unisono::config::set_variables;
use unisono::{BACKENDS, Backend, Config, Error};
use unisono_job::private_files::runtime_directory;
use unisono_job::rendezvous::{check_loopback, listen_address};
use unisono_job::{Budget, cgroup_path, with_parents};

use super::backends::BackendFacts;
use super::parse;

/// This machine, and the share that this process may use of it.
#[derive(Debug, Serialize)]
pub(super) struct Machine {
    /// The number of ranks on this machine that it is judged for.
    pub(super) ranks: u32,
    pub(super) host: Option<String>,
    pub(super) kernel: Option<String>,
    pub(super) architecture: &'static str,
    /// The kind of container, if one betrays itself.
    pub(super) container: Option<&'static str>,
    pub(super) clock_source: Option<String>,
    pub(super) cores: Cores,
    pub(super) network: HostNetwork,
    pub(super) limits: Limits,
    pub(super) tcp: Tcp,
    /// The place in which ranks of one host meet, or the reason why they cannot.
    #[serde(serialize_with = "usable_or_problem")]
    pub(super) runtime_directory: Result<String, String>,
    /// Why the settings cannot be obeyed, if so. If they cannot even be read, the rest is told for the defaults.
    pub(super) settings_problem: Option<String>,
    pub(super) settings: Vec<Setting>,
    /// The backend that is asked for.
    pub(super) backend: String,
    /// The variables that oneCCL needs in the environment and that are missing.
    pub(super) missing_ccl_variables: Vec<String>,
    pub(super) backends: Vec<BackendFacts>,
    /// Whether this program was built with checks that cost time.
    pub(super) has_debug_assertions: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Cores {
    pub(super) model: Option<String>,
    /// CPUs of the machine.
    pub(super) online: Option<u32>,
    /// The CPUs that this process may run on.
    pub(super) affinity: Option<String>,
    pub(super) allowed: Option<u32>,
    /// The cores that the quota of its control group gives; `None` for no quota.
    pub(super) quota: Option<f64>,
    /// The cores that it can keep busy.
    pub(super) usable: u32,
    pub(super) policy: Option<&'static str>,
    pub(super) nice: Option<i32>,
}

#[derive(Debug, Serialize)]
pub(super) struct HostNetwork {
    pub(super) interfaces: Vec<NetworkInterface>,
    /// The address on which ranks of the job listen that the settings describe; without one, ranks of one host.
    #[serde(serialize_with = "usable_or_problem")]
    pub(super) listens_on: Result<IpAddr, String>,
    /// From where packets to other hosts leave, if there is a default route.
    pub(super) towards_others: Option<IpAddr>,
}

#[derive(Debug, Serialize)]
pub(super) struct NetworkInterface {
    pub(super) name: String,
    pub(super) address: IpAddr,
    pub(super) mtu: Option<u32>,
    pub(super) megabits_per_s: Option<u32>,
}

/// Soft limit and hard limit; `u64::MAX` for none.
#[derive(Debug, Serialize)]
pub(super) struct Limits {
    pub(super) open_files: Option<(u64, u64)>,
    /// Open files that a rank of the job needs at most.
    pub(super) open_files_of_rank: u64,
    pub(super) locked_memory_bytes: Option<(u64, u64)>,
    pub(super) processes: Option<(u64, u64)>,
    /// The smallest limit on memory, and where the system tells it.
    pub(super) memory_bytes: Option<u64>,
    pub(super) memory_limited_by: Option<String>,
    /// The bytes that the rings of all ranks of this host may have together.
    pub(super) rings_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Tcp {
    /// The setting of the system, for connections between hosts.
    pub(super) congestion_control: Option<String>,
    pub(super) available: Option<String>,
    /// The algorithm that ranks ask for within a host, `None` for the system's; and the reason why they do not get it.
    pub(super) within_host: Option<String>,
    pub(super) within_host_problem: Option<String>,
    pub(super) core_rmem_default: Option<u64>,
    pub(super) core_rmem_max: Option<u64>,
    pub(super) core_wmem_default: Option<u64>,
    pub(super) core_wmem_max: Option<u64>,
    /// Least, default, most; in bytes, of all sockets together in pages.
    pub(super) tcp_rmem: Option<[u64; 3]>,
    pub(super) tcp_wmem: Option<[u64; 3]>,
    pub(super) tcp_mem_pages: Option<[u64; 3]>,
}

#[derive(Debug, Serialize)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) value: String,
    /// Why it changes nothing, if so: no setting has this name.
    pub(super) problem: Option<String>,
}

impl Machine {
    /// Reads all of it; judged for `ranks`, else for the ranks that the settings or the cores suggest.
    pub(super) fn read(ranks: Option<u32>) -> unisono::Result<Machine> {
        let (config, settings_problem) = match Config::from_environment() {
            Ok(config) => {
                let problem = problem(&config);
                (config, problem)
            }
            Err(error) => (Config::from_lookup(&|_| None)?, Some(error.to_string())),
        };
        let cores = Cores::read();
        let of_job = Some(config.placement.world_size()).filter(|&ranks| ranks > 1);
        let ranks = ranks.or(of_job).unwrap_or(cores.usable.max(2));
        let network = HostNetwork::read(&config);
        let runtime = runtime_directory(config.runtime_directory.as_deref(), &config.temporary_directory);
        let marks = |path: &str| Path::new(path).exists();
        Ok(Machine {
            ranks,
            host: line("/proc/sys/kernel/hostname"),
            kernel: line("/proc/sys/kernel/osrelease"),
            architecture: std::env::consts::ARCH,
            container: parse::container(
                &read_to_string("/proc/1/cgroup").unwrap_or_default(),
                marks("/.dockerenv"),
                marks("/run/.containerenv"),
            ),
            clock_source: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            limits: Limits::read(ranks),
            tcp: Tcp::read(&config),
            runtime_directory: runtime
                .map(|path| path.display().to_string())
                .map_err(|error| error.to_string()),
            settings_problem,
            settings: set_variables()
                .into_iter()
                .map(|one| Setting { problem: one.problem(), name: one.name, value: one.value })
                .collect(),
            backends: BackendFacts::all(&network, &config),
            missing_ccl_variables: config
                .ccl
                .missing_variables()
                .into_iter()
                .map(|(name, value)| format!("{name}={}", value.display()))
                .collect(),
            backend: config.backend.to_string(),
            has_debug_assertions: cfg!(debug_assertions),
            cores,
            network,
        })
    }
}

/// Why a rank with these settings is refused.
fn problem(config: &Config) -> Option<String> {
    if !BACKENDS.contains(&config.backend) {
        return Some(format!(
            "UNISONO_BACKEND={}: this build has {}",
            config.backend,
            Backend::names(BACKENDS)
        ));
    }
    config.check().err().map(|error| error.to_string())
}

impl Cores {
    fn read() -> Cores {
        let read = |path: &str| read_to_string(path).unwrap_or_default();
        let (info, status) = (read("/proc/cpuinfo"), read("/proc/self/status"));
        let affinity = parse::field(&status, "Cpus_allowed_list").map(str::to_owned);
        let scheduling = parse::scheduling(&read("/proc/self/stat"));
        Cores {
            model: parse::field(&info, "model name").map(str::to_owned),
            online: line("/sys/devices/system/cpu/online").and_then(|list| parse::cpus_in_list(&list)),
            allowed: affinity.as_deref().and_then(parse::cpus_in_list),
            affinity,
            quota: quota(),
            usable: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
            policy: scheduling.map(|(policy, _)| policy),
            nice: scheduling.map(|(_, nice)| nice),
        }
    }
}

/// The least quota of this process's control groups and those above them.
fn quota() -> Option<f64> {
    let cgroups = read_to_string("/proc/self/cgroup").ok()?;
    let read = |path: String| read_to_string(path).ok();
    let v2 = with_parents(cgroup_path(&cgroups, "").unwrap_or_default())
        .into_iter()
        .filter_map(|path| parse::quota_v2(&read(format!("/sys/fs/cgroup{path}/cpu.max"))?))
        .collect::<Vec<f64>>();
    let v1 = with_parents(cgroup_path(&cgroups, "cpu").unwrap_or_default())
        .into_iter()
        .filter_map(|path| {
            let file = |name| read(format!("/sys/fs/cgroup/cpu{path}/cpu.cfs_{name}_us"));
            parse::quota_v1(&file("quota")?, &file("period")?)
        })
        .collect::<Vec<f64>>();
    v2.into_iter().chain(v1).reduce(f64::min)
}

impl HostNetwork {
    fn read(config: &Config) -> HostNetwork {
        let interface = |one: if_addrs::Interface| NetworkInterface {
            address: one.ip(),
            mtu: line(&format!("/sys/class/net/{}/mtu", one.name)).and_then(|text| text.parse().ok()),
            // -1 where the driver does not know.
            megabits_per_s: line(&format!("/sys/class/net/{}/speed", one.name))
                .and_then(|text| text.parse().ok()),
            name: one.name,
        };
        HostNetwork {
            interfaces: if_addrs::get_if_addrs().unwrap_or_default().into_iter().map(interface).collect(),
            listens_on: listens_on(config).map_err(|error| error.to_string()),
            towards_others: towards_others(),
        }
    }

    /// The interface that has this address.
    pub(super) fn interface_of(&self, address: IpAddr) -> Option<&NetworkInterface> {
        self.interfaces.iter().find(|one| one.address == address)
    }
}

/// The address on which ranks listen. A rank that is alone needs no loopback interface, but this page is about jobs.
fn listens_on(config: &Config) -> Result<IpAddr, Error> {
    let address = listen_address(config)?;
    if address.is_loopback() {
        check_loopback(address)?;
    }
    Ok(address)
}

/// The address from which packets leave by the default route. Connecting a datagram socket asks for the route and sends
/// nothing; the address is reserved for documentation.
fn towards_others() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

/// Connections that a rank opens to each other rank, in a communicator that has short calls, long calls (a socket for
/// each direction) and messages.
const CONNECTIONS_PER_PEER: u64 = 4;
/// Heartbeats and floods go to the ranks at distance 1, 2, 4, ... both ways; the rest are the open files of any
/// process.
const OTHER_FILES: u64 = 64;

/// Open files that a rank of a job of `ranks` ranks needs at most, in one communicator of all.
fn open_files_of_rank(ranks: u32) -> u64 {
    let doublings = 2 * u64::from(ranks.next_power_of_two().ilog2());
    CONNECTIONS_PER_PEER * u64::from(ranks - 1) + doublings + OTHER_FILES
}

impl Limits {
    fn read(ranks: u32) -> Limits {
        let limits = read_to_string("/proc/self/limits").unwrap_or_default();
        let budget = Budget::read();
        let memory = budget.limit();
        Limits {
            memory_bytes: memory.map(|limit| limit.bytes),
            memory_limited_by: memory.map(|limit| limit.place.display().to_string()),
            rings_bytes: budget.bytes(),
            open_files: parse::limit(&limits, "Max open files"),
            open_files_of_rank: open_files_of_rank(ranks),
            locked_memory_bytes: parse::limit(&limits, "Max locked memory"),
            processes: parse::limit(&limits, "Max processes"),
        }
    }
}

impl Tcp {
    fn read(config: &Config) -> Tcp {
        let number =
            |name: &str| line(&format!("/proc/sys/net/core/{name}")).and_then(|text| text.parse().ok());
        let ipv4 = |name: &str| line(&format!("/proc/sys/net/ipv4/{name}"));
        let triple = |name: &str| ipv4(name).and_then(|text| parse::triple(&text));
        let within_host = config.congestion_control.clone();
        Tcp {
            congestion_control: ipv4("tcp_congestion_control"),
            available: ipv4("tcp_available_congestion_control"),
            within_host_problem: within_host.as_deref().and_then(congestion_problem),
            within_host,
            core_rmem_default: number("rmem_default"),
            core_rmem_max: number("rmem_max"),
            core_wmem_default: number("wmem_default"),
            core_wmem_max: number("wmem_max"),
            tcp_rmem: triple("tcp_rmem"),
            tcp_wmem: triple("tcp_wmem"),
            tcp_mem_pages: triple("tcp_mem"),
        }
    }
}

/// Why a socket of this process does not get this congestion control.
#[cfg(target_os = "linux")]
fn congestion_problem(name: &str) -> Option<String> {
    let tried = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string()).and_then(|socket| {
        rustix::net::sockopt::set_tcp_congestion(&socket, name).map_err(|error| error.to_string())
    });
    tried.err()
}

#[cfg(not(target_os = "linux"))]
fn congestion_problem(_name: &str) -> Option<String> {
    Some("this system has no choice".to_owned())
}

/// As `{"usable": ...}` or `{"problem": ...}`.
fn usable_or_problem<S: Serializer, T: Serialize>(
    found: &Result<T, String>,
    to: S,
) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(1))?;
    match found {
        Ok(found) => map.serialize_entry("usable", found)?,
        Err(problem) => map.serialize_entry("problem", problem)?,
    }
    map.end()
}

/// The first line of a file, if it can be read and is not empty.
fn line(path: &str) -> Option<String> {
    let text = read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}
