//! The connection that a slot keeps, when both sides may dial at once and either may make the communicator first.
//!
//! A slot is one (communicator, epoch, role, peer). Of the two ranks of a slot only the lower decides, on every
//! connection, by either rank's dial; the higher one waits for that verdict and acknowledges it. Connections of
//! communicators that do not exist here yet are parked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use unisono_communicator::JobRank;

use crate::connections::ConnectionNumber;
use crate::wire::{CommunicatorKey, ConnectionRole};

/// The number of connections of unknown communicators that wait here; one more replaces the oldest.
const PARKED_MAX: usize = 1024;

/// The number of left communicators that are remembered. A rank that dials an older one has heard of its end.
const LEFT_MAX: usize = 4096;

/// The key of control connections, which belong to no communicator.
pub const CONTROL_KEY: CommunicatorKey = CommunicatorKey { id: 0, epoch: 0 };

/// The place of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// The communicator.
    pub key: CommunicatorKey,
    /// The purpose of the connection.
    pub role: ConnectionRole,
    /// The other side.
    pub peer: JobRank,
}

impl Slot {
    /// The slot of the control connection to a peer.
    pub fn control(peer: JobRank) -> Slot {
        Slot { key: CONTROL_KEY, role: ConnectionRole::Control, peer }
    }
}

/// The place of a connection whose two sides have proven their identity.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// The lower rank: say `Keep`, and wait for the acknowledgement.
    Keep,
    /// The lower rank: say `Drop`; the slot has its connection.
    Drop,
    /// Hand it to its communicator: the higher rank has been told to keep it.
    Deliver,
    /// It waits for its communicator, in the place of the oldest one if too many waited.
    Parked(Option<ConnectionNumber>),
    /// Close it: this rank has left its communicator, and was told to keep it before.
    Close,
    /// Close it, and fail the communicator. This rank has used the connection before it, which ended before our
    /// acknowledgement came through: its bytes are lost.
    Again,
}

#[derive(Clone, Copy, Debug)]
struct Parked {
    slot: Slot,
    number: ConnectionNumber,
    is_kept: bool,
}

/// All slots of a rank.
#[derive(Debug)]
pub(crate) struct Slots {
    rank: JobRank,
    taken: BTreeMap<CommunicatorKey, BTreeSet<Slot>>,
    control: BTreeSet<Slot>,
    parked: VecDeque<Parked>,
    /// The communicators that this rank has left, the last ones. No communicator gets their keys again.
    left: VecDeque<CommunicatorKey>,
}

impl Slots {
    /// No slot is taken.
    pub(crate) fn new(rank: JobRank) -> Slots {
        let (parked, left) = (VecDeque::new(), VecDeque::new());
        Slots { rank, taken: BTreeMap::new(), control: BTreeSet::new(), parked, left }
    }

    /// Whether this rank decides.
    pub(crate) fn decides(&self, slot: Slot) -> bool {
        self.rank < slot.peer
    }

    /// A communicator exists from now on. Returns its parked connections, and the place of each.
    pub(crate) fn create(&mut self, key: CommunicatorKey) -> Vec<(Slot, ConnectionNumber, Placed)> {
        self.taken.insert(key, BTreeSet::new());
        let all = std::mem::take(&mut self.parked);
        let (ours, others): (VecDeque<_>, VecDeque<_>) = all.into_iter().partition(|one| one.slot.key == key);
        self.parked = others;
        let place = |one: Parked| (one.slot, one.number, self.place(one.slot, one.number, one.is_kept));
        // The newest of a slot first: an older one is of an attempt that has been given up, and nothing was sent on it.
        let placed = ours.into_iter().rev().map(place);
        let close_older = |(slot, number, placed)| match placed {
            Placed::Again => (slot, number, Placed::Close),
            placed => (slot, number, placed),
        };
        placed.map(close_older).collect()
    }

    /// A communicator is gone. Its connections are not parked any more: nobody would ever read them.
    pub(crate) fn remove(&mut self, key: CommunicatorKey) {
        if self.taken.remove(&key).is_some() {
            if self.left.len() == LEFT_MAX {
                self.left.pop_front();
            }
            self.left.push_back(key);
        }
    }

    /// Places a connection whose two sides have proven their identity; `is_kept` when we are the higher rank and were
    /// told to keep it.
    pub(crate) fn place(&mut self, slot: Slot, number: ConnectionNumber, is_kept: bool) -> Placed {
        let taken = match slot.role {
            ConnectionRole::Control => Some(&mut self.control),
            _ => self.taken.get_mut(&slot.key),
        };
        let Some(taken) = taken else {
            if self.left.contains(&slot.key) {
                return if is_kept { Placed::Close } else { Placed::Drop };
            }
            let is_full = self.parked.len() == PARKED_MAX;
            let oldest = is_full.then(|| self.parked.pop_front()).flatten().map(|one| one.number);
            self.parked.push_back(Parked { slot, number, is_kept });
            return Placed::Parked(oldest);
        };
        let is_first = taken.insert(slot);
        match (is_kept, is_first) {
            (true, true) => Placed::Deliver,
            // The lower rank replaces the connection that we have: our acknowledgement never reached it. The news of a
            // control connection is sent again.
            (true, false) if slot.role == ConnectionRole::Control => Placed::Deliver,
            (true, false) => Placed::Again,
            (false, true) => Placed::Keep,
            (false, false) => Placed::Drop,
        }
    }

    /// Whether a slot has its connection, acknowledged or not.
    pub(crate) fn is_taken(&self, slot: Slot) -> bool {
        match slot.role {
            ConnectionRole::Control => self.control.contains(&slot),
            _ => self.taken.get(&slot.key).is_some_and(|taken| taken.contains(&slot)),
        }
    }

    /// The connections that wait for their communicator.
    pub(crate) fn parked(&self) -> impl Iterator<Item = (Slot, ConnectionNumber)> {
        self.parked.iter().map(|one| (one.slot, one.number))
    }

    /// A connection that waits for its communicator has ended: its other side has given up, or both sides have dropped
    /// the communicator already.
    pub(crate) fn unpark(&mut self, number: ConnectionNumber) {
        self.parked.retain(|one| one.number != number);
    }

    /// The kept connection of a slot broke before it was acknowledged: another may take its place.
    pub(crate) fn release(&mut self, slot: Slot) {
        match slot.role {
            ConnectionRole::Control => drop(self.control.remove(&slot)),
            _ => drop(self.taken.get_mut(&slot.key).map(|taken| taken.remove(&slot))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CommunicatorKey = CommunicatorKey { id: 5, epoch: 1 };
    const PEER: JobRank = JobRank::new(7);
    const SLOT: Slot = Slot { key: KEY, role: ConnectionRole::First, peer: PEER };

    fn place(slots: &mut Slots, slot: Slot, number: u64, is_kept: bool) -> Placed {
        slots.place(slot, ConnectionNumber::new(number), is_kept)
    }

    fn created(slots: &mut Slots, key: CommunicatorKey) -> Vec<(Slot, u64, Placed)> {
        let number = |number| (0..).find(|&one| ConnectionNumber::new(one) == number).unwrap();
        slots.create(key).into_iter().map(|(slot, one, placed)| (slot, number(one), placed)).collect()
    }

    #[test]
    fn one_connection_per_slot() {
        let mut slots = Slots::new(JobRank::new(0));
        assert!(slots.create(KEY).is_empty() && slots.decides(SLOT));
        assert_eq!(place(&mut slots, SLOT, 1, false), Placed::Keep);
        assert_eq!(place(&mut slots, SLOT, 2, false), Placed::Drop);
        let control = Slot::control(JobRank::new(8));
        assert_eq!(place(&mut slots, control, 8, false), Placed::Keep);
        assert_eq!(place(&mut slots, control, 9, false), Placed::Drop);
        slots.release(control);
        assert_eq!(place(&mut slots, control, 9, false), Placed::Keep);
        let second = Slot { role: ConnectionRole::Second, ..SLOT };
        assert_eq!(place(&mut slots, second, 3, false), Placed::Keep);
        slots.release(SLOT);
        assert_eq!(place(&mut slots, SLOT, 4, false), Placed::Keep);
        assert_eq!(place(&mut slots, Slot::control(PEER), 5, false), Placed::Keep, "needs no communicator");
        assert_eq!(place(&mut slots, Slot::control(PEER), 6, false), Placed::Drop);
    }

    #[test]
    fn early_connections_wait_for_their_communicator() {
        let mut slots = Slots::new(JobRank::new(0));
        let other = Slot { key: CommunicatorKey { id: 6, epoch: 1 }, ..SLOT };
        for (slot, number) in [(SLOT, 1), (other, 2), (SLOT, 3)] {
            assert_eq!(place(&mut slots, slot, number, false), Placed::Parked(None));
        }
        assert_eq!(created(&mut slots, KEY), [(SLOT, 3, Placed::Keep), (SLOT, 1, Placed::Drop)]);
        slots.remove(KEY);
        assert_eq!(place(&mut slots, SLOT, 4, false), Placed::Drop, "this rank has left");
        let mut higher = Slots::new(JobRank::new(9));
        assert!(!higher.decides(SLOT));
        assert_eq!(place(&mut higher, SLOT, 1, true), Placed::Parked(None));
        assert_eq!(place(&mut higher, SLOT, 2, true), Placed::Parked(None));
        let both = [(SLOT, 2, Placed::Deliver), (SLOT, 1, Placed::Close)];
        assert_eq!(created(&mut higher, KEY), both, "nothing was sent on the older one");
        assert_eq!(place(&mut higher, SLOT, 3, true), Placed::Again, "something may have been");
        for number in [4, 5] {
            assert_eq!(place(&mut higher, Slot::control(JobRank::new(0)), number, true), Placed::Deliver);
        }
        higher.remove(KEY);
        assert_eq!(place(&mut higher, SLOT, 6, true), Placed::Close);
    }

    #[test]
    fn parking_is_bounded() {
        let mut slots = Slots::new(JobRank::new(0));
        let slot = |id| Slot { key: CommunicatorKey { id, epoch: 0 }, ..SLOT };
        for id in 0..=PARKED_MAX as u64 {
            let oldest = (id == PARKED_MAX as u64).then_some(ConnectionNumber::new(0));
            assert_eq!(place(&mut slots, slot(id), id, false), Placed::Parked(oldest));
        }
        assert!(slots.create(slot(0).key).is_empty(), "the oldest gave way");
        assert_eq!(slots.create(slot(1).key).len(), 1);
        slots.unpark(ConnectionNumber::new(2));
        assert!(slots.create(slot(2).key).is_empty() && slots.create(slot(3).key).len() == 1);
        assert_eq!(slots.parked().count(), PARKED_MAX - 3);
    }
}
