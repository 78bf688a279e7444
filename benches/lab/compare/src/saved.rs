//! The folder of a run's results, with its records and figures as JSON files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::problem::{Problem, Result, While};

pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).during(path.display().to_string())?;
    serde_json::from_str(&text).map_err(|error| Problem::Refused(format!("{}: {error}", path.display())))
}

pub(crate) fn save(path: &Path, document: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec_pretty(document)
        .map_err(|error| Problem::Refused(format!("{}: {error}", path.display())))?;
    fs::write(path, text).during(path.display().to_string())
}

/// The folder that the user names, or a new one in `parent`.
pub(crate) fn new_folder_of_results(named: Option<PathBuf>, parent: &str) -> Result<PathBuf> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let out = named.unwrap_or_else(|| Path::new(parent).join(seconds.to_string()));
    fs::create_dir_all(&out).during(out.display().to_string())?;
    Ok(out)
}
