//! The end of a communicator's messages, as its threads drive it: the goodbyes at its `close` and at its drop, and the
//! streams of ranks that have closed it, which are read to their end. The rules are in `point_to_point/goodbye.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use unisono_backend::Waker;
use unisono_communicator::{Awaited, CallInfo, Error, GroupRank, Result, deadline_after};

use crate::drive::pending::Pending;
use crate::drive::progress::look_after;
use crate::drive::{LinksGuard, Shared};
use crate::links::Links;
use crate::lock;

/// The longest wait of `close` for a goodbye although the peer's kernel has all sent bytes. A peer answers at once,
/// unless it is inside a user's function or has not made its communicator yet.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// The pause of `close` between two questions whether the kernel has everything, since nothing wakes it.
const DELIVERY_PAUSE: Duration = Duration::from_millis(100);

impl<L: Links + 'static> Shared<L> {
    /// Makes this rank read the streams of closing ranks to their end, even if none of its threads makes a call.
    pub(crate) fn watch_for_closing(self: &Arc<Self>) {
        let (weak, monitor) = (Arc::downgrade(self), self.monitor.clone());
        let (news, wake) = (self.news_of_closing.clone(), self.wake.clone());
        let look_again: Waker = Arc::new(move || {
            news.store(true, Ordering::SeqCst);
            wake();
        });
        // The functions run on the control thread. They must not hold the communicator, because the drop of the last
        // handle ends that thread.
        let wake = look_again.clone();
        let read: Waker = Arc::new(move || {
            look_again();
            look_after(&monitor, weak.clone());
        });
        self.gate.board().closings().on_close(wake, read);
    }

    /// Notes the ranks that have closed, if there is news.
    #[inline]
    pub(crate) fn hear_of_closing(&self, links: &mut L) {
        if self.news_of_closing.load(Ordering::Relaxed) && self.news_of_closing.swap(false, Ordering::SeqCst)
        {
            lock(&self.messages).hear_of_closing(links, self.gate.board());
            self.has_messages.store(true, Ordering::SeqCst);
        }
    }

    /// Whether a closed rank's stream has not been read to its end.
    pub(crate) fn has_closing_lanes(&self) -> bool {
        self.news_of_closing.load(Ordering::SeqCst) || lock(&self.messages).awaits_goodbye()
    }

    /// Reads the streams of closed ranks until they end, another thread wants the links, or `until` has come.
    pub(crate) fn drain_closed_lanes(&self, guard: &mut LinksGuard<'_, L>, until: Instant) -> Result<()> {
        let goal = |_: &mut L| self.monitor.is_wanted() || !self.has_closing_lanes() && !self.has_pending();
        let until = guard.links.now() + until.saturating_duration_since(Instant::now());
        guard.drive(&mut Pending::until(self, goal, until)).map_err(|error| self.gate.settle(guard, error))
    }

    /// Says goodbye on every stream, and writes as much as fits.
    pub(crate) fn say_goodbye(&self, guard: &mut LinksGuard<'_, L>) -> Result<()> {
        // The streams of a revoked communicator may have been closed.
        self.gate.check_revoked()?;
        let mut messages = lock(&self.messages);
        messages.say_goodbye(&mut guard.links);
        self.gate.board().closings().note_closed(self.gate.group().own_rank());
        self.has_messages.store(true, Ordering::SeqCst);
        let written = messages.advance(&mut guard.links, &mut []);
        drop(messages);
        written.map(drop).or_else(|error| self.settle_after_goodbye(guard, error))
    }

    /// A rank that reads the goodbye may fail because it still waits for a message. This rank has left in good order,
    /// and its `close` succeeds however soon the news of such a failure comes.
    fn settle_after_goodbye(&self, guard: &mut LinksGuard<'_, L>, error: Error) -> Result<()> {
        let error = self.gate.settle(guard, error);
        if self.gate.has_failed_here() { Err(error) } else { Ok(()) }
    }

    /// Finishes every detached send, since the process may be about to end.
    ///
    /// # Errors
    /// [`Error::Timeout`] with the ranks that have not received their messages; the first cause.
    pub(crate) fn finish_sends(&self, guard: &mut LinksGuard<'_, L>) -> Result<()> {
        let (started, until) = (guard.links.now(), self.give_up_at(guard));
        let goal = |_: &mut L| !lock(&self.messages).is_sending();
        let driven = guard.drive(&mut Pending::until(self, goal, until));
        let ranks = lock(&self.messages).sent_to();
        let is_late = || if ranks.is_empty() { Ok(()) } else { Err(self.late(guard, started, ranks)) };
        driven.and_then(|()| is_late()).map_err(|error| self.gate.settle(guard, error))
    }

    /// Waits until all sent messages can be received, even if this process ends. A failure of another rank ends the
    /// wait without an error.
    ///
    /// # Errors
    /// [`Error::Timeout`] with the ranks that have not taken their messages; the failure of a stream.
    pub(crate) fn await_goodbyes(&self, guard: &mut LinksGuard<'_, L>) -> Result<()> {
        let (started, until) = (guard.links.now(), self.give_up_at(guard));
        let unanswered = |links: &mut L| {
            let is_kernel_enough = links.now() >= started + ANSWER_MAX;
            lock(&self.messages).unanswered(links, is_kernel_enough)
        };
        let mut goal = |links: &mut L| unanswered(links).is_empty();
        let mut look_at = started + ANSWER_MAX;
        while !goal(&mut guard.links) && guard.links.now() < until {
            let driven = guard.drive(&mut Pending::until(self, &mut goal, look_at.min(until)));
            if let Err(error) = driven {
                return self.settle_after_goodbye(guard, error);
            }
            look_at = guard.links.now() + DELIVERY_PAUSE;
        }
        let ranks = unanswered(&mut guard.links);
        if ranks.is_empty() { Ok(()) } else { Err(self.late(guard, started, ranks)) }
    }

    /// The timeout of a `close` that has waited since `started` for these ranks.
    fn late(&self, guard: &LinksGuard<'_, L>, started: Instant, ranks: Vec<GroupRank>) -> Error {
        let group = self.gate.group();
        let awaits = |rank| Awaited {
            rank: group.job_rank(rank),
            status: "has not taken what was sent to it".to_owned(),
        };
        Error::Timeout {
            call: Box::new(CallInfo::without_data(self.gate.board().calls().entered(), "close")),
            reported_by: group.own_job_rank(),
            waited: guard.links.now().saturating_duration_since(started),
            not_arrived: ranks.into_iter().map(awaits).collect(),
        }
    }

    fn give_up_at(&self, guard: &LinksGuard<'_, L>) -> Instant {
        deadline_after(guard.links.now(), self.gate.timeout())
    }

    /// Passes all queued bytes to the kernel within `drop_timeout`, before the streams are dropped.
    pub(crate) fn see_off(&self) {
        if !lock(&self.messages).has_streams() || self.gate.board().first_cause().is_revoked() {
            return;
        }
        let mut guard = self.lock_links();
        lock(&self.messages).say_goodbye(&mut guard.links);
        self.has_messages.store(true, Ordering::SeqCst);
        let until = deadline_after(guard.links.now(), self.options.drop_timeout);
        let goal = |_: &mut L| lock(&self.messages).has_said_goodbye();
        // No caller is left for an error, and the other ranks notice a failure themselves.
        let _ = guard.drive(&mut Pending::until(self, goal, until));
    }
}
