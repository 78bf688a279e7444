//! Other work on the machine: processes that compute and nothing else, one for each core.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::problem::{Result, While};

/// What starts a busy loop: a word no user writes.
pub(crate) const SERVER: &str = "busy-loop";

/// As many as the machines that these figures come from have cores.
const LOOPS: usize = 2;

/// Busy loops under plain scheduling, until this is dropped.
#[derive(Debug)]
pub(crate) struct BusyLoops {
    processes: Vec<Child>,
}

impl BusyLoops {
    /// Starts them.
    pub(crate) fn start() -> Result<BusyLoops> {
        let own = std::env::current_exe().during("this program's path")?;
        let start = |_| {
            let mut command = Command::new(&own);
            // Its own group, so that Ctrl-C ends the run first.
            command.arg(SERVER).stdin(Stdio::piped()).process_group(0).spawn().during("starting a busy loop")
        };
        Ok(BusyLoops { processes: (0..LOOPS).map(start).collect::<Result<_>>()? })
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // The end of its input is the end of it.
            drop(process.stdin.take());
            let _ = process.wait();
        }
    }
}

/// A busy loop's process: spins until its input ends, also when that is because its parent was killed.
pub(crate) fn serve() -> Result<()> {
    thread::spawn(|| {
        loop {
            std::hint::spin_loop();
        }
    });
    io::stdin().lock().read_to_end(&mut Vec::new()).during("the busy loop's input")?;
    Ok(())
}
