//! Which connection a slot keeps, when both sides may dial at once and either may make the communicator first. Pure:
//! generic over the connection.
//!
//! A slot is one (communicator, epoch, role, peer). Of the two ranks of a slot only the lower decides, on every
//! connection, whichever rank dialled it; the higher one waits for that verdict and acknowledges it. Connections of
//! communicators that do not exist here yet are parked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use unisono_communicator::JobRank;

use crate::wire::{CommunicatorKey, ConnectionRole};

/// How many connections of unknown communicators wait here; one more replaces the oldest.
const PARKED_MAX: usize = 1024;

/// How many left communicators are remembered. A rank that dials an older one has heard of its end.
const LEFT_MAX: usize = 4096;

/// The key of control connections, which belong to no communicator.
pub const CONTROL_KEY: CommunicatorKey = CommunicatorKey { id: 0, epoch: 0 };

/// The place of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// The communicator.
    pub key: CommunicatorKey,
    /// What the connection is for.
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

/// What to do with an authenticated connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Placed<S> {
    /// The lower rank: say `Keep`, and wait for the acknowledgement.
    Keep(S),
    /// The lower rank: say `Drop`; the slot has its connection.
    Drop(S),
    /// Hand it to its communicator: the higher rank has been told to keep it.
    Deliver(S),
    /// It waits for its communicator.
    Parked,
    /// Close it: this rank has left its communicator, and was told to keep it before.
    Close(S),
}

#[derive(Debug)]
struct Parked<S> {
    slot: Slot,
    stream: S,
    is_kept: bool,
}

/// All slots of a rank.
#[derive(Debug)]
pub struct Slots<S> {
    rank: JobRank,
    taken: BTreeMap<CommunicatorKey, BTreeSet<Slot>>,
    control: BTreeSet<Slot>,
    parked: VecDeque<Parked<S>>,
    /// The communicators that this rank has left, the last ones. No communicator gets their keys again.
    left: VecDeque<CommunicatorKey>,
}

impl<S> Slots<S> {
    /// No slot is taken.
    pub fn new(rank: JobRank) -> Slots<S> {
        let (parked, left) = (VecDeque::new(), VecDeque::new());
        Slots { rank, taken: BTreeMap::new(), control: BTreeSet::new(), parked, left }
    }

    /// Whether this rank decides.
    pub fn decides(&self, slot: Slot) -> bool {
        self.rank < slot.peer
    }

    /// A communicator exists from now on. Returns its parked connections, and the verdict on each.
    pub fn create(&mut self, key: CommunicatorKey) -> Vec<(Slot, Placed<S>)> {
        self.taken.insert(key, BTreeSet::new());
        let all = std::mem::take(&mut self.parked);
        let (ours, others): (VecDeque<_>, VecDeque<_>) = all.into_iter().partition(|one| one.slot.key == key);
        self.parked = others;
        let place = |one: Parked<S>| (one.slot, self.place(one.slot, one.stream, one.is_kept));
        // The newest of a slot first: an older one is of an attempt that its dialler has given up.
        ours.into_iter().rev().map(place).collect()
    }

    /// A communicator is gone. Its connections are not parked any more: nobody would ever read them.
    pub fn remove(&mut self, key: CommunicatorKey) {
        if self.taken.remove(&key).is_some() {
            if self.left.len() == LEFT_MAX {
                self.left.pop_front();
            }
            self.left.push_back(key);
        }
    }

    /// Places an authenticated connection; `is_kept` when we are the higher rank and were told to keep it.
    pub fn place(&mut self, slot: Slot, stream: S, is_kept: bool) -> Placed<S> {
        let taken = match slot.role {
            ConnectionRole::Control => Some(&mut self.control),
            _ => self.taken.get_mut(&slot.key),
        };
        let Some(taken) = taken else {
            if self.left.contains(&slot.key) {
                return if is_kept { Placed::Close(stream) } else { Placed::Drop(stream) };
            }
            if self.parked.len() == PARKED_MAX {
                self.parked.pop_front();
            }
            self.parked.push_back(Parked { slot, stream, is_kept });
            return Placed::Parked;
        };
        let is_first = taken.insert(slot);
        match (is_kept, is_first) {
            // The lower rank has replaced the connection that we had: our acknowledgement never reached it.
            (true, _) => Placed::Deliver(stream),
            (false, true) => Placed::Keep(stream),
            (false, false) => Placed::Drop(stream),
        }
    }

    /// Whether a slot has its connection, acknowledged or not.
    pub fn is_taken(&self, slot: Slot) -> bool {
        match slot.role {
            ConnectionRole::Control => self.control.contains(&slot),
            _ => self.taken.get(&slot.key).is_some_and(|taken| taken.contains(&slot)),
        }
    }

    /// The slots of the connections that wait for their communicator.
    pub fn parked(&self) -> Vec<Slot> {
        self.parked.iter().map(|one| one.slot).collect()
    }

    /// Drops the connections that wait for their communicator and are not to be kept: their other side has given up, or
    /// both sides have dropped the communicator already.
    pub fn retain_parked(&mut self, mut is_kept: impl FnMut(&S) -> bool) {
        self.parked.retain(|one| is_kept(&one.stream));
    }

    /// The kept connection of a slot broke before it was acknowledged: another may take its place.
    pub fn release(&mut self, slot: Slot) {
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

    #[test]
    fn one_connection_per_slot() {
        let mut slots = Slots::new(JobRank::new(0));
        assert!(slots.create(KEY).is_empty() && slots.decides(SLOT));
        assert_eq!(slots.place(SLOT, 1, false), Placed::Keep(1));
        assert_eq!(slots.place(SLOT, 2, false), Placed::Drop(2));
        let control = Slot::control(JobRank::new(8));
        assert_eq!(slots.place(control, 8, false), Placed::Keep(8));
        assert_eq!(slots.place(control, 9, false), Placed::Drop(9));
        slots.release(control);
        assert_eq!(slots.place(control, 9, false), Placed::Keep(9));
        assert_eq!(slots.place(Slot { role: ConnectionRole::Second, ..SLOT }, 3, false), Placed::Keep(3));
        slots.release(SLOT);
        assert_eq!(slots.place(SLOT, 4, false), Placed::Keep(4));
        assert_eq!(slots.place(Slot::control(PEER), 5, false), Placed::Keep(5), "needs no communicator");
        assert_eq!(slots.place(Slot::control(PEER), 6, false), Placed::Drop(6));
    }

    #[test]
    fn early_connections_wait_for_their_communicator() {
        let mut slots = Slots::new(JobRank::new(0));
        let other = Slot { key: CommunicatorKey { id: 6, epoch: 1 }, ..SLOT };
        for (slot, stream) in [(SLOT, 1), (other, 2), (SLOT, 3)] {
            assert_eq!(slots.place(slot, stream, false), Placed::Parked);
        }
        assert_eq!(slots.create(KEY), [(SLOT, Placed::Keep(3)), (SLOT, Placed::Drop(1))]);
        slots.remove(KEY);
        assert_eq!(slots.place(SLOT, 4, false), Placed::Drop(4), "this rank has left");
        let mut higher = Slots::new(JobRank::new(9));
        assert!(!higher.decides(SLOT));
        assert_eq!(higher.place(SLOT, 1, true), Placed::Parked);
        assert_eq!(higher.create(KEY), [(SLOT, Placed::Deliver(1))]);
        higher.remove(KEY);
        assert_eq!(higher.place(SLOT, 2, true), Placed::Close(2));
    }

    #[test]
    fn parking_is_bounded() {
        let mut slots = Slots::new(JobRank::new(0));
        let slot = |id| Slot { key: CommunicatorKey { id, epoch: 0 }, ..SLOT };
        for id in 0..=PARKED_MAX as u64 {
            slots.place(slot(id), id, false);
        }
        assert!(slots.create(slot(0).key).is_empty(), "the oldest gave way");
        assert_eq!(slots.create(slot(1).key).len(), 1);
        slots.retain_parked(|&stream| stream != 2);
        assert!(slots.create(slot(2).key).is_empty() && slots.create(slot(3).key).len() == 1);
    }
}
