//! The receiving half of a turn: long chunks straight into the caller's memory, everything else through the stage.

use std::io::{ErrorKind, IoSliceMut};

use crate::header::HEADER_BYTES;
use crate::links::{Link, Links};
use crate::memory::{Memory, Span};
use crate::plan::Work;
use crate::reduce::Reducer;

use super::limit::Part;
use super::{Failure, Run, Turn};

/// From here on a plain receive goes straight into the caller's memory; below, a copy is cheaper than more calls.
const DIRECT_BYTES_MIN: usize = 16 * 1024;

/// Parts of one staged receive.
const PARTS_MAX: usize = 32;

/// The parts of one staged receive, in stream order.
struct Parts {
    list: [Part; PARTS_MAX],
    count: usize,
    bytes: usize,
}

impl Run {
    /// Receives what may be stored from one link; true when something moved.
    pub(super) fn serve_receive<K: Links>(
        &mut self,
        link: usize,
        turn: &mut Turn<'_, '_, '_, K>,
    ) -> Result<bool, Failure> {
        // A link whose first step may not store yet is not read at all: its header alone would cost a call.
        let next = self.next_part(self.links[link].recv, &self.plan.links[link].recv);
        let Some(part) = next else { return Ok(false) };
        let direct = match self.plan.steps[part.step as usize].work {
            Work::Recv { destination } => Some(destination.at(part.start, self.plan.piece_bytes)),
            _ => None,
        };
        // Only a contiguous run is worth a call of its own, however long the part.
        let is_long = |span: &Span| turn.memory.read(*span, part.bytes as usize).len() >= DIRECT_BYTES_MIN;
        let direct = direct.filter(is_long);
        match direct {
            Some(span) => {
                let into = turn.memory.write(span, part.bytes as usize);
                let edge = self.plan.links[link].edge;
                let state = &mut self.links[link];
                let mut slices =
                    [IoSliceMut::new(&mut state.header[state.header_received..]), IoSliceMut::new(into)];
                let skip = usize::from(slices[0].is_empty());
                let received = turn.links.link(edge).try_recv(&mut slices[skip..]);
                match self.received(link, received)? {
                    None => Ok(false),
                    Some(payload) => {
                        self.commit_receive(link, part, payload as u64);
                        Ok(true)
                    }
                }
            }
            None => self.serve_staged(link, turn),
        }
    }

    /// Whether a receive is only waiting for bytes.
    pub(super) fn wants_receive(&self, link: usize) -> bool {
        self.next_part(self.links[link].recv, &self.plan.links[link].recv).is_some()
    }

    fn storable(&self, link: usize, room: usize) -> Parts {
        let plan = &*self.plan;
        let direction = &plan.links[link].recv;
        let mut parts = Parts { list: [Part::NONE; PARTS_MAX], count: 0, bytes: 0 };
        let mut cursor = self.links[link].recv;
        while parts.count < PARTS_MAX && parts.bytes < room {
            let Some(piece) = cursor.piece(plan, direction) else { break };
            let Some(part) = self.part(piece, (room - parts.bytes) as u64) else { break };
            let is_plain = matches!(plan.steps[part.step as usize].work, Work::Recv { .. });
            if parts.count > 0 && parts.bytes == 0 && self.links[link].header_received == HEADER_BYTES {
                // What is done without bytes must not wait for the bytes of the next step.
                break;
            }
            if parts.count > 0 && is_plain && part.bytes >= DIRECT_BYTES_MIN as u64 {
                break;
            }
            parts.list[parts.count] = part;
            parts.count += 1;
            parts.bytes += part.bytes as usize;
            if part.start + part.bytes < piece.end {
                break;
            }
            cursor.step_over();
        }
        parts
    }

    fn serve_staged<K: Links>(
        &mut self,
        link: usize,
        turn: &mut Turn<'_, '_, '_, K>,
    ) -> Result<bool, Failure> {
        let header_left = HEADER_BYTES - self.links[link].header_received;
        let carried = self.links[link].carry_bytes;
        let parts = self.storable(link, turn.stage.len() - HEADER_BYTES);
        // The stage holds what is left of the header, or else the carried bytes, and then the payload.
        let wanted = header_left + parts.bytes - carried;
        if wanted > 0 {
            turn.stage[..carried].copy_from_slice(&self.links[link].carry[..carried]);
            let into = &mut turn.stage[carried..carried + wanted];
            let edge = self.plan.links[link].edge;
            let received = turn.links.link(edge).try_recv(&mut [IoSliceMut::new(into)]);
            if let Ok(received) = received {
                let header = received.min(header_left);
                let from = HEADER_BYTES - header_left;
                self.links[link].header[from..from + header].copy_from_slice(&turn.stage[..header]);
            }
            let Some(payload) = self.received(link, received)? else { return Ok(false) };
            if self.links[link].header_received < HEADER_BYTES {
                return Ok(true);
            }
            self.links[link].carry_bytes = 0;
            let bytes = &turn.stage[header_left..header_left + carried + payload];
            return self.distribute(link, &parts, bytes, &mut turn.memory, turn.reducer).map(|()| true);
        }
        self.distribute(link, &parts, &[], &mut turn.memory, turn.reducer).map(|()| true)
    }

    /// Takes account of what a link gave: the header first, which is compared before anything is believed. `None`
    /// when nothing came, else the bytes behind the header.
    fn received(&mut self, link: usize, received: std::io::Result<usize>) -> Result<Option<usize>, Failure> {
        let peer = self.plan.links[link].edge.peer;
        let received = match received {
            Ok(0) => return Err(Failure::Lost { peer, reason: "the connection was closed".to_owned() }),
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(None);
            }
            Err(error) => return Err(Failure::Lost { peer, reason: error.to_string() }),
        };
        let header = received.min(HEADER_BYTES - self.links[link].header_received);
        self.links[link].header_received += header;
        if header > 0 && self.links[link].header_received == HEADER_BYTES {
            self.check_header(link)?;
        }
        Ok(Some(received - header))
    }

    /// Stores or reduces staged bytes, part by part. Of an element that is split, the bytes are carried over.
    fn distribute(
        &mut self,
        link: usize,
        parts: &Parts,
        mut bytes: &[u8],
        memory: &mut Memory<'_, '_>,
        reducer: &Reducer,
    ) -> Result<(), Failure> {
        let plan = self.plan.clone();
        for part in &parts.list[..parts.count] {
            let mut taken = bytes.len().min(part.bytes as usize);
            match plan.steps[part.step as usize].work {
                Work::Recv { destination } => {
                    memory.store(destination.at(part.start, plan.piece_bytes), &bytes[..taken]);
                }
                Work::RecvReduce { operand, destination, order } => {
                    taken -= taken % plan.element_bytes as usize;
                    let operand = operand.at(part.start, plan.piece_bytes);
                    let destination = destination.at(part.start, plan.piece_bytes);
                    memory
                        .reduce(reducer, operand, destination, &bytes[..taken], order)
                        .map_err(Failure::Panicked)?;
                }
                Work::Send { .. } | Work::Copy { .. } => {}
            }
            bytes = &bytes[taken..];
            if !self.commit_receive(link, *part, taken as u64) {
                break;
            }
        }
        let state = &mut self.links[link];
        state.carry[..bytes.len()].copy_from_slice(bytes);
        state.carry_bytes = bytes.len();
        Ok(())
    }

    /// Moves watermark and cursor; true when the part's piece is complete and the next may follow.
    fn commit_receive(&mut self, link: usize, part: Part, bytes: u64) -> bool {
        let plan = self.plan.clone();
        let is_empty_step = plan.steps[part.step as usize].bytes == 0;
        if bytes > 0 || (is_empty_step && self.links[link].header_received == HEADER_BYTES) {
            self.pass(part.step, part.start + bytes);
        }
        let mut cursor = self.links[link].recv;
        let Some(piece) = cursor.piece(&plan, &plan.links[link].recv) else { return false };
        let complete = part.start + bytes == piece.end && self.links[link].header_received == HEADER_BYTES;
        if complete {
            cursor.step_over();
        }
        self.links[link].recv = cursor;
        complete
    }
}
