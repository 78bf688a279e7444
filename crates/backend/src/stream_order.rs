//! The order of calls of several communicators on the streams of one rank. Two ranks may have two calls in different
//! orders: then each call waits for the other, and neither communicator alone can tell why. A call of another
//! communicator may also keep a call from its turn on the device.

use unisono_communicator::{Error, JobRank};

use crate::board::Board;
use crate::group_keys::list_text;
use crate::status::{CallAhead, CallStatus, CommunicatorKey};

/// One communicator of a rank.
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

/// Adds the call that keeps the call of `status` waiting, if there is one. That is the call that has the turn on the
/// device, or the first call on the stream. `status` is the answer about a call of `asked`; `all` are the communicators
/// of the rank that answers.
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
        // The calls of a revoked communicator have left their streams, or never will.
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

/// The mismatch that `rank` shows by its answer about a call of `asked`. There, a call of another communicator is ahead
/// of that call on its stream. Here, on rank `own`, it is behind. `others` finds the communicators of this rank. Any
/// order is right where the two calls are on two streams here, and where this rank has not made both of them.
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
