//! A transport's control plane, as a backend sees it: it spreads a first cause, asks silent ranks, and says goodbye.

use std::sync::Arc;
use std::time::{Duration, Instant};

use unisono_communicator::{
    Awaited, CallInfo, ClockOffset, Error, Group, GroupOptions, GroupRank, JobRank, LinkTime, Result,
};

use crate::board::{AnswerPlace, CALLS_REMEMBERED, NextPlace};
use crate::companion::Companion;
use crate::difference::{EARLIER_CALLS, call_difference, counts_difference};
use crate::peers::Peers;
use crate::status::{
    Asked, CallElsewhere, CallHistory, CallStatus, CommunicatorKey, Doing, UnreadMessages, is_message,
};

/// The longest time for which a rank keeps an error from its caller while it passes the cause on; see
/// [`Control::flood`].
pub const HANDOVER_MAX: Duration = Duration::from_millis(20);

/// The number of earlier calls about which a rank asks after a mismatch.
const EARLIER_CALLS_ASKED: u64 = 8;

/// The subject of an agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Question {
    /// The logical AND of the survivors' flags.
    Flag,
    /// The ranks that go on, in a communicator of the next epoch.
    Survivors,
    /// Whether all ranks have come.
    Barrier,
}

/// This rank's part in an agreement.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The subject.
    pub question: Question,
    /// The number of this agreement on this question in this communicator, from 0.
    pub number: u64,
    /// This rank's flag.
    pub flag: bool,
    /// The number of collectives that this rank finished before the first failed one.
    pub finished_calls: u64,
    /// The time at which this rank gives up.
    pub deadline: Instant,
    /// Whether a first cause ends the agreement: true for ranks that are joining or meet at a barrier, false for
    /// survivors.
    pub heeds_cause: bool,
}

/// The result of an agreement, the same on all survivors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Whether every survivor's flag was set.
    pub flag: bool,
    /// The smallest number of finished collectives of any survivor.
    pub finished_calls: u64,
    /// The survivors in ascending order.
    pub survivors: Vec<GroupRank>,
}

/// A transport's control plane. Only [`Control::flood`], [`Control::close`], [`Control::agree`] and [`Control::derive`]
/// may block.
pub trait Control: Send + Sync {
    /// Tells every other rank the first cause, which this rank has found. The board is revoked already. Returns when
    /// the connections to the next ranks have the cause, or after [`HANDOVER_MAX`]: a caller that gets the error may
    /// exit at once, and the other ranks must then know the cause, lest they blame this rank.
    fn flood(&self, cause: Arc<Error>);

    /// Notes that the stream from `peer` has ended in the middle of a call, without a known cause. This blames no rank:
    /// the control plane knows whether `peer` has left, died or given the call up. If `peer` has left or leaves later,
    /// its loss revokes the board.
    fn stream_ended(&self, peer: GroupRank);

    /// Asks `awaited` about call `number`, in which this rank has waited for it without progress. The answer comes
    /// through [`judge_answer`]. A backend asks again at growing intervals while nothing moves.
    fn ask(&self, awaited: GroupRank, number: u64);

    /// Says goodbye, and waits until `deadline` for the goodbyes of the other ranks.
    ///
    /// # Errors
    /// [`Error::Mismatch`] when a rank has closed after more, fewer or other calls.
    fn close(&self, ours: CallHistory, deadline: Instant) -> Result<()>;

    /// Agrees with the other survivors of this communicator. After an error, the caller may call again with the same
    /// number.
    ///
    /// # Errors
    /// [`Error::Evicted`] when the other ranks have taken this rank for dead, [`Error::NoQuorum`] when the silent ranks
    /// may go on without this rank, [`Error::Timeout`] when a living rank has not called it by the deadline.
    fn agree(&self, ask: &Ask) -> Result<Agreed>;

    /// The communicator of the survivors in the next epoch, after agreement `number`. `survivors` are ranks of this
    /// communicator in ascending order. Sends nothing.
    ///
    /// # Errors
    /// When the transport cannot make it.
    fn succeed(&self, survivors: &[GroupRank], number: u64) -> Result<Companion>;

    /// A new communicator of `ranks`, which are ranks of this one in their new order. `counter` numbers the
    /// communicators that are derived from this one. `None` when this rank is not in it. Options that `options` does
    /// not set come from this communicator. Sends nothing.
    ///
    /// # Errors
    /// When the transport cannot make it.
    fn derive(&self, ranks: &[GroupRank], options: &GroupOptions, counter: u64) -> Result<Option<Companion>>;

    /// Makes the other ranks lose this rank, because a panicking thread has dropped the communicator. Asynchronous
    /// calls may keep its streams open, so their end alone would come too late.
    fn abandon(&self) {}

    /// The clocks of other hosts as this rank has last measured them, in ascending order of the asked ranks. Empty
    /// until the first measurement, and where all ranks share a clock.
    fn clock_offsets(&self) -> Vec<ClockOffset> {
        Vec::new()
    }

    /// The work of the network between this rank and each rank to which it has, or has had, data over TCP, in ascending
    /// order of these ranks.
    fn link_times(&self) -> Vec<LinkTime> {
        Vec::new()
    }
}

/// Records the answer of `rank` to a question about call `number`, for the text of a timeout. Returns the mismatch that
/// the answer shows, if any; the caller revokes with it. Some mismatches show in no header: two reduces with different
/// roots may share no message.
pub fn judge_answer(peers: &Peers, rank: GroupRank, number: u64, answer: &CallStatus) -> Option<Error> {
    let (board, group) = (peers.board(), peers.group());
    note(peers, peers.asked(rank, number), answer);
    let theirs = match answer {
        CallStatus::Running { call, .. } | CallStatus::Done { call, .. } => call,
        CallStatus::NotYet { .. } | CallStatus::Forgotten => return None,
    };
    // Ended calls are compared too: two calls of one number must never differ.
    let ours = board.calls().info(number)?;
    let Some(seen) = board.answers().suspicion(rank, number) else {
        return mismatch((group.own_job_rank(), ours), (group.job_rank(rank), theirs.clone()));
    };
    // Only a header proves a difference of uneven counts, since two ranks need not agree on counts between other ranks.
    let counts = counts_difference(group, &ours, rank, theirs);
    let told: Vec<String> = call_difference(&ours, theirs).into_iter().chain(counts).collect();
    // The answer may lack the field that the header has shown to differ, such as the name of a user operator.
    let difference = if told.is_empty() { seen } else { told.join(", ") };
    Some(described((group.own_job_rank(), ours), (group.job_rank(rank), theirs.clone()), difference))
}

/// Records the answer of a rank about a call of another communicator, if questions have led there. Returns the next
/// question, as [`asked_next`].
pub fn answered_elsewhere(
    peers: &Peers,
    (rank, communicator, number): (JobRank, CommunicatorKey, u64),
    answer: &CallStatus,
) -> Option<Asked> {
    let place = AnswerPlace::Elsewhere(rank, communicator);
    let is_message = peers.board().answers().expects(place, number)?.is_message;
    let asked = Asked { rank, communicator, number, is_message };
    note(peers, asked, answer);
    not_asked(peers, leads_to(asked, answer))
}

fn note(peers: &Peers, asked: Asked, answer: &CallStatus) {
    let (at, next) = (peers.place(asked), leads_to(asked, answer).filter(|next| is_known(peers, *next)));
    let text = status_text(answer, peers.group(), next.map(|next| next.rank));
    peers.board().answers().note(at.place, at.number, text, next.map(|next| peers.place(next)));
}

/// The waits and the unread messages of the answering rank.
fn doing(answer: &CallStatus) -> Option<&Doing> {
    match answer {
        CallStatus::NotYet { doing, .. }
        | CallStatus::Running { doing, .. }
        | CallStatus::Done { doing, .. } => Some(&**doing),
        CallStatus::Forgotten => None,
    }
}

/// The next question: about the call for which the asked call waits, or else about the call of the answering rank's
/// thread.
fn leads_to(asked: Asked, answer: &CallStatus) -> Option<Asked> {
    let doing = doing(answer)?;
    let is_in_call = match answer {
        CallStatus::Running { .. } => !asked.is_message,
        // Its part is over; it may do anything now.
        CallStatus::Done { .. } if !asked.is_message => return None,
        CallStatus::Done { .. } | CallStatus::NotYet { .. } | CallStatus::Forgotten => false,
    };
    match &doing.elsewhere {
        Some(elsewhere) if !is_in_call => elsewhere.asked(),
        Some(_) | None => {
            let is_message = !is_in_call && doing.message.is_some();
            Some(Asked { rank: doing.awaited?, is_message, ..asked })
        }
    }
}

/// Whether a question can be asked. A broken peer may lead to a rank outside the group.
fn is_known(peers: &Peers, asked: Asked) -> bool {
    asked.communicator != peers.key() || peers.group().group_rank_of(asked.rank).is_some()
}

fn not_asked(peers: &Peers, asked: Option<Asked>) -> Option<Asked> {
    let is_asked = |asked: &Asked| {
        let NextPlace { place, number, .. } = peers.place(*asked);
        peers.board().answers().is_asked(place, number)
    };
    asked.filter(|asked| is_known(peers, *asked) && !is_asked(asked))
}

/// The next rank to ask, after the answer of `rank` about call `number`: the rank for which the answering rank waits,
/// in this communicator or another one, unless it was asked already. So the questions lead to the rank that holds up
/// the others.
pub fn asked_next(peers: &Peers, rank: GroupRank, number: u64, answer: &CallStatus) -> Option<Asked> {
    not_asked(peers, leads_to(peers.asked(rank, number), answer))
}

fn described(ours: (JobRank, CallInfo), theirs: (JobRank, CallInfo), difference: String) -> Error {
    Error::Mismatch { calls: Box::new([ours, theirs]), difference }
}

/// Asks the sender of a mismatching header about its call, since a header holds neither the line nor the label. Also
/// asks about earlier calls, where the ranks may have parted. The answer comes through [`judge_answer`], which revokes.
pub(crate) fn ask_for_the_call(control: &dyn Control, peers: &Peers, error: &Error) {
    let Error::Mismatch { calls, difference } = error else { return };
    let [(_, ours), (rank, theirs)] = &**calls;
    let Some(peer) = peers.group().group_rank_of(*rank) else { return };
    // If only earlier calls differ, this call is not the mismatch. So an answer about this call must not be reported as
    // the mismatch.
    if ours.number == theirs.number && !difference.starts_with(EARLIER_CALLS) {
        peers.board().answers().suspect(peer, ours.number, difference);
    }
    let last = ours.number.min(theirs.number);
    (last.saturating_sub(EARLIER_CALLS_ASKED)..=last).for_each(|number| control.ask(peer, number));
}

/// The mismatch of two calls of one number, if a field differs that must be equal.
pub fn mismatch(ours: (JobRank, CallInfo), theirs: (JobRank, CallInfo)) -> Option<Error> {
    let difference = call_difference(&ours.1, &theirs.1)?;
    Some(described(ours, theirs, difference))
}

/// The timeout of an agreement that this rank of `group` has asked for, `waited` ago. The ranks `awaited` have not
/// called it.
pub fn not_agreed(group: &Group, ask: &Ask, waited: Duration, awaited: &[GroupRank]) -> Error {
    let name = match ask.question {
        Question::Flag if ask.heeds_cause => "init",
        Question::Flag => "agree",
        Question::Survivors => "shrink",
        Question::Barrier => "monitored_barrier",
    };
    let call = CallInfo::without_data(ask.number, name);
    let status = || format!("has not called {name}");
    let awaits = |&rank: &GroupRank| Awaited { rank: group.job_rank(rank), status: status() };
    let not_arrived = awaited.iter().map(awaits).collect();
    Error::Timeout { call: Box::new(call), reported_by: group.own_job_rank(), waited, not_arrived }
}

fn status_text(answer: &CallStatus, group: &Group, awaited: Option<JobRank>) -> String {
    let elsewhere = doing(answer).and_then(|doing| doing.elsewhere.as_deref());
    let message = doing(answer).and_then(|doing| doing.message.as_deref());
    let call = match answer {
        // A message is a call too, so only of collectives can it be said that there is none.
        CallStatus::NotYet { last: Some(last), .. } if message.is_some() => {
            format!("its last collective was {last}")
        }
        CallStatus::NotYet { last: None, .. } if message.is_some() => {
            "has called no collective yet".to_owned()
        }
        CallStatus::NotYet { last: Some(last), .. } => format!("has not called; its last was {last}"),
        CallStatus::NotYet { last: None, .. } if elsewhere.is_some() => "has called nothing here".to_owned(),
        CallStatus::NotYet { last: None, .. } => "has not called anything yet".to_owned(),
        CallStatus::Running { call, ahead: Some(ahead), .. } => match ahead.communicator {
            Some(key) => format!("is in {call}, behind {} of communicator {key} on its stream", ahead.call),
            None => format!("is in {call}, and waits for its turn on its device behind {}", ahead.call),
        },
        CallStatus::Running { call, .. } => format!("is in {call}"),
        CallStatus::Done { call, .. } => format!("has finished {call}"),
        CallStatus::Forgotten => format!("is more than {CALLS_REMEMBERED} calls ahead"),
    };
    let message = message.map(|message| match &message.site {
        Some(site) => format!("is in {} at {site}, ", message.descriptor),
        None => format!("is in {}, ", message.descriptor),
    });
    let elsewhere = elsewhere.map(|elsewhere| {
        let CallElsewhere { communicator, ranks, call, .. } = elsewhere;
        let call = match &call.site {
            Some(site) if is_message(call) => format!("{} at {site}", call.descriptor),
            _ => call.to_string(),
        };
        format!("is in {call} of communicator {communicator} of ranks {ranks}, ")
    });
    let awaited = awaited.map(|awaited| format!(" and waits for rank {awaited}"));
    let unread = doing(answer).map(|doing| unread_text(&doing.unread, group)).filter(|text| !text.is_empty());
    let unread = unread.map(|unread| format!("; without a receive: {unread}"));
    [elsewhere, message, Some(call), awaited, unread].into_iter().flatten().collect()
}

/// Text about messages without a receive; empty for none. It omits senders outside the group.
pub fn unread_text(unread: &[UnreadMessages], group: &Group) -> String {
    let known = unread.iter().filter(|unread| unread.from.get() < group.size());
    let texts: Vec<String> = known
        .map(|UnreadMessages { from, tag, messages }| {
            let plural = if *messages == 1 { "" } else { "s" };
            format!("{messages} message{plural} of tag {tag} from rank {}", group.job_rank(*from))
        })
        .collect();
    if texts.is_empty() { String::new() } else { format!("{} without a receive", texts.join(", ")) }
}

/// The mismatch of ranks that have closed after different calls, if any. For different numbers of calls it names the
/// first call that only one rank made. For equal numbers it names our last call, since no message has shown the
/// differing call.
///
/// A mismatch that another rank has reported comes first: it makes this rank's results worthless, and no later call
/// would report it. Other failures do not concern a rank that has finished.
pub fn closing_error(peers: &Peers, ours: CallHistory, theirs: &[Option<CallHistory>]) -> Option<Error> {
    let (board, group) = (peers.board(), peers.group());
    let found = board.first_cause().error();
    if let Some(error) = found.filter(|error| matches!(error.root_cause(), Error::Mismatch { .. })) {
        return Some(error);
    }
    let mut said = group.job_ranks().iter().zip(theirs).filter_map(|(rank, said)| Some((*rank, (*said)?)));
    let (rank, theirs) = said.find(|(_, theirs)| *theirs != ours)?;
    history_difference(peers, ours, &RankHistory { rank, history: theirs, last: None }, "close")
}

/// The history that another rank has reported at its end in a communicator.
pub struct RankHistory<'a> {
    /// The rank.
    pub rank: JobRank,
    /// Its history.
    pub history: CallHistory,
    /// The rank's last call, if it has told one.
    pub last: Option<&'a CallInfo>,
}

/// The mismatch of this rank and another that have closed or left a communicator after different calls, if any.
/// `ending` is `close` or `leave`.
pub fn history_difference(
    peers: &Peers,
    ours: CallHistory,
    other: &RankHistory<'_>,
    ending: &'static str,
) -> Option<Error> {
    let RankHistory { rank, history: theirs, last } = *other;
    if ours == theirs {
        return None;
    }
    let (own, board) = (peers.group().own_job_rank(), peers.board());
    let ended = |number| CallInfo::without_data(number, ending);
    let our_call = |number| board.calls().info(number).unwrap_or_else(|| ended(number));
    let their_call = last.cloned().unwrap_or_else(|| ended(theirs.calls));
    if ours.calls == theirs.calls {
        let our_call = our_call(ours.calls.saturating_sub(1));
        let told = last.and_then(|last| call_difference(&our_call, last));
        let difference = told.unwrap_or_else(|| format!("{EARLIER_CALLS} differ"));
        return Some(described((own, our_call), (rank, their_call), difference));
    }
    let difference = format!("{} / {} calls at their {ending}", ours.calls, theirs.calls);
    let our_call = if ours.calls > theirs.calls { our_call(theirs.calls) } else { ended(ours.calls) };
    Some(described((own, our_call), (rank, their_call), difference))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Board;
    use unisono_communicator::{
        CallAlgorithm, Collective, Counts, DType, Descriptor, ReduceOp, Site, Sizes, UserOp,
    };

    const OURS: JobRank = JobRank::new(2);
    const THEIRS: JobRank = JobRank::new(0);
    const PEER: GroupRank = GroupRank::new(1);

    /// Rank 0 of a group of the ranks 2 and 0 of the job.
    fn peers() -> Peers {
        let own = GroupRank::new(0);
        let group = Group::new(own, [OURS, THEIRS].into(), [0; 2].into(), 0);
        Peers::new(group, Arc::new(Board::new(own, 2)))
    }

    #[test]
    fn the_names_of_user_operators_are_compared() {
        let call = |name, count| {
            let op = Some(ReduceOp::User(UserOp::ordered(name)));
            let descriptor = Descriptor { op, ..Descriptor::new(Collective::AllReduce, DType::U64, count) };
            CallInfo::new(3, descriptor)
        };
        assert!(mismatch((OURS, call("affine", 5)), (THEIRS, call("affine", 5))).is_none());
        let error = mismatch((OURS, call("affine", 5)), (THEIRS, call("gcd", 6)));
        let error = error.map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("(count 5 / 6, user op affine / gcd)")));
    }

    fn gather(algorithm: &'static str) -> CallInfo {
        let descriptor = Descriptor::new(Collective::AllGather, DType::U64, 4);
        CallInfo { algorithm: Some(algorithm.into()), ..CallInfo::new(0, descriptor) }
    }

    #[test]
    fn two_algorithms_are_a_mismatch() {
        assert!(mismatch((OURS, gather("ring")), (THEIRS, gather("ring"))).is_none());
        let error =
            mismatch((OURS, gather("ring")), (THEIRS, gather("direct"))).map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.ends_with("(algorithm ring / direct)")));
    }

    #[test]
    fn two_schedules_of_one_name_are_a_mismatch() {
        let own = |schedules| {
            let algorithm = Some(CallAlgorithm { name: "own".into(), schedules });
            CallInfo { algorithm, ..gather("own") }
        };
        assert!(mismatch((OURS, own(7)), (THEIRS, own(7))).is_none());
        let error = mismatch((OURS, own(7)), (THEIRS, own(8))).map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.ends_with("(schedules of own differ)")));
    }

    #[test]
    fn an_answer_completes_what_a_header_has_shown() {
        let peers = peers();
        let board = peers.board();
        let sized = |counts: [u64; 2]| {
            let sizes = Sizes::of(DType::U64, &Counts::PerRank(counts.into()), None).map(Arc::new);
            let descriptor = Descriptor { uneven: true, ..gather("ring").descriptor };
            CallInfo { descriptor, sizes, ..gather("ring") }
        };
        let ours = sized([4, 2]);
        board.calls().enter(&ours.descriptor, None, ours.sizes.as_ref(), Site::caller(), None);
        let answer = |call| CallStatus::Running { call, doing: Box::default(), ahead: None };
        let judge = |call| match judge_answer(&peers, PEER, 0, &answer(call)) {
            Some(Error::Mismatch { calls, difference }) if calls[1].0 == THEIRS => Some(difference),
            other => other.map(|error| error.to_string()),
        };
        assert_eq!(judge(sized([4, 3])), None, "counts of others");
        board.answers().suspect(PEER, 0, "counts differ");
        assert_eq!(judge(sized([4, 3])).as_deref(), Some("counts [4, 2] / [4, 3]"));
        assert_eq!(judge(ours.clone()).as_deref(), Some("counts differ"), "all that is known");
        assert!(judge_answer(&peers, PEER, 7, &answer(ours.clone())).is_none(), "no such call");
    }

    #[test]
    fn a_status_names_a_rank_of_the_job() {
        let peers = peers();
        let status_of = |awaited| {
            let awaited = Some(JobRank::new(awaited));
            let doing = Box::new(Doing { awaited, ..Doing::default() });
            let answer = CallStatus::Running { call: gather("ring"), doing, ahead: None };
            assert!(judge_answer(&peers, PEER, 0, &answer).is_none());
            peers.board().answers().text(PEER, 0)
        };
        assert!(status_of(2).ends_with("and waits for rank 2"), "{}", status_of(2));
        assert!(!status_of(1).contains("waits"), "not a rank of the group");
    }

    #[test]
    fn closing_tells_of_other_calls_and_of_a_mismatch_elsewhere() {
        let here = peers();
        let same = CallHistory { calls: 3, digest: 9 };
        for other in [CallHistory { calls: 3, digest: 8 }, CallHistory { calls: 4, digest: 9 }] {
            let error = closing_error(&here, same, &[Some(same), Some(other)]);
            assert!(matches!(error, Some(Error::Mismatch { calls, .. }) if calls[1].0 == THEIRS));
        }
        assert!(closing_error(&here, same, &[Some(same), Some(same)]).is_none());
        let cause = mismatch((OURS, gather("ring")), (THEIRS, gather("direct"))).map(Arc::new);
        assert!(cause.is_some_and(|cause| here.board().first_cause().revoke(THEIRS, cause)));
        let error = closing_error(&here, same, &[Some(same), Some(same)]);
        assert!(matches!(error, Some(Error::Mismatch { .. })));
        let other = peers();
        assert!(other.board().first_cause().revoke(THEIRS, Arc::new(Error::closed())));
        assert!(closing_error(&other, same, &[Some(same), Some(same)]).is_none());
    }
}
