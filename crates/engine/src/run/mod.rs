//! One call in progress: a plan, how far each step is, and how far each link is.
//!
//! `Run::advance` moves whatever can move and never blocks, so blocking calls, asynchronous calls, tests and
//! simulations all use the same code. A step does not wait until the steps before it have finished: it may use byte b
//! of a chunk once every earlier step that it depends on has passed byte b.

mod limit;
mod ready;
mod receive;
mod release;
mod send;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use unisono_communicator::{CallInfo, GroupRank, OPAQUE_BYTES_MAX};
use unisono_schedule::StepIndex;

use crate::links::{Broken, Interest, Links};
use crate::memory::Memory;
use crate::plan::header::{CallHeader, HEADER_BYTES, HeaderBytes, decode, header_difference};
use crate::plan::{Direction, PieceIndex, Plan, Work};
use crate::reduce::{Panicked, Reducer};
use unisono_backend::Heard;

use limit::{Next, Part};
use ready::{Mover, Ready};

/// The watermark of a step that is finished, however long it was.
const FINISHED: u64 = u64::MAX;

/// The size of the staging area, which is the most that one staged receive takes. So the bytes are still in cache when
/// they are reduced.
const STAGE_BYTES: usize = 256 * 1024;
// A part that is reduced consists of whole elements. If the longest element did not fit behind a header, a call would
// never end.
const _: () = assert!(HEADER_BYTES + OPAQUE_BYTES_MAX <= STAGE_BYTES);

/// The most parts that one system call moves.
const PARTS_MAX: usize = 32;

/// Why a run cannot go on.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The stream to a peer cannot go on.
    Broken { peer: GroupRank, broken: Broken },
    /// The header of a peer differs from ours.
    Mismatch { peer: GroupRank, theirs: Box<CallInfo>, difference: String },
    /// A user function panicked.
    Panicked(Panicked),
}

/// Where a direction of a link is: the next byte of a piece, and the position of its step in the list of the direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cursor {
    piece: PieceIndex,
    position: u32,
    /// The bytes of the piece that are behind the cursor.
    passed: u64,
}

/// The rest of one piece of one step, as a cursor finds it.
#[derive(Clone, Copy, Debug)]
struct PieceOf {
    step: StepIndex,
    start: u64,
    end: u64,
    /// The position of the cursor that found it.
    at: Cursor,
}

impl Cursor {
    /// The piece at this cursor, after skipping the steps that are too short to have it; `None` after the last piece.
    #[inline(always)]
    fn piece(&mut self, plan: &Plan, direction: &Direction) -> Option<PieceOf> {
        while self.piece.is_within(direction.pieces) {
            while let Some(&step) = direction.steps.get(self.position as usize) {
                let bound = plan.step(step);
                if self.piece.is_within(bound.pieces) {
                    let start = self.piece.start(plan.piece_bytes);
                    let end = bound.bytes.min(start + plan.piece_bytes);
                    return Some(PieceOf { step, start: start + self.passed, end, at: *self });
                }
                self.position += 1;
            }
            self.position = 0;
            self.piece = self.piece.plus(1);
        }
        None
    }

    fn step_over(&mut self) {
        self.position += 1;
        self.passed = 0;
    }

    /// The cursor after `bytes` of a part have moved, and whether this finishes the piece, so that the next part may
    /// follow.
    fn behind(part: &Part, bytes: u64) -> (Cursor, bool) {
        let is_over = bytes == part.bytes && part.ends_piece;
        let mut cursor = part.at;
        if is_over {
            cursor.step_over();
        } else {
            cursor.passed += bytes;
        }
        (cursor, is_over)
    }
}

#[derive(Clone, Debug)]
struct LinkState {
    /// The bytes before it are posted: the link has taken them.
    posted: Cursor,
    /// The bytes before it are released: they may be overwritten.
    released: Cursor,
    /// The bytes between `released` and `posted`.
    held_bytes: u64,
    recv: Cursor,
    header_sent: usize,
    header_received: usize,
    header: HeaderBytes,
    /// Room for an element of which only a part has arrived.
    carry: Vec<u8>,
    carry_bytes: usize,
}

/// A call in progress.
pub(crate) struct Run {
    pub(crate) plan: Arc<Plan>,
    state: State,
}

/// How far a call is.
struct State {
    header: CallHeader,
    /// The watermark of each step: how many bytes of its destination are final, or how many bytes of a send are
    /// released. [`FINISHED`] once all of them are.
    done: Vec<u64>,
    links: Vec<LinkState>,
    ready: Ready,
    unfinished: usize,
}

/// Working memory that all runs of an engine share, one after the other.
pub(crate) struct Staging {
    /// Bytes that have arrived and are not stored yet, or bytes that one call sends together.
    stage: Vec<u8>,
    /// The largest message whose header and payload are copied into one buffer. Tests lower it, so that short calls go
    /// the way of long ones.
    staged_send_bytes_max: usize,
    /// The parts that the next system call moves.
    parts: GatherList,
    /// The record of the calls whose headers have arrived, by peer.
    heard: Heard,
}

impl Staging {
    /// A staging area that fits any run.
    pub(crate) fn new(heard: Heard) -> Staging {
        let parts = GatherList { list: Vec::with_capacity(PARTS_MAX), bytes: 0 };
        let staged_send_bytes_max = send::STAGED_SEND_BYTES_MAX;
        Staging { stage: vec![0; STAGE_BYTES], staged_send_bytes_max, parts, heard }
    }
}

/// The parts of one system call, in stream order.
struct GatherList {
    list: Vec<Part>,
    bytes: u64,
}

impl GatherList {
    fn clear(&mut self) {
        self.list.clear();
        self.bytes = 0;
    }

    fn push(&mut self, part: Part) {
        self.bytes += part.bytes;
        self.list.push(part);
    }
}

/// The tools and the memory of a run for one poll.
pub(crate) struct PollContext<'t, 'a, 'b, K> {
    pub(crate) memory: Memory<'a, 'b>,
    pub(crate) links: &'t mut K,
    pub(crate) staging: &'t mut Staging,
    pub(crate) reducer: &'t Reducer,
}

impl Run {
    /// A run of `plan`, not begun.
    pub(crate) fn new(plan: Arc<Plan>, header: CallHeader) -> Run {
        let fresh = LinkState {
            posted: Cursor::default(),
            released: Cursor::default(),
            held_bytes: 0,
            recv: Cursor::default(),
            header_sent: 0,
            header_received: 0,
            header: [0; HEADER_BYTES],
            carry: vec![0; plan.element_bytes as usize],
            carry_bytes: 0,
        };
        let (links, done) = (vec![fresh; plan.links.len()], vec![0; plan.steps.len()]);
        let state = State { done, header, links, ready: Ready::new(&plan), unfinished: 0 };
        let mut run = Run { plan, state };
        run.reset(header);
        run
    }

    /// Makes a finished run ready for another call of the same plan. Allocates nothing.
    pub(crate) fn reset(&mut self, header: CallHeader) {
        let Run { plan, state } = self;
        state.header = header;
        state.done.fill(0);
        state.ready.reset();
        state.unfinished = state.done.len();
        for link in &mut state.links {
            link.posted = Cursor::default();
            link.released = Cursor::default();
            link.held_bytes = 0;
            link.recv = Cursor::default();
            link.header_sent = 0;
            link.header_received = 0;
            link.carry_bytes = 0;
        }
        // In place, the input and the output of a chunk are the same bytes: there is nothing to copy.
        for (index, &copy) in plan.copies.iter().enumerate() {
            if let Work::Copy { source, destination } = plan.step(copy).work
                && source == destination
            {
                state.done[copy.index()] = FINISHED;
                state.unfinished -= 1;
                state.ready.close(Mover::Copy(index));
            }
        }
    }

    /// Whether the call is over.
    pub(crate) fn is_finished(&self) -> bool {
        self.state.unfinished == 0
    }

    /// Moves whatever can move now; true when something did. Never blocks.
    pub(crate) fn advance<K: Links>(
        &mut self,
        context: &mut PollContext<'_, '_, '_, K>,
    ) -> Result<bool, Failure> {
        let Run { plan, state } = self;
        let mut moved = false;
        for word in 0..state.ready.releases.words() {
            for link in state.ready.releases.members(word) {
                moved |= state.serve_release(plan, link, context.links)?;
            }
        }
        for word in 0..state.ready.sends.words() {
            for link in state.ready.sends.members(word) {
                moved |= state.serve_send(plan, link, context)?;
            }
        }
        for word in 0..state.ready.receives.words() {
            for link in state.ready.receives.members(word) {
                moved |= state.serve_receive(plan, link, context)?;
            }
        }
        for word in 0..state.ready.copies.words() {
            for copy in state.ready.copies.members(word) {
                // A poll copies at most one piece, so that the links do not wait for copies.
                if state.serve_copy(plan, copy, moved, &mut context.memory) {
                    return Ok(true);
                }
            }
        }
        Ok(moved)
    }

    /// The directions that this run waits for, after a poll in which nothing moved. They are the directions that the
    /// poll has left open.
    pub(crate) fn interest(&self, interest: &mut Vec<Interest>) {
        for (link, plan_link) in self.plan.links.iter().enumerate() {
            let ready = &self.state.ready;
            let (readable, writable) = (ready.receives.contains(link), ready.sends.contains(link));
            let releasable = ready.releases.contains(link);
            if readable || writable || releasable {
                interest.push(Interest { edge: plan_link.edge, readable, writable, releasable });
            }
        }
    }

    /// The peers that this run waits for: first the peers that must send, then the peers that must take or release
    /// bytes.
    pub(crate) fn awaited(&self, awaited: &mut Vec<GroupRank>) {
        let (peer, ready) = (|link: usize| self.plan.links[link].edge.peer, &self.state.ready);
        let links = 0..self.plan.links.len();
        awaited.extend(links.clone().filter(|&link| ready.receives.contains(link)).map(peer));
        for link in links.filter(|&link| ready.sends.contains(link) || ready.releases.contains(link)) {
            if !awaited.contains(&peer(link)) {
                awaited.push(peer(link));
            }
        }
    }
}

impl State {
    /// Copies at most one piece of a local copy; true when something moved. While the links are busy, the copy does not
    /// overtake the send of the same bytes: a link that copies them brings them into the cache, and releases them then.
    fn serve_copy(&mut self, plan: &Plan, copy: usize, is_busy: bool, memory: &mut Memory<'_, '_>) -> bool {
        let step = plan.copies[copy];
        let bound = plan.step(step);
        let Work::Copy { source, destination } = bound.work else { return false };
        let start = self.done[step.index()];
        let next = PieceIndex::of(start, plan.piece_bytes).plus(1);
        let mut end = bound.bytes.min(next.start(plan.piece_bytes));
        if let Some(send) = bound.behind.filter(|_| is_busy && bound.bytes > 0) {
            end = end.min(self.done[send.index()]);
            if end <= start {
                return false;
            }
        }
        match self.part(plan, PieceOf { step, start, end, at: Cursor::default() }, u64::MAX) {
            Next::Blocked(by) => {
                self.ready.block(Mover::Copy(copy), by);
                false
            }
            Next::Part(part) => {
                let (from, to) =
                    (source.at(part.start, plan.piece_bytes), destination.at(part.start, plan.piece_bytes));
                memory.copy(from, to, part.bytes as usize, bound.store);
                self.pass(plan, step, part.start + part.bytes);
                if self.done[step.index()] == FINISHED {
                    self.ready.close(Mover::Copy(copy));
                }
                true
            }
        }
    }

    /// Moves a step's watermark, and wakes the movers that wait for this step.
    #[inline(always)]
    fn pass(&mut self, plan: &Plan, step: StepIndex, done: u64) {
        if done == plan.step(step).bytes {
            self.done[step.index()] = FINISHED;
            self.unfinished -= 1;
        } else {
            self.done[step.index()] = done;
        }
        self.ready.wake(step);
    }

    fn check_header(&self, plan: &Plan, link: usize, heard: &Heard) -> Result<(), Failure> {
        let ours = self.header.with_plan_hash(plan.links[link].recv.plan_hash);
        let theirs = &self.links[link].header;
        let peer = plan.links[link].edge.peer;
        if ours != *theirs {
            return Err(refuse_header(peer, &ours, theirs));
        }
        heard.note(peer, self.header.number());
        Ok(())
    }
}

#[cold]
fn refuse_header(peer: GroupRank, ours: &HeaderBytes, theirs: &HeaderBytes) -> Failure {
    let difference = header_difference(ours, theirs).unwrap_or_default();
    match decode(theirs) {
        Some(call) => Failure::Mismatch { peer, theirs: Box::new(call), difference },
        None => {
            let reason = format!("sent bytes that are not a header ({difference})");
            Failure::Broken { peer, broken: Broken::Lost(reason) }
        }
    }
}
