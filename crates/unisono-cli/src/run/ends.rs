//! The reports of ranks and the ends of their processes, in the order in which they happened.
//!
//! One thread waits for all of them, at an epoll instance: the kernel queues descriptors there in the order in which
//! they became ready. With a thread for each rank, a busy machine would set the order by running these threads.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{SendError, Sender};
use std::thread;
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use unisono_job::report::{ErrorReport, ReportPipe};

use super::rank::{Event, Exited};

/// Ends that are fetched at once.
const ENDS_MAX: usize = 64;
/// Among the numbers of ranks, their reports.
const REPORTS: u64 = u64::MAX;
/// The bytes that a pipe holds at most, unless somebody makes it larger.
const PIPE_BYTES: usize = 64 << 10;

/// The waiter for the ends of processes.
pub(super) struct Ends {
    epoll: Arc<OwnedFd>,
}

/// The kernel's handle of a process; its end is told until this is dropped.
pub(super) struct WatchedProcess {
    _descriptor: OwnedFd,
}

impl Ends {
    /// Tells of the ends as [`Exited`] from now on, and as [`Event::Reported`] of the reports that come out of
    /// `reports`. A report from before a rank's end comes before its end.
    pub(super) fn tell<R: From<Exited> + Send + 'static>(
        reports: &ReportPipe,
        events: Sender<Event<R>>,
    ) -> io::Result<Ends> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        epoll::add(&*epoll, &reports.reading, epoll::EventData::new_u64(REPORTS), epoll::EventFlags::IN)?;
        let ends = Ends { epoll: epoll.clone() };
        let (source, _writing) = (reports.reading.try_clone()?.into(), reports.writing.try_clone()?);
        let teller = Teller { reports: ReportReader { source, _writing, held: Vec::new() }, events };
        thread::Builder::new().name("ends".into()).spawn(move || teller.tell_all(&epoll))?;
        Ok(ends)
    }

    /// Tells of the end of `pid`, which is rank `rank` and must not be reaped before that.
    pub(super) fn watch(&self, pid: Pid, rank: u32) -> io::Result<WatchedProcess> {
        let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
        // Once: a process that has ended stays ready until it is reaped.
        let once = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        epoll::add(&*self.epoll, &descriptor, epoll::EventData::new_u64(rank.into()), once)?;
        Ok(WatchedProcess { _descriptor: descriptor })
    }
}

struct Teller<R> {
    reports: ReportReader,
    events: Sender<Event<R>>,
}

impl<R: From<Exited>> Teller<R> {
    fn tell_all(mut self, epoll: &OwnedFd) {
        let mut ready = Vec::with_capacity(ENDS_MAX);
        let mut told = Ok(());
        while told.is_ok() {
            ready.clear();
            // It fails only when a signal interrupts it.
            let _ = epoll::wait(epoll, spare_capacity(&mut ready), None);
            told = self.tell(ready.iter().map(|event| event.data.u64()));
        }
    }

    fn tell(&mut self, ready: impl Iterator<Item = u64>) -> Result<(), SendError<Event<R>>> {
        let at = Instant::now();
        self.reports
            .read()
            .into_iter()
            .try_for_each(|report| self.events.send(Event::Reported(Box::new(report))))?;
        let mut ranks = ready.filter(|&number| number != REPORTS);
        ranks.try_for_each(|rank| self.events.send(Event::Ranks(Exited { rank: rank as u32, at }.into())))
    }
}

/// The pipe of reports, and the beginning of a report whose rest has not come.
struct ReportReader {
    source: File,
    /// Without it the pipe would be at its end, and so always ready, when all ranks have ended.
    _writing: OwnedFd,
    held: Vec<u8>,
}

impl ReportReader {
    /// The reports that are in the pipe: one call takes all that it holds.
    fn read(&mut self) -> Vec<ErrorReport> {
        let mut room = [0; PIPE_BYTES];
        let bytes = self.source.read(&mut room).unwrap_or_default();
        self.held.extend_from_slice(&room[..bytes]);
        ErrorReport::take_all(&mut self.held)
    }
}
