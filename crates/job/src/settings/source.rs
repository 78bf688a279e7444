//! Reads and checks single values.

use std::cell::RefCell;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use unisono_communicator::{Error, LogLevel, Result};

use super::knobs::knob_named;

/// Looks a variable up; a path may be no UTF-8.
pub(crate) type Values<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The largest size that a setting can ask for.
const BYTES_MAX: u64 = 1 << 30;

/// A direction must hold the largest element, or calls in place wait for each other.
const BUFFER_BYTES_MIN: u64 = 128 << 10;

/// The longest duration, in its unit: far from every overflow, and longer than anybody waits.
const DURATION_UNITS_MAX: f64 = 1e9;

/// A lookup that knows the table.
pub(crate) struct Source<'a> {
    lookup: Values<'a>,
    /// See [`crate::config::Config::found_as`].
    found_as: RefCell<Vec<(&'static str, String)>>,
}

impl Source<'_> {
    pub(crate) fn new(lookup: Values<'_>) -> Source<'_> {
        Source { lookup, found_as: RefCell::default() }
    }

    pub(crate) fn found_as(&self) -> Vec<(&'static str, String)> {
        self.found_as.take()
    }

    /// The name under which a setting is found, and its value or default. A value that is no text becomes a text that
    /// its parser refuses, by name.
    pub(crate) fn find(&self, name: &str) -> Option<(String, String)> {
        self.find_bytes(name).map(|(name, value)| (name, lossy(value)))
    }

    fn find_bytes(&self, name: &str) -> Option<(String, OsString)> {
        let knob = knob_named(name)?;
        let names = std::iter::once(&knob.name).chain(knob.also);
        let set = names.filter_map(|name| Some((name.to_string(), (self.lookup)(name)?))).next();
        if let Some((variable, _)) = set.as_ref().filter(|(variable, _)| variable != knob.name) {
            let mut found_as = self.found_as.borrow_mut();
            if !found_as.iter().any(|(known, _)| *known == knob.name) {
                found_as.push((knob.name, variable.clone()));
            }
        }
        let default = || (knob.name.to_string(), knob.default.into());
        set.or_else(|| (!knob.default.is_empty()).then(default))
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.find(name).map(|(_, value)| value)
    }

    /// A path, which may be no text.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.find_bytes(name).map(|(_, value)| value.into())
    }

    /// A variable of another tool, outside the table.
    pub(crate) fn foreign(&self, name: &str) -> Option<String> {
        (self.lookup)(name).map(lossy)
    }

    pub(crate) fn parse<T: FromStr>(
        &self,
        name: &str,
        problem: &str,
        fits: impl Fn(&T) -> bool,
    ) -> Result<Option<T>> {
        self.find(name).map(|(name, value)| parse(&name, &value, problem, fits)).transpose()
    }

    pub(crate) fn number(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>> {
        self.parse(name, &format!("a whole number from {least} to {most} is needed"), |number| {
            (least..=most).contains(number)
        })
    }

    pub(crate) fn unsent_bytes(&self) -> Result<u32> {
        self.bytes("UNISONO_UNSENT_BYTES", 4 << 10)
    }

    pub(crate) fn piece_bytes(&self) -> Result<u32> {
        self.bytes("UNISONO_PIECE_BYTES", 1)
    }

    fn bytes(&self, name: &str, least: u64) -> Result<u32> {
        let number = self.number(name, least, BYTES_MAX)?;
        number.map(|number| number as u32).ok_or_else(|| without_value(name))
    }

    /// `None` for 0.
    pub(crate) fn buffer_bytes(&self, name: &str) -> Result<Option<u32>> {
        let problem = format!("0, or a whole number from {BUFFER_BYTES_MIN} to {BYTES_MAX} is needed");
        let is_good = |number: &u64| *number == 0 || (BUFFER_BYTES_MIN..=BYTES_MAX).contains(number);
        let number = self.parse(name, &problem, is_good)?;
        Ok(number.filter(|&number| number > 0).map(|number| number as u32))
    }

    pub(crate) fn address(&self, name: &str) -> Result<Option<IpAddr>> {
        let problem = "an IP address that other ranks can dial is needed";
        self.parse(name, problem, |address: &IpAddr| !address.is_unspecified() && !address.is_multicast())
    }

    pub(crate) fn duration(&self, name: &str) -> Result<Duration> {
        let unit = knob_named(name).map_or("s", |knob| knob.unit);
        let (units, scale) = match unit {
            "us" => ("microseconds", 1e-6),
            "ms" => ("milliseconds", 1e-3),
            _ => ("seconds", 1.0),
        };
        let problem = format!("a number of {units} above 0 is needed");
        let number =
            self.parse(name, &problem, |number: &f64| *number > 0.0 && *number <= DURATION_UNITS_MAX)?;
        number.map(|number| Duration::from_secs_f64(number * scale)).ok_or_else(|| without_value(name))
    }

    pub(crate) fn log_level(&self, name: &str) -> Result<LogLevel> {
        let problem = format!("one of {} is needed", LogLevel::NAMES.join(", "));
        self.parse(name, &problem, |_: &LogLevel| true)?.ok_or_else(|| without_value(name))
    }

    pub(crate) fn choice(&self, name: &str, choices: &[&str]) -> Result<String> {
        let problem = format!("one of {} is needed", choices.join(", "));
        let value = self.parse(name, &problem, |value: &String| choices.contains(&value.as_str()))?;
        value.ok_or_else(|| without_value(name))
    }
}

fn lossy(value: OsString) -> String {
    value.to_string_lossy().into_owned()
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

pub(crate) fn without_value(name: &str) -> Error {
    configuration(name, "", "it has neither a value nor a default")
}
