//! The calls of one communicator that are on streams, and the call of another communicator that keeps the last of them
//! waiting.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use unisono_communicator::{CallInfo, DeviceStream};

use crate::lock;

/// The place of a call on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) stream: DeviceStream,
    /// Each call that this process puts on a stream has a greater number than all before.
    pub(crate) order: u64,
}

/// The calls of one communicator that are on streams and not finished.
#[derive(Default)]
pub struct OnStreams {
    calls: Mutex<VecDeque<(u64, Place)>>,
    /// The call that has the turn on the device, while the communicator's last call waits for that turn.
    behind: Mutex<Option<CallInfo>>,
}

impl OnStreams {
    /// Notes that call `number` is about to go on a stream. The communicator has no later call yet.
    pub fn note(&self, number: u64, stream: DeviceStream) {
        // Streams belong to a process, whatever the number of its communicators.
        static LAST: AtomicU64 = AtomicU64::new(0);
        let order = LAST.fetch_add(1, Ordering::Relaxed);
        lock(&self.calls).push_back((number, Place { stream, order }));
    }

    /// Notes that the communicator's last call waits for its turn on the device, which `call` of another communicator
    /// has. `None` notes the end of the wait.
    pub fn wait_behind(&self, call: Option<CallInfo>) {
        *lock(&self.behind) = call;
    }

    /// The call that has the device while the communicator's last call waits for it, if there is one.
    pub fn behind(&self) -> Option<CallInfo> {
        lock(&self.behind).clone()
    }

    /// Forgets call `number` and all calls before it.
    pub(crate) fn finish(&self, number: u64) {
        let mut calls = lock(&self.calls);
        while calls.front().is_some_and(|(first, _)| *first <= number) {
            calls.pop_front();
        }
    }

    /// The place of call `number`, if it is on a stream.
    pub(crate) fn place_of(&self, number: u64) -> Option<Place> {
        lock(&self.calls).iter().find(|(call, _)| *call == number).map(|(_, place)| *place)
    }

    /// The first call on the stream of `place`, with its number, if it is before that place.
    pub(crate) fn first_before(&self, place: Place) -> Option<(u64, Place)> {
        let calls = lock(&self.calls);
        let first = calls.iter().find(|(_, other)| other.stream == place.stream);
        first.copied().filter(|(_, other)| other.order < place.order)
    }
}
