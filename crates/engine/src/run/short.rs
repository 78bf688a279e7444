//! Short calls, by the steps of `plan::short`. Such a call needs no cursors, watermarks or staging. Each step is done
//! at once or not at all, so one bit says how far it is, and another word which steps it depends on. A step that a link
//! cannot take at once ends this way of the run: [`State::go_on`] gives the general run the state that it would have
//! reached, and the call goes on from there.
//!
//! The steps are the same, from the same plan, and any step whose dependencies are done may move. So a proven schedule
//! ends here too.

use std::io::{self, ErrorKind};

use unisono_schedule::StepIndex;

use crate::links::{Edge, Link, Links};
use crate::memory::Store;
use crate::plan::Plan;
use crate::plan::header::HEADER_BYTES;
use crate::plan::short::{Received, ShortSteps, ShortWork};
use crate::reduce::PeerBytes;

use super::ready::Mover;
use super::{Cursor, FINISHED, Failure, PollContext, Run, State};

/// The numbers of the members of a set of steps.
fn members(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = set.trailing_zeros() as usize;
        (set != 0).then(|| {
            set &= set - 1;
            lowest
        })
    })
}

/// The result of one attempt at a step.
enum Attempt {
    Done,
    /// The bytes have not arrived.
    Waits,
    /// Only the general run can do it. The header has been received or not.
    General {
        has_header: bool,
    },
}

impl Run {
    /// Does every step that can be done now; true if there was one. `None` if the general run must go on. Peers that
    /// sleep may sleep on until [`Run::notify`].
    ///
    /// # Errors
    /// As [`Run::advance`].
    #[inline]
    pub(crate) fn advance_short<K: Links>(
        &mut self,
        context: &mut PollContext<'_, '_, '_, K>,
    ) -> Result<Option<bool>, Failure> {
        let Run { plan, pending: left, state } = self;
        let (Some(short), Some(begun)) = (&plan.short, *left) else { return Ok(None) };
        let mut pending = begun;
        loop {
            let before = pending;
            for number in members(pending) {
                let step = &short.steps[number];
                if step.needs & pending != 0 {
                    continue;
                }
                let attempt = match step.work {
                    ShortWork::Copy { source, destination } => {
                        context.memory.copy(source, destination, step.bytes, Store::Cached);
                        Attempt::Done
                    }
                    ShortWork::Send { to, plan_hash, source } => {
                        let bytes =
                            if step.bytes == 0 { &[] } else { context.memory.read(source, step.bytes) };
                        let header = state.header.with_plan_hash(plan_hash);
                        let (key, is_one) = (state.header.key(plan_hash), bytes.len() == step.bytes);
                        let link = context.links.link(to);
                        let is_sent = is_one
                            && link.try_send_whole(&header, key, bytes).map_err(|error| lost(to, error))?;
                        if is_sent { Attempt::Done } else { Attempt::General { has_header: false } }
                    }
                    ShortWork::Recv { from, plan_hash, into } => {
                        state.attempt_recv(from, plan_hash, step.bytes, into, context)?
                    }
                };
                match attempt {
                    Attempt::Done => pending &= !(1 << number),
                    Attempt::Waits => {}
                    Attempt::General { has_header } => {
                        *left = None;
                        state.go_on(plan, short, pending);
                        if has_header {
                            state.links[step.link].header_received = HEADER_BYTES;
                        }
                        // The next poll goes the general way.
                        return Ok((has_header || pending != begun).then_some(true));
                    }
                }
            }
            *left = Some(pending);
            if pending == 0 || pending == before {
                return Ok(Some(pending != begun));
            }
        }
    }

    /// Whether the steps that are left are short.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.pending.is_some()
    }

    /// Wakes the peers that sleep and wait for bytes or room that [`Run::advance_short`] has made.
    #[inline]
    pub(crate) fn notify<K: Links>(&self, links: &mut K) {
        self.plan.links.iter().for_each(|link| links.link(link.edge).notify());
    }

    /// The links whose bytes a short call waits for, the earliest first.
    pub(super) fn short_receives(&self, pending: u64) -> impl Iterator<Item = Edge> + '_ {
        let steps = self.plan.short.iter().flat_map(|short| short.steps.iter().enumerate());
        steps
            .filter(move |(number, step)| pending >> number & 1 == 1 && step.needs & pending == 0)
            .filter_map(|(_, step)| match step.work {
                ShortWork::Recv { from, .. } => Some(from),
                ShortWork::Send { .. } | ShortWork::Copy { .. } => None,
            })
    }
}

impl State {
    #[inline]
    fn attempt_recv<K: Links>(
        &self,
        from: Edge,
        plan_hash: u64,
        bytes: usize,
        into: Received,
        context: &mut PollContext<'_, '_, '_, K>,
    ) -> Result<Attempt, Failure> {
        let PollContext { memory, links, staging, reducer } = context;
        let whole = HEADER_BYTES + bytes;
        let (payload, used) = match links.link(from).peek(whole, Some(self.header.key(plan_hash))) {
            Some(Ok((true, payload))) if payload.len() == bytes => (payload, bytes),
            Some(Ok((true, _))) => {
                staging.heard.note(from.peer, self.header.number());
                return Ok(Attempt::General { has_header: true });
            }
            Some(Ok((false, arrived))) if arrived.len() == whole => {
                let (header, payload) = arrived.split_at(HEADER_BYTES);
                let mut theirs = [0; HEADER_BYTES];
                PeerBytes::Shared(header).copy_to(&mut theirs);
                if theirs != self.header.with_plan_hash(plan_hash) {
                    return Ok(Attempt::General { has_header: false });
                }
                (payload, whole)
            }
            None | Some(Ok((false, _))) => return Ok(Attempt::General { has_header: false }),
            Some(Err(error)) if is_too_early(&error) => return Ok(Attempt::Waits),
            Some(Err(error)) => return Err(lost(from, error)),
        };
        staging.heard.note(from.peer, self.header.number());
        let payload = PeerBytes::Shared(payload);
        match into {
            Received::Stored { destination } => memory.store(destination, payload),
            Received::Reduced { operand, destination, order } => memory
                .reduce(reducer, operand, destination, payload, order, Store::Cached)
                .map_err(Failure::Panicked)?,
        }
        links.link(from).consume(used);
        Ok(Attempt::Done)
    }

    /// Gives the general run the state in which all steps but the pending ones are done.
    #[cold]
    fn go_on(&mut self, plan: &Plan, short: &ShortSteps, pending: u64) {
        self.begin(plan);
        let behind = Cursor { position: 1, ..Cursor::default() };
        for number in members(short.all & !pending) {
            let (index, step) = (StepIndex::new(number), &short.steps[number]);
            match step.work {
                ShortWork::Send { .. } => {
                    let link = &mut self.links[step.link];
                    link.header_sent = HEADER_BYTES;
                    (link.posted, link.released) = (behind, behind);
                    self.ready.close(Mover::Send(step.link));
                }
                ShortWork::Recv { .. } => {
                    let link = &mut self.links[step.link];
                    link.header_received = HEADER_BYTES;
                    link.recv = behind;
                    self.ready.close(Mover::Receive(step.link));
                }
                ShortWork::Copy { .. } => {
                    if let Some(copy) = plan.copies.iter().position(|copy| *copy == index) {
                        self.ready.close(Mover::Copy(copy));
                    }
                }
            }
            self.done[number] = FINISHED;
            self.unfinished -= 1;
        }
    }
}

fn is_too_early(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cold]
fn lost(edge: Edge, error: io::Error) -> Failure {
    Failure::Broken { peer: edge.peer, broken: error.into() }
}
