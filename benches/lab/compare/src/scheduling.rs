//! How measured processes are scheduled, and how this program stays in charge of them.
//!
//! Under SCHED_RR the ranks have priority 5 and this program 6: it sleeps while they work, but must be able to stop
//! ranks that spin. The slice is set to that of plain scheduling, so that ranks that outnumber the cores and spin
//! hurt each other as they do there.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use crate::guard::Guard;
use crate::plan::Scheduling;
use crate::problem::{Problem, Result, While};

const RANK_PRIORITY: &str = "5";
const OWN_PRIORITY: &str = "6";
const SLICE_FILE: &str = "/proc/sys/kernel/sched_rr_timeslice_ms";
const SLICE_MS: &str = "4";

/// The words before a command whose processes are scheduled so.
pub(crate) fn entering(scheduling: Scheduling) -> Vec<String> {
    let words: &[&str] = match scheduling {
        Scheduling::RoundRobin => &["chrt", "--rr", RANK_PRIORITY],
        Scheduling::Plain | Scheduling::Busy => &["chrt", "--other", "0"],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// One comparison at a time: two would measure each other, and restore each other's slice. Held until it is dropped.
pub(crate) fn lock_machine() -> Result<File> {
    // The setting itself is what all comparisons on this machine have in common.
    let file = File::open(SLICE_FILE).during(SLICE_FILE)?;
    if file.try_lock().is_err() {
        eprintln!("another comparison is running: waiting for its end");
        file.lock().during("waiting for another comparison")?;
    }
    Ok(file)
}

/// This program's own scheduling and the machine's slice, restored at the end.
#[derive(Debug)]
pub(crate) struct InCharge<'a> {
    slice: Option<String>,
    guard: &'a Guard,
}

impl<'a> InCharge<'a> {
    pub(crate) fn take(scheduling: Scheduling, guard: &'a Guard) -> Result<InCharge<'a>> {
        match scheduling {
            Scheduling::Plain | Scheduling::Busy => Ok(InCharge { slice: None, guard }),
            Scheduling::RoundRobin => {
                let slice = fs::read_to_string(SLICE_FILE).during(SLICE_FILE)?.trim().to_owned();
                guard.slice_was(&slice)?;
                let in_charge = InCharge { slice: Some(slice), guard };
                write_slice(SLICE_MS)?;
                schedule_this_program(&["--rr", "--pid", OWN_PRIORITY])?;
                Ok(in_charge)
            }
        }
    }
}

impl Drop for InCharge<'_> {
    fn drop(&mut self) {
        let Some(slice) = &self.slice else { return };
        let own = schedule_this_program(&["--other", "--pid", "0"]);
        let restored = write_slice(slice).and_then(|()| self.guard.slice_restored());
        for problem in [own, restored].into_iter().filter_map(Result::err) {
            eprintln!("{problem}");
        }
    }
}

pub(crate) fn write_slice(slice_ms: &str) -> Result<()> {
    fs::write(SLICE_FILE, slice_ms).during(format!("{slice_ms} to {SLICE_FILE}"))
}

fn schedule_this_program(words: &[&str]) -> Result<()> {
    let own = std::process::id().to_string();
    let status = Command::new("chrt")
        .args(words)
        .arg(own)
        .stdout(Stdio::null())
        .status()
        .during("chrt on this program")?;
    if status.success() {
        Ok(())
    } else {
        Err(Problem::Refused("SCHED_RR needs root; --sched plain does not".to_owned()))
    }
}
