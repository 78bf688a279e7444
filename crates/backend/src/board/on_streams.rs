//! Which calls of one communicator are on streams, and behind what the last one waits.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use unisono_communicator::{CallInfo, DeviceStream};

use crate::lock;

/// Where a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) stream: DeviceStream,
    /// Greater than that of every call that this process has put on a stream before.
    pub(crate) order: u64,
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

    /// Where a call is, if it is on a stream.
    pub(crate) fn place_of(&self, number: u64) -> Option<Place> {
        lock(&self.calls).iter().find(|(call, _)| *call == number).map(|(_, place)| *place)
    }

    /// The number of the first call on the stream of `place`, if it is before that place.
    pub(crate) fn first_before(&self, place: Place) -> Option<(u64, Place)> {
        let calls = lock(&self.calls);
        let first = calls.iter().find(|(_, other)| other.stream == place.stream);
        first.copied().filter(|(_, other)| other.order < place.order)
    }
}
