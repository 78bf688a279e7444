//! In which order the calls of several communicators are on the streams of one rank, and whether two ranks have two of
//! them in different orders: each call then waits for the other, and the communicator of neither can tell why. Also
//! which call of another communicator keeps one from its turn on its device.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use unisono_communicator::{CallInfo, DeviceStream, Error, JobRank};

use crate::board::Board;
use crate::group_keys::list_text;
use crate::lock;
use crate::status::CallStatus;

/// One communicator in one epoch, the same on all its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommunicatorKey {
    /// Its id: 0 for the world.
    pub id: u64,
    /// Its epoch.
    pub epoch: u32,
}

impl fmt::Display for CommunicatorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            CommunicatorKey { id: 0, epoch: 0 } => f.write_str("world"),
            CommunicatorKey { id, epoch } => write!(f, "{id:016x}-{epoch}"),
        }
    }
}

/// The call of another communicator behind which one waits: the first on its stream that is not finished, or the one
/// whose turn it is on its device.
#[derive(Clone, Debug, PartialEq)]
pub struct CallAhead {
    /// Whose it is, if it is on the stream; `None` for the one whose turn it is on the device.
    pub communicator: Option<CommunicatorKey>,
    /// The call.
    pub call: CallInfo,
}

/// Where a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    stream: DeviceStream,
    /// Greater than that of every call that this process has put on a stream before.
    order: u64,
}

/// The calls of one communicator that are on streams and not finished.
#[derive(Default)]
pub struct OnStreams {
    calls: Mutex<VecDeque<(u64, Place)>>,
    /// Whose turn it is on the device, where the communicator's last call waits for its own.
    behind: Mutex<Option<CallInfo>>,
}

impl OnStreams {
    /// Call `number` is about to be put on a stream. It is the communicator's last so far.
    pub fn note(&self, number: u64, stream: DeviceStream) {
        // Streams belong to a process, whatever the number of its communicators.
        static LAST: AtomicU64 = AtomicU64::new(0);
        let order = LAST.fetch_add(1, Ordering::Relaxed);
        lock(&self.calls).push_back((number, Place { stream, order }));
    }

    /// The communicator's last call waits for its turn on the device, which this one of another communicator has;
    /// `None` when it waits no longer.
    pub fn wait_behind(&self, call: Option<CallInfo>) {
        *lock(&self.behind) = call;
    }

    /// The call whose turn on the device keeps the last one waiting, if one does.
    pub fn behind(&self) -> Option<CallInfo> {
        lock(&self.behind).clone()
    }

    /// Forgets this call and all before it.
    pub(crate) fn finish(&self, number: u64) {
        let mut calls = lock(&self.calls);
        while calls.pop_front_if(|(first, _)| *first <= number).is_some() {}
    }

    fn place_of(&self, number: u64) -> Option<Place> {
        lock(&self.calls).iter().find(|(call, _)| *call == number).map(|(_, place)| *place)
    }

    /// The number of the first call on the stream of `place`, if it is before that place.
    fn first_before(&self, place: Place) -> Option<(u64, Place)> {
        let calls = lock(&self.calls);
        let first = calls.iter().find(|(_, other)| other.stream == place.stream);
        first.copied().filter(|(_, other)| other.order < place.order)
    }
}

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
    (own, asked): (JobRank, Membership<'m>),
    (rank, answer): (JobRank, &CallStatus),
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
