//! The order of calls of several communicators on the streams of one rank. If two ranks have two calls in different
//! orders, each call waits for the other, and neither communicator alone can tell why. A call may also wait because
//! another communicator uses its device.

use unisono_communicator::{CallInfo, Error, JobRank};

use crate::board::Board;
use crate::group_keys::list_text;
use crate::status::{CallAhead, CallElsewhere, CallStatus, CommunicatorKey};

/// A communicator of a rank.
#[derive(Clone, Copy)]
pub struct Membership<'a> {
    /// The communicator.
    pub key: CommunicatorKey,
    /// The ranks of the communicator.
    pub ranks: &'a [JobRank],
    /// The board on which the rank shows its calls there.
    pub board: &'a Board,
}

impl Membership<'_> {
    fn call_text(&self, number: u64) -> String {
        format!("call {number} of communicator {} of ranks {}", self.key, list_text(self.ranks))
    }
}

/// Adds to `status`, the answer about a call of `asked`, the call for which that call waits: the call that uses the
/// device, or the first call on the stream. `all` are the communicators of the answering rank.
pub fn with_call_ahead<'m>(
    status: CallStatus,
    asked: Membership<'m>,
    all: impl Iterator<Item = Membership<'m>>,
) -> CallStatus {
    let CallStatus::Running { call, doing, ahead: None } = status else { return status };
    if let Some(behind) = asked.board.on_streams().behind() {
        let ahead = Some(Box::new(CallAhead { communicator: None, call: behind }));
        return CallStatus::Running { call, doing, ahead };
    }
    let ahead = asked.board.on_streams().place_of(call.number).and_then(|place| {
        // Calls of a revoked communicator have left their streams, or never will.
        let others = all.filter(|one| one.key != asked.key && !one.board.first_cause().is_revoked());
        let firsts = others.filter_map(|one| {
            let (number, first) = one.board.on_streams().first_before(place)?;
            Some((first.order, one.key, one.board.calls().info(number)?))
        });
        firsts.min_by_key(|(order, ..)| *order)
    });
    let ahead = ahead.map(|(_, key, call)| Box::new(CallAhead { communicator: Some(key), call }));
    CallStatus::Running { call, doing, ahead }
}

/// Adds to `status`, the answer about a call of `asked`, the call of another communicator in which a thread of the
/// answering rank waits, unless a thread waits in `asked`. `all` are the communicators of that rank, with or without
/// `asked`.
pub fn with_call_elsewhere<'m>(
    mut status: CallStatus,
    asked: CommunicatorKey,
    all: impl Iterator<Item = Membership<'m>>,
) -> CallStatus {
    let (CallStatus::NotYet { doing, .. }
    | CallStatus::Running { doing, .. }
    | CallStatus::Done { doing, .. }) = &mut status
    else {
        return status;
    };
    let waits = all.filter_map(|one| Some((one, one.board.waits_in()?)));
    // Of several threads, a thread that is known to wait for a rank tells most.
    let place = |(one, (_, awaited, _)): &(Membership<'_>, (CallInfo, Option<JobRank>, u64))| {
        (one.key != asked, awaited.is_none(), one.key)
    };
    let longest = waits.min_by_key(place).filter(|(one, _)| one.key != asked);
    doing.elsewhere = longest.map(|(one, (call, awaited, number))| {
        let (communicator, ranks) = (one.key, list_text(one.ranks));
        Box::new(CallElsewhere { communicator, ranks, call, awaited, number })
    });
    status
}

/// The mismatch that the answer of `rank` about a call of `asked` shows, if any: on `rank`, a call of another
/// communicator is ahead of the asked call on its stream, and on this rank the asked call is ahead. `others` finds the
/// communicators of this rank. The orders do not matter if the two calls are on different streams here, or if this rank
/// has not made both.
pub fn order_mismatch<'m>(
    own: JobRank,
    asked: Membership<'m>,
    rank: JobRank,
    answer: &CallStatus,
    others: impl FnOnce(CommunicatorKey) -> Option<Membership<'m>>,
) -> Option<Error> {
    let CallStatus::Running { call: theirs, ahead: Some(ahead), .. } = answer else { return None };
    let other = others(ahead.communicator?)?;
    let number = theirs.number;
    let (first, second) =
        (asked.board.on_streams().place_of(number)?, other.board.on_streams().place_of(ahead.call.number)?);
    if first.stream != second.stream || first.order > second.order {
        return None;
    }
    let (a, b) = (asked.call_text(number), other.call_text(ahead.call.number));
    let difference = format!("order on one stream: {a} before {b} / {b} before {a}");
    let calls = [(own, asked.board.calls().info(number)?), (rank, ahead.call.clone())];
    Some(Error::Mismatch { calls: Box::new(calls), difference })
}

#[cfg(test)]
#[path = "stream_order_tests.rs"]
mod tests;
