//! One call in progress: a plan, how far each step is, and how far each link is.
//!
//! `Run::advance` moves whatever can move and never blocks, so that blocking calls, asynchronous calls, tests and
//! simulations all drive the same code. Watermarks make it cut through: a step may use byte b of a chunk once every
//! earlier step that it depends on has passed byte b.

mod limit;
mod receive;
mod send;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use unisono_communicator::{CallInfo, Error};

use crate::header::{CallHeader, HEADER_BYTES, HeaderBytes, decode, header_difference};
use crate::links::{Interest, Links};
use crate::memory::Memory;
use crate::plan::{Direction, Plan, Work};
use crate::reduce::{Panicked, Reducer};

/// The watermark of a step that is finished, however long it was.
const FINISHED: u64 = u64::MAX;

/// Size of the staging area: what one receive may take before it is reduced, so that it is still in cache.
pub(crate) const STAGE_BYTES: usize = 256 * 1024;

/// Largest element in bytes that a receive may have to carry over in part.
const CARRY_BYTES_MAX: usize = 16;

/// Why a run cannot go on.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A stream could not be opened.
    NotOpened(Error),
    /// The stream to a peer ended or broke.
    Lost { peer: u32, reason: String },
    /// A peer's header is not ours.
    Mismatch { peer: u32, theirs: Box<CallInfo>, difference: String },
    /// A user function panicked.
    Panicked(Panicked),
}

/// Where a direction is: the next piece of which step.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    piece: u64,
    position: u32,
}

/// One piece of one step, as a cursor finds it.
#[derive(Clone, Copy, Debug)]
struct PieceOf {
    step: u32,
    start: u64,
    end: u64,
}

impl Cursor {
    /// The piece at this cursor; steps that have no such piece are skipped. `None` behind the last.
    fn piece(&mut self, plan: &Plan, direction: &Direction) -> Option<PieceOf> {
        while self.piece < direction.pieces {
            while let Some(&step) = direction.steps.get(self.position as usize) {
                if self.piece < plan.pieces(step) {
                    let start = self.piece * plan.piece_bytes;
                    let end = plan.steps[step as usize].bytes.min(start + plan.piece_bytes);
                    return Some(PieceOf { step, start, end });
                }
                self.position += 1;
            }
            self.position = 0;
            self.piece += 1;
        }
        None
    }

    fn step_over(&mut self) {
        self.position += 1;
    }
}

#[derive(Clone, Debug)]
struct LinkState {
    send: Cursor,
    recv: Cursor,
    header_sent: usize,
    header_received: usize,
    header: HeaderBytes,
    carry: [u8; CARRY_BYTES_MAX],
    carry_bytes: usize,
}

/// A call in progress.
pub(crate) struct Run {
    pub(crate) plan: Arc<Plan>,
    header: CallHeader,
    /// Bytes of each step's destination that are final (of a send: bytes that are on their way).
    done: Vec<u64>,
    links: Vec<LinkState>,
    unfinished: usize,
}

/// What a run works with for one turn.
pub(crate) struct Turn<'t, 'a, 'b, K> {
    pub(crate) memory: Memory<'a, 'b>,
    pub(crate) links: &'t mut K,
    pub(crate) stage: &'t mut [u8],
    pub(crate) reducer: &'t Reducer,
}

impl Run {
    /// A run of `plan`, not begun.
    pub(crate) fn new(plan: Arc<Plan>, header: CallHeader) -> Run {
        let fresh = LinkState {
            send: Cursor::default(),
            recv: Cursor::default(),
            header_sent: 0,
            header_received: 0,
            header: [0; HEADER_BYTES],
            carry: [0; CARRY_BYTES_MAX],
            carry_bytes: 0,
        };
        let links = vec![fresh; plan.links.len()];
        let mut run = Run { done: vec![0; plan.steps.len()], plan, header, links, unfinished: 0 };
        run.reset(header);
        run
    }

    /// Makes a finished run ready for another call of the same plan. Allocates nothing.
    pub(crate) fn reset(&mut self, header: CallHeader) {
        self.header = header;
        self.done.fill(0);
        self.unfinished = self.done.len();
        for link in &mut self.links {
            link.send = Cursor::default();
            link.recv = Cursor::default();
            link.header_sent = 0;
            link.header_received = 0;
            link.carry_bytes = 0;
        }
        // In place, a chunk's input and output are the same bytes.
        for &copy in &self.plan.copies {
            if let Work::Copy { source, destination } = self.plan.steps[copy as usize].work
                && source == destination
            {
                self.done[copy as usize] = FINISHED;
                self.unfinished -= 1;
            }
        }
    }

    /// Whether the call is over.
    pub(crate) fn is_finished(&self) -> bool {
        self.unfinished == 0
    }

    /// Moves whatever can move now; true when something did. Never blocks.
    pub(crate) fn advance<K: Links>(&mut self, turn: &mut Turn<'_, '_, '_, K>) -> Result<bool, Failure> {
        let mut moved = false;
        for link in 0..self.links.len() {
            moved |= self.serve_send(link, turn)?;
        }
        for link in 0..self.links.len() {
            moved |= self.serve_receive(link, turn)?;
        }
        moved |= self.serve_copies(turn);
        Ok(moved)
    }

    /// At most one piece of one copy in a turn, so that the links do not wait for it.
    fn serve_copies<K: Links>(&mut self, turn: &mut Turn<'_, '_, '_, K>) -> bool {
        let plan = self.plan.clone();
        let mut moved = false;
        for &copy in &plan.copies {
            let step = &plan.steps[copy as usize];
            let Work::Copy { source, destination } = step.work else { continue };
            let start = self.done[copy as usize];
            if start == FINISHED {
                continue;
            }
            if step.bytes == 0 {
                moved |= self.finish_empty(copy);
                continue;
            }
            let piece_end = (start / plan.piece_bytes + 1) * plan.piece_bytes;
            let end = self.limit(copy).min(piece_end);
            if end > start {
                let (from, to) =
                    (source.at(start, plan.piece_bytes), destination.at(start, plan.piece_bytes));
                turn.memory.copy(from, to, (end - start) as usize);
                self.pass(copy, end);
                return true;
            }
        }
        moved
    }

    /// Moves a step's watermark.
    fn pass(&mut self, step: u32, done: u64) {
        if done == self.plan.steps[step as usize].bytes {
            self.done[step as usize] = FINISHED;
            self.unfinished -= 1;
        } else {
            self.done[step as usize] = done;
        }
    }

    /// Finishes a step without bytes, if it may.
    fn finish_empty(&mut self, step: u32) -> bool {
        let may = self.may_finish_empty(step);
        if may {
            self.done[step as usize] = FINISHED;
            self.unfinished -= 1;
        }
        may
    }

    /// What must become possible for this run to go on. Computed from the same limits as the work itself.
    pub(crate) fn interest(&self, interest: &mut Vec<Interest>) {
        for link in 0..self.links.len() {
            let (readable, writable) = (self.wants_receive(link), self.wants_send(link));
            if readable || writable {
                interest.push(Interest { edge: self.plan.links[link].edge, readable, writable });
            }
        }
    }

    /// The peers whose bytes this run still waits for, the next one first.
    pub(crate) fn awaited(&self) -> Vec<u32> {
        let peer = |link: usize| self.plan.links[link].edge.peer;
        let links = 0..self.links.len();
        let mut awaited: Vec<u32> =
            links.clone().filter(|&link| self.wants_receive(link)).map(peer).collect();
        for link in links.filter(|&link| self.wants_send(link)) {
            if !awaited.contains(&peer(link)) {
                awaited.push(peer(link));
            }
        }
        awaited
    }

    fn check_header(&self, link: usize) -> Result<(), Failure> {
        let peer = self.plan.links[link].edge.peer;
        let ours = self.header.with_plan_hash(self.plan.links[link].recv.plan_hash);
        let theirs = self.links[link].header;
        if ours == theirs {
            return Ok(());
        }
        let difference = header_difference(&ours, &theirs).unwrap_or_default();
        Err(match decode(&theirs) {
            Some(call) => Failure::Mismatch { peer, theirs: Box::new(call), difference },
            None => {
                Failure::Lost { peer, reason: format!("sent bytes that are not a header ({difference})") }
            }
        })
    }
}
