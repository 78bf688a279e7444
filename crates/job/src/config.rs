//! What a process is told: by its environment, or in code.
//!
//! | file | what it does |
//! | --- | --- |
//! | `backend.rs` | the library that does the collectives |
//! | `devices.rs` | what backends for devices are given |
//! | `ccl.rs` | what Intel's oneCCL reads itself |
//! | `check.rs` | what can be checked only on this machine, or of several settings together |
//!
//! No other file reads the environment.

mod backend;
mod ccl;
mod check;
mod devices;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use unisono_communicator::{Algorithm, CALL_TIMEOUT_DEFAULT, Error, LogLevel, Result};
use unisono_control::intervals::Intervals;

pub use backend::{Backend, UnknownBackend};
pub use devices::{DeviceSettings, HostMemorySetting};

use crate::environment::{self, Launcher, Placement};
use crate::job_settings::{Checksum, JobSettings};
use crate::report::{self, InheritedPipe};
use crate::secret::SecretSource;
use crate::settings::{
    SetVariable, Source, Values, configuration, in_effect, unknown_names, warn_of, without_value,
};

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

/// The settings of a process.
///
/// [`Config::from_environment`] reads them, and a program changes some in code: a field that it sets wins over the
/// variable. `init_with` and [`Job::join`] check them once more, so the name of its variable is in the error of a
/// field that cannot be obeyed.
///
/// ```
/// use std::time::Duration;
/// # mod unisono { pub use unisono_job::config::*; }
/// use unisono::Config;
///
/// let mut config = Config::from_environment()?.with_call_timeout(Duration::from_secs(20));
/// // Only where the user has not said anything.
/// config.flight_directory.get_or_insert_with(|| std::env::temp_dir().join("flight"));
/// # Ok::<(), unisono_communicator::Error>(())
/// ```
///
/// [`Job::join`]: crate::Job::join
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The place of this process in the job, and the launcher that gave it.
    pub placement: Placement,
    /// Where ranks meet, as `host:port`.
    pub store: Option<String>,
    /// Where the job's secret comes from, if that is said.
    pub secret: Option<SecretSource>,
    /// Where the user's own secret is, if there is one.
    pub user_secret_file: Option<PathBuf>,
    /// What the ranks of this job have in common, said by the user or the launcher.
    pub job_key: Option<String>,
    /// The launcher's name of this run, if it has started all ranks and says so.
    pub launcher_run: Option<String>,
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
    pub backend: Backend,
    /// Where oneCCL's libraries lie; an absolute path.
    pub ccl_directory: Option<PathBuf>,
    /// The variables that oneCCL reads itself and that are set; see [`Config::missing_ccl_variables`].
    pub ccl_variables_set: Vec<&'static str>,
    /// What backends for devices are given.
    pub devices: DeviceSettings,
    /// The algorithm asked for.
    pub algorithm: Option<String>,
    /// Algorithms from outside, which the communicator of all ranks registers and proves first. The environment gives
    /// none; `UNISONO_ALGORITHM` may name them.
    pub algorithms: Vec<Arc<Algorithm>>,
    /// Parameters of the cost model, as `unisono calibrate` prints them.
    pub cost_model: Option<String>,
    /// Deadline of a call that has none of its own: `CallOptions::timeout` wins over it.
    pub call_timeout: Duration,
    /// Whether somebody has set [`Config::call_timeout`], be it to its default; see [`Config::has_call_timeout`].
    pub is_call_timeout_set: bool,
    /// Which lines reach standard error while the program has no `tracing` subscriber.
    pub log: LogLevel,
    /// After how long without progress a call warns.
    pub warn_after: Duration,
    /// Deadline of joining.
    pub join_timeout: Duration,
    /// Deadline of one handshake.
    pub handshake_timeout: Duration,
    /// How long the end of a world waits until the sent bytes have arrived.
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
    /// The launcher's pipe for first errors.
    pub report_to: Option<InheritedPipe>,
    /// XDG_RUNTIME_DIR.
    pub runtime_directory: Option<PathBuf>,
    /// TMPDIR, else /tmp.
    pub temporary_directory: PathBuf,
    /// The settings that were found under a name of another tool, and that name.
    pub found_as: Vec<(&'static str, String)>,
    /// Variables of the environment that look like settings and are none.
    pub unknown: Vec<String>,
}

/// Looks a variable up.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Setters that take a value of the field and return the settings.
macro_rules! setters {
    ($($(#[$doc:meta])* $setter:ident: $field:ident, $type:ty;)+) => {
        impl Config {
            $($(#[$doc])*
            #[must_use]
            pub fn $setter(mut self, $field: $type) -> Config {
                self.$field = $field;
                self
            })+
        }
    };
}

setters! {
    /// With this [`Config::backend`].
    with_backend: backend, Backend;
    /// With this [`Config::join_timeout`].
    with_join_timeout: join_timeout, Duration;
    /// With this [`Config::drop_timeout`].
    with_drop_timeout: drop_timeout, Duration;
    /// With this [`Config::warn_after`].
    with_warn_after: warn_after, Duration;
    /// With this [`Config::log`].
    with_log: log, LogLevel;
    /// With this [`Config::checksum`].
    with_checksum: checksum, Checksum;
}

impl Config {
    /// With this [`Config::call_timeout`], also as a deadline that was asked for; see [`Config::has_call_timeout`].
    #[must_use]
    pub fn with_call_timeout(mut self, timeout: Duration) -> Config {
        self.call_timeout = timeout;
        self.is_call_timeout_set = true;
        self
    }

    /// With records of the last calls in this folder; see [`Config::flight_directory`].
    #[must_use]
    pub fn with_flight_directory(mut self, directory: impl Into<PathBuf>) -> Config {
        self.flight_directory = Some(directory.into());
        self
    }

    /// With this meeting place, `host:port`; see [`Config::store`].
    #[must_use]
    pub fn with_store(mut self, store: impl Into<String>) -> Config {
        self.store = Some(store.into());
        self
    }

    /// With this algorithm for all calls that it fits; see [`Config::algorithm`].
    #[must_use]
    pub fn with_algorithm(mut self, name: impl Into<String>) -> Config {
        self.algorithm = Some(name.into());
        self
    }

    /// With one more algorithm from outside; the same on every rank. See [`Config::algorithms`].
    #[must_use]
    pub fn with_own_algorithm(mut self, algorithm: Arc<Algorithm>) -> Config {
        self.algorithms.push(algorithm);
        self
    }

    /// What this process's environment says.
    ///
    /// # Errors
    /// [`Error::Configuration`] for the first value that cannot be obeyed.
    pub fn from_environment() -> Result<Config> {
        let set = std::env::vars_os().filter(|(_, value)| !value.is_empty());
        let unknown = unknown_names(set.map(|(name, _)| name.to_string_lossy().into_owned()));
        let config = Config::from_values(&|name| std::env::var_os(name));
        // A variable that is said to be missing may have been misspelt.
        let config = config.inspect_err(|_| warn_of(&unknown))?;
        Ok(Config { unknown, ..config })
    }

    /// What the environment of a launcher says: it is no rank, and replaces in its ranks what an outer job has left
    /// there.
    ///
    /// # Errors
    /// As [`Config::from_environment`].
    pub fn of_launcher() -> Result<Config> {
        const OWN: [&str; 4] =
            ["XDG_RUNTIME_DIR", "TMPDIR", "UNISONO_HANDSHAKE_TIMEOUT_MS", "UNISONO_CCL_DIR"];
        let is_own = |name: &str| OWN.into_iter().chain(ccl::ccl_names()).any(|own| own == name);
        Config::from_values(&|name| is_own(name).then(|| std::env::var_os(name))?)
    }

    /// Warns of unknown variables. The ranks of a launcher mostly have the same environment, so rank 0 speaks for all;
    /// ranks that are started by hand have their own each.
    fn warn_of_unknown(&self) {
        if self.placement.rank() == 0 || self.is_started_by_hand() {
            warn_of(&self.unknown);
        }
    }

    /// Whether somebody has started this rank by hand, in a terminal of its own.
    pub(crate) fn is_started_by_hand(&self) -> bool {
        let is_named =
            matches!(self.placement, Placement::Ranked { launcher: Launcher::Named, local_rank: None, .. });
        is_named && self.store.is_none()
    }

    /// Whether the user or the program has asked for a deadline of all calls. A backend that cannot end a call when its
    /// time has come must then do without its quickest way.
    pub fn has_call_timeout(&self) -> bool {
        self.is_call_timeout_set || self.call_timeout != CALL_TIMEOUT_DEFAULT
    }

    /// The variable that gave the setting `name`: itself, or that of another tool.
    pub fn variable<'a>(&'a self, name: &'a str) -> &'a str {
        let found = self.found_as.iter().find(|(knob, _)| *knob == name);
        found.map_or(name, |(_, variable)| variable)
    }

    /// What rank 0 decides for all ranks, if this is rank 0.
    ///
    /// # Errors
    /// [`Error::Configuration`] for a `UNISONO_COST_MODEL` that is not parameters of the cost model.
    pub fn job_settings(&self) -> Result<JobSettings> {
        let text = self.cost_model.as_deref().unwrap_or_default();
        let settings: JobSettings =
            text.parse().map_err(|problem: String| self.refused("UNISONO_COST_MODEL", text, problem))?;
        let intervals = Intervals { beat: self.heartbeat, suspect: self.suspect_after };
        Ok(settings.with(self.piece_bytes.into(), self.checksum, intervals))
    }

    /// The error for the setting `name`, under the variable that gave it.
    pub(crate) fn refused(&self, name: &str, value: &str, problem: impl Into<String>) -> Error {
        configuration(self.variable(name), value, problem)
    }

    /// What `lookup` says, in place of the environment.
    ///
    /// # Errors
    /// As [`Config::from_environment`].
    pub fn from_lookup(lookup: Lookup<'_>) -> Result<Config> {
        Config::from_values(&|name| lookup(name).map(OsString::from))
    }

    fn from_values(lookup: Values<'_>) -> Result<Config> {
        let set = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let source = Source::new(&set);
        let placement = environment::placement(&source)?;
        let slurm_step = environment::slurm_step(&source);
        let job_key = environment::job_key(&source, &placement, slurm_step.as_deref());
        let (slurm_host, slurm_port) =
            environment::slurm_meeting(&source, &placement, job_key.as_deref()).unzip();
        Ok(Config {
            store: source.text("UNISONO_STORE"),
            secret: secret_source(&source)?,
            user_secret_file: user_secret_file(&set),
            job_key,
            launcher_run: environment::launcher_run(&source, &placement),
            master_address: environment::master_address(&source).or(slurm_host),
            master_port: match source.number("UNISONO_MASTER_PORT", 1, u64::from(u16::MAX) - 1)? {
                Some(port) => Some(port as u16),
                None => slurm_port,
            },
            interfaces: source.find("UNISONO_INTERFACE").map(|(name, value)| Interfaces { name, value }),
            address: source.address("UNISONO_ADDRESS")?,
            host_id: source.text("UNISONO_HOST_ID"),
            backend: backend(&source)?,
            ccl_directory: source.path("UNISONO_CCL_DIR"),
            ccl_variables_set: ccl::ccl_variables_set(&set),
            devices: DeviceSettings::from_source(&source)?,
            algorithm: source.text("UNISONO_ALGORITHM"),
            algorithms: Vec::new(),
            cost_model: source.text("UNISONO_COST_MODEL"),
            log: source.log_level("UNISONO_LOG")?,
            call_timeout: source.duration("UNISONO_CALL_TIMEOUT_S")?,
            is_call_timeout_set: set("UNISONO_CALL_TIMEOUT_S").is_some(),
            warn_after: source.duration("UNISONO_WARN_AFTER_S")?,
            join_timeout: source.duration("UNISONO_JOIN_TIMEOUT_S")?,
            handshake_timeout: source.duration("UNISONO_HANDSHAKE_TIMEOUT_MS")?,
            drop_timeout: source.duration("UNISONO_DROP_TIMEOUT_MS")?,
            heartbeat: source.duration("UNISONO_HEARTBEAT_MS")?,
            suspect_after: source.duration("UNISONO_SUSPECT_AFTER_MS")?,
            flight_directory: source.path("UNISONO_FLIGHT_DIR"),
            probe_delay: source.duration("UNISONO_PROBE_DELAY_MS")?,
            spin: source.duration("UNISONO_SPIN_US")?,
            socket_buffer_bytes: source.buffer_bytes("UNISONO_SOCKET_BUFFER_BYTES")?,
            unsent_bytes: source.unsent_bytes()?,
            congestion_control: source.text("UNISONO_CONGESTION_CONTROL").filter(|name| name != "system"),
            checksum: match source.choice("UNISONO_CHECKSUM", &["auto", "on", "off"])?.as_str() {
                "on" => Checksum::Always,
                "off" => Checksum::Never,
                _ => Checksum::BetweenHosts,
            },
            piece_bytes: source.piece_bytes()?,
            report_to: source.parse(report::VARIABLE, "DESCRIPTOR:INODE is needed", |_| true)?,
            runtime_directory: set("XDG_RUNTIME_DIR").map(PathBuf::from),
            temporary_directory: set("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from),
            slurm_step,
            placement,
            found_as: source.found_as(),
            unknown: Vec::new(),
        })
    }
}

fn secret_source(source: &Source<'_>) -> Result<Option<SecretSource>> {
    let file = source.path("UNISONO_SECRET_FILE").map(SecretSource::File);
    let group_file = source.path("UNISONO_SECRET_GROUP_FILE").map(SecretSource::GroupFile);
    let descriptor = source.number("UNISONO_SECRET_FD", 0, u32::MAX.into())?;
    let descriptor = descriptor.map(|number| SecretSource::Descriptor(number as u32));
    let mut named = [file, group_file, descriptor].into_iter().flatten();
    match (named.next(), named.next()) {
        (Some(one), Some(other)) => {
            let ((name, value), (other, _)) = (one.setting(), other.setting());
            let problem = format!("{other} names another secret; one of the two is needed");
            Err(configuration(name, &value, problem))
        }
        (one, _) => Ok(one),
    }
}

fn backend(source: &Source<'_>) -> Result<Backend> {
    const NAME: &str = "UNISONO_BACKEND";
    let problem = UnknownBackend.to_string();
    source.parse(NAME, &problem, |_: &Backend| true)?.ok_or_else(|| without_value(NAME))
}

fn user_secret_file(set: Values<'_>) -> Option<PathBuf> {
    let configuration = set("XDG_CONFIG_HOME").map(PathBuf::from);
    let home = || set("HOME").map(|home| PathBuf::from(home).join(".config"));
    Some(configuration.or_else(home)?.join("unisono").join("secret"))
}

/// The deadline of calls that the environment gives, if somebody has set it: for worlds that read no other setting.
///
/// # Errors
/// [`Error::Configuration`] for a value that is no time.
pub fn call_timeout_of_environment() -> Result<Option<Duration>> {
    const NAME: &str = "UNISONO_CALL_TIMEOUT_S";
    let value = |name: &str| std::env::var_os(name).filter(|value| name == NAME && !value.is_empty());
    let is_set = value(NAME).is_some();
    Source::new(&value).duration(NAME).map(|timeout| is_set.then_some(timeout))
}

/// The variables of this process's environment that are settings or are named like ours, by name.
pub fn set_variables() -> Vec<SetVariable> {
    let text = |text: OsString| text.to_string_lossy().into_owned();
    in_effect(std::env::vars_os().map(|(name, value)| (text(name), text(value))))
}
