//! `unisono doctor`: the records of a failed job, or the variables that give this process its rank, or this machine and
//! the causes of slowness on it.

mod circle;
mod culprit;
mod discovery;
mod folder;
mod machine;
mod merge;
mod table;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use unisono::flight::FlightRecord;

use crate::arguments::DoctorArguments;
use crate::print;
use crate::problem::{Problem, Result};
use folder::{Left, read_folder};
pub(crate) use machine::single_copy::read_parent;
use merge::{culprit, merge, ranks_text};

/// `unisono doctor`.
pub(crate) fn doctor(arguments: &DoctorArguments) -> Result<()> {
    match &arguments.flight {
        Some(folder) => job(folder, arguments.json),
        None if arguments.discovery => discovery::discovery(arguments.json),
        None => machine::machine(arguments.ranks, arguments.json),
    }
}

/// Says which rank is where. A record that cannot be read is named on standard error, and makes the status 1.
fn job(folder: &Path, json: bool) -> Result<()> {
    let Left { records, unreadable, earlier } = read_folder(folder)?;
    for line in unreadable.iter().chain(&earlier) {
        print::tell(line);
    }
    if records.is_empty() {
        return Err(Problem::reported());
    }
    let verdicts = merge(&records).map_err(|problem| Problem::failed(folder.display(), problem))?;
    if json {
        print::document(&verdicts)?;
    } else {
        print::line(&format!("{}\n{}", summary(&records), table::table(&verdicts)))?;
        verdicts.iter().try_for_each(|verdict| print::line(&verdict.text))?;
        // Last, where a reader of long lines looks.
        culprit(&verdicts).map_or(Ok(()), |culprit| print::line(&format!("the culprit: {culprit}")))?;
    }
    if unreadable.is_empty() { Ok(()) } else { Err(Problem::reported()) }
}

/// The ranks that have records, and the age of these.
fn summary(records: &[FlightRecord]) -> String {
    let ranks: Vec<u32> = records.iter().map(|record| record.rank).collect();
    let written_ms = records.iter().map(|record| record.written_ms).max().unwrap_or_default();
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let ago_s = now_ms.saturating_sub(written_ms) / 1_000;
    let ago = match ago_s {
        0..120 => format!("{ago_s} s"),
        120..7_200 => format!("{} min", ago_s / 60),
        7_200..172_800 => format!("{} h", ago_s / 3_600),
        _ => format!("{} days", ago_s / 86_400),
    };
    let time = table::time_of_day(written_ms);
    format!(
        "job {}: records of {}, the last written {ago} ago, at {time} UTC",
        records[0].job,
        ranks_text(&ranks)
    )
}
