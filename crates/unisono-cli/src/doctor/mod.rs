//! `unisono doctor`: reads the flight records of a job, and says which rank is at which call.

mod merge;

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use unisono::flight::{FlightRecord, LIBRARY, VERSION};

use crate::arguments::DoctorArguments;
use crate::print;
use crate::problem::{Problem, Result};
use merge::merge;

/// `unisono doctor`.
pub(crate) fn doctor(arguments: &DoctorArguments) -> Result<()> {
    let folder = &arguments.flight;
    let records = read_folder(folder)?;
    let verdicts = merge(&records).map_err(|problem| Problem::failed(folder.display(), problem))?;
    if arguments.json {
        return print::document(&verdicts);
    }
    verdicts.iter().try_for_each(|verdict| print::line(&verdict.text))
}

/// Every record of the folder, in the order of ranks.
fn read_folder(folder: &Path) -> Result<Vec<FlightRecord>> {
    let failed = |error| Problem::failed(folder.display(), error);
    let mut records = Vec::new();
    for file in std::fs::read_dir(folder).map_err(failed)? {
        let file = file.map_err(failed)?;
        if let Some(rank) = file.file_name().to_str().and_then(rank_of) {
            let path = file.path();
            records.push(read(&path, rank).map_err(|problem| Problem::failed(path.display(), problem))?);
        }
    }
    if records.is_empty() {
        let problem = "there is no rank-N.json; ranks write them with UNISONO_FLIGHT_DIR";
        return Err(Problem::failed(folder.display(), problem));
    }
    records.sort_by_key(|record| record.rank);
    Ok(records)
}

/// The rank in the name of a record; `None` for other files.
fn rank_of(name: &str) -> Option<u32> {
    let rank = name.strip_prefix("rank-")?.strip_suffix(".json")?.parse().ok()?;
    (FlightRecord::file_name(rank) == name).then_some(rank)
}

fn read(path: &Path, rank: u32) -> Result<FlightRecord, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    // Checked first: a record of another version may lack any field.
    let Origin { version, comm_lib_version: library } = parse(&bytes)?;
    if version != VERSION || !library.starts_with(LIBRARY) {
        return Err(format!("version {version:?} by {library:?}, not {VERSION:?} by {LIBRARY:?}"));
    }
    let record: FlightRecord = parse(&bytes)?;
    if record.rank == rank { Ok(record) } else { Err(format!("the record of rank {}", record.rank)) }
}

/// Which library wrote a file, and in which version.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Origin {
    version: String,
    comm_lib_version: String,
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_records_are_read() {
        assert_eq!((rank_of("rank-0.json"), rank_of("rank-17.json")), (Some(0), Some(17)));
        for name in ["rank-.json", "rank-+1.json", "rank-01.json", "rank-1.77-0.partial", "rank-1", "1.json"]
        {
            assert_eq!(rank_of(name), None, "{name}");
        }
    }
}
