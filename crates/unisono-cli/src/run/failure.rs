//! Which rank failed first. When one dies, the others notice and fail too; on a busy machine the launcher may see these
//! ends in any order.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// A shell adds this to a signal's number.
pub(crate) const SIGNAL_STATUS: i32 = 128;
/// The status of a process whose own status is lost.
const STATUS_LOST: u8 = 255;

/// The end of a rank that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) rank: u32,
    /// How it ended, in words.
    pub(crate) how: String,
    /// The status that a shell would report: its own, or 128 plus the signal that ended it.
    pub(crate) status: u8,
    by_signal: bool,
}

impl Failure {
    /// `None` when the rank succeeded.
    pub(crate) fn of(rank: u32, ended: io::Result<ExitStatus>) -> Option<Failure> {
        let status = match ended {
            Ok(status) if status.success() => return None,
            Ok(status) => status,
            Err(error) => {
                let how = format!("ended, its status is lost: {error}");
                return Some(Failure { rank, how, status: STATUS_LOST, by_signal: false });
            }
        };
        let (how, code) = match status.signal() {
            Some(signal) => {
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("unknown");
                (format!("was ended by signal {signal} ({name})"), SIGNAL_STATUS + signal)
            }
            None => {
                let code = status.code().unwrap_or_default();
                (format!("exited with status {code}"), code)
            }
        };
        let code = u8::try_from(code).unwrap_or(STATUS_LOST);
        Some(Failure { rank, how, status: code, by_signal: status.signal().is_some() })
    }
}

/// The failure that most likely caused the others. `signs` has the ranks in the order in which their output or their
/// process ended: a process closes its output before its sockets, so before any other rank can notice. A rank that was
/// ended by a signal counts as earlier than all that exited, since those may have reacted to it.
pub(crate) fn first<'a>(failures: &'a [Failure], signs: &[u32]) -> Option<&'a Failure> {
    let place = |rank| signs.iter().position(|&sign| sign == rank).unwrap_or(signs.len());
    failures.iter().min_by_key(|failure| (!failure.by_signal, place(failure.rank)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wait status holds the exit code in its second byte, or the signal in its first.
    fn failure(rank: u32, raw: i32) -> Failure {
        Failure::of(rank, Ok(ExitStatus::from_raw(raw))).unwrap()
    }

    #[test]
    fn statuses_are_those_of_a_shell() {
        let exited = failure(0, 3 << 8);
        assert_eq!((exited.status, exited.how.as_str()), (3, "exited with status 3"));
        let killed = failure(0, 9);
        assert_eq!((killed.status, killed.how.as_str()), (137, "was ended by signal 9 (SIGKILL)"));
        assert_eq!(Failure::of(0, Ok(ExitStatus::from_raw(0))), None);
    }

    #[test]
    fn the_first_sign_counts_and_a_signal_before_it() {
        let (one, two) = (failure(1, 1 << 8), failure(2, 1 << 8));
        let both = [two.clone(), one.clone()];
        assert_eq!(first(&both, &[1, 2]), Some(&one));
        assert_eq!(first(&both, &[2, 1]), Some(&two));
        let killed = failure(3, 9);
        let all = [two, one, killed.clone()];
        assert_eq!(first(&all, &[1, 2, 3]), Some(&killed));
        assert_eq!(first(&[], &[1]), None);
    }
}
