//! The ends of the ranks' processes, in the order in which they happened.
//!
//! One thread waits for all of them, at an epoll instance: the kernel queues what is ready there in the order in which
//! it became ready. With a thread for each rank, the order would be that in which a busy machine runs these threads.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::rank::Event;

/// Ends that are fetched at once.
const ENDS_MAX: usize = 64;

/// What waits for the ends of processes.
pub(super) struct Ends {
    epoll: Arc<OwnedFd>,
}

/// The kernel's handle of a process; its end is reported until this is dropped.
pub(super) struct WatchedProcess {
    _descriptor: OwnedFd,
}

impl Ends {
    /// Reports the ends as [`Event::Exited`] from now on.
    pub(super) fn report_to(events: Sender<Event>) -> io::Result<Ends> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let ends = Ends { epoll: epoll.clone() };
        thread::Builder::new().name("ends".into()).spawn(move || report(&epoll, &events))?;
        Ok(ends)
    }

    /// Reports the end of `pid`, which is rank `rank` and must not be reaped before that.
    pub(super) fn watch(&self, pid: Pid, rank: u32) -> io::Result<WatchedProcess> {
        let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
        // Once: a process that has ended stays ready until it is reaped.
        let once = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        epoll::add(&*self.epoll, &descriptor, epoll::EventData::new_u64(rank.into()), once)?;
        Ok(WatchedProcess { _descriptor: descriptor })
    }
}

fn report(epoll: &OwnedFd, events: &Sender<Event>) {
    let mut ended = Vec::with_capacity(ENDS_MAX);
    loop {
        ended.clear();
        // It fails only when a signal interrupts it.
        let _ = epoll::wait(epoll, spare_capacity(&mut ended), None);
        let at = Instant::now();
        for end in &ended {
            let rank = end.data.u64() as u32;
            if events.send(Event::Exited { rank, at }).is_err() {
                return;
            }
        }
    }
}
