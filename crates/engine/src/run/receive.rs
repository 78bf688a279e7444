//! The receiving half of a poll. Long chunks go directly into the caller's memory. Other bytes are stored or reduced
//! from where they lie in the link; a link that only copies gives them through the staging area.

use std::io::{ErrorKind, IoSliceMut};

use unisono_schedule::StepIndex;

use crate::links::{Broken, Link, Links};
use crate::memory::{Memory, Span};
use crate::plan::header::HEADER_BYTES;
use crate::plan::{Plan, Work};
use crate::reduce::{PeerBytes, Reducer};
use unisono_backend::Heard;

use super::limit::{Next, Part};
use super::ready::Mover;
use super::{Cursor, Failure, GatherList, PARTS_MAX, PollContext, Staging, State};

/// The smallest part that is received directly into the caller's memory, if it is not reduced. For a smaller part, a
/// copy is cheaper than a system call.
const DIRECT_BYTES_MIN: usize = 16 * 1024;

impl State {
    /// Receives the bytes from one link that may be stored now; true if something moved.
    pub(super) fn serve_receive<K: Links>(
        &mut self,
        plan: &Plan,
        link: usize,
        context: &mut PollContext<'_, '_, '_, K>,
    ) -> Result<bool, Failure> {
        // If the link's first step may not store anything yet, even the header stays unread, because a read costs a
        // system call.
        if !self.gather_receives(plan, link, &mut context.staging.parts) {
            return Ok(false);
        }
        let first = context.staging.parts.list[0];
        let is_long = is_plain(plan, first.step) && first.bytes >= DIRECT_BYTES_MIN as u64;
        match is_long.then(|| self.direct(plan, link, &context.memory)).flatten() {
            Some((part, span)) => self.serve_direct(plan, link, part, span, context),
            None => match self.serve_in_place(plan, link, context)? {
                Some(has_moved) => Ok(has_moved),
                None => self.serve_staged(plan, link, context),
            },
        }
    }

    /// Lists the parts that may be stored now and fit into the staging area; false if there are none.
    fn gather_receives(&mut self, plan: &Plan, link: usize, parts: &mut GatherList) -> bool {
        parts.clear();
        let room = (super::STAGE_BYTES - HEADER_BYTES) as u64;
        let direction = &plan.links[link].recv;
        let header_is_there = self.links[link].header_received == HEADER_BYTES;
        let mut cursor = self.links[link].recv;
        while parts.list.len() < PARTS_MAX && parts.bytes < room {
            let Some(piece) = cursor.piece(plan, direction) else {
                if parts.list.is_empty() {
                    self.ready.close(Mover::Receive(link));
                }
                break;
            };
            match self.part(plan, piece, room - parts.bytes) {
                Next::Blocked(by) => {
                    if parts.list.is_empty() {
                        self.ready.block(Mover::Receive(link), by);
                    }
                    break;
                }
                Next::Part(part) => {
                    let is_long = is_plain(plan, part.step) && part.bytes >= DIRECT_BYTES_MIN as u64;
                    // An empty step is done now, and must not wait for the bytes of the next step.
                    let is_over = parts.bytes == 0 && header_is_there;
                    if !parts.list.is_empty() && (is_long || is_over) {
                        break;
                    }
                    parts.push(part);
                    if !part.ends_piece {
                        break;
                    }
                    cursor.step_over();
                }
            }
        }
        !parts.list.is_empty()
    }

    /// The whole next part and its place, if it begins with a long contiguous run of memory. The part may be longer
    /// than the staging area. A short run is not worth a system call, however long the part.
    fn direct(&self, plan: &Plan, link: usize, memory: &Memory<'_, '_>) -> Option<(Part, Span)> {
        let Next::Part(part) = self.next(plan, self.links[link].recv, &plan.links[link].recv)? else {
            return None;
        };
        let Work::Recv { destination } = plan.step(part.step).work else { return None };
        let span = destination.at(part.start, plan.piece_bytes);
        (memory.read(span, part.bytes as usize).len() >= DIRECT_BYTES_MIN).then_some((part, span))
    }

    fn serve_direct<K: Links>(
        &mut self,
        plan: &Plan,
        link: usize,
        part: Part,
        span: Span,
        context: &mut PollContext<'_, '_, '_, K>,
    ) -> Result<bool, Failure> {
        let into = context.memory.write(span, part.bytes as usize);
        let state = &mut self.links[link];
        let mut slices = [IoSliceMut::new(&mut state.header[state.header_received..]), IoSliceMut::new(into)];
        let skip = usize::from(slices[0].is_empty());
        let received = context.links.link(plan.links[link].edge).try_recv(&mut slices[skip..]);
        let Some(payload) = self.received(plan, link, received, &context.staging.heard)? else {
            return Ok(false);
        };
        self.commit_receive(plan, link, part, payload as u64);
        Ok(true)
    }

    /// Stores or reduces bytes from where they lie in the link. `None` for a link that only copies, and for bytes that
    /// come behind carried ones.
    fn serve_in_place<K: Links>(
        &mut self,
        plan: &Plan,
        link: usize,
        context: &mut PollContext<'_, '_, '_, K>,
    ) -> Result<Option<bool>, Failure> {
        let PollContext { memory, links, staging, reducer } = context;
        let (state, edge) = (&mut self.links[link], plan.links[link].edge);
        let header_left = HEADER_BYTES - state.header_received;
        let wanted = header_left + staging.parts.bytes as usize;
        if wanted == 0 || state.carry_bytes > 0 {
            return Ok(None);
        }
        let key = (header_left == HEADER_BYTES).then(|| self.header.key(plan.links[link].recv.plan_hash));
        let Some(arrived) = links.link(edge).peek(wanted, key) else { return Ok(None) };
        let (received, arrived) = match arrived {
            Ok((false, arrived)) => (Ok(arrived.len()), PeerBytes::Shared(arrived)),
            Ok((true, payload)) => {
                state.header_received = HEADER_BYTES;
                staging.heard.note(edge.peer, self.header.number());
                let (count, payload) = (payload.len(), PeerBytes::Shared(payload));
                self.distribute(plan, link, &staging.parts, payload, memory, reducer)?;
                let stream = links.link(edge);
                stream.consume(count);
                stream.notify();
                return Ok(Some(true));
            }
            Err(error) => (Err(error), PeerBytes::Own(&[])),
        };
        let count = arrived.len();
        let (header, payload) = arrived.split_at(count.min(header_left));
        let from = HEADER_BYTES - header_left;
        header.copy_to(&mut state.header[from..from + header.len()]);
        if self.received(plan, link, received, &staging.heard)?.is_none() {
            return Ok(Some(false));
        }
        if self.links[link].header_received == HEADER_BYTES {
            self.distribute(plan, link, &staging.parts, payload, memory, reducer)?;
        }
        let stream = links.link(edge);
        stream.consume(count);
        stream.notify();
        Ok(Some(true))
    }

    fn serve_staged<K: Links>(
        &mut self,
        plan: &Plan,
        link: usize,
        context: &mut PollContext<'_, '_, '_, K>,
    ) -> Result<bool, Failure> {
        let Staging { stage, parts, heard, .. } = &mut *context.staging;
        let state = &mut self.links[link];
        let header_left = HEADER_BYTES - state.header_received;
        let carried = state.carry_bytes;
        // The staging area holds the rest of the header or the carried bytes, and then the payload.
        let wanted = header_left + parts.bytes as usize - carried;
        let mut payload = 0;
        if wanted > 0 {
            stage[..carried].copy_from_slice(&state.carry[..carried]);
            let into = &mut stage[carried..carried + wanted];
            let received = context.links.link(plan.links[link].edge).try_recv(&mut [IoSliceMut::new(into)]);
            if let Ok(received) = received {
                let header = received.min(header_left);
                let from = HEADER_BYTES - header_left;
                state.header[from..from + header].copy_from_slice(&stage[..header]);
            }
            let Some(behind) = self.received(plan, link, received, heard)? else { return Ok(false) };
            if self.links[link].header_received < HEADER_BYTES {
                return Ok(true);
            }
            self.links[link].carry_bytes = 0;
            payload = carried + behind;
        }
        let bytes = PeerBytes::Own(&stage[header_left..header_left + payload]);
        self.distribute(plan, link, parts, bytes, &mut context.memory, context.reducer).map(|()| true)
    }

    /// Counts the bytes from a link. The header comes first, and is compared before any payload is used. Returns the
    /// number of bytes after the header; `None` if nothing has arrived.
    #[inline]
    fn received(
        &mut self,
        plan: &Plan,
        link: usize,
        received: std::io::Result<usize>,
        heard: &Heard,
    ) -> Result<Option<usize>, Failure> {
        let failure = |broken: Broken| Failure::Broken { peer: plan.links[link].edge.peer, broken };
        let received = match received {
            Ok(0) => return Err(failure("the connection was closed".into())),
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(None);
            }
            Err(error) => return Err(failure(error.into())),
        };
        let state = &mut self.links[link];
        let header = received.min(HEADER_BYTES - state.header_received);
        state.header_received += header;
        if header > 0 && state.header_received == HEADER_BYTES {
            self.check_header(plan, link, heard)?;
        }
        Ok(Some(received - header))
    }

    /// Stores or reduces bytes, part by part. The bytes of a partial element are kept for the next poll.
    fn distribute(
        &mut self,
        plan: &Plan,
        link: usize,
        parts: &GatherList,
        mut bytes: PeerBytes<'_>,
        memory: &mut Memory<'_, '_>,
        reducer: &Reducer,
    ) -> Result<(), Failure> {
        for part in &parts.list {
            let mut taken = bytes.len().min(part.bytes as usize);
            let bound = plan.step(part.step);
            if let Work::RecvReduce { .. } = bound.work
                && taken < part.bytes as usize
            {
                taken -= taken % plan.element_bytes as usize;
            }
            let (now, later) = bytes.split_at(taken);
            match bound.work {
                Work::Recv { destination } => {
                    memory.store(destination.at(part.start, plan.piece_bytes), now);
                }
                Work::RecvReduce { operand, destination, order } => {
                    let operand = operand.at(part.start, plan.piece_bytes);
                    let destination = destination.at(part.start, plan.piece_bytes);
                    memory
                        .reduce(reducer, operand, destination, now, order, bound.store)
                        .map_err(Failure::Panicked)?;
                }
                Work::Send { .. } | Work::Copy { .. } => {}
            }
            bytes = later;
            if !self.commit_receive(plan, link, *part, taken as u64) {
                break;
            }
        }
        let state = &mut self.links[link];
        bytes.copy_to(&mut state.carry[..bytes.len()]);
        state.carry_bytes = bytes.len();
        Ok(())
    }

    /// Moves the watermark and the cursor; true if the piece is complete, so that the next part may follow.
    #[inline(always)]
    fn commit_receive(&mut self, plan: &Plan, link: usize, part: Part, bytes: u64) -> bool {
        let header_is_there = self.links[link].header_received == HEADER_BYTES;
        let is_empty_step = plan.step(part.step).bytes == 0;
        if bytes > 0 || (is_empty_step && header_is_there) {
            self.pass(plan, part.step, part.start + bytes);
        }
        if !header_is_there {
            return false;
        }
        let (cursor, is_over) = Cursor::behind(&part, bytes);
        self.links[link].recv = cursor;
        is_over
    }
}

fn is_plain(plan: &Plan, step: StepIndex) -> bool {
    matches!(plan.step(step).work, Work::Recv { .. })
}
