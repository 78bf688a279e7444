//! A small process that ends the ranks when the launcher dies before it could do so.
//!
//! The launcher holds the other end of its standard input. However the launcher ends, SIGKILL included, the kernel
//! closes that pipe; the guard then kills every process group that it still knows, and removes the folder with the
//! secret. If the launcher has not said goodbye, it may have died between starting a rank and telling of it: then the
//! guard also kills every process whose environment names the folder. Nothing else ends the guard: neither a signal to
//! all processes of the user's session, nor one by a mistake.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::meeting::SECRET_VARIABLE;
use super::signals::survive_all;
use crate::arguments::GUARD;
use crate::problem::{Problem, Result};

/// The kernel's name for the process of the guard.
const NAME: &CStr = c"rank-guard";

/// The number of times that the processes are looked through again after one was found: it may have started another
/// meanwhile.
const SWEEPS_MAX: u32 = 100;
/// Looks without finding one, after a launcher has died: a process that it was just starting has not yet shown its own
/// environment.
const QUIET_LOOKS: u32 = 10;
/// Between two looks.
const SWEEP_PAUSE: Duration = Duration::from_millis(20);

/// The launcher has told of all its ranks, and ends: processes that they have left behind on purpose stay.
const GOODBYE: &str = ".\n";

/// The launcher's side.
pub(crate) struct Guard {
    process: Child,
}

impl Guard {
    /// Starts the guard, in a process group of its own so that no signal to the launcher's group reaches it.
    pub(crate) fn start(folder: &Path, null: &File) -> io::Result<Guard> {
        let process = Command::new(std::env::current_exe()?)
            .arg(GUARD)
            .arg(folder)
            // A launcher that is a rank of another job has that one's: the guard of that job would end this one, which
            // has still its own ranks to end.
            .env_remove(SECRET_VARIABLE)
            .stdin(Stdio::piped())
            .stdout(null.try_clone()?)
            .process_group(0)
            .spawn()?;
        Ok(Guard { process })
    }

    /// Kills the group of `pid` if the launcher dies from now on.
    pub(crate) fn watch(&mut self, pid: Pid) -> io::Result<()> {
        self.tell('+', pid)
    }

    /// The group of `pid` has ended; another group may soon have its number.
    pub(crate) fn forget(&mut self, pid: Pid) {
        // If the guard has ended, this does not matter.
        let _ = self.tell('-', pid);
    }

    fn tell(&mut self, sign: char, pid: Pid) -> io::Result<()> {
        match &mut self.process.stdin {
            Some(pipe) => pipe.write_all(format!("{sign}{}\n", pid.as_raw_nonzero()).as_bytes()),
            None => Ok(()),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.process.stdin.take() {
            let _ = pipe.write_all(GOODBYE.as_bytes());
        }
        let _ = self.process.wait();
    }
}

/// Runs the guard until the launcher has ended.
pub(crate) fn watch(folder: &Path) -> Result<()> {
    // A user who ends all processes of the program's name ends launchers, and their guards still have their work to do.
    rustix::thread::set_name(NAME).map_err(|error| Problem::failed("naming the guard", error))?;
    survive_all().map_err(|error| Problem::failed("catching signals", error))?;
    let (mut groups, mut ended_well) = (BTreeSet::new(), false);
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let (sign, pid) = line.split_at_checked(1).unwrap_or_default();
        let pid = pid.parse().ok().and_then(Pid::from_raw);
        match (sign, pid) {
            ("+", Some(pid)) => _ = groups.insert(pid.as_raw_nonzero()),
            ("-", Some(pid)) => _ = groups.remove(&pid.as_raw_nonzero()),
            _ => ended_well = line == GOODBYE.trim_end(),
        }
    }
    for pid in groups.into_iter().filter_map(|pid| Pid::from_raw(pid.get())) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    if !ended_well {
        kill_those_told_of(folder, QUIET_LOOKS);
    }
    // If it cannot be removed, there is nobody to tell.
    let _ = std::fs::remove_dir_all(folder);
    Ok(())
}

/// Kills every other process whose environment names `folder`, which is this job's alone: processes that ranks have
/// left behind in sessions of their own, and processes that a launcher had started but not yet told the guard about
/// when it died.
pub(crate) fn kill_those_told_of(folder: &Path, quiet_looks: u32) {
    let mut quiet = 0;
    for _ in 0..SWEEPS_MAX {
        let found = processes_told_of(folder);
        for pid in &found {
            let _ = kill_process(*pid, Signal::KILL);
        }
        quiet = if found.is_empty() { quiet + 1 } else { 0 };
        if quiet == quiet_looks {
            return;
        }
        std::thread::sleep(SWEEP_PAUSE);
    }
}

/// The processes of this user, but for this one, whose environment names `folder`.
fn processes_told_of(folder: &Path) -> Vec<Pid> {
    let name = folder.as_os_str().as_encoded_bytes();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    let is_told = |pid: &Pid| {
        // Of another user's process it cannot be read, and such a process is none of ours.
        let environment =
            std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
        *pid != rustix::process::getpid() && environment.windows(name.len()).any(|part| part == name)
    };
    pids.filter(is_told).collect()
}
