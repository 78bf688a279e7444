//! The checks that are possible only on this machine, or of several settings together. Every process passes here before
//! it joins, alone or not: a program must not start to complain when it gets a second rank.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use unisono_communicator::{AlgorithmName, Error, Result, set_log_level};
use unisono_control::intervals::{BEATS_MIN, Intervals};
use unisono_engine::EngineOptions;

use super::Config;
use crate::rendezvous::{address_of_interface, at_own, interfaces_text, split_store, wanted_interfaces};
use crate::settings::knobs;
use crate::sockets::{SocketOptions, new_socket, set_congestion_control};

impl Config {
    /// Prepares everything else: from here on warnings go where the user wants them, and settings that cannot be obeyed
    /// are refused.
    ///
    /// # Errors
    /// As [`Config::check`].
    pub fn prepare(&self) -> Result<()> {
        set_log_level(self.log);
        self.check()
    }

    /// Checks everything that can be known before other ranks are met. Makes the folder of flight records.
    ///
    /// # Errors
    /// [`Error::Configuration`] for the first value that cannot be obeyed; [`Error::AlgorithmRefused`] for one of
    /// [`Config::algorithms`] whose name is none or is taken.
    pub fn check(&self) -> Result<()> {
        self.check_values()?;
        self.check_algorithm()?;
        self.job_settings()?;
        self.check_store()?;
        self.check_secret()?;
        self.check_addresses()?;
        self.check_congestion_control()?;
        self.flight_directory.as_deref().map_or(Ok(()), |directory| self.check_flight_directory(directory))
    }

    /// The rules of the variables, on the fields: a program may have changed these.
    fn check_values(&self) -> Result<()> {
        let in_units = |duration: Duration, units: f64| Some((duration.as_secs_f64() * units).to_string());
        let texts = [
            ("UNISONO_CALL_TIMEOUT_S", in_units(self.call_timeout, 1.0)),
            ("UNISONO_WARN_AFTER_S", in_units(self.warn_after, 1.0)),
            ("UNISONO_JOIN_TIMEOUT_S", in_units(self.join_timeout, 1.0)),
            ("UNISONO_HANDSHAKE_TIMEOUT_MS", in_units(self.handshake_timeout, 1e3)),
            ("UNISONO_DROP_TIMEOUT_MS", in_units(self.drop_timeout, 1e3)),
            ("UNISONO_HEARTBEAT_MS", in_units(self.heartbeat, 1e3)),
            ("UNISONO_SUSPECT_AFTER_MS", in_units(self.suspect_after, 1e3)),
            ("UNISONO_PROBE_DELAY_MS", in_units(self.probe_delay, 1e3)),
            ("UNISONO_SPIN_US", in_units(self.spin, 1e6)),
            ("UNISONO_ADDRESS", self.address.map(|address| address.to_string())),
            ("UNISONO_UNSENT_BYTES", Some(self.unsent_bytes.to_string())),
            ("UNISONO_PIECE_BYTES", Some(self.piece_bytes.to_string())),
            ("UNISONO_SOCKET_BUFFER_BYTES", self.socket_buffer_bytes.map(|bytes| bytes.to_string())),
        ];
        // Under our own names: another tool's variable may have another unit, and its value has passed the rules.
        let text = |asked: &str| texts.iter().find(|(name, _)| *name == asked)?.1.clone();
        Config::from_lookup(&text)?;
        if (Intervals { beat: self.heartbeat, suspect: self.suspect_after }).are_safe() {
            return Ok(());
        }
        let problem = format!(
            "{BEATS_MIN} heartbeats must fit in UNISONO_SUSPECT_AFTER_MS, which is {}, or one late beat makes a rank \
             count as lost",
            milliseconds(self.suspect_after)
        );
        Err(self.refused("UNISONO_HEARTBEAT_MS", &milliseconds(self.heartbeat), problem))
    }

    fn check_algorithm(&self) -> Result<()> {
        let options = EngineOptions {
            algorithm: self.algorithm.as_deref().map(AlgorithmName::new),
            register: self.algorithms.clone(),
            ..EngineOptions::default()
        };
        options.configured()?;
        options.check().map_err(|error| match error {
            Error::InvalidArgument { problem, .. } => {
                self.refused("UNISONO_ALGORITHM", self.algorithm.as_deref().unwrap_or_default(), problem)
            }
            other => other,
        })
    }

    fn check_store(&self) -> Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        split_store(store).map(drop).map_err(|problem| self.refused("UNISONO_STORE", store, problem))
    }

    fn check_secret(&self) -> Result<()> {
        let Some(source) = &self.secret else { return Ok(()) };
        let (name, value) = source.setting();
        source.check().map_err(|error| self.refused(name, &value, problem_of(&error)))
    }

    fn check_addresses(&self) -> Result<()> {
        if let Some(address) = self.address {
            check_ours(address)
                .map_err(|problem| self.refused("UNISONO_ADDRESS", &address.to_string(), problem))?;
        }
        // A rank with an address needs no interface; a setting that can only be ignored is refused all the same.
        wanted_interfaces(self).map_or(Ok(()), |wanted| address_of_interface(wanted).map(drop))
    }

    fn check_congestion_control(&self) -> Result<()> {
        let name = "UNISONO_CONGESTION_CONTROL";
        let Some(wanted) = &self.congestion_control else { return Ok(()) };
        // A system without the default one keeps its own.
        if knobs().any(|knob| knob.name == name && knob.default == wanted) {
            return Ok(());
        }
        let options = SocketOptions { buffer_bytes: None, unsent_bytes: self.unsent_bytes };
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket =
            new_socket(loopback, options).map_err(|error| Error::system("cannot make a socket", &error))?;
        set_congestion_control(&socket, wanted).map_err(|error| {
            // The congestion controls that an unprivileged user may choose; root may choose all that the kernel has.
            let path = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
            let allowed = fs::read_to_string(path).unwrap_or_default();
            let allowed = allowed.split_whitespace().collect::<Vec<_>>().join(", ");
            self.refused(name, wanted, format!("{error}; every user may choose system, or one of {allowed}"))
        })
    }

    #[cfg(not(feature = "serde"))]
    fn check_flight_directory(&self, directory: &Path) -> Result<()> {
        let problem = format!("{}, which flight records need", crate::flight::NO_WRITER);
        Err(self.refused("UNISONO_FLIGHT_DIR", &directory.display().to_string(), problem))
    }

    #[cfg(feature = "serde")]
    fn check_flight_directory(&self, directory: &Path) -> Result<()> {
        let usable = || -> std::io::Result<()> {
            fs::create_dir_all(directory)?;
            let needed = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
            Ok(rustix::fs::access(directory, needed)?)
        };
        usable().map_err(|error| {
            let problem = format!("flight records cannot be written there: {error}");
            self.refused("UNISONO_FLIGHT_DIR", &directory.display().to_string(), problem)
        })
    }
}

fn check_ours(address: IpAddr) -> Result<(), String> {
    let bound = UdpSocket::bind(at_own(address)?).map(drop);
    bound.map_err(|error| format!("this host cannot listen there: {error}; it has {}", interfaces_text()))
}

fn problem_of(error: &Error) -> String {
    match error {
        Error::System { text, .. } => text.clone(),
        other => other.to_string(),
    }
}

fn milliseconds(duration: Duration) -> String {
    (duration.as_secs_f64() * 1e3).to_string()
}
