//! Whose turn it is on a device. NCCL and HCCL forbid that two threads issue calls on two communicators of one device
//! at once, or make or free one of them meanwhile.
//!
//! The turn is taken on each rank by itself, so nobody may wait for another rank while it has the turn, but for ranks
//! that have taken it together: where a communicator is made all have, and connect there (`connect.rs`), so that no
//! call waits for another rank's before it is enqueued.
//!
//! Order of locks: the turn on the device first, then what a vendor's crate holds round a function on a communicator.
//! An abort takes neither, and so gets a thread out that hangs in the library with the turn. Whoever waits for the turn
//! waits no longer than its own deadline, and then says for whom.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use unisono_backend::Board;
use unisono_communicator::{CallInfo, Descriptor};

/// Longest sleep: a reason to give up may come without a wake-up.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// The turn on one device, for all communicators of a library in this process.
#[derive(Debug, Default)]
pub struct DeviceTurn {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    holder: Option<Holder>,
    /// The numbers of those who wait, in the order in which they came.
    waiting: VecDeque<u64>,
    last_number: u64,
}

struct Holder {
    number: u64,
    user: User,
    lapses_at: Option<Instant>,
}

impl std::fmt::Debug for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Holder({})", self.user.info())
    }
}

/// What the turn is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// To make a communicator.
    Init,
    /// To enqueue a call, which has this number if that is known.
    Call(Descriptor, Option<u64>),
    /// To free a communicator.
    Destroy,
}

/// Who wants the turn, or has it.
#[derive(Clone)]
pub(crate) struct User {
    /// That of its communicator.
    pub(crate) board: Arc<Board>,
    pub(crate) purpose: Purpose,
}

impl User {
    /// As errors name it.
    fn info(&self) -> CallInfo {
        let last = self.board.calls().entered().saturating_sub(1);
        match self.purpose {
            Purpose::Init => CallInfo::without_data(last, "init"),
            Purpose::Destroy => CallInfo::without_data(last, "destroy"),
            Purpose::Call(descriptor, number) => {
                let known = number.and_then(|number| self.board.calls().info(number));
                known.unwrap_or_else(|| CallInfo::new(number.unwrap_or(last), descriptor))
            }
        }
    }
}

/// The turn, until it is dropped.
#[must_use]
pub(crate) struct DevicePass<'t> {
    turn: &'t DeviceTurn,
    number: u64,
}

impl Drop for DevicePass<'_> {
    fn drop(&mut self) {
        let mut state = self.turn.lock();
        // It may have lapsed, and be another's now.
        if state.holder.as_ref().is_some_and(|holder| holder.number == self.number) {
            state.holder = None;
            drop(state);
            self.turn.changed.notify_all();
        }
    }
}

impl DeviceTurn {
    /// Nobody has it.
    pub fn new() -> DeviceTurn {
        DeviceTurn::default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn, behind those who came earlier. `None` when it has not come by `until`, or `gave_up` says so, which is
    /// asked now and then. Whoever waits shows on its board for whom, and goes on showing it when it has got nothing.
    pub(crate) fn take(
        &self,
        user: &User,
        until: Option<Instant>,
        gave_up: impl Fn() -> bool,
    ) -> Option<DevicePass<'_>> {
        let mut state = self.lock();
        state.last_number += 1;
        let number = state.last_number;
        if state.holder.is_none() && state.waiting.is_empty() {
            return Some(self.give(&mut state, number, user));
        }
        state.waiting.push_back(number);
        let mut shown = None;
        loop {
            let now = Instant::now();
            state.lapse(now);
            if state.holder.is_none() && state.waiting.front() == Some(&number) {
                state.waiting.pop_front();
                user.board.on_streams().wait_behind(None);
                return Some(self.give(&mut state, number, user));
            }
            if let Some(holder) = state.holder.as_ref().filter(|holder| shown != Some(holder.number)) {
                shown = Some(holder.number);
                user.board.on_streams().wait_behind(Some(holder.user.info()));
            }
            if gave_up() || until.is_some_and(|until| now >= until) {
                state.waiting.retain(|other| *other != number);
                drop(state);
                self.changed.notify_all();
                return None;
            }
            let ends = [until, state.holder.as_ref().and_then(|holder| holder.lapses_at)];
            let left = ends.iter().flatten().map(|end| end.saturating_duration_since(now)).min();
            let sleep = left.map_or(SLEEP_MAX, |left| left.min(SLEEP_MAX));
            state = self.changed.wait_timeout(state, sleep).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn give(&self, state: &mut State, number: u64, user: &User) -> DevicePass<'_> {
        state.holder = Some(Holder { number, user: user.clone(), lapses_at: None });
        DevicePass { turn: self, number }
    }

    /// Those who wait look again whether they give up.
    pub(crate) fn recheck(&self) {
        self.changed.notify_all();
    }
}

impl DevicePass<'_> {
    /// From then on the turn is another's, although this is still there.
    pub(crate) fn lapse_at(&self, end: Instant) {
        if let Some(holder) = self.turn.lock().holder.as_mut().filter(|holder| holder.number == self.number) {
            holder.lapses_at = Some(end);
        }
    }
}

impl State {
    /// Takes the turn from one whose time is over.
    fn lapse(&mut self, now: Instant) {
        self.holder.take_if(|holder| holder.lapses_at.is_some_and(|end| now >= end));
    }
}

#[cfg(test)]
#[path = "device_turn_tests.rs"]
mod tests;
