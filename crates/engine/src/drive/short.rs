//! Blocking calls that end within a few microseconds. A plain call whose run is known, bound and short moves its bytes
//! in a straight loop, with no state of its own; if it cannot end so soon, it becomes an [`ActiveCall`], and goes on
//! from there. Short messages pass their lanes at once, or go the general way.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::task::Poll;

use unisono_communicator::{Call, CallShape, Collective, Operation, Outcome, Result, Segments};

use crate::calls::call::{ActiveCall, Engine, enter};
use crate::calls::idling::Idling;
use crate::calls::short_wait::{NextPoll, ShortWait};
use crate::drive::{LinksGuard, Shared};
use crate::links::Links;
use crate::lock;
use crate::memory::{Memory, TOKEN};
use crate::plan::planner::Planned;
use crate::point_to_point::{AtOnce, PointToPoint};
use crate::run::PollContext;

impl<L: Links + 'static> Shared<L> {
    /// Runs a call outside scopes to its end if it is short, and if the other ranks are as quick. A call that has its
    /// number and has not ended becomes `active`.
    ///
    /// # Errors
    /// As [`unisono_communicator::Executor::execute`].
    pub(crate) fn begin_short(
        &self,
        collective: Collective,
        call: &mut Call<'_>,
        guard: &mut LinksGuard<'_, L>,
        active: &mut Option<ActiveCall>,
    ) -> Result<Option<Outcome>> {
        let Engine { links, planner, staging, scratch, idling, .. } = &mut **guard;
        let known = match call.prepared {
            Some(number) => planner.known_prepared(number),
            None => CallShape::of(call).and_then(|shape| planner.known(shape)),
        };
        let Some(planned) = known else { return Ok(None) };
        let Planned { run, reducer, header, .. } = planned;
        if call.body.is_some()
            || run.plan.short.is_none()
            || reducer.needs_prescale()
            || run.plan.scratch_bytes > scratch.len()
            || self.has_messages.load(Ordering::Relaxed)
            || !matches!(links.open(&run.plan.edges), Poll::Ready(Ok(())))
        {
            return Ok(None);
        }
        let (number, is_recorded) =
            enter(&self.gate, call, run.plan.named(), None, None, *header, |header| run.reset(header));
        let substitute: Option<&Segments<'_>> = (collective == Collective::Barrier).then_some(&TOKEN);
        let mut wait = ShortWait::new(idling, is_recorded);
        let advanced = loop {
            #[expect(clippy::expect_used, reason = "a call with a shape has host memory")]
            let memory = Memory::new(&mut call.buffers, substitute, scratch).expect("host memory");
            let advanced = run.advance_short(&mut PollContext { memory, links, staging, reducer });
            match advanced {
                Ok(_) if run.is_finished() => break Ok(()),
                Ok(Some(true)) => {}
                Ok(Some(false)) => {
                    if wait.begins() {
                        run.notify(links);
                    }
                    match wait.next(idling, || self.monitor.is_wanted()) {
                        NextPoll::Look => {}
                        NextPoll::Yield => idling.give_way(|| links.now()),
                        NextPoll::General => break Ok(()),
                    }
                }
                Ok(None) => break Ok(()),
                Err(failure) => break Err(failure),
            }
        };
        run.notify(links);
        let is_finished = advanced.is_ok() && run.is_finished();
        if is_finished && !is_recorded {
            wait.end(idling);
            let outcome = Outcome::done(call.buffers.bytes_max(), run.plan.named().0);
            self.gate.board().leave(number, None);
            return Ok(Some(outcome));
        }
        let planned = planner.take_given(call.prepared);
        let begun = ActiveCall::plain(collective, number, planned, call, &self.gate, is_recorded);
        let active = active.insert(begun);
        match advanced {
            Ok(()) => Ok(None),
            Err(failure) => {
                let error = active.error(failure, self.gate.peers());
                Err(self.gate.settle(guard, error))
            }
        }
    }

    /// Moves and records a short message at once. `None` if it cannot pass: then nothing has moved.
    pub(crate) fn message_at_once(&self, call: &mut Call<'_>) -> Option<Outcome> {
        let mut guard = self.links_at_once()?;
        let Engine { links, idling, .. } = &mut *guard;
        let mut wait = ShortWait::new(idling, false);
        let messages = lock(&self.messages);
        let (passed, messages) =
            self.pass_at_once(messages, (links, idling), &mut wait, std::slice::from_mut(call), 0);
        messages.notify(links, std::slice::from_ref(call));
        drop(messages);
        let AtOnce::Done(outcome) = passed else { return None };
        self.gate.board().messages().pass(&call.descriptor, call.site);
        wait.end(idling);
        Some(outcome)
    }

    /// Moves and records short messages at once, first the sends, then the receives, and gives their results. The first
    /// that cannot pass, and all behind it, have moved nothing. True if all calls are over.
    pub(crate) fn exchange_at_once(
        &self,
        calls: &mut [Call<'_>],
        results: &mut [Option<Result<Outcome>>],
    ) -> bool {
        let Some(mut guard) = self.links_at_once() else { return false };
        let Engine { links, idling, .. } = &mut *guard;
        let (mut wait, mut are_over) = (ShortWait::new(idling, false), true);
        let mut messages = lock(&self.messages);
        for operation in [Operation::Send, Operation::Recv] {
            for index in 0..calls.len() {
                if !are_over || results[index].is_some() || calls[index].descriptor.operation != operation {
                    continue;
                }
                let passed;
                (passed, messages) = self.pass_at_once(messages, (links, idling), &mut wait, calls, index);
                match passed {
                    AtOnce::Done(outcome) => {
                        let Call { descriptor, site, .. } = &calls[index];
                        self.gate.board().messages().pass(descriptor, *site);
                        results[index] = Some(Ok(outcome));
                    }
                    AtOnce::Waits | AtOnce::General => are_over = false,
                }
            }
        }
        messages.notify(links, calls);
        if are_over {
            wait.end(idling);
        }
        are_over
    }

    /// The links, if no message of the general way, no asynchronous call and no log needs them first.
    #[inline]
    fn links_at_once(&self) -> Option<LinksGuard<'_, L>> {
        let is_busy =
            self.has_messages.load(Ordering::SeqCst) || self.news_of_closing.load(Ordering::Relaxed);
        if is_busy || self.gate.board().is_recording() {
            return None;
        }
        self.try_lock_links().filter(|_| self.queue.is_empty())
    }

    /// Moves one of the calls at once, or waits a little for its message. Before the first wait it wakes the peers of
    /// all calls.
    #[inline]
    fn pass_at_once<'s>(
        &'s self,
        mut messages: MutexGuard<'s, PointToPoint>,
        (links, idling): (&mut L, &mut Idling),
        wait: &mut ShortWait,
        calls: &mut [Call<'_>],
        index: usize,
    ) -> (AtOnce, MutexGuard<'s, PointToPoint>) {
        let mut ahead = 0;
        loop {
            let passed = messages.pass_at_once(links, &mut calls[index], &mut ahead);
            if !matches!(passed, AtOnce::Waits) {
                return (passed, messages);
            }
            if wait.begins() {
                messages.notify(links, calls);
            }
            match wait.next(idling, || self.monitor.is_wanted()) {
                NextPoll::Look => {}
                NextPoll::Yield => {
                    drop(messages);
                    idling.give_way(|| links.now());
                    messages = lock(&self.messages);
                }
                NextPoll::General => return (passed, messages),
            }
        }
    }
}
