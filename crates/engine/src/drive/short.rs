//! Blocking calls that end within a few microseconds: a plain call whose run is known, bound and short moves its bytes
//! in a straight loop, with no state of its own. A call that cannot end so soon becomes an [`ActiveCall`], and goes on
//! from there.

use std::sync::atomic::Ordering;
use std::task::Poll;

use unisono_communicator::{Call, CallShape, Collective, Outcome, Result, Segments};

use crate::calls::call::{ActiveCall, Engine, enter};
use crate::drive::{LinksGuard, Shared};
use crate::links::Links;
use crate::memory::{Memory, TOKEN};
use crate::plan::planner::Planned;
use crate::run::PollContext;

/// A pause of the core takes as long as some looks, and bytes that come meanwhile wait for its end. Without any, the
/// other thread of the core would get little.
const LOOKS_PER_PAUSE: u32 = 8;

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
                    looks -= 1;
                    if looks.is_multiple_of(LOOKS_PER_PAUSE) {
                        std::hint::spin_loop();
                    }
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
}
