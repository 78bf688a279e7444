//! Where the ranks of a library's double meet: communicators by id, the rounds of their collectives, their messages.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What all ranks of a job share in place of a network. When it is dropped, every thread that hangs in a library of
/// this room comes back with an error, so that tests end.
#[derive(Default)]
pub struct LibraryRoom {
    pub(super) shared: Arc<RoomShared>,
}

impl LibraryRoom {
    /// A room without communicators.
    pub fn new() -> LibraryRoom {
        LibraryRoom::default()
    }

    /// Ends every call that is under way, and every later one, with an error.
    pub fn release(&self) {
        self.shared.lock().is_released = true;
        self.shared.news.notify_all();
    }

    /// How many threads are in the library, on all ranks.
    pub fn inside(&self) -> usize {
        self.shared.lock().inside
    }

    /// How many communicators some rank has not destroyed.
    pub fn open_communicators(&self) -> usize {
        self.shared.lock().comms.len()
    }

    /// What was done that the library does not allow, such as two threads of a rank in it at once.
    pub fn misuse(&self) -> Vec<String> {
        self.shared.lock().misuse.clone()
    }
}

impl Drop for LibraryRoom {
    fn drop(&mut self) {
        self.release();
    }
}

/// Why a call ended that would have waited for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interruption {
    /// The test is over.
    Released,
    /// Another thread has aborted the communicator.
    Aborted,
}

/// The shared part.
#[derive(Default)]
pub(super) struct RoomShared {
    state: Mutex<RoomState>,
    news: Condvar,
}

#[derive(Default)]
pub(super) struct RoomState {
    is_released: bool,
    ids: u64,
    inside: usize,
    comms: HashMap<u64, CommState>,
    misuse: Vec<String>,
}

/// One communicator, as all its ranks share it.
#[derive(Default)]
struct CommState {
    joined: u32,
    destroyed: u32,
    aborted: Vec<u32>,
    rounds: HashMap<u64, Round>,
    mail: HashMap<(u32, u32), Mail>,
}

/// One collective: what each rank has laid down.
#[derive(Default)]
struct Round {
    inputs: HashMap<u32, Arc<[u8]>>,
    taken: u32,
}

/// The messages of one pair of ranks.
#[derive(Default)]
struct Mail {
    queue: VecDeque<Vec<u8>>,
    posted: u64,
    taken: u64,
}

/// A rank of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) id: u64,
    pub(super) rank: u32,
    pub(super) ranks: u32,
}

impl RoomShared {
    fn lock(&self) -> MutexGuard<'_, RoomState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `look` finds something.
    fn wait<T>(
        &self,
        place: Place,
        mut look: impl FnMut(&mut RoomState) -> Option<T>,
    ) -> Result<T, Interruption> {
        let mut state = self.lock();
        loop {
            if let Some(found) = look(&mut state) {
                self.news.notify_all();
                return Ok(found);
            }
            if state.is_released {
                return Err(Interruption::Released);
            }
            if state.comms.get(&place.id).is_some_and(|comm| comm.aborted.contains(&place.rank)) {
                return Err(Interruption::Aborted);
            }
            state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn new_id(&self) -> u64 {
        let mut state = self.lock();
        state.ids += 1;
        state.ids
    }

    /// A thread goes into the library, or comes out.
    pub(super) fn count_inside(&self, change: isize) {
        let mut state = self.lock();
        state.inside = state.inside.wrapping_add_signed(change);
    }

    pub(super) fn note_misuse(&self, what: String) {
        self.lock().misuse.push(what);
    }

    /// All ranks come into the communicator.
    pub(super) fn join(&self, place: Place) -> Result<(), Interruption> {
        self.lock().comm(place.id).joined += 1;
        self.wait(place, |state| (state.comm(place.id).joined >= place.ranks).then_some(()))
    }

    /// Leaves it; the last one ends it.
    pub(super) fn destroy(&self, place: Place) {
        let mut state = self.lock();
        let comm = state.comm(place.id);
        comm.destroyed += 1;
        if comm.destroyed == place.ranks {
            state.comms.remove(&place.id);
        }
    }

    /// The calls of this rank end.
    pub(super) fn abort(&self, place: Place) {
        if let Some(comm) = self.lock().comms.get_mut(&place.id) {
            comm.aborted.push(place.rank);
        }
        self.news.notify_all();
    }

    /// Waits for what never comes.
    pub(super) fn hang(&self, place: Place) -> Result<(), Interruption> {
        self.wait(place, |_| None)
    }

    /// Lays down `input` and waits for the inputs of all ranks; then waits until all have seen them.
    pub(super) fn exchange(
        &self,
        place: Place,
        round: u64,
        input: &[u8],
    ) -> Result<Vec<Arc<[u8]>>, Interruption> {
        let is_all = |round: &Round| round.inputs.len() == place.ranks as usize;
        self.lock().comm(place.id).round(round).inputs.insert(place.rank, input.into());
        let all = self.wait(place, |state| {
            let round = state.comm(place.id).round(round);
            let all = || (0..place.ranks).filter_map(|rank| round.inputs.get(&rank).cloned()).collect();
            is_all(round).then(all)
        })?;
        self.lock().comm(place.id).round(round).taken += 1;
        self.wait(place, |state| {
            let rounds = &mut state.comm(place.id).rounds;
            let is_over = rounds.get(&round).is_none_or(|round| round.taken == place.ranks);
            is_over.then(|| drop(rounds.remove(&round)))
        })?;
        Ok(all)
    }

    /// Leaves a message for `peer`; the number says when it was taken.
    pub(super) fn post(&self, place: Place, peer: u32, message: &[u8]) -> u64 {
        let mut state = self.lock();
        let mail = state.comm(place.id).mail.entry((place.rank, peer)).or_default();
        mail.queue.push_back(message.to_vec());
        mail.posted += 1;
        let number = mail.posted;
        self.news.notify_all();
        number
    }

    /// Waits until `peer` has taken that message.
    pub(super) fn await_taken(&self, place: Place, peer: u32, number: u64) -> Result<(), Interruption> {
        let pair = (place.rank, peer);
        self.wait(place, |state| {
            (state.comm(place.id).mail.entry(pair).or_default().taken >= number).then_some(())
        })
    }

    /// The next message of `peer`.
    pub(super) fn receive(&self, place: Place, peer: u32) -> Result<Vec<u8>, Interruption> {
        let pair = (peer, place.rank);
        self.wait(place, |state| {
            let mail = state.comm(place.id).mail.entry(pair).or_default();
            let message = mail.queue.pop_front()?;
            mail.taken += 1;
            Some(message)
        })
    }
}

impl RoomState {
    fn comm(&mut self, id: u64) -> &mut CommState {
        self.comms.entry(id).or_default()
    }
}

impl CommState {
    fn round(&mut self, number: u64) -> &mut Round {
        self.rounds.entry(number).or_default()
    }
}
