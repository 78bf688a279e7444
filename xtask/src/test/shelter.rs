//! No process and no folder outlives `cargo xtask test`, however it ends.
//!
//! The command runs itself once more, within. Both processes adopt the processes that their descendants leave behind.
//! The outer process ends all of them when the inner one has ended. When the outer one ends first, by a signal of any
//! kind, the pipe between the two ends, and the inner process does the same. Temporary files have a folder of their
//! own, which goes last.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio, exit};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};

use crate::tool::Outcome;

/// The hidden word before the command that runs within.
pub(crate) const WITHIN: &str = "within";

/// The variables that say where temporary files go: of everybody, and of ranks of one host that meet.
const FOLDERS: [&str; 2] = ["TMPDIR", "XDG_RUNTIME_DIR"];

/// The time for processes that end when their parents do, on a busy machine too: guards remove networks.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Runs this program once more, with `arguments` within.
pub(crate) fn run(arguments: &[&str]) -> io::Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("unisono-test-").tempdir()?;
    set_child_subreaper(Some(getpid()))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(WITHIN).args(arguments).envs(FOLDERS.map(|name| (name, folder.path())));
    // A signal from the terminal is for this process alone: the other one must live to end the rest.
    let mut within = command.stdin(Stdio::piped()).process_group(0).spawn()?;
    // It ends with this process.
    let _pipe = within.stdin.take();
    let code = within.wait()?.code().and_then(|code| u8::try_from(code).ok());
    end();
    folder.close()?;
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// Held by the thread of the process within that ends it.
static ENDING: Mutex<()> = Mutex::new(());

/// Makes this process the inner one, for `work`.
pub(crate) fn within(work: impl FnOnce() -> Outcome) -> Outcome {
    set_child_subreaper(Some(getpid())).map_err(|error| error.to_string())?;
    thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        let _ending = ENDING.lock();
        end();
        if let Some(folder) = std::env::var_os(FOLDERS[0]) {
            let _ = fs::remove_dir_all(folder);
        }
        exit(1);
    });
    let done = work();
    // A process that is ended here is not the first to leave.
    std::mem::forget(ENDING.lock());
    done
}

/// Waits for the descendants of this process to end, ends the rest, and gives a line about each.
pub(crate) fn end_leftovers() -> Vec<String> {
    let until = Instant::now() + PATIENCE;
    while !descendants().is_empty() && Instant::now() < until {
        thread::sleep(PAUSE);
    }
    let line = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        format!("{pid}: {}", String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " "))
    };
    let lines = descendants().iter().map(line).collect();
    end();
    lines
}

/// Ends all descendants: first as they can clean up after themselves, then for sure.
fn end() {
    let (until, mut told) = (Instant::now() + PATIENCE, BTreeSet::new());
    while !descendants().is_empty() {
        let is_late = Instant::now() > until;
        for pid in descendants() {
            if let Some(process) = Pid::from_raw(pid).filter(|_| is_late || told.insert(pid)) {
                // A process that has ended does not mind.
                let _ = kill_process(process, if is_late { Signal::KILL } else { Signal::TERM });
            }
        }
        thread::sleep(PAUSE);
    }
}

/// The descendants of this process that have not ended, by the kernel's table.
fn descendants() -> BTreeSet<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let all: Vec<(i32, i32)> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let (mut found, mut parents) = (BTreeSet::new(), vec![getpid().as_raw_nonzero().get()]);
    while let Some(one) = parents.pop() {
        let children = all.iter().filter(|(_, parent)| *parent == one).map(|(pid, _)| *pid);
        parents.extend(children.filter(|pid| found.insert(*pid)));
    }
    found
}

/// The parent of a process that has not ended.
fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before may hold anything: state and parent come behind its parenthesis.
    let (state, rest) = stat.rsplit_once(") ")?.1.split_once(' ')?;
    if state == "Z" { None } else { rest.split(' ').next()?.parse().ok() }
}
