//! The sleep of a thread: it polls sockets, together with an eventfd that any thread may signal.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::io::Errno;
use unisono_backend::Waker;
use unisono_communicator::{Error, Result};
use unisono_engine::Wake;

/// The sleep of a thread. If it is signalled before the sleep, the sleep ends at once: no signal is lost between a
/// check and the sleep.
pub(crate) struct Sleep {
    alarm: Arc<OwnedFd>,
    /// Sleeping again allocates nothing.
    room: Vec<PollFd<'static>>,
}

/// The sockets of one sleep.
pub(crate) struct PollList<'a> {
    alarm: &'a OwnedFd,
    room: &'a mut Vec<PollFd<'static>>,
    polled: Vec<PollFd<'a>>,
    is_ready: bool,
}

impl Sleep {
    /// Not signalled.
    ///
    /// # Errors
    /// [`Error::System`] when no descriptor is left.
    pub(crate) fn new() -> Result<Sleep> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let alarm =
            eventfd(0, flags).map_err(|error| Error::system("cannot create an eventfd", &error.into()))?;
        Ok(Sleep { alarm: Arc::new(alarm), room: Vec::new() })
    }

    /// Signals it from any thread, also after it was dropped.
    pub(crate) fn waker(&self) -> Waker {
        let alarm = self.alarm.clone();
        Arc::new(move || {
            // It fails only when the counter is full, and then it is signalled already.
            let _ = rustix::io::write(&*alarm, &1u64.to_le_bytes());
        })
    }

    /// Lists the sockets of the next sleep.
    pub(crate) fn begin(&mut self) -> PollList<'_> {
        let mut polled = emptied(std::mem::take(&mut self.room));
        polled.push(PollFd::from_borrowed_fd(self.alarm.as_fd(), PollFlags::IN));
        PollList { alarm: &self.alarm, room: &mut self.room, polled, is_ready: false }
    }
}

impl<'a> PollList<'a> {
    /// The sleep ends when this socket is readable.
    pub(crate) fn add_readable(&mut self, socket: BorrowedFd<'a>) {
        self.polled.push(PollFd::from_borrowed_fd(socket, PollFlags::IN));
    }

    /// The sleep ends when this socket is writable.
    pub(crate) fn add_writable(&mut self, socket: BorrowedFd<'a>) {
        self.polled.push(PollFd::from_borrowed_fd(socket, PollFlags::OUT));
    }

    /// Something is ready: there is no sleep.
    pub(crate) fn is_ready(&mut self) {
        self.is_ready = true;
    }

    /// Sleeps until something is ready or the time has come.
    pub(crate) fn until(mut self, until: Instant) -> Wake {
        let wake = if self.is_ready { Wake::Ready } else { sleep(&mut self.polled, until) };
        if !self.polled[0].revents().is_empty() {
            // Only `WouldBlock` can come, and it means that it was not signalled.
            let _ = rustix::io::read(self.alarm, &mut [0u8; 8]);
        }
        *self.room = emptied(self.polled);
        wake
    }
}

/// A signal of the system is not a reason to wake.
fn sleep(polled: &mut [PollFd<'_>], until: Instant) -> Wake {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match rustix::event::poll(polled, Some(&timeout)) {
            Ok(0) => return Wake::Expired,
            Err(Errno::INTR) => {}
            // The caller's own attempt on the socket reports an error better than this could.
            Ok(_) | Err(_) => return Wake::Ready,
        }
    }
}

/// The same allocation without its borrows.
fn emptied<'a>(mut list: Vec<PollFd<'_>>) -> Vec<PollFd<'a>> {
    list.clear();
    list.into_iter().map_while(|_| None).collect()
}
