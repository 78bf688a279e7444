//! What a rank reports to the launcher that started it: the first error of each of its communicators, so that nobody
//! has to parse what programs print.
//!
//! The launcher makes a pipe, and each rank inherits its writing end (`UNISONO_REPORT_FD`). A report is one line of
//! JSON, short enough to be written whole or not at all, so the reports of many ranks do not mix. The variable names
//! the pipe's inode too: a process that has inherited the variable but not the descriptor may have another file under
//! its number.

use std::io;
use std::num::ParseIntError;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::str::FromStr;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};
use unisono_backend::Board;
use unisono_communicator::{CallInfo, Error, JobRank};

/// The variable that names the pipe.
pub(crate) const VARIABLE: &str = "UNISONO_REPORT_FD";

/// A longer report is cut: so much a pipe takes whole or not at all (`PIPE_BUF` of Linux).
pub const LINE_BYTES_MAX: usize = 4096;

/// What is left of the text and of the call of a report that does not fit: also in JSON's escapes, and with the rest,
/// this does.
const CUT_CHARS: usize = 240;

/// More culprits are left out.
const CULPRITS_MAX: usize = 64;

/// How long a rank waits for a launcher that does not read: a program must not hang because of that.
const WRITE_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// No descriptor of the standard streams.
const FIRST_OTHER: i32 = 3;

/// The first error of one communicator, as one rank has it. Ranks are those of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReport {
    /// Who reports.
    pub rank: u32,
    /// Its communicator; `None` when the rank could not join.
    pub communicator: Option<String>,
    /// The name of the variant of [`Error`] that is the root cause.
    pub kind: String,
    /// The ranks to which the error points: who is lost, who has not arrived, whose calls differ, who has revoked.
    pub culprits: Vec<u32>,
    /// The call that failed, if the error knows one.
    pub call: Option<String>,
    /// What a vendor's function returned.
    pub code: Option<i32>,
    /// The error in words.
    pub text: String,
    /// Whether no call could return the error any more: the rank was leaving.
    pub at_exit: bool,
}

impl ErrorReport {
    /// What `rank` reports of an error that the rank `by` has seen first.
    fn new(rank: u32, communicator: Option<String>, by: JobRank, error: &Error) -> ErrorReport {
        let mut culprits = culprits(error, by);
        culprits.truncate(CULPRITS_MAX);
        let code = match error.root_cause() {
            Error::Vendor { code, .. } => Some(*code),
            _ => None,
        };
        ErrorReport {
            rank,
            communicator,
            kind: error.root_cause().code().name().to_owned(),
            culprits,
            call: call(error.root_cause()).map(CallInfo::to_string),
            code,
            text: error.to_string(),
            at_exit: false,
        }
    }

    /// The report in a line that the launcher reads.
    ///
    /// # Errors
    /// When that is no report.
    pub fn parse(line: &[u8]) -> io::Result<ErrorReport> {
        Ok(serde_json::from_slice(line)?)
    }

    /// The line of a report, which fits into a pipe.
    fn line(&self) -> Option<Vec<u8>> {
        let line = |report: &ErrorReport| {
            let mut line = serde_json::to_vec(report).ok()?;
            line.push(b'\n');
            (line.len() <= LINE_BYTES_MAX).then_some(line)
        };
        line(self).or_else(|| {
            let (text, call) = (cut(&self.text), self.call.as_deref().map(cut));
            line(&ErrorReport { text, call, ..self.clone() })
        })
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(CUT_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// The call that an error is about.
fn call(error: &Error) -> Option<&CallInfo> {
    match error {
        Error::Mismatch { calls, .. } => Some(&calls[0].1),
        Error::PeerLost { call, .. } | Error::Corrupted { call, .. } => call.as_deref(),
        Error::Timeout { call, .. }
        | Error::Cancelled { call, .. }
        | Error::NonFinite { call, .. }
        | Error::Panicked { call, .. } => Some(call),
        _ => None,
    }
}

/// The ranks to which an error points: without its having any in itself, the rank that has seen it first.
fn culprits(error: &Error, by: JobRank) -> Vec<u32> {
    let ranks = match error.root_cause() {
        Error::PeerLost { .. } => error.lost_ranks(),
        // The others may be victims of the first.
        Error::Timeout { not_arrived, .. } => {
            not_arrived.first().map(|awaited| awaited.rank).into_iter().collect()
        }
        Error::Mismatch { calls, .. } => vec![calls[0].0, calls[1].0],
        Error::Rendezvous { missing, .. } if !missing.is_empty() => missing.clone(),
        Error::NonFinite { rank, .. } | Error::Panicked { rank, .. } => vec![*rank],
        _ => vec![by],
    };
    ranks.iter().map(|rank| rank.get()).collect()
}

/// A pipe that this process may have inherited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InheritedPipe {
    /// The number of its writing end.
    pub descriptor: i32,
    /// The pipe's own number: another file may have the descriptor.
    pub inode: u64,
}

impl FromStr for InheritedPipe {
    type Err = ParseIntError;

    /// Reads `DESCRIPTOR:INODE`.
    fn from_str(text: &str) -> Result<InheritedPipe, ParseIntError> {
        let (descriptor, inode) = text.split_once(':').unwrap_or((text, ""));
        Ok(InheritedPipe { descriptor: descriptor.parse()?, inode: inode.parse()? })
    }
}

/// The launcher's pipe, in a rank.
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    pipe: Arc<OwnedFd>,
}

impl Reporter {
    /// Takes the pipe, if it is there. From then on the programs that this process starts do not inherit it.
    #[allow(unsafe_code)]
    pub(crate) fn take(pipe: InheritedPipe) -> Option<Reporter> {
        if pipe.descriptor < FIRST_OTHER {
            return None;
        }
        // SAFETY: the descriptor is only looked at and duplicated within this function. If its number belongs to
        // nothing, or to something else, `fstat` says so, and nothing is done with it.
        let inherited = unsafe { BorrowedFd::borrow_raw(pipe.descriptor) };
        let found = fstat(inherited).ok()?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Fifo || found.st_ino != pipe.inode {
            return None;
        }
        // The inherited one stays open, so that the next world of this process finds it; its children lose it.
        fcntl_setfd(inherited, FdFlags::CLOEXEC).ok()?;
        let pipe = fcntl_dupfd_cloexec(inherited, FIRST_OTHER).ok()?;
        Some(Reporter { pipe: Arc::new(pipe) })
    }

    /// Reports the first cause of a communicator of `rank`, as it is now and whenever it changes.
    pub(crate) fn watch(&self, rank: JobRank, communicator: String, board: &Arc<Board>) {
        let (this, watched) = (self.clone(), Arc::downgrade(board));
        board.first_cause().on_revoke(Arc::new(move || {
            let Some(board) = watched.upgrade() else { return };
            if let (Some(revocation), Some(error)) =
                (board.first_cause().revocation(), board.first_cause().error())
            {
                this.send(&ErrorReport::new(rank.get(), Some(communicator.clone()), revocation.by, &error));
            }
        }));
    }

    /// Reports why `rank` could not join.
    pub(crate) fn not_joined(&self, rank: u32, error: &Error) {
        self.send(&ErrorReport::new(rank, None, JobRank::new(rank), error));
    }

    /// Reports an error that no call can return any more: `rank` leaves its `communicator`.
    pub(crate) fn at_exit(&self, rank: JobRank, communicator: String, error: &Error, text: String) {
        let report = ErrorReport::new(rank.get(), Some(communicator), rank, error);
        self.send(&ErrorReport { at_exit: true, text, ..report });
    }

    /// A launcher that is gone, or does not read, costs the report and nothing else.
    fn send(&self, report: &ErrorReport) {
        let Some(line) = report.line() else { return };
        while let Err(error) = rustix::io::write(&*self.pipe, &line) {
            let room = || poll(&mut [PollFd::new(&*self.pipe, PollFlags::OUT)], Some(&WRITE_WAIT));
            match error {
                Errno::INTR => {}
                Errno::AGAIN if room().is_ok_and(|ready| ready > 0) => {}
                _ => return,
            }
        }
    }
}

/// The launcher's side: the pipe of a job.
#[derive(Debug)]
pub struct ReportPipe {
    /// What comes out of it is reports, a line each. Neither end waits.
    pub reading: OwnedFd,
    /// Every process inherits it that is started while this is open.
    pub writing: OwnedFd,
    /// Name and value of the variable for the ranks.
    pub variable: (&'static str, String),
}

impl ReportPipe {
    /// Makes a pipe.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn new() -> io::Result<ReportPipe> {
        let (reading, writing) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        fcntl_setfd(&writing, FdFlags::empty())?;
        let inode = fstat(&writing)?.st_ino;
        let number = writing.as_raw_fd();
        Ok(ReportPipe { reading, writing, variable: (VARIABLE, format!("{number}:{inode}")) })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use unisono_communicator::GroupRank;

    use super::*;

    fn reporter() -> (Reporter, ReportPipe) {
        let pipe = ReportPipe::new().unwrap();
        let reporter = Reporter::take(pipe.variable.1.parse().unwrap()).unwrap();
        (reporter, pipe)
    }

    fn reports(pipe: &ReportPipe) -> Vec<ErrorReport> {
        let mut room = vec![0; 16 * LINE_BYTES_MAX];
        let bytes = File::from(pipe.reading.try_clone().unwrap()).read(&mut room).unwrap_or_default();
        let lines = room[..bytes].split_inclusive(|&byte| byte == b'\n');
        lines.map(|line| ErrorReport::parse(line).unwrap()).collect()
    }

    #[test]
    fn the_first_cause_of_a_communicator_is_reported_as_it_is_and_as_it_becomes() {
        let (reporter, pipe) = reporter();
        let board = Arc::new(Board::new(GroupRank::new(0), 4));
        reporter.watch(JobRank::new(6), "world".to_owned(), &board);
        assert_eq!(reports(&pipe), []);
        let lost = |rank| Error::Aborted { by: JobRank::new(rank) };
        board.first_cause().revoke(JobRank::new(7), Arc::new(lost(9)));
        board.first_cause().revoke(JobRank::new(8), Arc::new(lost(8)));
        let report = ErrorReport {
            rank: 6,
            communicator: Some("world".to_owned()),
            kind: "Aborted".to_owned(),
            culprits: vec![7],
            call: None,
            code: None,
            text: "rank 9 aborted the communicator".to_owned(),
            at_exit: false,
        };
        assert_eq!(reports(&pipe), [report]);
        board.first_cause().evict(JobRank::new(7), "silence".to_owned());
        let [evicted] = &reports(&pipe)[..] else { panic!("one report") };
        assert_eq!((&*evicted.kind, evicted.text.contains("silence")), ("Evicted", true));
    }

    #[test]
    fn a_report_that_is_too_long_is_cut_and_all_of_it_fits() {
        let (reporter, pipe) = reporter();
        let missing: Vec<JobRank> = (0..1000).map(|rank| JobRank::new(u32::MAX - rank)).collect();
        let (listed, problem) = (missing.len(), "\u{1}".repeat(10_000));
        reporter.not_joined(3, &Error::Rendezvous { missing, problem });
        let [report] = &reports(&pipe)[..] else { panic!("one report") };
        assert!(report.culprits.len() < listed && report.text.ends_with("..."), "{report:?}");
    }

    #[test]
    fn only_the_pipe_that_is_meant_is_taken() {
        let pipe = ReportPipe::new().unwrap();
        let named: InheritedPipe = pipe.variable.1.parse().unwrap();
        assert!(Reporter::take(InheritedPipe { inode: named.inode + 1, ..named }).is_none());
        assert!(Reporter::take(InheritedPipe { descriptor: i32::MAX, ..named }).is_none());
        assert!(Reporter::take(InheritedPipe { descriptor: 1, ..named }).is_none());
        for wrong in ["", "3", "3:", ":5", "3:x", "-1:5:6"] {
            assert!(wrong.parse::<InheritedPipe>().is_err(), "{wrong:?}");
        }
    }

    /// A launcher that does not read costs some reports, and holds nobody.
    #[test]
    fn a_full_pipe_is_given_up() {
        let (reporter, pipe) = reporter();
        let error = Error::Aborted { by: JobRank::new(1) };
        for _ in 0..2 {
            while rustix::io::write(&pipe.writing, &[b'\n'; LINE_BYTES_MAX]).is_ok() {}
            reporter.not_joined(0, &error);
        }
    }
}
