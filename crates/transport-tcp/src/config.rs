//! Every setting, in one table: name, unit, default, the names of other tools that are also accepted, meaning.
//!
//! No other file reads the environment. A value that cannot be obeyed is an error that names variable, value and
//! problem; an empty variable counts as absent.

mod in_effect;

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use unisono_communicator::{Algorithm, Error, Result};

use crate::environment::{self, Placement};
use crate::job_settings::Checksum;
use crate::secret::SecretSource;
pub use in_effect::SetVariable;

/// The most ranks a job may have, as many as a schedule can name: it bounds every list that another rank or the store
/// sends.
pub const RANKS_MAX: u32 = 65_535;

/// The largest size that a setting can ask for.
const BYTES_MAX: u64 = 1 << 30;

/// A direction must hold the largest element, or calls in place wait for each other.
const BUFFER_BYTES_MIN: u64 = 128 << 10;

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// The environment variable.
    pub name: &'static str,
    /// The unit of a number, or the form of a text.
    pub unit: &'static str,
    /// The value when nothing is set, in the same form; empty for none.
    pub default: &'static str,
    /// Variables of other tools that are read when ours is not set, first match wins.
    pub also: &'static [&'static str],
    /// What it does.
    pub doc: &'static str,
}

const fn knob(
    name: &'static str,
    unit: &'static str,
    default: &'static str,
    also: &'static [&'static str],
    doc: &'static str,
) -> Knob {
    Knob { name, unit, default, also, doc }
}

/// All settings.
///
/// The four of placement are also found under the names that launchers set, see [`crate::environment`].
#[rustfmt::skip]
pub const KNOBS: &[Knob] = &[
    knob("UNISONO_RANK", "rank", "", &["RANK"], "this process's place in the job, from 0"),
    knob("UNISONO_WORLD_SIZE", "ranks", "", &["WORLD_SIZE"], "number of ranks of the job"),
    knob("UNISONO_LOCAL_RANK", "rank", "", &["LOCAL_RANK"], "this process's place on its host, from 0"),
    knob("UNISONO_LOCAL_WORLD_SIZE", "ranks", "", &["LOCAL_WORLD_SIZE", "LOCAL_SIZE"],
        "number of ranks on this host; equal to the world size, it says that no rank is elsewhere"),
    knob("UNISONO_STORE", "host:port", "", &[], "where ranks meet, hosted by the launcher"),
    knob("UNISONO_SECRET_FILE", "path", "", &[],
        "32 random bytes in a file of mode 0600; else unisono/secret in the user's configuration directory, if there"),
    knob("UNISONO_SECRET_FD", "descriptor", "", &[],
        "instead of a file: the inherited reading end of a pipe that holds these 32 bytes"),
    knob("UNISONO_JOB", "text", "", &[], "what ranks of one job started by hand on one host have in common"),
    knob("UNISONO_MASTER_ADDRESS", "host", "", &["MASTER_ADDR"], "the host of rank 0, when nobody hosts a store"),
    knob("UNISONO_MASTER_PORT", "port", "", &["MASTER_PORT"],
        "a port of that host; the one above it is ours, this one belongs to torch"),
    knob("UNISONO_INTERFACE", "list", "", &["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"],
        "network interfaces to listen on: name prefixes with commas, =name exactly, ^a,b any but these"),
    knob("UNISONO_ADDRESS", "IP address", "", &[], "address to listen on, instead of an interface"),
    knob("UNISONO_HOST_ID", "text", "", &["NCCL_HOSTID"], "what tells hosts apart, instead of host name and boot id"),
    knob("UNISONO_BACKEND", "auto, tcp, nccl, ccl or hccl", "auto", &[], "who does the work"),
    knob("UNISONO_ALGORITHM", "name", "", &[], "the algorithm of every call that has it, instead of the cheapest"),
    knob("UNISONO_COST_MODEL", "name=number, ...", "", &[],
        "parameters of the cost model, as unisono calibrate prints them; rank 0's are used by all"),
    knob("UNISONO_CALL_TIMEOUT_S", "s", "600", &[], "deadline of a call"),
    knob("UNISONO_WARN_AFTER_S", "s", "30", &[], "a call that takes longer logs whom it waits for"),
    knob("UNISONO_JOIN_TIMEOUT_S", "s", "300", &[], "how long ranks wait for each other at the start"),
    knob("UNISONO_HANDSHAKE_TIMEOUT_MS", "ms", "5000", &[], "deadline of the authentication of one connection"),
    knob("UNISONO_DROP_TIMEOUT_MS", "ms", "5000", &[],
        "how long a process that leaves waits until the others have what it has sent"),
    knob("UNISONO_HEARTBEAT_MS", "ms", "100", &[], "interval of the signs of life between ranks"),
    knob("UNISONO_SUSPECT_AFTER_MS", "ms", "800", &[], "silence after which a rank counts as lost"),
    knob("UNISONO_FLIGHT_DIR", "path", "", &[],
        "folder to which a rank writes its last calls when one fails, for unisono doctor"),
    knob("UNISONO_PROBE_DELAY_MS", "ms", "50", &[], "time without progress after which the awaited rank is asked"),
    knob("UNISONO_SPIN_US", "us", "50", &[], "how long a waiting call polls before it sleeps"),
    knob("UNISONO_SOCKET_BUFFER_BYTES", "bytes", "0", &[],
        "send and receive buffer of a data socket; 0 leaves them to the system, which lets them grow"),
    knob("UNISONO_UNSENT_BYTES", "bytes", "131072", &[],
        "what a data socket may hold that the kernel has not sent yet"),
    knob("UNISONO_CONGESTION_CONTROL", "name", "reno", &[], "of sockets within a host; 'system' leaves them alone"),
    knob("UNISONO_CHECKSUM", "auto, on or off", "auto", &[],
         "a checksum over everything that collectives and messages send; auto: between hosts; rank 0's is used by all"),
    knob("UNISONO_PIECE_BYTES", "bytes", "524288", &[], "the unit in which steps of a call take turns"),
];

/// The interfaces to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interfaces {
    /// The variable that gave them, for messages.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl Interfaces {
    /// Whether the interface called `interface` is one of them.
    pub fn matches(&self, interface: &str) -> bool {
        let (excluded, list) = match self.value.strip_prefix('^') {
            Some(list) => (true, list),
            None => (false, self.value.as_str()),
        };
        let (exact, list) = match list.strip_prefix('=') {
            Some(list) => (true, list),
            // Gloo knows whole names only, so its users write whole names.
            None => (self.name.starts_with("GLOO"), list),
        };
        let fits = |one: &str| if exact { interface == one } else { interface.starts_with(one) };
        list.split(',').map(str::trim).filter(|one| !one.is_empty()).any(fits) != excluded
    }
}

/// What the environment says, parsed and checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who we are, and who told us.
    pub placement: Placement,
    /// Where ranks meet, as `host:port`.
    pub store: Option<String>,
    /// Where the job's secret comes from, if that is said.
    pub secret: Option<SecretSource>,
    /// Where the user's own secret is, if there is one.
    pub user_secret_file: Option<PathBuf>,
    /// What the ranks of this job have in common, said by the user or the launcher.
    pub job_key: Option<String>,
    /// The Slurm job and step, if we are in one.
    pub slurm_step: Option<String>,
    /// The host of rank 0.
    pub master_address: Option<String>,
    /// The port of rank 0 that belongs to others.
    pub master_port: Option<u16>,
    /// The interfaces to listen on.
    pub interfaces: Option<Interfaces>,
    /// The address to listen on.
    pub address: Option<IpAddr>,
    /// What tells this host from others.
    pub host_id: Option<String>,
    /// The backend asked for.
    pub backend: String,
    /// The algorithm asked for.
    pub algorithm: Option<String>,
    /// Algorithms from outside, which the communicator of all ranks registers and proves first. The environment gives
    /// none.
    pub algorithms: Vec<Arc<Algorithm>>,
    /// Parameters of the cost model, as `unisono calibrate` prints them.
    pub cost_model: Option<String>,
    /// Deadline of a call.
    pub call_timeout: Duration,
    /// When a call starts to complain.
    pub warn_after: Duration,
    /// Deadline of joining.
    pub join_timeout: Duration,
    /// Deadline of one handshake.
    pub handshake_timeout: Duration,
    /// How long the end of a world waits until what was sent has arrived.
    pub drop_timeout: Duration,
    /// Interval of heartbeats.
    pub heartbeat: Duration,
    /// Silence after which a rank counts as lost.
    pub suspect_after: Duration,
    /// Where a rank writes its last calls when one fails; `None` for nowhere.
    pub flight_directory: Option<PathBuf>,
    /// Time without progress after which the awaited rank is asked.
    pub probe_delay: Duration,
    /// How long a wait polls.
    pub spin: Duration,
    /// Send and receive buffer of a data socket; `None` leaves them to the system.
    pub socket_buffer_bytes: Option<u32>,
    /// What a data socket may hold that the kernel has not sent yet.
    pub unsent_bytes: u32,
    /// Congestion control of sockets within a host; `None` leaves the system's.
    pub congestion_control: Option<String>,
    /// Which data streams carry checksums.
    pub checksum: Checksum,
    /// The unit in which steps take turns.
    pub piece_bytes: u32,
    /// XDG_RUNTIME_DIR.
    pub runtime_directory: Option<PathBuf>,
    /// TMPDIR, else /tmp.
    pub temporary_directory: PathBuf,
}

/// Looks a variable up.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Config {
    /// With one more algorithm from outside; the same on every rank.
    #[must_use]
    pub fn with_algorithm(mut self, algorithm: Arc<Algorithm>) -> Config {
        self.algorithms.push(algorithm);
        self
    }

    /// What this process's environment says.
    ///
    /// # Errors
    /// [`Error::Configuration`] for the first value that cannot be obeyed.
    pub fn from_environment() -> Result<Config> {
        // A value that is no text becomes one that its parser refuses, by name.
        Config::from_lookup(&|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// What `lookup` says, in place of the environment.
    ///
    /// # Errors
    /// As [`Config::from_environment`].
    pub fn from_lookup(lookup: Lookup<'_>) -> Result<Config> {
        let set = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let source = Source { lookup: &set };
        let placement = environment::placement(&source)?;
        let slurm_step = environment::slurm_step(&source);
        Ok(Config {
            store: source.text("UNISONO_STORE"),
            secret: source.secret()?,
            user_secret_file: user_secret_file(&set),
            job_key: environment::job_key(&source, &placement, slurm_step.as_deref()),
            master_address: environment::master_address(&source)
                .or_else(|| environment::slurm_master(&source)),
            master_port: match source.number("UNISONO_MASTER_PORT", 1, u64::from(u16::MAX) - 1)? {
                Some(port) => Some(port as u16),
                None => slurm_step.as_deref().map(environment::slurm_port),
            },
            interfaces: source.find("UNISONO_INTERFACE").map(|(name, value)| Interfaces { name, value }),
            address: source.address("UNISONO_ADDRESS")?,
            host_id: source.text("UNISONO_HOST_ID"),
            backend: source.choice("UNISONO_BACKEND", &["auto", "tcp", "nccl", "ccl", "hccl"])?,
            algorithm: source.text("UNISONO_ALGORITHM"),
            algorithms: Vec::new(),
            cost_model: source.text("UNISONO_COST_MODEL"),
            call_timeout: source.duration("UNISONO_CALL_TIMEOUT_S")?,
            warn_after: source.duration("UNISONO_WARN_AFTER_S")?,
            join_timeout: source.duration("UNISONO_JOIN_TIMEOUT_S")?,
            handshake_timeout: source.duration("UNISONO_HANDSHAKE_TIMEOUT_MS")?,
            drop_timeout: source.duration("UNISONO_DROP_TIMEOUT_MS")?,
            heartbeat: source.duration("UNISONO_HEARTBEAT_MS")?,
            suspect_after: source.duration("UNISONO_SUSPECT_AFTER_MS")?,
            flight_directory: source.text("UNISONO_FLIGHT_DIR").map(PathBuf::from),
            probe_delay: source.duration("UNISONO_PROBE_DELAY_MS")?,
            spin: source.duration("UNISONO_SPIN_US")?,
            socket_buffer_bytes: source.buffer_bytes("UNISONO_SOCKET_BUFFER_BYTES")?,
            unsent_bytes: source.bytes("UNISONO_UNSENT_BYTES", 4 << 10)?,
            congestion_control: source.text("UNISONO_CONGESTION_CONTROL").filter(|name| name != "system"),
            checksum: match source.choice("UNISONO_CHECKSUM", &["auto", "on", "off"])?.as_str() {
                "on" => Checksum::Always,
                "off" => Checksum::Never,
                _ => Checksum::BetweenHosts,
            },
            piece_bytes: source.bytes("UNISONO_PIECE_BYTES", 1)?,
            runtime_directory: set("XDG_RUNTIME_DIR").map(PathBuf::from),
            temporary_directory: set("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from),
            slurm_step,
            placement,
        })
    }
}

fn user_secret_file(set: Lookup<'_>) -> Option<PathBuf> {
    let configuration = set("XDG_CONFIG_HOME").map(PathBuf::from);
    let home = || set("HOME").map(|home| PathBuf::from(home).join(".config"));
    Some(configuration.or_else(home)?.join("unisono").join("secret"))
}

/// The longest duration, in its unit: far from every overflow, and longer than anybody waits.
const DURATION_UNITS_MAX: f64 = 1e9;

/// A lookup that knows the table.
pub(crate) struct Source<'a> {
    lookup: Lookup<'a>,
}

impl Source<'_> {
    /// The name under which a setting is found, and its value or default.
    pub(crate) fn find(&self, name: &str) -> Option<(String, String)> {
        let knob = KNOBS.iter().find(|knob| knob.name == name)?;
        let names = std::iter::once(&knob.name).chain(knob.also);
        let set = names.filter_map(|name| Some((name.to_string(), (self.lookup)(name)?))).next();
        let default = || (knob.name.to_string(), knob.default.to_string());
        set.or_else(|| (!knob.default.is_empty()).then(default))
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.find(name).map(|(_, value)| value)
    }

    /// A variable of another tool, outside the table.
    pub(crate) fn foreign(&self, name: &str) -> Option<String> {
        (self.lookup)(name)
    }

    fn parse<T: FromStr>(&self, name: &str, problem: &str, fits: impl Fn(&T) -> bool) -> Result<Option<T>> {
        self.find(name).map(|(name, value)| parse(&name, &value, problem, fits)).transpose()
    }

    pub(crate) fn number(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>> {
        self.parse(name, &format!("a whole number from {least} to {most} is needed"), |number| {
            (least..=most).contains(number)
        })
    }

    fn bytes(&self, name: &str, least: u64) -> Result<u32> {
        let number = self.number(name, least, BYTES_MAX)?;
        number.map(|number| number as u32).ok_or_else(|| without_value(name))
    }

    /// `None` for 0.
    fn buffer_bytes(&self, name: &str) -> Result<Option<u32>> {
        let problem = format!("0, or a whole number from {BUFFER_BYTES_MIN} to {BYTES_MAX} is needed");
        let is_good = |number: &u64| *number == 0 || (BUFFER_BYTES_MIN..=BYTES_MAX).contains(number);
        let number = self.parse(name, &problem, is_good)?;
        Ok(number.filter(|&number| number > 0).map(|number| number as u32))
    }

    fn secret(&self) -> Result<Option<SecretSource>> {
        let descriptor = self.number("UNISONO_SECRET_FD", 0, u32::MAX.into())?;
        match (self.text("UNISONO_SECRET_FILE"), descriptor) {
            (Some(file), Some(_)) => {
                let problem = "UNISONO_SECRET_FD names another secret; one of the two is needed";
                Err(configuration("UNISONO_SECRET_FILE", &file, problem))
            }
            (Some(file), None) => Ok(Some(SecretSource::File(file.into()))),
            (None, descriptor) => Ok(descriptor.map(|number| SecretSource::Descriptor(number as u32))),
        }
    }

    fn address(&self, name: &str) -> Result<Option<IpAddr>> {
        let problem = "an IP address that other ranks can dial is needed";
        self.parse(name, problem, |address: &IpAddr| !address.is_unspecified() && !address.is_multicast())
    }

    fn duration(&self, name: &str) -> Result<Duration> {
        let unit = KNOBS.iter().find(|knob| knob.name == name).map_or("s", |knob| knob.unit);
        let problem = format!("a number of {unit} above 0 is needed");
        let number =
            self.parse(name, &problem, |number: &f64| *number > 0.0 && *number <= DURATION_UNITS_MAX)?;
        let scale = if unit == "us" {
            1e-6
        } else if unit == "ms" {
            1e-3
        } else {
            1.0
        };
        number.map(|number| Duration::from_secs_f64(number * scale)).ok_or_else(|| without_value(name))
    }

    fn choice(&self, name: &str, choices: &[&str]) -> Result<String> {
        let problem = format!("one of {} is needed", choices.join(", "));
        let value = self.parse(name, &problem, |value: &String| choices.contains(&value.as_str()))?;
        value.ok_or_else(|| without_value(name))
    }
}

/// Parses a value, whatever its variable.
pub(crate) fn parse<T: FromStr>(
    name: &str,
    value: &str,
    problem: &str,
    fits: impl Fn(&T) -> bool,
) -> Result<T> {
    match value.trim().parse() {
        Ok(parsed) if fits(&parsed) => Ok(parsed),
        _ => Err(configuration(name, value, problem)),
    }
}

pub(crate) fn configuration(name: &str, value: &str, problem: impl Into<String>) -> Error {
    Error::Configuration { name: name.into(), value: value.into(), problem: problem.into() }
}

fn without_value(name: &str) -> Error {
    configuration(name, "", "it has neither a value nor a default")
}

/// The variables of this process's environment that are settings or are named like ours, by name.
pub fn set_variables() -> Vec<SetVariable> {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    in_effect::in_effect(std::env::vars_os().map(|(name, value)| (text(name), text(value))))
}

#[cfg(test)]
mod tests;
