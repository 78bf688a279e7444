//! Counts of calls as a text file of Prometheus for each rank, replaced every second.
//!
//! A thread of its own writes the file: the folder may be on a disk that is slow, full or gone, and calls must not wait
//! for that.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use unisono_communicator::{CommsLogger, Error, Result, Severity, log, open_regular};

use crate::size_limit::write_limited;

/// The pause between two versions of the file.
const INTERVAL: Duration = Duration::from_secs(1);

/// The time that the end of a world or of the process waits for the last file, which may be on a disk that hangs.
const LAST_WAIT_MAX: Duration = Duration::from_secs(5);

/// Name of the thread.
const THREAD_NAME: &str = "unisono-metrics";

/// The writers of this process, for its end: it may end with worlds that nobody has dropped, or while another thread
/// drops one.
static WRITERS: Mutex<Vec<Arc<Writer>>> = Mutex::new(Vec::new());

/// The way to the thread that writes.
struct Writer {
    /// Asks for the last file. The thread drops every sender that it gets when the file is there.
    asking: Sender<Sender<()>>,
    /// Of the process that has the thread: a forked child has none.
    pid: u32,
    /// Its file.
    path: PathBuf,
}

/// The file of a rank's counts, and the labels of its lines.
struct Target {
    rank: u32,
    path: PathBuf,
    labels: String,
}

impl Target {
    /// The first file of `rank` in `folder` that no other world of this process has.
    fn new(folder: &Path, rank: u32, writers: &[Arc<Writer>]) -> Target {
        let is_free = |target: &Target| {
            let mut own = writers.iter().filter(|writer| writer.pid == std::process::id());
            own.all(|writer| writer.path != target.path)
        };
        let later = |world: u32| {
            // Readers of such a folder look at the end of a file's name.
            let path = folder.join(format!("unisono-rank-{rank}-world-{world}.prom"));
            Target { rank, path, labels: format!("rank=\"{rank}\",world=\"{world}\"") }
        };
        let path = folder.join(format!("unisono-rank-{rank}.prom"));
        let first = Target { rank, path, labels: format!("rank=\"{rank}\"") };
        #[expect(clippy::expect_used, reason = "a process has fewer worlds than there are numbers")]
        std::iter::once(first).chain((2..).map(later)).find(is_free).expect("a free number")
    }

    /// The folder, for messages.
    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }
}

/// Writes the counts of a rank until it is dropped, and once more then.
pub(super) struct Metrics(Arc<Writer>);

impl Metrics {
    /// For `rank`, in `folder`, which is made if it is not there.
    pub(super) fn start(folder: PathBuf, rank: u32, logger: CommsLogger) -> Result<Metrics> {
        logger.start_counting();
        let (asking, asked) = channel::<Sender<()>>();
        let mut writers = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
        let target = Target::new(&folder, rank, &writers);
        let path = target.path.clone();
        let body = move || {
            let mut is_failing = false;
            loop {
                let asked_by = asked.recv_timeout(INTERVAL);
                let written = replace(&target.path, &logger.counters().prometheus(&target.labels));
                tell_change(&target, written.err(), &mut is_failing);
                // No file after the last one: the process may end in the middle of it.
                if !matches!(asked_by, Err(RecvTimeoutError::Timeout)) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(body);
        thread.map_err(|error| Error::system("cannot start the thread of counts", &error))?;
        let writer = Arc::new(Writer { asking, pid: std::process::id(), path });
        writers.push(writer.clone());
        drop(writers);
        crate::exit::act_at_exit();
        Ok(Metrics(writer))
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        // In a forked child another thread of the parent may hold the lock for ever.
        if self.0.pid != std::process::id() {
            return;
        }
        write_last(std::slice::from_ref(&self.0));
        let mut writers = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
        writers.retain(|writer| !Arc::ptr_eq(writer, &self.0));
    }
}

/// Writes the last files of this process.
pub(super) fn write_all() {
    // A thread that the end of the process has stopped may hold the lock for ever.
    let writers = WRITERS.try_lock().map(|writers| writers.clone());
    write_last(&writers.unwrap_or_default());
}

/// Waits until each of them has written its last file.
fn write_last(writers: &[Arc<Writer>]) {
    let (told, all_told) = channel();
    let own = writers.iter().filter(|writer| writer.pid == std::process::id());
    // A thread that has ended has written its last file, or has panicked, of which its hook has told.
    own.for_each(|writer| drop(writer.asking.send(told.clone())));
    drop(told);
    // Nothing is sent; the receiver only waits until every sender is dropped.
    let _ = all_told.recv_timeout(LAST_WAIT_MAX);
}

/// A line when writing begins to fail, and one when it works again.
fn tell_change(target: &Target, error: Option<io::Error>, is_failing: &mut bool) {
    let was_failing = std::mem::replace(is_failing, error.is_some());
    let (folder, rank) = (target.folder().display(), target.rank);
    match error {
        Some(error) if !was_failing => {
            let text =
                format_args!("cannot write counts of calls into {folder}, and goes on trying: {error}");
            log(Severity::Warn, Some(rank), text);
        }
        None if was_failing => {
            log(Severity::Warn, Some(rank), format_args!("writes counts of calls into {folder} again"));
        }
        Some(_) | None => {}
    }
}

/// A reader sees the old content or all of the new.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let partial = path.with_extension(format!("{}.partial", std::process::id()));
    let written = write_limited(|| {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        let mut options = OpenOptions::new();
        let (mut file, _) = open_regular(&partial, options.write(true).create(true).truncate(true))?;
        file.write_all(text.as_bytes())?;
        fs::rename(&partial, path)
    });
    if written.is_err() {
        // The first problem is reported; the file may not even be there.
        let _ = fs::remove_file(&partial);
    }
    written
}

#[cfg(test)]
mod tests {
    use unisono_collectives::{Collectives, Solo};
    use unisono_communicator::ReduceOp;

    use super::*;

    #[test]
    fn the_file_has_the_counts_at_the_end_and_no_partial_one_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let (deep, comm) = (folder.path().join("not").join("there"), Solo::new());
        let metrics = Metrics::start(deep.clone(), 5, comm.group().comms_logger().clone()).unwrap();
        comm.all_reduce(&mut [1u64; 4], ReduceOp::Sum).unwrap();
        drop(metrics);
        let names: Vec<_> = fs::read_dir(&deep)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(names, ["unisono-rank-5.prom"]);
        let text = fs::read_to_string(deep.join(&names[0])).unwrap();
        assert!(text.contains("unisono_bytes_total{rank=\"5\",operation=\"all_reduce\"} 32\n"), "{text}");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_no_error_of_the_job() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let metrics = Metrics::start(file.path().join("folder"), 0, CommsLogger::default()).unwrap();
        drop(metrics);
        let mut is_failing = false;
        let target = Target::new(&file.path().join("folder"), 0, &[]);
        let error = replace(&target.path, "").err();
        assert!(error.is_some());
        tell_change(&target, error, &mut is_failing);
        assert!(is_failing);
        tell_change(&target, None, &mut is_failing);
        assert!(!is_failing);
    }

    #[test]
    fn two_worlds_of_a_process_have_a_file_each() {
        let folder = tempfile::tempdir().unwrap();
        let comms = [Solo::new(), Solo::new()];
        let start = |comm: &Solo| {
            Metrics::start(folder.path().to_owned(), 3, comm.group().comms_logger().clone()).unwrap()
        };
        let both = comms.each_ref().map(start);
        comms[1].barrier().unwrap();
        drop(both);
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let line = "unisono_calls_total{rank=\"3\",operation=\"barrier\"} 0\n";
        assert!(read("unisono-rank-3.prom").contains(line));
        let line = "unisono_calls_total{rank=\"3\",world=\"2\",operation=\"barrier\"} 1\n";
        assert!(read("unisono-rank-3-world-2.prom").contains(line));
        // The name is free again.
        assert_eq!(start(&comms[0]).0.path, folder.path().join("unisono-rank-3.prom"));
    }
}
