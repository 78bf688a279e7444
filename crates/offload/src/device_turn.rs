//! The turn on a device. NCCL and HCCL forbid two threads to issue calls on two communicators of one device at once,
//! and to make or free one of the communicators meanwhile.
//!
//! Each rank takes the turn by itself, so a thread that has the turn must not wait for another rank. The only exception
//! is ranks that have taken their turns together. They do when they make a communicator, and they connect then
//! (`connect.rs`), so that later no call waits for another rank's call before it is enqueued.
//!
//! Order of locks: first the turn on the device, then the lock of a vendor's crate around a function on a communicator.
//! An abort takes neither, and so frees a thread that hangs in the library with the turn. A thread waits for the turn
//! no longer than its own deadline, and its error then names the holder.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use unisono_backend::Board;
use unisono_communicator::{CallInfo, Descriptor};

/// The longest sleep. A reason to give up may come without a wake-up.
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
    /// The numbers of the waiting users, in the order in which they came.
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

/// The purpose of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// To make a communicator.
    Init,
    /// To enqueue a call, with its number if that is known.
    Call(Descriptor, Option<u64>),
    /// To free a communicator.
    Destroy,
}

/// A user of the turn, who waits for it or has it.
#[derive(Clone)]
pub(crate) struct User {
    /// The board of the user's communicator.
    pub(crate) board: Arc<Board>,
    pub(crate) purpose: Purpose,
}

impl User {
    /// The user as errors name it.
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
        // The turn may have lapsed, and belong to another user now.
        if state.holder.as_ref().is_some_and(|holder| holder.number == self.number) {
            state.holder = None;
            let is_awaited = !state.waiting.is_empty();
            drop(state);
            // To wake nobody is a call of the kernel too.
            if is_awaited {
                self.turn.changed.notify_all();
            }
        }
    }
}

impl DeviceTurn {
    /// A turn that no user has.
    pub fn new() -> DeviceTurn {
        DeviceTurn::default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the turn, after the users who came earlier. `None` if the turn has not come by `until`, or if `gave_up`,
    /// which is asked now and then, returns true. A waiting user shows the holder's call on its own board, and the call
    /// stays there if the turn has not come.
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

    /// Makes the waiting threads check again whether to give up.
    pub(crate) fn recheck(&self) {
        self.changed.notify_all();
    }
}

impl DevicePass<'_> {
    /// From `end` on another user may take the turn, although this pass still exists.
    pub(crate) fn lapse_at(&self, end: Instant) {
        if let Some(holder) = self.turn.lock().holder.as_mut().filter(|holder| holder.number == self.number) {
            holder.lapses_at = Some(end);
        }
    }
}

impl State {
    /// Takes the turn from a holder whose time is over.
    fn lapse(&mut self, now: Instant) {
        self.holder.take_if(|holder| holder.lapses_at.is_some_and(|end| now >= end));
    }
}

#[cfg(test)]
#[path = "device_turn_tests.rs"]
mod tests;
