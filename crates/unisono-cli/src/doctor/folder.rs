//! The files of a folder with flight records: which of them count, and a line for each that does not.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use unisono_job::flight::{FlightRecord, LIBRARY, VERSION};
use unisono_job::read_regular;

use crate::problem::{Problem, Result};

/// The files that ranks have left in a folder.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// The records of the last run, in the order of ranks.
    pub(super) records: Vec<FlightRecord>,
    /// One line for each file that should be a record and cannot be read.
    pub(super) unreadable: Vec<String>,
    /// One line for the records of earlier runs, if there are any.
    pub(super) earlier: Option<String>,
}

/// The advice when there is nothing to read.
const REMEDY: &str = "a rank writes its record there when its job fails, if UNISONO_FLIGHT_DIR names the folder: \
                      UNISONO_FLIGHT_DIR=DIR unisono run -n 4 ./program; World::dump_flight writes one at any time";

/// Reads the folder.
///
/// # Errors
/// When it cannot be listed, or holds nothing that could be a record.
pub(super) fn read_folder(folder: &Path) -> Result<Left> {
    let failed = |error| Problem::failed(folder.display(), error);
    let mut names: Vec<String> = Vec::new();
    for file in std::fs::read_dir(folder).map_err(failed)? {
        names.push(file.map_err(failed)?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    let mut left = Left::default();
    for name in names {
        let read = match kind(&name) {
            Kind::Record(rank) => read(&folder.join(&name), rank),
            Kind::Partial => Err("half-written: the process ended while it wrote".to_owned()),
            Kind::Other => continue,
        };
        match read {
            Ok(record) => left.records.push(record),
            Err(problem) => left.unreadable.push(format!("{}: {problem}", folder.join(name).display())),
        }
    }
    if left.records.is_empty() && left.unreadable.is_empty() {
        return Err(Problem::failed(
            folder.display(),
            format!("no rank has left a rank-N.json here; {REMEDY}"),
        ));
    }
    left.keep_last_run();
    left.records.sort_by_key(|record| record.rank);
    Ok(left)
}

impl Left {
    /// Folders are used again: of several runs only the run with the newest record counts.
    fn keep_last_run(&mut self) {
        let Some(newest) = self.records.iter().max_by_key(|record| record.written_ms) else { return };
        let job = newest.job.clone();
        let (last, earlier): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.records).into_iter().partition(|record| record.job == job);
        self.records = last;
        if !earlier.is_empty() {
            let names: Vec<String> = earlier.iter().map(|one| FlightRecord::file_name(one.rank)).collect();
            self.earlier = Some(format!("left out, of an earlier run: {}", names.join(", ")));
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// The record of this rank.
    Record(u32),
    /// A file that a rank writes before it gives the file its name.
    Partial,
    Other,
}

/// A rank with thousands of communicators writes less.
const RECORD_BYTES_MAX: u64 = 1 << 30;

fn kind(name: &str) -> Kind {
    let Some(rest) = name.strip_prefix("rank-") else { return Kind::Other };
    let rank = rest.strip_suffix(".json").and_then(|rank| rank.parse().ok());
    match rank.filter(|&rank| FlightRecord::file_name(rank) == name) {
        Some(rank) => Kind::Record(rank),
        None if rest.ends_with(".partial") => Kind::Partial,
        None => Kind::Other,
    }
}

fn read(path: &Path, rank: u32) -> Result<FlightRecord, String> {
    let bytes = read_regular(path, RECORD_BYTES_MAX).map_err(|error| error.to_string())?;
    // Checked first: a record of another version may lack any field.
    let Origin { version, comm_lib_version: library } = parse(&bytes)?;
    if version != VERSION || !library.starts_with(LIBRARY) {
        return Err(match version.is_empty() {
            true => "no flight record".to_owned(),
            false => format!("version {version:?} by {library:?}, not {VERSION:?} by {LIBRARY:?}"),
        });
    }
    let record: FlightRecord = parse(&bytes)?;
    if record.rank == rank { Ok(record) } else { Err(format!("the record of rank {}", record.rank)) }
}

/// The library that wrote a file, and its version.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Origin {
    version: String,
    comm_lib_version: String,
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("no flight record: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_regular_file() {
        assert_eq!(read("/dev/zero".as_ref(), 0).unwrap_err(), "it is not a regular file");
    }

    #[test]
    fn only_whole_records_are_read() {
        assert_eq!((kind("rank-0.json"), kind("rank-17.json")), (Kind::Record(0), Kind::Record(17)));
        assert_eq!(kind("rank-1.77-0.partial"), Kind::Partial);
        for name in ["rank-.json", "rank-+1.json", "rank-01.json", "rank-1", "1.json", "x.partial"] {
            assert_eq!(kind(name), Kind::Other, "{name}");
        }
    }
}
