//! `unisono run`: it starts ranks on this host, passes their output on, and ends all of them together.

pub(crate) mod cores;
mod ends;
mod failure;
pub(crate) mod guard;
mod input;
mod last_words;
mod launcher;
mod log_files;
mod meeting;
mod orphans;
pub(crate) mod output;
mod pipes;
mod queue;
mod rank;
mod reports;
mod signals;
mod vendor;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use crate::arguments::{RunArguments, VendorArguments};
use crate::problem::{Problem, Result};
use cores::Binding;
use launcher::Launcher;
use log_files::LogFiles;
use meeting::Meeting;
use output::{Sink, Terminal};

/// A file that has nothing to read and takes everything.
const NULL: &str = "/dev/null";

/// The time that ranks have for their end after they have been asked to.
const GRACE: Duration = Duration::from_secs(5);

/// A job to start.
pub(crate) struct Job {
    pub(crate) ranks: u32,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    /// The folder in which ranks find a vendor's libraries, as an absolute path; by default the folder of the
    /// launcher's environment.
    pub(crate) vendor_directory: Option<PathBuf>,
    /// Whether the others go on when a rank fails.
    pub(crate) keep_going: bool,
    /// A rank that is going to be killed: its death is no failure.
    pub(crate) victim: Option<u32>,
    /// The time that the job may take.
    pub(crate) timeout: Option<Duration>,
    /// Time between asking the ranks to end and SIGKILL.
    pub(crate) grace: Duration,
    pub(crate) binding: Binding,
    /// A folder for a file of each rank's output.
    pub(crate) log_directory: Option<PathBuf>,
    /// Whether the ranks record their calls.
    pub(crate) records_calls: bool,
    /// The rank that gets this process's standard input.
    pub(crate) stdin: Option<u32>,
}

impl Job {
    /// This program again, with other arguments.
    pub(crate) fn of_this_program(ranks: u32, arguments: Vec<OsString>) -> Result<Job> {
        let program = std::env::current_exe().map_err(|error| Problem::failed("own program", error))?;
        Ok(Job {
            ranks,
            program: program.into(),
            arguments,
            vendor_directory: None,
            keep_going: false,
            victim: None,
            timeout: None,
            grace: GRACE,
            binding: Binding::Auto,
            log_directory: None,
            records_calls: false,
            stdin: None,
        })
    }
}

/// `unisono run`.
pub(crate) fn run(arguments: RunArguments) -> Result<()> {
    let RunArguments {
        ranks,
        keep_going,
        timeout,
        grace,
        log_dir,
        comms,
        stdin,
        tag_output,
        bind_to,
        vendor: VendorArguments { vendor_dir },
        program,
    } = arguments;
    let mut words = program.into_iter();
    let job = Job {
        ranks,
        program: words.next().unwrap_or_default(),
        arguments: words.collect(),
        vendor_directory: vendor_dir,
        keep_going,
        victim: None,
        timeout,
        grace,
        binding: bind_to,
        log_directory: log_dir,
        records_calls: comms,
        stdin,
    };
    if let Some(rank) = stdin.filter(|rank| *rank >= ranks) {
        return Err(Problem::usage(format!("--stdin {rank}: the ranks are 0 to {}", ranks - 1)));
    }
    let terminal = Terminal::new(tag_output, job.log_directory.is_some());
    launch(&job, Arc::new(terminal))
}

/// Runs the job to its end.
///
/// # Errors
/// With the status of the first rank that failed; the text names it.
pub(crate) fn launch(job: &Job, sink: Arc<dyn Sink>) -> Result<()> {
    check_descriptors(job)?;
    let (sender, events) = channel();
    signals::watch(sender.clone())?;
    let files = job.log_directory.as_ref().map(|folder| LogFiles::create(folder, job.ranks)).transpose()?;
    let meeting = Meeting::arrange(job.ranks)?;
    Launcher::start(job, &meeting, (sink, files.map(Arc::new)), &sender)?.until_all_ended(&events)
}

/// The descriptors that the launcher holds for each rank: its two streams, its end, its connection to the store.
const DESCRIPTORS_PER_RANK: u64 = 4;
/// And for itself.
const DESCRIPTORS_BESIDE: u64 = 32;

/// A launcher without descriptors could not let its ranks meet, and they would wait in vain.
fn check_descriptors(job: &Job) -> Result<()> {
    let ranks = u64::from(job.ranks);
    let files = if job.log_directory.is_some() { ranks } else { 0 };
    let needed = ranks * DESCRIPTORS_PER_RANK + files + DESCRIPTORS_BESIDE;
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < needed => {
            let problem = format!("the limit is {limit}: ulimit -n {needed}");
            Err(Problem::failed(format!("{ranks} ranks need {needed} open files in the launcher"), problem))
        }
        _ => Ok(()),
    }
}
