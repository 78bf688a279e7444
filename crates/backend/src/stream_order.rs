//! In which order the calls of several communicators are on the streams of one rank, and whether two ranks have two of
//! them in different orders: each call then waits for the other, and the communicator of neither can tell why. Also
//! which call of another communicator keeps one from its turn on its device.

use unisono_communicator::{Error, JobRank};

use crate::board::Board;
use crate::group_keys::list_text;
use crate::status::{CallAhead, CallStatus, CommunicatorKey};

/// A communicator that this rank, or one that it asks, is a member of.
#[derive(Clone, Copy)]
pub struct Membership<'a> {
    /// Which.
    pub key: CommunicatorKey,
    /// Its ranks.
    pub ranks: &'a [JobRank],
    /// What the rank shows of its calls there.
    pub board: &'a Board,
}

impl Membership<'_> {
    fn call_text(&self, number: u64) -> String {
        format!("call {number} of communicator {} of ranks {}", self.key, list_text(self.ranks))
    }
}

/// Adds to what a rank answers about its call on `asked` which call of its other communicators has the turn on the
/// device for which it waits, or is first on the call's stream, if one is.
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
        // What a revoked communicator has on streams is ended, or never will be.
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

/// The mismatch that `rank` shows by its answer about a call of `asked`: on its stream a call of another communicator
/// is ahead, which on the stream of that call here is behind it. `others` finds the communicators of this rank. Where
/// the two calls are on two streams, or one has not been made yet, any order is right.
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
