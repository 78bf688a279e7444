//! The control plane of a transport, as a backend sees it: it spreads a first cause, asks a silent rank, says goodbye.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_communicator::{Awaited, CallInfo, Collective, Communicator, DType, Descriptor, Error, Result};

use crate::board::{Board, CALLS_REMEMBERED, CallHistory, CallStatus};
use crate::difference::{EARLIER_CALLS, call_difference, counts_difference};

/// How long the error of a call is held back for its cause to be handed over; see [`Control::flood`].
pub const HANDOVER_MAX: Duration = Duration::from_millis(20);

/// After a mismatch, the number of earlier calls about which the other rank is asked.
const EARLIER_CALLS_ASKED: u64 = 8;

/// What survivors agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Question {
    /// The logical AND of their flags.
    Flag,
    /// The ranks that go on in a communicator of the next epoch.
    Survivors,
}

/// This rank's part in an agreement.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// What it is about.
    pub question: Question,
    /// Which agreement about that question on this communicator it is, counted from 0.
    pub number: u64,
    /// This rank's flag.
    pub flag: bool,
    /// The number of collectives that this rank has finished, with no failed one among them.
    pub finished_calls: u64,
    /// When this rank gives up.
    pub deadline: Instant,
}

/// What all survivors have agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Whether every survivor's flag was set.
    pub flag: bool,
    /// The smallest number of finished collectives of any survivor.
    pub finished_calls: u64,
    /// The survivors, as group ranks, ascending.
    pub survivors: Vec<u32>,
}

/// What a backend asks of the transport's control plane. None of these methods blocks, except [`Control::flood`],
/// [`Control::close`], [`Control::agree`] and [`Control::derive`].
pub trait Control: Send + Sync {
    /// This rank has found the first cause: tell every other rank. The board is already revoked. Returns when the
    /// cause has been handed to the connections to the next ranks, or after [`HANDOVER_MAX`]. A caller that gets the
    /// error may end the process at once, and then the others must know the cause and not blame this rank.
    fn flood(&self, cause: Arc<Error>);

    /// The stream from the group rank `peer` has ended in the middle of a call, and no cause is known. That alone
    /// blames no rank: a rank that is connected to the control plane of `peer` knows whether it has left, died, or
    /// given the call up. If `peer` has left, or as soon as it does, the board is revoked with its loss.
    fn stream_ended(&self, peer: u32);

    /// Call `number` of this rank has waited for `awaited` without progress: ask that rank. The answer comes through
    /// [`judge_answer`]. Called again at growing intervals while nothing moves.
    fn ask(&self, awaited: u32, number: u64);

    /// Says goodbye, and waits until `deadline` for the others to say so too.
    ///
    /// # Errors
    /// [`Error::Mismatch`] when a rank closed after another number of calls, or after other calls.
    fn close(&self, ours: CallHistory, deadline: Instant) -> Result<()>;

    /// Agrees with the other survivors of this communicator. After an error it can be called again with the same
    /// number.
    ///
    /// # Errors
    /// [`Error::Evicted`] when the others have taken this rank for dead, [`Error::NoQuorum`] when the other ranks may
    /// be the ones that go on, [`Error::Timeout`] when a living rank has not called it by the deadline.
    fn agree(&self, ask: &Ask) -> Result<Agreed>;

    /// The communicator of the survivors (group ranks of this one, ascending), in the next epoch, after agreement
    /// `number` on them. Needs no message.
    ///
    /// # Errors
    /// When the transport cannot make it.
    fn succeed(&self, survivors: &[u32], number: u64) -> Result<Arc<dyn Communicator>>;

    /// A new communicator of `ranks` (group ranks of this one, in the new order): the `counter`-th derived from
    /// this one. `None` when this rank is not in it. Needs no message.
    ///
    /// # Errors
    /// When the transport cannot.
    fn derive(&self, ranks: &[u32], counter: u64) -> Result<Option<Arc<dyn Communicator>>>;

    /// The last handle of the communicator is being dropped by a thread that panics, so the other ranks lose this one.
    /// Asynchronous calls may keep its streams open for longer.
    fn abandon(&self) {}
}

/// Takes the answer of `rank` to a question about call `number`. Records it for the text of a timeout, and finds
/// mismatches that no header shows (two roots of a reduce share no message). Returns the mismatch, if there is one;
/// the caller revokes with it.
pub fn judge_answer(board: &Board, rank: u32, number: u64, answer: &CallStatus) -> Option<Error> {
    let awaited = match answer {
        CallStatus::Running { awaited, .. } => *awaited,
        CallStatus::NotYet { .. } | CallStatus::Done { .. } | CallStatus::Forgotten => None,
    };
    board.note(rank, number, status_text(answer), awaited);
    let theirs = match answer {
        CallStatus::Running { call, .. } | CallStatus::Done { call } => call,
        CallStatus::NotYet { .. } | CallStatus::Forgotten => return None,
    };
    // A call that has ended meanwhile is compared too: two calls of one number may never differ.
    let ours = board.call_info(number)?;
    let Some(seen) = board.suspicion(rank, number) else {
        return mismatch((board.rank(), ours), (rank, theirs.clone()));
    };
    // Two ranks need not agree on uneven counts that are not between them, so only a header proves that they differ.
    let counts = counts_difference((board.rank(), &ours), (rank, theirs));
    let told: Vec<String> = call_difference(&ours, theirs).into_iter().chain(counts).collect();
    // What the header has shown is left for what the answer does not tell, such as the name of a user operator.
    let difference = if told.is_empty() { seen } else { told.join(", ") };
    Some(described((board.rank(), ours), (rank, theirs.clone()), difference))
}

/// The ranks to ask next about call `number`, after an answer to a question about it. Asking a rank, then the rank
/// that it waits for, and so on leads to the ranks that keep all others waiting.
pub fn asked_next(board: &Board, number: u64, answer: &CallStatus) -> Option<u32> {
    match answer {
        CallStatus::Running { awaited, .. } => awaited.filter(|&awaited| !board.is_asked(awaited, number)),
        CallStatus::NotYet { .. } | CallStatus::Done { .. } | CallStatus::Forgotten => None,
    }
}

fn described(ours: (u32, CallInfo), theirs: (u32, CallInfo), difference: String) -> Error {
    Error::Mismatch { calls: Box::new([ours, theirs]), difference }
}

/// After a header has shown a mismatch: asks its sender about the call and about those before it, since the ranks may
/// have parted earlier. A header contains neither the place in the program nor the label. The answer that revokes
/// comes through [`judge_answer`].
pub(crate) fn ask_for_the_call(control: &dyn Control, board: &Board, error: &Error) {
    let Error::Mismatch { calls, difference } = error else { return };
    let [(_, ours), (rank, theirs)] = &**calls;
    // If only earlier calls differ, an answer about this call that is already on its way must not be reported.
    if ours.number == theirs.number && !difference.starts_with(EARLIER_CALLS) {
        board.suspect(*rank, ours.number, difference);
    }
    let last = ours.number.min(theirs.number);
    (last.saturating_sub(EARLIER_CALLS_ASKED)..=last).for_each(|number| control.ask(*rank, number));
}

/// The mismatch of two calls of the same number, if they differ in a field that must be equal.
pub fn mismatch((our_rank, ours): (u32, CallInfo), (rank, theirs): (u32, CallInfo)) -> Option<Error> {
    let difference = call_difference(&ours, &theirs)?;
    Some(described((our_rank, ours), (rank, theirs), difference))
}

/// The failure of `rank`, which has asked the other survivors for this long; the ranks `awaited` have not called.
pub fn not_agreed(rank: u32, ask: &Ask, waited: Duration, awaited: &[u32]) -> Error {
    let name = match ask.question {
        Question::Flag => "agree",
        Question::Survivors => "shrink",
    };
    let call = CallInfo {
        number: ask.number,
        descriptor: Descriptor::new(Collective::Barrier, DType::U8, 0),
        algorithm: Some(name.into()),
        site: None,
        sizes: None,
    };
    let awaits = |&rank: &u32| Awaited { rank, status: format!("has not called {name}") };
    let not_arrived = awaited.iter().map(awaits).collect();
    Error::Timeout { call: Box::new(call), reported_by: rank, waited, not_arrived }
}

/// An answer in words.
fn status_text(answer: &CallStatus) -> String {
    match answer {
        CallStatus::NotYet { last: Some(last) } => format!("has not called; its last was {last}"),
        CallStatus::NotYet { last: None } => "has not called anything yet".to_owned(),
        CallStatus::Running { call, awaited: Some(awaited) } => {
            format!("is in {call} and waits for rank {awaited}")
        }
        CallStatus::Running { call, awaited: None } => format!("is in {call}"),
        CallStatus::Done { call } => format!("has finished {call}"),
        CallStatus::Forgotten => format!("is more than {CALLS_REMEMBERED} calls ahead"),
    }
}

/// The mismatch of two ranks that closed after different numbers of calls, if they did: the first call that only one
/// of them made. If the numbers are equal and the calls are not, our last call, since no message has shown which one
/// differed.
///
/// If another rank's mismatch has arrived meanwhile, that is the answer: it makes results of this rank worthless, and
/// no later call will report it. Any other failure does not concern a rank that has finished.
pub fn closing_error(board: &Board, ours: CallHistory, theirs: &[Option<CallHistory>]) -> Option<Error> {
    let found = board.revocation_error();
    if let Some(error) = found.filter(|error| matches!(error.root_cause(), Error::Mismatch { .. })) {
        return Some(error);
    }
    let mut said = theirs.iter().enumerate().filter_map(|(rank, said)| Some((rank as u32, (*said)?)));
    let (rank, theirs) = said.find(|(_, theirs)| *theirs != ours)?;
    let closing = |number| CallInfo {
        number,
        descriptor: Descriptor::new(Collective::Barrier, DType::U8, 0),
        algorithm: Some("close".into()),
        site: None,
        sizes: None,
    };
    let first_extra = |number| board.call_info(number).unwrap_or_else(|| closing(number));
    let (our_call, difference) = if ours.calls == theirs.calls {
        let difference = format!("{EARLIER_CALLS} differ");
        (first_extra(ours.calls.saturating_sub(1)), difference)
    } else {
        let difference = format!("closed after {} / {} calls", ours.calls, theirs.calls);
        (if ours.calls > theirs.calls { first_extra(theirs.calls) } else { closing(ours.calls) }, difference)
    };
    Some(described((board.rank(), our_call), (rank, closing(theirs.calls)), difference))
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;
    use unisono_communicator::{Counts, ReduceOp, Sizes, UserOp};

    /// Two calls of one number may share no message, so that no header shows it.
    #[test]
    fn the_names_of_user_operators_are_compared() {
        let call = |name, count| {
            let op = Some(ReduceOp::User(UserOp::ordered(name)));
            let descriptor = Descriptor { op, ..Descriptor::new(Collective::AllReduce, DType::U64, count) };
            CallInfo { number: 3, descriptor, algorithm: None, site: None, sizes: None }
        };
        assert!(mismatch((0, call("affine", 5)), (1, call("affine", 5))).is_none());
        let error = mismatch((0, call("affine", 5)), (1, call("gcd", 6))).map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("(count 5 / 6, user op affine / gcd)")));
    }

    fn gather(algorithm: &'static str) -> CallInfo {
        let descriptor = Descriptor::new(Collective::AllGather, DType::U64, 4);
        CallInfo { number: 0, descriptor, algorithm: Some(algorithm.into()), site: None, sizes: None }
    }

    /// They may share no message, so that no header shows it.
    #[test]
    fn two_algorithms_are_a_mismatch() {
        assert!(mismatch((0, gather("ring")), (1, gather("ring"))).is_none());
        let error = mismatch((0, gather("ring")), (1, gather("direct"))).map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.ends_with("(algorithm ring / direct)")));
    }

    #[test]
    fn an_answer_completes_what_a_header_has_shown() {
        let board = Board::new(0, 2);
        let sized = |counts: [u64; 2]| {
            let sizes = Sizes::of(DType::U64, &Counts::PerRank(counts.into()), None).map(Arc::new);
            let descriptor = Descriptor { uneven: true, ..gather("ring").descriptor };
            CallInfo { descriptor, sizes, ..gather("ring") }
        };
        let ours = sized([4, 2]);
        board.enter(&ours.descriptor, None, ours.sizes.clone(), Location::caller());
        let answer = |call| CallStatus::Running { call, awaited: None };
        let judge = |call| match judge_answer(&board, 1, 0, &answer(call)) {
            Some(Error::Mismatch { calls, difference }) if calls[1].0 == 1 => Some(difference),
            other => other.map(|error| error.to_string()),
        };
        assert_eq!(judge(sized([4, 3])), None, "counts of others");
        board.suspect(1, 0, "counts differ");
        assert_eq!(judge(sized([4, 3])).as_deref(), Some("counts [4, 2] / [4, 3]"));
        assert_eq!(judge(ours.clone()).as_deref(), Some("counts differ"), "all that is known");
        assert!(judge_answer(&board, 1, 7, &answer(ours.clone())).is_none(), "no such call");
    }

    #[test]
    fn closing_tells_of_other_calls_and_of_a_mismatch_elsewhere() {
        let board = Board::new(0, 2);
        let same = CallHistory { calls: 3, digest: 9 };
        for other in [CallHistory { calls: 3, digest: 8 }, CallHistory { calls: 4, digest: 9 }] {
            let error = closing_error(&board, same, &[Some(same), Some(other)]);
            assert!(matches!(error, Some(Error::Mismatch { calls, .. }) if calls[1].0 == 1));
        }
        assert!(closing_error(&board, same, &[Some(same), Some(same)]).is_none());
        let cause = mismatch((0, gather("ring")), (1, gather("direct"))).map(Arc::new);
        assert!(cause.is_some_and(|cause| board.revoke(1, cause)));
        let error = closing_error(&board, same, &[Some(same), Some(same)]);
        assert!(matches!(error, Some(Error::Mismatch { .. })));
        let other = Board::new(0, 2);
        assert!(other.revoke(1, Arc::new(Error::Closed)));
        assert!(closing_error(&other, same, &[Some(same), Some(same)]).is_none());
    }
}
