//! One call in progress: a plan, and how far each step and each link is.
//!
//! `Run::advance` moves all bytes that can move and never blocks, so blocking calls, asynchronous calls, tests and
//! simulations share this code. Steps overlap: a step may use byte b of a chunk once every step that it depends on has
//! passed byte b.

mod limit;
mod ready;
mod receive;
mod release;
mod send;
pub(crate) mod short;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use unisono_backend::Heard;
use unisono_communicator::{CallInfo, GroupRank, OPAQUE_BYTES_MAX};
use unisono_schedule::StepIndex;

use crate::links::{Broken, Interest, Links};
use crate::memory::Memory;
use crate::plan::header::{CallHeader, HEADER_BYTES, HeaderBytes, decode, header_difference};
use crate::plan::{Direction, PieceIndex, Plan, Work};
use crate::reduce::{Panicked, Reducer};

use limit::{Next, Part};
use ready::{Mover, Ready};

/// The watermark of a finished step of any length. A watermark is a number of final or released bytes.
const FINISHED: u64 = u64::MAX;

/// The size of the staging area, the most that one staged receive takes. It is small enough that the bytes are still in
/// cache when they are reduced.
const STAGE_BYTES: usize = 256 * 1024;
// A reduced part is whole elements, so the longest element must fit after a header, else its call would never end.
const _: () = assert!(HEADER_BYTES + OPAQUE_BYTES_MAX <= STAGE_BYTES);

/// The most parts that one system call moves.
const PARTS_MAX: usize = 32;

/// The reason why a run cannot go on.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The stream to a peer cannot go on.
    Broken { peer: GroupRank, broken: Broken },
    /// The header of a peer differs from ours.
    Mismatch { peer: GroupRank, theirs: Box<CallInfo>, difference: String },
    /// A user function panicked.
    Panicked(Panicked),
}

/// A position in a direction of a link: a byte of a piece, and the place of its step in the direction's list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cursor {
    piece: PieceIndex,
    position: u32,
    /// The number of bytes of the piece before the cursor.
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
    /// The piece at this cursor, skipping steps that are too short to have it; `None` after the last piece.
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

    /// The cursor after `bytes` of a part have moved, and whether that finishes the piece, so that the next part may
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
    /// The end of the posted bytes, which the link has taken.
    posted: Cursor,
    /// The end of the released bytes, which may be overwritten.
    released: Cursor,
    /// The bytes between `released` and `posted`.
    held_bytes: u64,
    recv: Cursor,
    header_sent: usize,
    header_received: usize,
    header: HeaderBytes,
    /// Room for an element that has arrived only in part.
    carry: Vec<u8>,
    carry_bytes: usize,
}

/// A call in progress.
pub(crate) struct Run {
    pub(crate) plan: Arc<Plan>,
    /// The steps that are left of a short call; `None` for a call that goes the general way, with the rest of `state`.
    pending: Option<u64>,
    state: State,
}

/// The progress of a call.
struct State {
    header: CallHeader,
    /// The watermark of each step: its number of final bytes, or of released bytes of a send. [`FINISHED`] once all
    /// are.
    done: Vec<u64>,
    links: Vec<LinkState>,
    ready: Ready,
    unfinished: usize,
}

/// Working memory that all runs of an engine use in turn.
pub(crate) struct Staging {
    /// Bytes that have arrived but are not stored, or bytes to send in one call.
    stage: Vec<u8>,
    /// The largest message whose header and payload are copied into one buffer. Tests lower it, so that short calls are
    /// treated as long ones.
    staged_send_bytes_max: usize,
    /// The parts that the next system call moves.
    parts: GatherList,
    /// For each peer, the last call whose header has arrived.
    heard: Heard,
}

impl Staging {
    /// A staging area for any run.
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
        let mut run = Run { plan, pending: None, state };
        run.reset(header);
        run
    }

    /// Makes a finished run ready for another call of the same plan. Allocates nothing.
    #[inline]
    pub(crate) fn reset(&mut self, header: CallHeader) {
        self.state.header = header;
        self.pending = self.plan.short.as_ref().map(|short| short.all);
        if self.pending.is_none() {
            self.state.begin(&self.plan);
        }
    }

    #[inline]
    pub(crate) fn is_finished(&self) -> bool {
        self.pending.map_or(self.state.unfinished == 0, |pending| pending == 0)
    }

    /// Moves all bytes that can move now; true if something moved. Never blocks.
    pub(crate) fn advance<K: Links>(
        &mut self,
        context: &mut PollContext<'_, '_, '_, K>,
    ) -> Result<bool, Failure> {
        if self.is_short() {
            let advanced = self.advance_short(context);
            self.notify(context.links);
            if let Some(moved) = advanced? {
                return Ok(moved);
            }
        }
        let Run { plan, state, .. } = self;
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

    /// Adds the directions that this run waits for, after a poll in which nothing moved: all that the poll has left
    /// open.
    pub(crate) fn interest(&self, interest: &mut Vec<Interest>) {
        if let Some(pending) = self.pending {
            let edges = self.short_receives(pending);
            let readable = |edge| Interest { edge, readable: true, writable: false, releasable: false };
            return interest.extend(edges.map(readable));
        }
        for (link, plan_link) in self.plan.links.iter().enumerate() {
            let ready = &self.state.ready;
            let (readable, writable) = (ready.receives.contains(link), ready.sends.contains(link));
            let releasable = ready.releases.contains(link);
            if readable || writable || releasable {
                interest.push(Interest { edge: plan_link.edge, readable, writable, releasable });
            }
        }
    }

    /// Adds the peers that this run waits for: first all that must send, then all that must take or release bytes. The
    /// peer of the earliest step comes before all others: who looks for the rank that holds up the call goes from each
    /// rank to the first that it waits for, and two ranks that exchange bytes in a later step would lead to each other.
    pub(crate) fn awaited(&self, awaited: &mut Vec<GroupRank>) {
        if let Some(pending) = self.pending {
            return awaited.extend(self.short_receives(pending).map(|edge| edge.peer));
        }
        let (peer, ready) = (|link: usize| self.plan.links[link].edge.peer, &self.state.ready);
        let links = 0..self.plan.links.len();
        let receiving = || links.clone().filter(|&link| ready.receives.contains(link));
        let earliest = receiving().min_by_key(|&link| self.awaited_step(link));
        awaited
            .extend(earliest.into_iter().chain(receiving().filter(|&link| Some(link) != earliest)).map(peer));
        for link in links.filter(|&link| ready.sends.contains(link) || ready.releases.contains(link)) {
            if !awaited.contains(&peer(link)) {
                awaited.push(peer(link));
            }
        }
    }

    /// The step whose bytes come next on a link.
    fn awaited_step(&self, link: usize) -> Option<StepIndex> {
        let mut cursor = self.state.links[link].recv;
        cursor.piece(&self.plan, &self.plan.links[link].recv).map(|piece| piece.step)
    }
}

impl State {
    /// The state of a call that has not begun.
    fn begin(&mut self, plan: &Plan) {
        self.done.fill(0);
        self.ready.reset();
        self.unfinished = self.done.len();
        for link in &mut self.links {
            link.posted = Cursor::default();
            link.released = Cursor::default();
            link.held_bytes = 0;
            link.recv = Cursor::default();
            link.header_sent = 0;
            link.header_received = 0;
            link.carry_bytes = 0;
        }
        // In place, input and output of a chunk are the same bytes, so there is nothing to copy.
        for (index, &copy) in plan.copies.iter().enumerate() {
            if let Work::Copy { source, destination } = plan.step(copy).work
                && source == destination
            {
                self.done[copy.index()] = FINISHED;
                self.unfinished -= 1;
                self.ready.close(Mover::Copy(index));
            }
        }
    }

    /// Copies at most one piece of a local copy; true if something moved. While links are busy, the copy stays after
    /// the send of the same bytes, because the send brings them into the cache.
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
