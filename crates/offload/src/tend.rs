//! Looks after calls that are under way on streams. Threads that wait for a call do it, and the thread of the
//! communicator.

use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use unisono_communicator::{
    Awaited, CallInfo, Descriptor, DoneCallback, Ending, Error, Outcome, OwnedBuffers, Result, Site, Ticket,
    WorkSource, call_back, deadline_after,
};

use crate::known::Known;
use crate::pending::Oldest;
use crate::signal::Slot;
use crate::thread::VendorShared;
use crate::vendor::Vendor;
use crate::watch::Stuck;

/// The time that a thread that waits for a call polls without sleeping, and the limits of its sleeps between two polls
/// afterwards.
const SPIN: Duration = Duration::from_micros(50);
const SLEEP_MIN: Duration = Duration::from_micros(20);
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// The age from which a call is checked for more than its end.
const LOOK_AFTER: Duration = Duration::from_millis(20);

/// The time that the library may take to end its work.
const ABORT_MAX: Duration = Duration::from_secs(3);

/// The most ranks that the error of a late call names.
pub(crate) const NAMED_MAX: usize = 8;

impl<V: Vendor> VendorShared<V> {
    /// Ends calls whose work is done or has failed, and late calls. Asks other ranks about a call that makes no
    /// progress.
    pub(crate) fn tend(&self) {
        if self.pending.is_empty() {
            return;
        }
        let board = self.companion.gate().board();
        if let Err(error) = self.pending.reap(board, &|| self.late_error()) {
            self.companion.settle(error);
        }
        if let Some(oldest) = self.pending.oldest(Instant::now(), LOOK_AFTER) {
            self.look(&oldest);
        }
        if board.first_cause().is_revoked() {
            self.fail_pending();
        }
    }

    fn look(&self, oldest: &Oldest) {
        let gate = self.companion.gate();
        if let Err(error) = self.late_error() {
            self.companion.settle(error);
        } else if Instant::now() >= oldest.until {
            let waited = oldest.since.elapsed();
            gate.fail(match &oldest.known {
                Known::Collective { number, .. } => self.timed_out(*number, waited),
                Known::Messages(messages) => self.messages_timed_out(messages, waited),
            });
        } else {
            match &oldest.known {
                Known::Collective { number, .. } => {
                    self.enqueued_stall.look(gate, &Stuck::collective(gate, *number), "on its stream");
                }
                Known::Messages(messages) => {
                    self.look_at_messages(&self.enqueued_stall, messages, "on its stream");
                }
            }
        }
    }

    /// The error of the library's work, if it has failed.
    pub(crate) fn late_error(&self) -> Result<()> {
        self.comm().and_then(|comm| self.vendor.late_error(comm))
    }

    /// The error of a call on a stream that has missed its deadline after `waited`.
    pub(crate) fn timed_out(&self, number: u64, waited: Duration) -> Error {
        let gate = self.companion.gate();
        let (board, group) = (gate.board(), gate.group());
        let call = board.calls().info(number);
        let call = call.unwrap_or_else(|| CallInfo::without_data(number, "an enqueued call"));
        let others = group.ranks().filter(|&rank| rank != group.own_rank()).take(NAMED_MAX);
        let status = |rank| board.answers().text(rank, number);
        let awaited = others.map(|rank| Awaited { rank: group.job_rank(rank), status: status(rank) });
        Error::Timeout {
            call: Box::new(call),
            reported_by: group.own_job_rank(),
            waited,
            not_arrived: self.behind().into_iter().chain(awaited).collect(),
        }
    }

    /// Ends all calls on streams with the first cause. Ends their work too, if the library can.
    pub(crate) fn fail_pending(&self) {
        let board = self.companion.gate().board();
        let cause = board.first_cause().error().unwrap_or(Error::closed());
        self.pending.fail(board, &cause, &|| self.late_error(), || self.abort_or_leave());
    }

    /// Ends the work in the library. Returns false if the library cannot. Another thread makes the call, since the
    /// library may hang in it too: then the work has not ended, and this returns all the same.
    pub(crate) fn abort(&self) -> bool {
        self.pending.note_abort();
        let Some(own) = self.own.upgrade().filter(|own| own.comm().is_ok()) else { return false };
        let ended = Arc::new(Slot::default());
        let there = ended.clone();
        let body = move || there.set(own.comm().is_ok_and(|comm| own.vendor.abort(comm)));
        let name = format!("unisono-{}-abort", V::BACKEND);
        let Ok(thread) = std::thread::Builder::new().name(name).spawn(body) else { return false };
        let is_ended = ended.take(Instant::now() + ABORT_MAX, || false);
        if is_ended.is_some() {
            // A thread that the library knows must end before the process unloads the library.
            let _ = thread.join();
        }
        is_ended.unwrap_or(false)
    }

    /// Passes on the results of asynchronous calls that are over. Called on a thread that holds no lock.
    pub(crate) fn tell_over(&self) {
        self.pending.take_over().into_iter().for_each(|over| over.tell(&self.companion));
    }

    /// Waits until no call is under way, or until `until`.
    pub(crate) fn drain(&self, until: Instant) {
        while !self.pending.is_empty() && Instant::now() < until {
            self.tend();
            std::thread::sleep(SLEEP_MAX);
        }
    }

    /// The end of a ticket's call; `None` if it has not ended within `timeout`.
    ///
    /// # Errors
    /// As [`unisono_communicator::Communicator::resolve_within`].
    pub(crate) fn resolve_within(&self, ticket: Ticket, timeout: Duration) -> Result<Option<Outcome>> {
        self.companion.gate().check_caller(&ticket)?;
        if self.vendor.device().is_none() {
            let instead = Some("ask the communicator that has issued it".to_owned());
            return Err(Error::Unsupported { what: ticket.to_string(), backend: V::BACKEND, instead });
        }
        let started = Instant::now();
        let until = deadline_after(started, timeout);
        let (tickets, mut sleep) = (self.pending.tickets(), SLEEP_MIN);
        loop {
            self.tend();
            let now = Instant::now();
            let left = until.saturating_duration_since(now);
            let is_young = now.saturating_duration_since(started) < SPIN;
            let pause = if is_young { Duration::ZERO } else { left.min(sleep) };
            if let Some(outcome) = tickets.resolve_within(ticket, pause)? {
                return Ok(Some(outcome));
            }
            if left.is_zero() {
                return Ok(None);
            }
            if is_young {
                std::thread::yield_now();
            } else {
                sleep = (sleep * 2).min(SLEEP_MAX);
            }
        }
    }
}

/// The handle of an asynchronous call on a stream.
pub(crate) struct EnqueuedWork<V: Vendor> {
    /// Weak: the communicator's thread keeps the communicator while calls are on streams.
    pub(crate) shared: Weak<VendorShared<V>>,
    pub(crate) ticket: Ticket,
    pub(crate) ending: Arc<Ending>,
    /// `None` for a message.
    pub(crate) number: Option<u64>,
    pub(crate) descriptor: Descriptor,
    pub(crate) site: Site,
}

impl<V: Vendor> WorkSource for EnqueuedWork<V> {
    fn is_done(&self) -> bool {
        self.ending.is_done()
    }

    fn wait_until(&self, until: Option<Instant>, _: &dyn Fn() -> bool) {
        let left = || until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
        // The communicator's thread ends the call, and the result comes from that end.
        if let Some(shared) = self.shared.upgrade() {
            let _ = shared.resolve_within(self.ticket, left());
        }
        while !self.ending.is_done() && !left().is_zero() {
            std::thread::sleep(SLEEP_MIN.min(left()));
        }
    }

    fn register(&self, waker: &Waker) {
        self.ending.register(waker);
    }

    fn on_done(&self, callback: DoneCallback) {
        if let Some((callback, result)) = self.ending.on_done(callback) {
            call_back(callback, result);
        }
    }

    fn result(&self) -> Option<Result<Outcome>> {
        self.ending.result()
    }

    fn take_buffers(&self) -> Option<OwnedBuffers> {
        self.ending.take_buffers()
    }

    fn cancel(&self) {
        let Some(shared) = self.shared.upgrade().filter(|_| !self.is_done()) else { return };
        let gate = shared.companion.gate();
        let info = self.number.and_then(|number| gate.board().calls().info(number));
        let info = info.unwrap_or_else(|| {
            let site = self.site.text();
            CallInfo { site, ..CallInfo::new(self.number.unwrap_or(0), self.descriptor) }
        });
        gate.fail(Error::Cancelled { by: gate.group().own_job_rank(), call: Box::new(info) });
    }
}
