//! The report of a rank to the launcher that started it: the first error of each of its communicators, so that nobody
//! has to parse the output of programs.
//!
//! The launcher makes a pipe, and each rank inherits its writing end (`UNISONO_REPORT_FD`). A report is one message,
//! short enough to be written whole or not at all, so the reports of many ranks do not mix. The variable names the
//! pipe's inode too: a process that has inherited the variable but not the descriptor may have another file under its
//! number.

#![expect(unsafe_code, reason = "borrows an inherited descriptor by its number")]

use std::borrow::Cow;
use std::io;
use std::num::ParseIntError;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use unisono_backend::Board;
use unisono_communicator::{Aside, CallInfo, Error, JobRank, beginning};
use unisono_control::codec::{Malformed, Reader, Writer};

/// The variable that names the pipe.
pub(crate) const VARIABLE: &str = "UNISONO_REPORT_FD";

/// No report is longer: so much a pipe takes whole or not at all (`PIPE_BUF` of Linux).
pub const REPORT_BYTES_MAX: usize = 4096;

/// The beginning of a report; no text has the first byte. Its length in 2 bytes is next.
const MAGIC: [u8; 4] = *b"\xffurp";
const HEADER_BYTES: usize = MAGIC.len() + 2;

/// Longer texts are cut, so that a report has at most [`REPORT_BYTES_MAX`].
const TEXT_BYTES_MAX: usize = 3000;
const CALL_BYTES_MAX: usize = 600;
const NAME_BYTES_MAX: usize = 64;

/// More culprits are left out.
const CULPRITS_MAX: usize = 48;

/// The time that a rank that leaves waits for a launcher that does not read: a program must not hang because of that.
const WRITE_WAIT: Duration = Duration::from_millis(100);

/// More reports of a process do not wait for the launcher.
const WAITING_MAX: usize = 1024;

/// No descriptor of the standard streams.
const FIRST_OTHER: i32 = 3;

/// The first error of one communicator, as one rank has it. Ranks are ranks of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReport {
    /// The rank that reports.
    pub rank: u32,
    /// Its communicator; `None` when the rank could not join.
    pub communicator: Option<String>,
    /// The name of the variant of [`Error`] that is the root cause.
    pub kind: String,
    /// The ranks to which the error points: who is lost, who has not arrived, whose calls differ, who has revoked.
    pub culprits: Vec<u32>,
    /// The call that failed, if the error knows one.
    pub call: Option<String>,
    /// The code that a vendor's function returned.
    pub code: Option<i32>,
    /// The error in words.
    pub text: String,
    /// Whether no call could return the error any more: the rank was leaving.
    pub at_exit: bool,
    /// Whether a call has returned the error to the program: a rank that sleeps learns of it too.
    pub is_returned: bool,
}

/// The bits of the last byte of a report.
const AT_EXIT: u8 = 1;
const RETURNED: u8 = 2;

impl ErrorReport {
    /// The report of `rank` about an error that the rank `by` has seen first.
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
            is_returned: false,
        }
    }

    /// Takes the whole reports out of the bytes from the pipe. Other processes may have its writing end, and write
    /// any bytes.
    pub fn take_all(held: &mut Vec<u8>) -> Vec<ErrorReport> {
        let (mut reports, mut at) = (Vec::new(), 0);
        while let Some(rest) = held.get(at..).filter(|rest| rest.len() >= HEADER_BYTES) {
            let (header, body) = rest.split_at(HEADER_BYTES);
            let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
            if !header.starts_with(&MAGIC) || HEADER_BYTES + length > REPORT_BYTES_MAX {
                at += 1;
                continue;
            }
            let Some(message) = body.get(..length) else { break };
            let report = ErrorReport::read(message);
            at += if report.is_ok() { HEADER_BYTES + length } else { 1 };
            reports.extend(report);
        }
        held.drain(..at);
        reports
    }

    fn read(message: &[u8]) -> Result<ErrorReport, Malformed> {
        let mut reader = Reader::new(message);
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let mut report = ErrorReport {
            rank: reader.u32()?,
            communicator: some(reader.text(NAME_BYTES_MAX)?),
            kind: reader.text(NAME_BYTES_MAX)?.to_owned(),
            culprits: reader.u32_list(CULPRITS_MAX)?,
            call: some(reader.text(CALL_BYTES_MAX)?),
            code: (reader.u8()? != 0).then_some(i32::from_le_bytes(reader.array()?)),
            text: reader.text(TEXT_BYTES_MAX)?.to_owned(),
            at_exit: false,
            is_returned: false,
        };
        let flags = reader.u8()?;
        (report.at_exit, report.is_returned) = (flags & AT_EXIT != 0, flags & RETURNED != 0);
        reader.finish().map(|()| report)
    }

    /// The report as it is written into the pipe, and as [`ErrorReport::take_all`] takes it.
    pub fn message(&self) -> Vec<u8> {
        let mut body = Writer::new();
        let (communicator, call) = (self.communicator.as_deref(), self.call.as_deref());
        body.u32(self.rank)
            .text(&cut(communicator.unwrap_or_default(), NAME_BYTES_MAX), NAME_BYTES_MAX)
            .text(&self.kind, NAME_BYTES_MAX)
            .u32_list(&self.culprits)
            .text(&cut(call.unwrap_or_default(), CALL_BYTES_MAX), CALL_BYTES_MAX)
            .u8(u8::from(self.code.is_some()))
            .array(&self.code.unwrap_or_default().to_le_bytes())
            .text(&cut(&self.text, TEXT_BYTES_MAX), TEXT_BYTES_MAX)
            .u8(if self.at_exit { AT_EXIT } else { 0 } | if self.is_returned { RETURNED } else { 0 });
        let body = body.finish();
        Writer::new().array(&MAGIC).u16(body.len() as u16).array(&body).finish()
    }
}

/// A text of at most `bytes_max` bytes, which shows where it was cut.
fn cut(text: &str, bytes_max: usize) -> Cow<'_, str> {
    const MARK: &str = "...";
    if text.len() <= bytes_max {
        return text.into();
    }
    format!("{}{MARK}", beginning(text, bytes_max - MARK.len())).into()
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

    /// Reports the first cause of a communicator of `rank`, as it is now, whenever it changes, and once more when a
    /// call has returned it.
    pub(crate) fn watch(&self, rank: JobRank, communicator: String, board: &Arc<Board>) {
        let (this, watched) = (self.clone(), Arc::downgrade(board));
        let report: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            let Some(board) = watched.upgrade() else { return };
            let first = board.first_cause();
            if let (Some(revocation), Some(error)) = (first.revocation(), first.error()) {
                let report = ErrorReport::new(rank.get(), Some(communicator.clone()), revocation.by, &error);
                this.send(&ErrorReport { is_returned: first.is_returned(), ..report });
            }
        });
        board.first_cause().on_revoke(report.clone());
        board.first_cause().on_return(report);
    }

    /// Reports why `rank` could not join. Its process may end next.
    pub(crate) fn not_joined(&self, rank: u32, error: &Error) {
        self.send(&ErrorReport::new(rank, None, JobRank::new(rank), error));
        flush_reports();
    }

    /// Reports an error that no call can return any more: `rank` leaves its `communicator`.
    pub(crate) fn at_exit(&self, rank: JobRank, communicator: String, error: &Error, text: String) {
        let report = ErrorReport::new(rank.get(), Some(communicator), rank, error);
        self.send(&ErrorReport { at_exit: true, text, ..report });
    }

    /// A launcher that is gone, or never reads, costs the report and nothing else. The thread that reports may be the
    /// control thread, so another one waits until there is room in the pipe.
    fn send(&self, report: &ErrorReport) {
        let (message, pipe) = (report.message(), self.pipe.clone());
        let _ = WRITER.hand_over(move || {
            while let Err(Errno::INTR | Errno::AGAIN) = rustix::io::write(&*pipe, &message) {
                let _ = poll(&mut [PollFd::new(&*pipe, PollFlags::OUT)], None);
            }
        });
    }
}

/// Writes the reports of this process.
static WRITER: Aside = Aside::new("unisono-reports", WAITING_MAX);

/// Waits until the launcher has the reports so far, at most for [`WRITE_WAIT`]. For the end of a job: the process may
/// end next.
pub(crate) fn flush_reports() {
    WRITER.flush(WRITE_WAIT);
}

/// The launcher's side: the pipe of a job.
#[derive(Debug)]
pub struct ReportPipe {
    /// Reports come out of it ([`ErrorReport::take_all`]). Neither end waits.
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
        WRITER.flush(Duration::from_secs(60));
        let mut held = vec![0; 16 * REPORT_BYTES_MAX];
        let bytes = File::from(pipe.reading.try_clone().unwrap()).read(&mut held).unwrap_or_default();
        held.truncate(bytes);
        let reports = ErrorReport::take_all(&mut held);
        assert!(held.is_empty());
        reports
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
            is_returned: false,
        };
        assert_eq!(reports(&pipe), std::slice::from_ref(&report));
        assert!(board.first_cause().tell().is_some() && board.first_cause().tell().is_some());
        assert_eq!(reports(&pipe), [ErrorReport { is_returned: true, ..report }]);
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
    fn reports_are_found_in_what_else_was_written_however_it_is_cut() {
        let report = |code| ErrorReport {
            rank: 2,
            communicator: None,
            kind: "Vendor".to_owned(),
            culprits: vec![1, 3],
            call: Some("call 4 all_reduce(3 x f32, sum)".to_owned()),
            code,
            text: "\u{e9}".repeat(TEXT_BYTES_MAX / 2),
            at_exit: true,
            is_returned: code.is_none(),
        };
        let (first, second) = (report(Some(-5)), report(None));
        let noise: &[u8] = b"text\n\xff\xffurp\xff\xffurp\x01\0";
        let whole = [noise, &first.message(), noise, &second.message(), noise].concat();
        assert!(first.message().len() <= REPORT_BYTES_MAX);
        for step in [1, 7, 4096, whole.len()] {
            let (mut held, mut found) = (Vec::new(), Vec::new());
            for piece in whole.chunks(step) {
                held.extend_from_slice(piece);
                found.extend(ErrorReport::take_all(&mut held));
                assert!(held.len() <= REPORT_BYTES_MAX);
            }
            assert_eq!(found, [first.clone(), second.clone()]);
        }
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
}
