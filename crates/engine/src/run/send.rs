//! The sending half of a turn: gathers what may go to one peer into one call of its link.

use std::io::{ErrorKind, IoSlice};

use crate::header::HEADER_BYTES;
use crate::links::{Link, Links};
use crate::memory::Memory;
use crate::plan::Work;

use super::limit::Part;
use super::{Cursor, Failure, Run, Turn};

/// Bytes of one send call; more per call measured no better.
const SEND_BYTES_MAX: u64 = 512 * 1024;

/// Up to here header and payload are copied together, which is cheaper than a gathering call.
const STAGED_SEND_BYTES_MAX: usize = 4096;

/// Slices of one send call.
const SLICES_MAX: usize = 16;

/// The parts of one send call, in stream order.
struct Parts {
    list: [Part; SLICES_MAX],
    count: usize,
    bytes: u64,
}

impl Run {
    /// Sends what may be sent on one link; true when something moved.
    pub(super) fn serve_send<K: Links>(
        &mut self,
        link: usize,
        turn: &mut Turn<'_, '_, '_, K>,
    ) -> Result<bool, Failure> {
        if !self.wants_send(link) {
            return Ok(false);
        }
        let parts = self.sendable(link);
        let header_left = HEADER_BYTES - self.links[link].header_sent;
        let sent = match header_left + parts.bytes as usize {
            0 => 0,
            _ => match self.send_parts(link, &parts, turn) {
                Ok(sent) => sent,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Ok(false);
                }
                Err(error) => {
                    let peer = self.plan.links[link].edge.peer;
                    return Err(Failure::Lost { peer, reason: error.to_string() });
                }
            },
        };
        self.commit_send(link, &parts, sent);
        Ok(true)
    }

    /// Whether a send is only waiting for room on its link.
    pub(super) fn wants_send(&self, link: usize) -> bool {
        self.next_part(self.links[link].send, &self.plan.links[link].send).is_some()
    }

    fn sendable(&self, link: usize) -> Parts {
        let plan = &*self.plan;
        let direction = &plan.links[link].send;
        let mut parts = Parts { list: [Part::NONE; SLICES_MAX], count: 0, bytes: 0 };
        let mut cursor = self.links[link].send;
        while parts.count < SLICES_MAX && parts.bytes < SEND_BYTES_MAX {
            let Some(piece) = cursor.piece(plan, direction) else { break };
            let Some(part) = self.part(piece, SEND_BYTES_MAX - parts.bytes) else { break };
            if parts.count > 0 && parts.bytes == 0 && self.links[link].header_sent == HEADER_BYTES {
                // What is done without bytes must not wait for the bytes of the next step.
                break;
            }
            parts.list[parts.count] = part;
            parts.count += 1;
            parts.bytes += part.bytes;
            if part.start + part.bytes < piece.end {
                break;
            }
            cursor.step_over();
        }
        parts
    }

    fn send_parts<K: Links>(
        &self,
        link: usize,
        parts: &Parts,
        turn: &mut Turn<'_, '_, '_, K>,
    ) -> std::io::Result<usize> {
        let plan_link = &self.plan.links[link];
        let header_sent = self.links[link].header_sent;
        let header = match header_sent {
            HEADER_BYTES => None,
            _ => Some(self.header.with_plan_hash(plan_link.send.plan_hash)),
        };
        let header = header.as_ref().map_or(&[][..], |header| &header[header_sent..]);
        let mut slices = [IoSlice::new(&[]); SLICES_MAX + 1];
        slices[0] = IoSlice::new(header);
        let Turn { memory, links, stage, .. } = turn;
        let count = self.fill_slices(parts, memory, &mut slices);
        let skip = usize::from(header.is_empty());
        let slices = &slices[skip..count];
        let output = links.link(plan_link.edge);
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        if slices.len() == 1 || total > STAGED_SEND_BYTES_MAX {
            return output.try_send(slices);
        }
        let mut end = 0;
        for slice in slices {
            stage[end..end + slice.len()].copy_from_slice(slice);
            end += slice.len();
        }
        output.try_send(&[IoSlice::new(&stage[..end])])
    }

    /// The user's own bytes of every part, as far as the slices reach.
    fn fill_slices<'s>(
        &self,
        parts: &Parts,
        memory: &'s Memory<'_, '_>,
        slices: &mut [IoSlice<'s>; SLICES_MAX + 1],
    ) -> usize {
        let mut count = 1;
        for part in &parts.list[..parts.count] {
            let Work::Send { source } = self.plan.steps[part.step as usize].work else { continue };
            let mut position = part.start;
            while position < part.start + part.bytes {
                if count == slices.len() {
                    return count;
                }
                let left = (part.start + part.bytes - position) as usize;
                let run = memory.read(source.at(position, self.plan.piece_bytes), left);
                slices[count] = IoSlice::new(run);
                count += 1;
                position += run.len() as u64;
            }
        }
        count
    }

    fn commit_send(&mut self, link: usize, parts: &Parts, sent: usize) {
        let header = sent.min(HEADER_BYTES - self.links[link].header_sent);
        self.links[link].header_sent += header;
        if self.links[link].header_sent < HEADER_BYTES {
            return;
        }
        let mut left = (sent - header) as u64;
        let plan = self.plan.clone();
        let mut cursor: Cursor = self.links[link].send;
        for part in &parts.list[..parts.count] {
            let bytes = part.bytes.min(left);
            left -= bytes;
            let Some(piece) = cursor.piece(&plan, &plan.links[link].send) else { break };
            if part.bytes == 0 || bytes > 0 {
                self.pass(part.step, part.start + bytes);
            }
            if part.start + bytes < piece.end {
                break;
            }
            cursor.step_over();
        }
        self.links[link].send = cursor;
    }
}
