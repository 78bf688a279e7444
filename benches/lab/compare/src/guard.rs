//! What is left to do when this program is killed: a process of its own that notices the end of its input, and then
//! kills ranks that cannot notice it because they are stopped, removes their folders and restores the machine's
//! slice.
//!
//! It does nothing when the program has tidied up by itself.

use std::fs;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::Signal;

use crate::problem::{Problem, Result, While};
use crate::processes;
use crate::scheduling;

/// What starts the guard: a word no user writes.
pub(crate) const SERVER: &str = "guard-server";

const FOLDER: &str = "folder ";
const SLICE: &str = "slice ";
const RESTORED: &str = "restored";

/// The guard of one run.
#[derive(Debug)]
pub(crate) struct Guard {
    process: Child,
    input: Option<ChildStdin>,
}

impl Guard {
    pub(crate) fn start() -> Result<Guard> {
        let own = std::env::current_exe().during("this program's path")?;
        let mut command = Command::new(own);
        // Its own group, so that Ctrl-C does not reach it.
        command.arg(SERVER).stdin(Stdio::piped()).process_group(0);
        let mut process = command.spawn().during("starting the guard")?;
        let input = process.stdin.take();
        Ok(Guard { process, input })
    }

    /// Processes with this folder as an argument, and the folder, are not to stay.
    pub(crate) fn watch(&self, folder: &Path) -> Result<()> {
        self.tell(&format!("{FOLDER}{}", folder.display()))
    }

    /// The slice is changed and was this before.
    pub(crate) fn slice_was(&self, slice: &str) -> Result<()> {
        self.tell(&format!("{SLICE}{slice}"))
    }

    pub(crate) fn slice_restored(&self) -> Result<()> {
        self.tell(RESTORED)
    }

    fn tell(&self, line: &str) -> Result<()> {
        let mut input =
            self.input.as_ref().ok_or_else(|| Problem::Refused("the guard has no pipe".to_owned()))?;
        input.write_all(format!("{line}\n").as_bytes()).during("telling the guard")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.process.wait();
    }
}

/// The guard's process.
pub(crate) fn serve() -> Result<()> {
    let (mut folders, mut slice) = (Vec::new(), None);
    for line in io::stdin().lock().lines() {
        let line = line.during("the guard's input")?;
        if let Some(folder) = line.strip_prefix(FOLDER) {
            folders.push(folder.to_owned());
        } else if let Some(was) = line.strip_prefix(SLICE) {
            slice = Some(was.to_owned());
        } else if line == RESTORED {
            slice = None;
        }
    }
    // First: what spins under SCHED_RR may keep this process waiting.
    if let Some(slice) = slice {
        scheduling::write_slice(&slice)?;
    }
    for folder in folders.into_iter().filter(|folder| Path::new(folder).exists()) {
        processes::signal(&processes::with_argument(&folder), Signal::KILL);
        fs::remove_dir_all(&folder).during(folder)?;
    }
    Ok(())
}
