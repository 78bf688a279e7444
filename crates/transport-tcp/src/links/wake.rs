//! Wakes a sleeping thread: an eventfd that any thread may signal and that one thread polls together with its sockets.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use unisono_backend::Waker;
use unisono_communicator::{Error, Result};

/// The eventfd. If it is signalled before the sleep, the sleep ends at once: no signal is lost between a check and the
/// sleep.
pub(super) struct Alarm {
    event: Arc<OwnedFd>,
}

impl Alarm {
    /// An alarm that is not signalled.
    pub(super) fn new() -> Result<Alarm> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event =
            eventfd(0, flags).map_err(|error| Error::system("cannot create an eventfd", &error.into()))?;
        Ok(Alarm { event: Arc::new(event) })
    }

    /// The descriptor to poll: readable while it is signalled.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Takes the signal back.
    pub(super) fn silence(&self) {
        // Only `WouldBlock` can come, and it means that it was not signalled.
        let _ = rustix::io::read(&*self.event, &mut [0u8; 8]);
    }

    /// Signals it from any thread, also after it was dropped.
    pub(super) fn waker(&self) -> Waker {
        let event = self.event.clone();
        Arc::new(move || {
            // It fails only when the counter is full, and then it is signalled already.
            let _ = rustix::io::write(&*event, &1u64.to_le_bytes());
        })
    }
}
