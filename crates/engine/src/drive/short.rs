//! Blocking calls that end within a few microseconds. A plain call whose run is known, bound and short moves its bytes
//! in a straight loop, with no state of its own; if it cannot end so soon, it becomes an [`ActiveCall`], and goes on
//! from there. Short messages pass their lanes at once, or go the general way.

use std::sync::atomic::Ordering;
use std::task::Poll;

use unisono_communicator::{Call, CallShape, Collective, Operation, Outcome, Result, Segments};

use crate::calls::call::{ActiveCall, Engine, enter};
use crate::calls::short_wait::{Next, ShortWait};
use crate::drive::{LinksGuard, Shared};
use crate::links::Links;
use crate::lock;
use crate::memory::{Memory, TOKEN};
use crate::plan::planner::Planned;
use crate::point_to_point::AtOnce;
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
                        Next::Look => {}
                        Next::Yield => idling.give_way(|| links.now()),
                        Next::General => break Ok(()),
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

    /// Moves and records short messages at once, first the sends, then the receives, and gives their results. The first
    /// that cannot pass, and all behind it, have moved nothing. True if all calls are over.
    pub(crate) fn exchange_at_once(
        &self,
        calls: &mut [Call<'_>],
        results: &mut [Option<Result<Outcome>>],
    ) -> bool {
        let board = self.gate.board();
        let is_busy =
            self.has_messages.load(Ordering::SeqCst) || self.news_of_closing.load(Ordering::Relaxed);
        if is_busy || board.is_recording() {
            return false;
        }
        let Some(mut guard) = self.try_lock_links().filter(|_| self.queue.is_empty()) else {
            return false;
        };
        let Engine { links, idling, .. } = &mut *guard;
        let mut messages = lock(&self.messages);
        let (mut wait, mut are_over) = (ShortWait::new(idling, false), true);
        for operation in [Operation::Send, Operation::Recv] {
            for index in 0..calls.len() {
                if !are_over || results[index].is_some() || calls[index].descriptor.operation != operation {
                    continue;
                }
                let mut passed = messages.pass_at_once(links, &mut calls[index]);
                while matches!(passed, AtOnce::Waits) {
                    if wait.begins() {
                        messages.notify(links, calls);
                    }
                    match wait.next(idling, || self.monitor.is_wanted()) {
                        Next::Look => {}
                        Next::Yield => {
                            drop(messages);
                            idling.give_way(|| links.now());
                            messages = lock(&self.messages);
                        }
                        Next::General => break,
                    }
                    passed = messages.pass_at_once(links, &mut calls[index]);
                }
                match passed {
                    AtOnce::Done(outcome) => {
                        board.messages().pass(&calls[index].descriptor, calls[index].site);
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
}
