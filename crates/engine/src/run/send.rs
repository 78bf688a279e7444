//! The sending half of a poll: gathers the bytes for one peer, and sends them with one call of its link.

use std::io::{self, ErrorKind, IoSlice};

use crate::links::{COPY_ALL, Link, Links};
use crate::memory::Memory;
use crate::plan::header::HEADER_BYTES;
use crate::plan::{Plan, PlanLink, Work};

use super::limit::Next;
use super::ready::Mover;
use super::{Cursor, Failure, GatherList, PARTS_MAX, PollContext, Staging, State};

/// About the most bytes of one send call. Measured: larger calls are not faster.
const SEND_BYTES_MAX: u64 = 512 * 1024;

/// The largest message whose header and payload are copied into one buffer, which is cheaper than a gathering call.
pub(super) const STAGED_SEND_BYTES_MAX: usize = 4096;

/// The most slices of one gathering call. If this many slices hold no more than [`STAGED_RUNS_BYTES_MAX`], they are
/// copied into one buffer instead.
const SLICES_MAX: usize = 17;

/// The most bytes that are copied into one buffer.
const STAGED_RUNS_BYTES_MAX: usize = 64 * 1024;

/// A link's answer to an offer of bytes.
struct Taken {
    bytes: usize,
    /// The value of [`Link::unreleased_bytes`] afterwards.
    unreleased_bytes: u64,
}

impl State {
    /// Sends the bytes on one link that may be sent now; true if something moved.
    pub(super) fn serve_send<K: Links>(
        &mut self,
        plan: &Plan,
        link: usize,
        context: &mut PollContext<'_, '_, '_, K>,
    ) -> Result<bool, Failure> {
        if !self.gather_sends(plan, link, &mut context.staging.parts) {
            return Ok(false);
        }
        let plan_link = &plan.links[link];
        let header = self.header.with_plan_hash(plan_link.send.plan_hash);
        let PollContext { memory, links, staging, .. } = context;
        if self.links[link].header_sent == 0 {
            let stream = links.link(plan_link.edge);
            if stream.takes_whole(staging.parts.bytes) {
                let key = self.header.key(plan_link.send.plan_hash);
                let Staging { stage, parts, .. } = &mut **staging;
                let bytes = in_one(plan, parts, memory, stage);
                let taken = Taken { bytes: HEADER_BYTES + bytes.len(), unreleased_bytes: 0 };
                let sent = stream.try_send_whole(&header, key, bytes);
                if sent.map_err(|error| broken(plan_link, error))? {
                    stream.notify();
                    self.commit_send(plan, link, &staging.parts, &taken);
                    return Ok(true);
                }
            }
        }
        let is_faster_in_place = staging.parts.bytes >= plan.in_place_bytes_min;
        let header = &header[self.links[link].header_sent..];
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let (count, mut copied_bytes) = fill(plan, staging, memory, header, &mut slices);
        let mut taken = Taken { bytes: 0, unreleased_bytes: self.links[link].held_bytes };
        if count > 0 {
            let stream = links.link(plan_link.edge);
            if !stream.takes_in_place(is_faster_in_place) {
                copied_bytes = COPY_ALL;
            }
            let sent = stream.try_send(&slices[..count], copied_bytes);
            let sent =
                sent.and_then(|bytes| Ok(Taken { bytes, unreleased_bytes: stream.unreleased_bytes()? }));
            match sent {
                Ok(sent) => taken = sent,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Ok(false);
                }
                Err(error) => return Err(broken(plan_link, error)),
            }
        }
        self.commit_send(plan, link, &staging.parts, &taken);
        Ok(true)
    }

    /// Lists the parts that may be sent now; false if there are none.
    fn gather_sends(&mut self, plan: &Plan, link: usize, parts: &mut GatherList) -> bool {
        parts.clear();
        let direction = &plan.links[link].send;
        let header_is_sent = self.links[link].header_sent == HEADER_BYTES;
        let mut cursor = self.links[link].posted;
        while parts.list.len() < PARTS_MAX && parts.bytes < SEND_BYTES_MAX {
            let Some(piece) = cursor.piece(plan, direction) else {
                if parts.list.is_empty() {
                    self.ready.close(Mover::Send(link));
                }
                break;
            };
            match self.part(plan, piece, SEND_BYTES_MAX - parts.bytes) {
                Next::Blocked(by) => {
                    if parts.list.is_empty() {
                        self.ready.block(Mover::Send(link), by);
                    }
                    break;
                }
                // An empty step is done now, and must not wait for the bytes of the next step.
                Next::Part(_) if !parts.list.is_empty() && parts.bytes == 0 && header_is_sent => break,
                Next::Part(part) => {
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

    fn commit_send(&mut self, plan: &Plan, link: usize, parts: &GatherList, taken: &Taken) {
        let state = &mut self.links[link];
        let header = taken.bytes.min(HEADER_BYTES - state.header_sent);
        state.header_sent += header;
        if state.header_sent < HEADER_BYTES {
            return;
        }
        // Most links release at once; then this loop does all the work.
        let is_released = taken.unreleased_bytes == 0 && state.held_bytes == 0;
        let mut left = (taken.bytes - header) as u64;
        for part in &parts.list {
            let bytes = part.bytes.min(left);
            if bytes == 0 && part.bytes > 0 {
                break;
            }
            left -= bytes;
            let (cursor, is_over) = Cursor::behind(part, bytes);
            let state = &mut self.links[link];
            state.posted = cursor;
            if is_released {
                state.released = cursor;
                self.pass(plan, part.step, part.start + bytes);
            } else {
                state.held_bytes += bytes;
            }
            if !is_over {
                break;
            }
        }
        if !is_released {
            self.ready.releases.insert(link);
            self.release(plan, link, taken.unreleased_bytes);
        }
    }
}

/// Fills `slices` for one call of the link: with the header and the parts where they lie, or with a copy in the stage
/// if that is cheaper. Returns the number of slices, and of bytes that the link must copy.
fn fill<'m>(
    plan: &Plan,
    staging: &'m mut Staging,
    memory: &'m Memory<'_, '_>,
    header: &'m [u8],
    slices: &mut [IoSlice<'m>; SLICES_MAX],
) -> (usize, usize) {
    let Staging { stage, staged_send_bytes_max, parts, .. } = staging;
    let total = header.len() + parts.bytes as usize;
    if total == 0 {
        return (0, 0);
    }
    if total > *staged_send_bytes_max {
        let (count, bytes) = fill_slices(plan, parts, memory, header, slices);
        if bytes == total || bytes > STAGED_RUNS_BYTES_MAX {
            return (count, header.len() + bytes_to_buffer(plan, parts));
        }
    }
    let room = total.min(STAGED_RUNS_BYTES_MAX);
    fill_stage(plan, parts, memory, header, &mut stage[..room]);
    slices[0] = IoSlice::new(&stage[..room]);
    (1, COPY_ALL)
}

fn broken(plan_link: &PlanLink, error: io::Error) -> Failure {
    Failure::Broken { peer: plan_link.edge.peer, broken: error.into() }
}

/// The bytes of all parts: where they lie, or as a copy in the stage.
#[inline]
fn in_one<'m>(plan: &Plan, parts: &GatherList, memory: &'m Memory<'_, '_>, stage: &'m mut [u8]) -> &'m [u8] {
    let total = parts.bytes as usize;
    let mut first: &[u8] = &[];
    for_each_run(plan, parts, memory, |run| {
        first = run;
        false
    });
    if first.len() < total {
        fill_stage(plan, parts, memory, &[], &mut stage[..total]);
        first = &stage[..total];
    }
    first
}

/// The number of bytes up to the end of the last part whose send must be buffered.
#[inline]
fn bytes_to_buffer(plan: &Plan, parts: &GatherList) -> usize {
    let (mut bytes, mut to_buffer) = (0, 0);
    for part in &parts.list {
        bytes += part.bytes;
        if plan.schedule.is_buffered(part.step) {
            to_buffer = bytes;
        }
    }
    to_buffer as usize
}

/// Fills the slices with the header and as many runs as fit. Returns the number of slices, and of their bytes.
fn fill_slices<'m>(
    plan: &Plan,
    parts: &GatherList,
    memory: &'m Memory<'_, '_>,
    header: &'m [u8],
    slices: &mut [IoSlice<'m>; SLICES_MAX],
) -> (usize, usize) {
    slices[0] = IoSlice::new(header);
    let (mut count, mut bytes) = (usize::from(!header.is_empty()), header.len());
    for_each_run(plan, parts, memory, |run| {
        slices[count] = IoSlice::new(run);
        count += 1;
        bytes += run.len();
        count < SLICES_MAX
    });
    (count, bytes)
}

/// Copies the header and then the runs into `stage`, as far as they fit.
fn fill_stage(plan: &Plan, parts: &GatherList, memory: &Memory<'_, '_>, header: &[u8], stage: &mut [u8]) {
    let (first, mut left) = stage.split_at_mut(header.len());
    first.copy_from_slice(header);
    for_each_run(plan, parts, memory, |run| {
        let room = std::mem::take(&mut left);
        let end = run.len().min(room.len());
        let (now, later) = room.split_at_mut(end);
        now.copy_from_slice(&run[..now.len()]);
        left = later;
        !left.is_empty()
    });
}

/// Passes the bytes of every part to `take`, one contiguous run at a time, until it returns false.
fn for_each_run<'m>(
    plan: &Plan,
    parts: &GatherList,
    memory: &'m Memory<'_, '_>,
    mut take: impl FnMut(&'m [u8]) -> bool,
) {
    for part in &parts.list {
        let Work::Send { source } = plan.step(part.step).work else { continue };
        let end = part.start + part.bytes;
        let mut position = part.start;
        while position < end {
            let run = memory.read(source.at(position, plan.piece_bytes), (end - position) as usize);
            position += run.len() as u64;
            if !take(run) {
                return;
            }
        }
    }
}
