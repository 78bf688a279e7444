//! The settings of a process for its job: from its environment, or in code. `check.rs` has the checks that are possible
//! only on this machine, or of several settings together.

mod check;
mod init_method;
#[cfg(test)]
pub(crate) mod tests;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use unisono_communicator::{
    Algorithm, CALL_TIMEOUT_DEFAULT, CommsLoggerConfig, Error, LogLevel, Result, SkippedOperations,
};
use unisono_control::intervals::Intervals;

use crate::comms_log::comms_logger;
use crate::connecting::SingleCopy;
use crate::environment::{self, Launcher, Placement};
use crate::job_settings::{Checksum, JobSettings};
use crate::meeting_store::MeetingStore;
use crate::report::{self, InheritedPipe, Reporter};
use crate::secret::SecretSource;
use crate::settings::{GROUPS, Source, configuration};

/// The largest size that a setting can ask for.
const BYTES_MAX: u32 = 1 << 30;

/// A direction must hold the largest element, or calls in place wait for each other.
const BUFFER_BYTES_MIN: u32 = 128 << 10;

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

/// The settings of a process as a rank of a job. The environment gives them, and a program changes some in code.
/// [`Job::join`] checks them once more, so the name of its variable is in the error of a field that cannot be obeyed.
///
/// [`Job::join`]: crate::Job::join
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The place of this process in the job, and the launcher that gave it.
    pub placement: Placement,
    /// The meeting place of the ranks, as `host:port`.
    pub store: Option<String>,
    /// The file through which ranks meet, if the program names one; see [`Config::set_init_method`].
    pub meeting_file: Option<PathBuf>,
    /// The store through which ranks meet, if the program brings one; see [`Config::set_meeting`].
    pub meeting_store: Option<Arc<dyn MeetingStore>>,
    /// The source of the job's secret, if a setting names one.
    pub secret: Option<SecretSource>,
    /// The file of the user's own secret, if there is one.
    pub user_secret_file: Option<PathBuf>,
    /// The mark that the ranks of this job have in common, said by the user or the launcher.
    pub job_key: Option<String>,
    /// The launcher's name of this run, if it has started all ranks and says so.
    pub launcher_run: Option<String>,
    /// The Slurm job and step, if we are in one.
    pub slurm_step: Option<String>,
    /// The descriptor of a launcher that speaks PMI.
    pub pmi: Option<i32>,
    /// The host of rank 0.
    pub master_address: Option<String>,
    /// The port of rank 0 that belongs to others.
    pub master_port: Option<u16>,
    /// The interfaces to listen on.
    pub interfaces: Option<Interfaces>,
    /// The address to listen on.
    pub address: Option<IpAddr>,
    /// The mark that tells this host from others.
    pub host_id: Option<String>,
    /// The backend asked for, by the name of the user's setting. Ranks with different ones do not meet.
    pub backend: String,
    /// The algorithm asked for.
    pub algorithm: Option<String>,
    /// Operations that do nothing; rank 0's for all.
    pub skipped: SkippedOperations,
    /// Algorithms from outside, which the communicator of all ranks registers and proves first. The environment gives
    /// none; `UNISONO_ALGORITHM` may name them.
    pub algorithms: Vec<Arc<Algorithm>>,
    /// Parameters of the cost model, as `unisono calibrate` prints them.
    pub cost_model: Option<String>,
    /// Deadline of a call that has none of its own: `CallOptions::timeout` wins over it.
    pub call_timeout: Duration,
    /// Whether somebody has set [`Config::call_timeout`], be it to its default; see [`Config::has_call_timeout`].
    pub is_call_timeout_set: bool,
    /// The lines that reach standard error while the program has no `tracing` subscriber.
    pub log: LogLevel,
    /// After how long without progress a call warns.
    pub warn_after: Duration,
    /// Deadline of joining.
    pub join_timeout: Duration,
    /// Deadline of one handshake.
    pub handshake_timeout: Duration,
    /// The time that the end of a world waits until the sent bytes have arrived.
    pub drop_timeout: Duration,
    /// Interval of heartbeats.
    pub heartbeat: Duration,
    /// Silence after which a rank counts as lost.
    pub suspect_after: Duration,
    /// The folder into which a rank writes its last calls when one fails; `None` for nowhere.
    pub flight_directory: Option<PathBuf>,
    /// The configuration of this rank's communication log. If it is enabled, rank 0 prints a table at the end.
    pub comms_logger: CommsLoggerConfig,
    /// The folder into which a rank writes counts of its calls; `None` for nowhere.
    pub metrics_directory: Option<PathBuf>,
    /// Time without progress after which the awaited rank is asked.
    pub probe_delay: Duration,
    /// The time for which a wait polls.
    pub spin: Duration,
    /// Send and receive buffer of a data socket; `None` leaves them to the system.
    pub socket_buffer_bytes: Option<u32>,
    /// The bytes that a data socket may hold and the kernel has not sent yet.
    pub unsent_bytes: u32,
    /// Congestion control of sockets within a host; `None` leaves the system's.
    pub congestion_control: Option<String>,
    /// The data streams that carry checksums.
    pub checksum: Checksum,
    /// Whether data goes through memory between ranks of one host.
    pub shares_memory: bool,
    /// Whether ranks of one host read each other's memory.
    pub single_copy: SingleCopy,
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
}

impl Config {
    /// The settings in this process's environment.
    ///
    /// # Errors
    /// [`Error::Configuration`] for the first value that cannot be obeyed.
    pub fn from_environment() -> Result<Config> {
        Config::from_source(&Source::of_environment(&GROUPS))
    }

    /// Whether somebody has started this rank by hand, in a terminal of its own.
    pub fn is_started_by_hand(&self) -> bool {
        let is_named =
            matches!(self.placement, Placement::Ranked { launcher: Launcher::Named, local_rank: None, .. });
        is_named && self.store.is_none()
    }

    /// Whether the user or the program has asked for a deadline of all calls. A backend that cannot end a call when its
    /// time has come must then do without its quickest way.
    pub fn has_call_timeout(&self) -> bool {
        self.is_call_timeout_set || self.call_timeout != CALL_TIMEOUT_DEFAULT
    }

    /// Tells the launcher, if it has a pipe for that, why this rank cannot join. `Job::join` tells its own errors.
    pub fn tell_launcher(&self, error: &Error) {
        if let Some(reporter) = self.report_to.and_then(Reporter::take) {
            reporter.not_joined(self.placement.rank(), error);
        }
    }

    /// The variable that gave the setting `name`: itself, or a variable of another tool.
    pub fn variable<'a>(&'a self, name: &'a str) -> &'a str {
        let found = self.found_as.iter().find(|(knob, _)| *knob == name);
        found.map_or(name, |(_, variable)| variable)
    }

    /// The decisions of rank 0 for all ranks, if this is rank 0.
    ///
    /// # Errors
    /// [`Error::Configuration`] for a `UNISONO_COST_MODEL` that is not parameters of the cost model.
    pub fn job_settings(&self) -> Result<JobSettings> {
        let text = self.cost_model.as_deref().unwrap_or_default();
        let settings = JobSettings::built_in(self.shares_memory)
            .with_parameters(text)
            .map_err(|problem| self.refused("UNISONO_COST_MODEL", text, problem))?;
        let intervals = Intervals { beat: self.heartbeat, suspect: self.suspect_after };
        Ok(settings.with(self.piece_bytes.into(), (self.checksum, self.skipped), intervals))
    }

    /// The error for the setting `name`, under the variable that gave it.
    pub(crate) fn refused(&self, name: &str, value: &str, problem: impl Into<String>) -> Error {
        configuration(self.variable(name), value, problem)
    }

    /// The settings that `lookup` gives, in place of the environment's.
    ///
    /// # Errors
    /// As [`Config::from_environment`].
    pub fn from_lookup(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Config> {
        Config::from_source(&Source::new(&|name| lookup(name).map(OsString::from), &GROUPS))
    }

    /// The settings in a source with the rows of [`GROUPS`].
    ///
    /// # Errors
    /// As [`Config::from_environment`].
    pub fn from_source(source: &Source<'_>) -> Result<Config> {
        let discovery = environment::discover(source)?;
        let address_by = discovery.address.as_ref().map(|address| address.source.clone());
        let local = discovery.numbers.local_world_size.filter(|_| discovery.placement != Placement::Solo);
        let local_by = local.map(|local| local.source);
        Ok(Config {
            store: source.text("UNISONO_STORE"),
            meeting_file: None,
            meeting_store: None,
            secret: secret_source(source)?,
            user_secret_file: user_secret_file(source),
            job_key: discovery.job_key,
            launcher_run: discovery.launcher_run,
            pmi: discovery.pmi,
            master_address: discovery.address.map(|address| address.value),
            master_port: discovery.port.map(|port| port.value),
            interfaces: source.find("UNISONO_INTERFACE").map(|(name, value)| Interfaces { name, value }),
            address: address(source)?,
            host_id: source.text("UNISONO_HOST_ID"),
            backend: "tcp".to_owned(),
            algorithm: source.text("UNISONO_ALGORITHM"),
            algorithms: Vec::new(),
            skipped: skipped(source)?,
            cost_model: source.text("UNISONO_COST_MODEL"),
            log: log_level(source)?,
            call_timeout: source.duration("UNISONO_CALL_TIMEOUT_S")?,
            is_call_timeout_set: source.is_set("UNISONO_CALL_TIMEOUT_S"),
            warn_after: source.duration("UNISONO_WARN_AFTER_S")?,
            join_timeout: source.duration("UNISONO_JOIN_TIMEOUT_S")?,
            handshake_timeout: source.duration("UNISONO_HANDSHAKE_TIMEOUT_MS")?,
            drop_timeout: source.duration("UNISONO_DROP_TIMEOUT_MS")?,
            heartbeat: source.duration("UNISONO_HEARTBEAT_MS")?,
            suspect_after: source.duration("UNISONO_SUSPECT_AFTER_MS")?,
            flight_directory: source.path("UNISONO_FLIGHT_DIR"),
            comms_logger: comms_logger(source)?,
            metrics_directory: source.path("UNISONO_METRICS"),
            probe_delay: source.duration("UNISONO_PROBE_DELAY_MS")?,
            spin: source.duration("UNISONO_SPIN_US")?,
            socket_buffer_bytes: socket_buffer_bytes(source)?,
            unsent_bytes: bytes(source, "UNISONO_UNSENT_BYTES", 4 << 10)?,
            congestion_control: source.text("UNISONO_CONGESTION_CONTROL").filter(|name| name != "system"),
            checksum: match source.choice("UNISONO_CHECKSUM", &["auto", "on", "off"])?.as_str() {
                "on" => Checksum::Always,
                "off" => Checksum::Never,
                _ => Checksum::BetweenHosts,
            },
            shares_memory: source.choice("UNISONO_SHM", &["0", "1"])? == "1",
            single_copy: match source.choice("UNISONO_SINGLE_COPY", &["auto", "on", "off"])?.as_str() {
                "on" => SingleCopy::On,
                "off" => SingleCopy::Off,
                _ => SingleCopy::Auto,
            },
            piece_bytes: bytes(source, "UNISONO_PIECE_BYTES", 1)?,
            report_to: source.parse(report::VARIABLE, "DESCRIPTOR:INODE is needed", |_| true)?,
            runtime_directory: source.foreign_path("XDG_RUNTIME_DIR"),
            temporary_directory: source.foreign_path("TMPDIR").unwrap_or_else(|| "/tmp".into()),
            slurm_step: discovery.slurm_step,
            placement: discovery.placement,
            found_as: found_as(source, address_by, local_by),
        })
    }
}

/// The settings that were found under a name of another tool. The address of rank 0 may come from a platform, and the
/// number of ranks on this host from a launcher; their variables are no names of a setting.
fn found_as(
    source: &Source<'_>,
    address_by: Option<String>,
    local_by: Option<String>,
) -> Vec<(&'static str, String)> {
    let mut found_as = source.found_as();
    let others = [("UNISONO_MASTER_ADDRESS", address_by), ("UNISONO_LOCAL_WORLD_SIZE", local_by)];
    let others = others.into_iter().filter(|(name, _)| !source.is_set(name));
    found_as.extend(others.filter_map(|(name, variable)| Some((name, variable?))));
    found_as
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

/// The operations of `UNISONO_SKIP`.
///
/// # Errors
/// [`Error::Configuration`] for a name that is none, and for one side of a message without the other.
pub fn skipped(source: &Source<'_>) -> Result<SkippedOperations> {
    let text = source.text("UNISONO_SKIP").unwrap_or_default();
    text.parse().map_err(|problem: String| configuration("UNISONO_SKIP", &text, problem))
}

fn bytes(source: &Source<'_>, name: &str, least: u32) -> Result<u32> {
    let problem = format!("a whole number from {least} to {BYTES_MAX} is needed");
    source.needed(name, &problem, |number| (least..=BYTES_MAX).contains(number))
}

/// `None` for 0.
fn socket_buffer_bytes(source: &Source<'_>) -> Result<Option<u32>> {
    let problem = format!("0, or a whole number from {BUFFER_BYTES_MIN} to {BYTES_MAX} is needed");
    let is_good = |number: &u32| *number == 0 || (BUFFER_BYTES_MIN..=BYTES_MAX).contains(number);
    Ok(source.parse("UNISONO_SOCKET_BUFFER_BYTES", &problem, is_good)?.filter(|&number| number > 0))
}

fn address(source: &Source<'_>) -> Result<Option<IpAddr>> {
    let problem = "an IP address that other ranks can dial is needed";
    let can_be_dialled = |address: &IpAddr| !address.is_unspecified() && !address.is_multicast();
    source.parse("UNISONO_ADDRESS", problem, can_be_dialled)
}

fn log_level(source: &Source<'_>) -> Result<LogLevel> {
    source.needed("UNISONO_LOG", &format!("one of {} is needed", LogLevel::NAMES.join(", ")), |_| true)
}

/// The file of a secret that ranks of this user look for where no setting names another.
pub fn user_secret_file(source: &Source<'_>) -> Option<PathBuf> {
    let home = || Some(source.foreign_path("HOME")?.join(".config"));
    Some(source.foreign_path("XDG_CONFIG_HOME").or_else(home)?.join("unisono").join("secret"))
}
