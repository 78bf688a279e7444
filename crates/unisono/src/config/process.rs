//! The settings of a process: for its job and for backends.

use std::ffi::OsString;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use unisono_communicator::settings::{Source, configuration, environment};
use unisono_communicator::{Algorithm, Error, LogLevel, Result, Site, set_log_level};
use unisono_job::config::Config as JobConfig;
use unisono_job::job_settings::Checksum;
use unisono_job::{Job, MeetingStore};
#[cfg(feature = "offload")]
use unisono_offload::DeviceSettings;
#[cfg(feature = "ccl")]
use unisono_offload_ccl::CclSettings;
#[cfg(feature = "hccl")]
use unisono_offload_hccl::HcclSettings;
#[cfg(feature = "nccl")]
use unisono_offload_nccl::NcclSettings;
use unisono_transport_tcp::Tcp;

use super::backend::{Backend, UnknownBackend};
use super::table::GROUPS;
use super::unknown::{unknown_names, warn_of};
use crate::open_worlds::SecondInit;

/// The settings of a process.
///
/// [`Config::from_environment`] reads them, and a program changes some in code: a field that it sets wins over the
/// variable. `init_with` checks them once more, so the name of its variable is in the error of a field that cannot be
/// obeyed. The settings of the job, such as `call_timeout`, are fields of [`JobConfig`], to which it dereferences.
///
/// ```
/// use std::time::Duration;
/// use unisono::Config;
///
/// let mut config = Config::from_environment()?.with_call_timeout(Duration::from_secs(20));
/// // Only where the user has not said anything.
/// config.flight_directory.get_or_insert_with(|| std::env::temp_dir().join("flight"));
/// # Ok::<(), unisono::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The backend asked for.
    pub backend: Backend,
    /// The fate of an `init` while a world of this process is open. The environment does not say it.
    pub second_init: SecondInit,
    /// The line of `init` in errors, for a binding, in place of the line that calls it. No variable says it.
    pub site: Option<Site>,
    /// The settings of oneCCL.
    #[cfg(feature = "ccl")]
    pub ccl: CclSettings,
    /// The settings of NCCL.
    #[cfg(feature = "nccl")]
    pub nccl: NcclSettings,
    /// The settings of HCCL.
    #[cfg(feature = "hccl")]
    pub hccl: HcclSettings,
    /// The settings of backends for devices.
    #[cfg(feature = "offload")]
    pub devices: DeviceSettings,
    /// Variables of the environment that look like settings and are none of this build.
    pub unknown: Vec<String>,
    /// The settings of the job.
    pub job: JobConfig,
}

impl Deref for Config {
    type Target = JobConfig;

    fn deref(&self) -> &JobConfig {
        &self.job
    }
}

impl DerefMut for Config {
    fn deref_mut(&mut self) -> &mut JobConfig {
        &mut self.job
    }
}

/// The error of a function and the line that has called it.
fn at(function: &str, site: Site, error: Error) -> Error {
    error.in_call(&format_args!("{function} at {site}"))
}

/// Functions that change a field and return the settings.
macro_rules! setters {
    ($($(#[$doc:meta])* fn $setter:ident($config:ident, $value:ident: $type:ty) $change:block)+) => {
        impl Config {
            $($(#[$doc])*
            #[must_use]
            pub fn $setter(self, $value: $type) -> Config {
                let mut $config = self;
                $change
                $config
            })+
        }
    };
}

setters! {
    /// With this [`Config::backend`].
    fn with_backend(config, backend: Backend) { config.backend = backend; }
    /// With this [`Config::second_init`].
    fn with_second_init(config, second: SecondInit) { config.second_init = second; }
    /// With this [`Config::site`].
    fn with_site(config, site: Site) { config.site = Some(site); }
    /// With this [`JobConfig::join_timeout`].
    fn with_join_timeout(config, timeout: Duration) { config.join_timeout = timeout; }
    /// With this [`JobConfig::drop_timeout`].
    fn with_drop_timeout(config, timeout: Duration) { config.drop_timeout = timeout; }
    /// With this [`JobConfig::warn_after`].
    fn with_warn_after(config, silence: Duration) { config.warn_after = silence; }
    /// With this [`JobConfig::log`].
    fn with_log(config, level: LogLevel) { config.log = level; }
    /// With this [`JobConfig::checksum`].
    fn with_checksum(config, checksum: Checksum) { config.checksum = checksum; }
    /// With this [`JobConfig::call_timeout`], also as a deadline that was asked for; see
    /// [`JobConfig::has_call_timeout`].
    fn with_call_timeout(config, timeout: Duration) {
        (config.call_timeout, config.is_call_timeout_set) = (timeout, true);
    }
    /// With records of the last calls in this folder; see [`JobConfig::flight_directory`].
    fn with_flight_directory(config, directory: impl Into<PathBuf>) {
        config.flight_directory = Some(directory.into());
    }
    /// With this meeting place, `host:port`; see [`JobConfig::store`].
    fn with_store(config, store: impl Into<String>) { config.store = Some(store.into()); }
    /// With a meeting of the ranks through a store that the program brings, in place of the environment's place; see
    /// [`MeetingStore`](crate::extend::tcp::MeetingStore).
    fn with_meeting(config, store: Arc<dyn MeetingStore>) { config.set_meeting(store); }
    /// With this algorithm for all calls that it fits; see [`JobConfig::algorithm`].
    fn with_algorithm(config, name: impl Into<String>) { config.algorithm = Some(name.into()); }
    /// With one more algorithm from outside; the same on every rank. See [`JobConfig::algorithms`].
    fn with_own_algorithm(config, algorithm: Arc<Algorithm>) { config.algorithms.push(algorithm); }
}

impl Config {
    /// With this meeting place, by a URL in one of the forms of `torch.distributed`; it wins over all settings of the
    /// meeting place, the settings of `unisono run` included. All ranks give the same URL.
    ///
    /// * `env://`: as these settings say already.
    /// * `tcp://host:port`: as with `MASTER_ADDR` and `MASTER_PORT`. Rank 0 binds **the port above**: torch binds the
    ///   port that the URL names, so a program can use both. With `localhost` or a loopback address all ranks are on
    ///   this host and need no secret; otherwise the job's secret is where the settings say, see `UNISONO_SECRET_FILE`.
    /// * `file:///path`: a file that all ranks see, on one host or on a file system of several, with locks. The first
    ///   rank to lock it makes it, of mode 0600, and writes a fresh secret and its own address into it: a process
    ///   that can read the file can join. It is removed when all ranks have met. The file of a job that was killed
    ///   while it met is used again; a file with other content is refused and left alone. Ranks listen where the
    ///   default route leads, unless `UNISONO_INTERFACE`, `UNISONO_ADDRESS` or `UNISONO_LOCAL_WORLD_SIZE` says more.
    ///
    /// ```
    /// use unisono::Config;
    ///
    /// let config = Config::from_environment()?.with_init_method("tcp://localhost:29500")?.with_rank(0, 1)?;
    /// let world = unisono::init_with(&config)?;
    /// assert_eq!(world.size(), 1);
    /// # use unisono::Communicator;
    /// # Ok::<(), unisono::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another URL, and for a path at which no file can
    /// be.
    #[doc(alias = "init_method")]
    #[track_caller]
    pub fn with_init_method(mut self, url: &str) -> Result<Config> {
        let site = Site::caller();
        self.job.set_init_method(url).map_err(|error| at("with_init_method", site, error))?;
        Ok(self)
    }

    /// With this rank, from 0, of so many, in place of the environment's. Variables about this host, such as the local
    /// rank, hold as long as the environment names as many ranks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a number out of range.
    #[track_caller]
    pub fn with_rank(mut self, rank: u32, world_size: u32) -> Result<Config> {
        let site = Site::caller();
        self.job.set_rank(rank, world_size).map_err(|error| at("with_rank", site, error))?;
        Ok(self)
    }

    /// The settings in this process's environment.
    ///
    /// # Errors
    /// [`Error::Configuration`](crate::Error::Configuration) for the first value that cannot be obeyed.
    pub fn from_environment() -> Result<Config> {
        let unknown = unknown_names(environment().map(|(name, _)| name));
        let config = Config::from_source(&Source::of_environment(GROUPS));
        // A variable that is said to be missing may have been misspelt.
        let config = config.inspect_err(|_| warn_of(&unknown))?;
        Ok(Config { unknown, ..config })
    }

    /// The settings that `lookup` gives, in place of the environment's.
    ///
    /// # Errors
    /// As [`Config::from_environment`].
    pub fn from_lookup(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Config> {
        Config::from_source(&Source::new(&|name| lookup(name).map(OsString::from), GROUPS))
    }

    fn from_source(source: &Source<'_>) -> Result<Config> {
        Ok(Config {
            backend: source.needed("UNISONO_BACKEND", &UnknownBackend.to_string(), |_| true)?,
            second_init: SecondInit::default(),
            site: None,
            #[cfg(feature = "ccl")]
            ccl: CclSettings::from_source(source),
            #[cfg(feature = "nccl")]
            nccl: NcclSettings::from_source(source),
            #[cfg(feature = "hccl")]
            hccl: HcclSettings::from_source(source),
            #[cfg(feature = "offload")]
            devices: DeviceSettings::from_source(source)?,
            unknown: Vec::new(),
            job: JobConfig::from_source(source)?,
        })
    }

    /// Checks everything that can be known before other ranks are met; see [`JobConfig::check`].
    ///
    /// # Errors
    /// As [`JobConfig::check`].
    pub fn check(&self) -> Result<()> {
        self.check_backend()?;
        self.job.check()
    }

    fn check_backend(&self) -> Result<()> {
        #[cfg(feature = "ccl")]
        self.ccl.check()?;
        #[cfg(feature = "nccl")]
        self.nccl.check()?;
        #[cfg(feature = "hccl")]
        self.hccl.check()?;
        if self.backend != Backend::Ccl {
            return Ok(());
        }
        let from_outside = self.algorithms.first().map(|algorithm| algorithm.name);
        self.algorithm.as_deref().or(from_outside).map_or(Ok(()), |algorithm| {
            let problem = "oneCCL chooses among algorithms of its own; unset it, or set UNISONO_BACKEND=tcp";
            Err(configuration("UNISONO_ALGORITHM", algorithm, problem))
        })
    }

    /// Prepares everything else: from here on warnings go where the user wants them, misspelt variables are reported,
    /// and settings that a backend cannot obey are refused. The ranks of a launcher mostly have the same environment,
    /// so rank 0 speaks for all; ranks that are started by hand have their own each.
    pub(crate) fn prepare(&self) -> Result<()> {
        set_log_level(self.log);
        if self.placement.rank() == 0 || self.is_started_by_hand() {
            warn_of(&self.unknown);
        }
        self.check_backend().inspect_err(|error| self.tell_launcher(error))
    }

    /// Joins the job over TCP. Ranks compare the backend.
    pub(crate) fn join(&self) -> Result<Job> {
        let mut job = self.job.clone();
        job.backend = self.backend.to_string();
        Job::join(&job, &Tcp { memory: true })
    }

    /// The number of the device that this rank works on, of so many: the number that is set, else one device for each
    /// rank of the host in turn.
    #[cfg(feature = "offload")]
    pub fn device(&self, devices: u32) -> u32 {
        let in_turn =
            || self.placement.local_rank().unwrap_or_else(|| self.placement.rank()) % devices.max(1);
        self.devices.number.unwrap_or_else(in_turn)
    }
}
