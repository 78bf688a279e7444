//! Blocking calls that end within a few microseconds. A plain call whose run is known, bound and short moves its bytes
//! in a straight loop, with no state of its own; if it cannot end so soon, it becomes an [`ActiveCall`], and goes on
//! from there. Short messages pass their lanes at once, or go the general way.

use std::sync::atomic::Ordering;
use std::task::Poll;

use unisono_communicator::{Call, CallShape, Collective, Operation, Outcome, Result, Segments};

use crate::calls::call::{ActiveCall, Engine, enter};
use crate::drive::{LinksGuard, Shared};
use crate::links::Links;
use crate::lock;
use crate::memory::{Memory, TOKEN};
use crate::plan::planner::Planned;
use crate::point_to_point::AtOnce;
use crate::run::PollContext;

/// A pause of the core takes as long as some looks, and bytes that come meanwhile wait for its end. Without any, the
/// other thread of the core would get little.
const LOOKS_PER_PAUSE: u32 = 8;

/// Before the next of so many looks.
#[inline]
fn look_again_soon(looks: &mut u32) {
    *looks -= 1;
    if looks.is_multiple_of(LOOKS_PER_PAUSE) {
        std::hint::spin_loop();
    }
}

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
        let (mut looks, mut has_waited) = (if is_recorded { 0 } else { idling.looks() }, false);
        let advanced = loop {
            #[expect(clippy::expect_used, reason = "a call with a shape has host memory")]
            let memory = Memory::new(&mut call.buffers, substitute, scratch).expect("host memory");
            let advanced = run.advance_short(&mut PollContext { memory, links, staging, reducer });
            match advanced {
                Ok(_) if run.is_finished() => break Ok(()),
                Ok(Some(false)) if looks > 0 => {
                    if !std::mem::replace(&mut has_waited, true) {
                        run.notify(links);
                    }
                    look_again_soon(&mut looks);
                }
                Ok(Some(true)) => {}
                Ok(_) => break Ok(()),
                Err(failure) => break Err(failure),
            }
        };
        run.notify(links);
        let is_finished = advanced.is_ok() && run.is_finished();
        if is_finished && !is_recorded {
            if has_waited {
                idling.looked(true);
            }
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
        let looks_max = idling.looks();
        let (mut looks, mut are_over) = (looks_max, true);
        for operation in [Operation::Send, Operation::Recv] {
            for index in 0..calls.len() {
                if !are_over || results[index].is_some() || calls[index].descriptor.operation != operation {
                    continue;
                }
                let mut passed = messages.pass_at_once(links, &mut calls[index]);
                while matches!(passed, AtOnce::Waits) && looks > 0 {
                    if looks == looks_max {
                        messages.notify(links, calls);
                    }
                    look_again_soon(&mut looks);
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
        if are_over && looks < looks_max {
            idling.looked(true);
        }
        are_over
    }
}
