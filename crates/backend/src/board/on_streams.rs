//! The calls of one communicator on streams, and the call of another communicator that keeps the last of them waiting.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use unisono_communicator::{CallInfo, DeviceStream};

use crate::lock;

/// The place of a call on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) stream: DeviceStream,
    /// A number for the order of calls on streams in this process.
    pub(crate) order: u64,
}

/// The calls of one communicator that are on streams and have not finished.
#[derive(Default)]
pub struct OnStreams {
    calls: Mutex<VecDeque<(u64, Place)>>,
    /// The call that uses the device, while this communicator's last call waits for the device.
    behind: Mutex<Option<CallInfo>>,
}

impl OnStreams {
    /// Notes that call `number`, the communicator's last, is about to go on a stream.
    pub fn note(&self, number: u64, stream: DeviceStream) {
        // One order for all communicators, since a process shares its streams.
        static LAST: AtomicU64 = AtomicU64::new(0);
        let order = LAST.fetch_add(1, Ordering::Relaxed);
        lock(&self.calls).push_back((number, Place { stream, order }));
    }

    /// Notes that this communicator's last call waits until `call` of another communicator no longer uses the device.
    /// `None` ends the wait.
    pub fn wait_behind(&self, call: Option<CallInfo>) {
        *lock(&self.behind) = call;
    }

    /// The call that uses the device, while this communicator's last call waits for it.
    pub fn behind(&self) -> Option<CallInfo> {
        lock(&self.behind).clone()
    }

    /// Forgets call `number` and all earlier calls.
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

    /// The first call on the stream of `place`, and its number, if it is before that place.
    pub(crate) fn first_before(&self, place: Place) -> Option<(u64, Place)> {
        let calls = lock(&self.calls);
        let first = calls.iter().find(|(_, other)| other.stream == place.stream);
        first.copied().filter(|(_, other)| other.order < place.order)
    }
}
