//! Settings: the type of their rows, and how single values are read and checked. Each part of the library brings its
//! own rows, and reads them from a [`Source`]; `unisono` makes one table of all. No other file reads the environment.
//!
//! A value that cannot be obeyed is an error that names variable, value and problem. An empty variable is absent.

#![expect(clippy::disallowed_methods, reason = "the one file that reads the environment")]

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, Result};

/// The title of the settings that the job, vendors' libraries and the choice of a backend bring.
pub const HOW_CALLS_ARE_DONE: &str = "How calls are done";

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// The environment variable.
    pub name: &'static str,
    /// The unit of a number, or the form of a text.
    pub unit: &'static str,
    /// The value when nothing is set, in the same form; empty for none.
    pub default: &'static str,
    /// Variables of other tools that are read when ours is not set, first match wins. Their values have the same form;
    /// only `DEEPSPEED_TIMEOUT` is in minutes.
    pub also: &'static [&'static str],
    /// The purpose of the setting.
    pub doc: &'static str,
}

/// Settings that belong together, of one owner. Groups of one title stand together.
#[derive(Clone, Copy, Debug)]
pub struct KnobGroup {
    /// The common subject of the settings.
    pub title: &'static str,
    /// These settings.
    pub knobs: &'static [Knob],
}

/// A row.
pub const fn knob(
    name: &'static str,
    unit: &'static str,
    default: &'static str,
    also: &'static [&'static str],
    doc: &'static str,
) -> Knob {
    Knob { name, unit, default, also, doc }
}

/// The settings of these groups, one after the other.
pub fn knobs(groups: &[KnobGroup]) -> impl Iterator<Item = &'static Knob> {
    groups.iter().flat_map(|group| group.knobs)
}

/// The longest duration, in its unit: far from every overflow, and longer than anybody waits.
const DURATION_UNITS_MAX: f64 = 1e9;

/// Variables of other tools whose times are in minutes, although the row has another unit.
const IN_MINUTES: [&str; 1] = ["DEEPSPEED_TIMEOUT"];

const SECONDS_PER_MINUTE: f64 = 60.0;

/// A lookup that knows the rows of some settings. Only their names are looked up, and names of other tools.
pub struct Source<'a> {
    /// A path may be no UTF-8.
    lookup: &'a dyn Fn(&str) -> Option<OsString>,
    groups: &'a [KnobGroup],
    found_as: RefCell<Vec<(&'static str, String)>>,
}

impl<'a> Source<'a> {
    /// The settings of these rows, as `lookup` has them.
    pub fn new(lookup: &'a dyn Fn(&str) -> Option<OsString>, groups: &'a [KnobGroup]) -> Source<'a> {
        Source { lookup, groups, found_as: RefCell::default() }
    }

    /// The settings of these rows, as the environment of this process has them.
    pub fn of_environment(groups: &'a [KnobGroup]) -> Source<'a> {
        Source::new(&|name| std::env::var_os(name), groups)
    }

    /// The settings that have been found under a name of another tool, and that name.
    pub fn found_as(&self) -> Vec<(&'static str, String)> {
        self.found_as.borrow().clone()
    }

    /// Whether somebody has set the variable, be it to the default, or a variable that is read in its place.
    pub fn is_set(&self, name: &str) -> bool {
        let also = self.row(name).map_or(&[][..], |knob| knob.also);
        std::iter::once(name).chain(also.iter().copied()).any(|name| self.value(name).is_some())
    }

    /// The name under which a setting is found, and its value or default. A value that is no text becomes a text that
    /// its parser refuses, by name.
    pub fn find(&self, name: &str) -> Option<(String, String)> {
        self.find_bytes(name).map(|(name, value)| (name, lossy(value)))
    }

    fn value(&self, name: &str) -> Option<OsString> {
        (self.lookup)(name).filter(|value| !value.is_empty())
    }

    fn row(&self, name: &str) -> Option<&'static Knob> {
        knobs(self.groups).find(|knob| knob.name == name)
    }

    fn find_bytes(&self, name: &str) -> Option<(String, OsString)> {
        let knob = self.row(name)?;
        let names = std::iter::once(&knob.name).chain(knob.also);
        let set = names.filter_map(|name| Some((name.to_string(), self.value(name)?))).next();
        if let Some((variable, _)) = set.as_ref().filter(|(variable, _)| variable != knob.name) {
            let mut found_as = self.found_as.borrow_mut();
            if !found_as.iter().any(|(known, _)| *known == knob.name) {
                found_as.push((knob.name, variable.clone()));
            }
        }
        let default = || (knob.name.to_string(), knob.default.into());
        set.or_else(|| (!knob.default.is_empty()).then(default))
    }

    /// A text.
    pub fn text(&self, name: &str) -> Option<String> {
        self.find(name).map(|(_, value)| value)
    }

    /// A path, which may be no text.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.find_bytes(name).map(|(_, value)| value.into())
    }

    /// A variable of another tool, outside the table.
    pub fn foreign(&self, name: &str) -> Option<String> {
        self.value(name).map(lossy)
    }

    /// The same for a path.
    pub fn foreign_path(&self, name: &str) -> Option<PathBuf> {
        self.value(name).map(PathBuf::from)
    }

    /// A value that has a type; `None` without value and default.
    ///
    /// # Errors
    /// [`Error::Configuration`] with this problem for a value that is none of the type or does not fit. So it is for
    /// all that follow.
    pub fn parse<T: FromStr>(
        &self,
        name: &str,
        problem: &str,
        fits: impl Fn(&T) -> bool,
    ) -> Result<Option<T>> {
        self.find(name).map(|(name, value)| parse(&name, &value, problem, fits)).transpose()
    }

    /// The same of a setting that has a default.
    ///
    /// # Errors
    /// As [`Source::parse`]; the same error for a setting without value and default.
    pub fn needed<T: FromStr>(&self, name: &str, problem: &str, fits: impl Fn(&T) -> bool) -> Result<T> {
        let absent = || configuration(name, "", "it has neither a value nor a default");
        self.parse(name, problem, fits)?.ok_or_else(absent)
    }

    /// A whole number.
    ///
    /// # Errors
    /// As [`Source::parse`].
    pub fn number(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>> {
        self.parse(name, &format!("a whole number from {least} to {most} is needed"), |number| {
            (least..=most).contains(number)
        })
    }

    /// A time in the row's unit: `us`, `ms` or `s`. The variable of another tool may be in minutes.
    ///
    /// # Errors
    /// As [`Source::needed`].
    pub fn duration(&self, name: &str) -> Result<Duration> {
        let is_in_minutes =
            self.find(name).is_some_and(|(variable, _)| IN_MINUTES.contains(&variable.as_str()));
        let unit = if is_in_minutes { "min" } else { self.row(name).map_or("s", |knob| knob.unit) };
        let (units, scale, most) = match unit {
            "us" => ("microseconds", 1e-6, DURATION_UNITS_MAX),
            "ms" => ("milliseconds", 1e-3, DURATION_UNITS_MAX),
            "min" => ("minutes", SECONDS_PER_MINUTE, DURATION_UNITS_MAX / SECONDS_PER_MINUTE),
            _ => ("seconds", 1.0, DURATION_UNITS_MAX),
        };
        let problem = format!("a number of {units} above 0 is needed");
        let fits = |number: &f64| *number > 0.0 && *number <= most;
        self.needed(name, &problem, fits).map(|number| Duration::from_secs_f64(number * scale))
    }

    /// One of these texts.
    ///
    /// # Errors
    /// As [`Source::needed`].
    pub fn choice(&self, name: &str, choices: &[&str]) -> Result<String> {
        let problem = format!("one of {} is needed", choices.join(", "));
        self.needed(name, &problem, |value: &String| choices.contains(&value.as_str()))
    }
}

/// Names and values of all variables of this process that have a value, as texts.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    let set = std::env::vars_os().filter(|(_, value)| !value.is_empty());
    set.map(|(name, value)| (lossy(name), lossy(value)))
}

fn lossy(value: OsString) -> String {
    value.to_string_lossy().into_owned()
}

/// Parses the value of any variable.
///
/// # Errors
/// As [`Source::parse`].
pub fn parse<T: FromStr>(name: &str, value: &str, problem: &str, fits: impl Fn(&T) -> bool) -> Result<T> {
    match value.trim().parse() {
        Ok(parsed) if fits(&parsed) => Ok(parsed),
        _ => Err(configuration(name, value, problem)),
    }
}

/// Whether a library's file or folder, as a setting or a program names it, means the same everywhere. Whether it is
/// there is found out together with the other ranks, of which some may have it.
///
/// # Errors
/// [`Error::Configuration`] for a relative path.
pub fn check_absolute(name: &str, path: Option<&Path>) -> Result<()> {
    let problem = "an absolute path is needed: what it means must not depend on the working directory";
    let relative = path.filter(|path| !path.is_absolute());
    relative.map_or(Ok(()), |path| Err(configuration(name, &path.display().to_string(), problem)))
}

/// The error of a setting that cannot be obeyed.
pub fn configuration(name: &str, value: &str, problem: impl Into<String>) -> Error {
    Error::Configuration { name: name.into(), value: value.into(), problem: problem.into() }
}
