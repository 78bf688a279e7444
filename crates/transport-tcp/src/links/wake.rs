//! A sleeper's alarm: an eventfd that any thread may ring and that one thread polls together with its sockets.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use unisono_backend::Waker;
use unisono_communicator::{Error, Result};

/// The alarm. A ring before the sleep ends the sleep at once: nothing is lost between a check and the sleep.
pub(super) struct Alarm {
    event: Arc<OwnedFd>,
}

impl Alarm {
    /// A silent alarm.
    pub(super) fn new() -> Result<Alarm> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event =
            eventfd(0, flags).map_err(|error| Error::system("cannot create an eventfd", &error.into()))?;
        Ok(Alarm { event: Arc::new(event) })
    }

    /// What to poll: readable while it rings.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Silences it.
    pub(super) fn silence(&self) {
        // Only `WouldBlock` can come, and it means that it is silent already.
        let _ = rustix::io::read(&*self.event, &mut [0u8; 8]);
    }

    /// Rings it from any thread, also after the alarm itself is gone.
    pub(super) fn waker(&self) -> Waker {
        let event = self.event.clone();
        Arc::new(move || {
            // It fails only when the counter is full, and then it rings already.
            let _ = rustix::io::write(&*event, &1u64.to_le_bytes());
        })
    }
}
