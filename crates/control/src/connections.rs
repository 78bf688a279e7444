//! The connections of one rank whose two sides have proven their identity: the parked connections, the connections that
//! are being agreed on, and the control connections in use. Pure: the owner has the streams, under these numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use unisono_communicator::JobRank;

use crate::slots::{Slot, Slots};
use crate::wire::{BadFrame, CommunicatorKey, ConnectionRole};

/// A connection between two sides that have proven their identity. A later one of a rank has a greater number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionNumber(u64);

impl ConnectionNumber {
    /// Any number, for tests.
    #[cfg(test)]
    pub(crate) const fn new(number: u64) -> ConnectionNumber {
        ConnectionNumber(number)
    }
}

/// The next step of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionStep {
    /// Say [`Verdict::Keep`], wait so long for the acknowledgement, and hand it to [`ControlPlane::on_acknowledged`].
    ///
    /// [`Verdict::Keep`]: crate::handshake::Verdict::Keep
    /// [`ControlPlane::on_acknowledged`]: crate::ControlPlane::on_acknowledged
    Keep(Duration),
    /// Wait for the verdict, and hand it to [`ControlPlane::on_verdict`]. Without a time limit for as long as it takes,
    /// since the communicator may not exist there yet.
    ///
    /// [`ControlPlane::on_verdict`]: crate::ControlPlane::on_verdict
    AwaitVerdict(Option<Duration>),
    /// Take it into use, and then call [`ControlPlane::on_connected`].
    ///
    /// [`ControlPlane::on_connected`]: crate::ControlPlane::on_connected
    Use,
    /// Say [`Verdict::Drop`], and close it.
    ///
    /// [`Verdict::Drop`]: crate::handshake::Verdict::Drop
    Drop,
    /// Close it. Messages that were sent before still go out.
    Close,
}

/// The end of a control connection.
#[derive(Debug)]
pub enum End {
    /// The other side's host, or the network between, has ended it.
    Closed(String),
    /// A message did not match its checksum, which says nothing about the other side. It may have been a goodbye.
    Changed,
    /// A message that cannot be decoded.
    Nonsense(String),
    /// The process on the other side has ended, and everything that it had sent has been read. Others may hold its
    /// socket, so that nothing else ends the connection.
    ProcessEnded(String),
}

impl From<BadFrame> for End {
    fn from(bad: BadFrame) -> End {
        match bad {
            BadFrame::Changed => End::Changed,
            BadFrame::Malformed(error) => {
                End::Nonsense(format!("its control connection gave no message: {error}"))
            }
        }
    }
}

/// A control connection in use.
#[derive(Debug)]
struct OpenConnection {
    number: ConnectionNumber,
    /// The other side has dialled again, and nothing has come on this connection since.
    is_doubted: bool,
}

/// The connections of one rank.
#[derive(Debug)]
pub(crate) struct Connections {
    count: u64,
    pub(crate) slots: Slots,
    /// One side waits for the verdict of the other one, or for its acknowledgement.
    under_way: BTreeMap<ConnectionNumber, Slot>,
    open: BTreeMap<JobRank, OpenConnection>,
    /// The ranks that have left a communicator, until every connection for messages from them has come.
    left: BTreeSet<Slot>,
}

impl Connections {
    /// There are none.
    pub(crate) fn new(rank: JobRank) -> Connections {
        let (open, under_way, left) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Connections { count: 0, slots: Slots::new(rank), under_way, open, left }
    }

    /// The number of a new one.
    pub(crate) fn count_one(&mut self) -> ConnectionNumber {
        self.count += 1;
        ConnectionNumber(self.count)
    }

    /// Its two sides begin to agree on it.
    pub(crate) fn begin(&mut self, number: ConnectionNumber, slot: Slot) {
        self.under_way.insert(number, slot);
    }

    /// They have agreed, or one of them has given up. Returns its slot, unless its communicator is gone.
    pub(crate) fn finish(&mut self, number: ConnectionNumber) -> Option<Slot> {
        self.under_way.remove(&number)
    }

    /// A communicator is gone. Returns the connections that are being agreed on, which nobody needs.
    pub(crate) fn remove(&mut self, key: CommunicatorKey) -> BTreeMap<ConnectionNumber, Slot> {
        self.slots.remove(key);
        let of_key = |slot: &Slot| slot.role != ConnectionRole::Control && slot.key == key;
        self.left.retain(|slot| !of_key(slot));
        let (given_up, others) =
            std::mem::take(&mut self.under_way).into_iter().partition(|(_, slot)| of_key(slot));
        self.under_way = others;
        given_up
    }

    /// A control connection is in use from now on. Returns the connection in its place before.
    pub(crate) fn open(&mut self, peer: JobRank, number: ConnectionNumber) -> Option<ConnectionNumber> {
        let replaced = self.open.insert(peer, OpenConnection { number, is_doubted: false });
        replaced.map(|open| open.number)
    }

    /// The control connection to a rank that is in use.
    pub(crate) fn opened(&self, peer: JobRank) -> Option<ConnectionNumber> {
        self.open.get(&peer).map(|open| open.number)
    }

    /// The control connection to a rank is not in use any more. Returns it.
    pub(crate) fn close(&mut self, peer: JobRank) -> Option<ConnectionNumber> {
        self.open.remove(&peer).map(|open| open.number)
    }

    /// Something has come on a control connection.
    pub(crate) fn heard(&mut self, peer: JobRank, number: ConnectionNumber) {
        if let Some(open) = self.open.get_mut(&peer).filter(|open| open.number == number) {
            open.is_doubted = false;
        }
    }

    /// The other side of a control connection dials again. Returns whether it has done that before, and nothing has
    /// come since; nothing where no connection is in use.
    pub(crate) fn doubt(&mut self, peer: JobRank) -> Option<bool> {
        self.open.get_mut(&peer).map(|open| std::mem::replace(&mut open.is_doubted, true))
    }

    /// A rank has left a communicator.
    pub(crate) fn leave(&mut self, key: CommunicatorKey, peer: JobRank) {
        self.left.insert(Slot { key, role: ConnectionRole::PointToPoint, peer });
    }

    /// The ranks that have left and from which no connection for messages is under way, each once. A rank has such a
    /// connection only after the control plane of the other side has begun to make it too: when the news of a departure
    /// comes, every connection on which the rank may have sent is under way here, or in use.
    pub(crate) fn take_complete(&mut self) -> Vec<Slot> {
        let is_under_way = |slot: &Slot| self.under_way.values().any(|one| one == slot);
        let (waiting, complete): (BTreeSet<Slot>, BTreeSet<Slot>) =
            std::mem::take(&mut self.left).into_iter().partition(is_under_way);
        self.left = waiting;
        complete.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CommunicatorKey = CommunicatorKey { id: 3, epoch: 0 };
    const PEER: JobRank = JobRank::new(1);
    const SLOT: Slot = Slot { key: KEY, role: ConnectionRole::PointToPoint, peer: PEER };

    #[test]
    fn a_rank_is_complete_when_its_last_connection_has_come() {
        let mut connections = Connections::new(JobRank::new(0));
        let other = Slot { peer: JobRank::new(2), ..SLOT };
        // Both sides have dialled. Connections for collectives do not count.
        let numbers = [SLOT, SLOT, Slot { role: ConnectionRole::First, ..SLOT }].map(|slot| {
            let number = connections.count_one();
            connections.begin(number, slot);
            number
        });
        [SLOT, other].into_iter().for_each(|slot| connections.leave(KEY, slot.peer));
        assert_eq!(connections.take_complete(), [other]);
        assert_eq!(connections.finish(numbers[0]), Some(SLOT));
        assert_eq!(connections.take_complete(), []);
        assert_eq!(connections.finish(numbers[1]), Some(SLOT));
        assert_eq!(connections.take_complete(), [SLOT]);
        assert_eq!(connections.take_complete(), []);
        connections.leave(KEY, PEER);
        assert_eq!(connections.remove(KEY).len(), 1, "of the communicator that is gone");
        assert!(connections.take_complete().is_empty() && connections.finish(numbers[2]).is_none());
    }

    #[test]
    fn a_connection_is_doubted_until_something_comes_on_it() {
        let mut connections = Connections::new(JobRank::new(0));
        assert_eq!(connections.doubt(PEER), None);
        let [old, new] = [(); 2].map(|()| connections.count_one());
        assert_eq!((connections.open(PEER, old), connections.open(PEER, new)), (None, Some(old)));
        assert_eq!(connections.doubt(PEER), Some(false));
        connections.heard(PEER, old);
        assert_eq!(connections.doubt(PEER), Some(true), "what comes on an older one says nothing");
        connections.heard(PEER, new);
        assert_eq!(connections.doubt(PEER), Some(false));
        assert_eq!((connections.close(PEER), connections.opened(PEER)), (Some(new), None));
    }
}
