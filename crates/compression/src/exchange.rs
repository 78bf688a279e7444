//! One compressed all-reduce: every rank encodes its vector and sends each owner its share; owners sum what comes,
//! encode the sum and send it to all.
//!
//! It goes piece by piece, so that a piece is on the wire while the next one is encoded. Nothing that the caller sees
//! changes before all pieces have come and none of them says that a rank has an element that is not finite.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, CallAlgorithm, CallInfo, Collective, Collectives, CollectivesAsync,
    Counts, DType, Descriptor, Error, Finished, OwnedBuffers, OwnedCall, OwnedMemory, Result, Scope, Site,
    Work,
};

use crate::codec::{Codec, EncodeContext, worst_element};
use crate::elements::Elements;
use crate::kernels::{CodecKernels, Feedback};
use crate::layout::Layout;
use crate::message::{self, Fault, message_words};
use crate::pool::Pool;
use crate::state::{CompressionState, LastCall};

/// Elements that are measured at a time.
const MEASURED_ELEMENTS: usize = 1 << 20;

/// How a call of the transport is made.
#[derive(Clone, Copy)]
enum Issue {
    /// This thread moves it, because it has nothing else to do.
    Blocking,
    /// It goes on while this thread works.
    Asynchronous,
}

/// The words of one piece.
enum Words {
    Arrived(Vec<u32>),
    OnTheirWay(Work),
}

impl Words {
    /// What came; what was sent goes back to the pool.
    fn wait(self, pool: &mut Pool) -> Result<Vec<u32>> {
        let work = match self {
            Words::Arrived(words) => return Ok(words),
            Words::OnTheirWay(work) => work,
        };
        let Finished { result, buffers } = work.finish();
        result?;
        let Some(OwnedBuffers::Separate { input, output }) = buffers else { return Ok(Vec::new()) };
        pool.put(input.into_vec().unwrap_or_default());
        Ok(output.into_vec().unwrap_or_default())
    }

    /// Moves what is on its way, as far as it goes without waiting.
    fn advance(&self) {
        match self {
            Words::Arrived(_) => {}
            Words::OnTheirWay(work) => {
                let _ = work.is_done();
            }
        }
    }
}

/// Runs the call within `scope`: the vector becomes the sum times `weight`. After an error the vector and the residuals
/// are as before.
///
/// # Errors
/// [`Error::NonFinite`], and the communicator is as usable as before; [`Error::Corrupted`]; errors of the collectives.
pub(crate) fn run(
    scope: &dyn Scope,
    kernels: &dyn CodecKernels,
    vector: &mut Elements<'_>,
    weight: f32,
    state: &mut CompressionState,
    site: Site,
) -> Result<()> {
    let call = || exchange(scope, kernels, vector, weight, state, site);
    // A panic of a codec would leave the others waiting until the call's deadline.
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let _ = scope.revoke(panicked(scope, site, &*panic));
        resume_unwind(panic)
    });
    if let Err(error) = &result {
        let was_agreed = matches!(error, Error::NonFinite { .. });
        // The others wait for what this rank will not send.
        let was_refused = error.is_before_start() && scope.numbers().is_empty();
        if !was_agreed && !was_refused {
            let _ = scope.revoke(error.clone());
        }
    }
    result
}

fn panicked(scope: &dyn Scope, site: Site, panic: &dyn Any) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text").to_owned();
    let call = Box::new(call_info(scope, site));
    Error::Panicked { rank: scope.group().own_job_rank(), call, text }
}

fn call_info(scope: &dyn Scope, site: Site) -> CallInfo {
    CallInfo { site: Some(site.into()), ..CallInfo::new(scope.numbers().start, scope.parent().descriptor) }
}

fn exchange(
    scope: &dyn Scope,
    kernels: &dyn CodecKernels,
    vector: &mut Elements<'_>,
    weight: f32,
    state: &mut CompressionState,
    site: Site,
) -> Result<()> {
    let codec = state.codec.clone();
    let pieces = state.layout.pieces;
    let mut rank = Rank::new(kernels, &*codec, state);
    let wire = Wire { scope, site };
    if codec.measures() {
        // What this rank owes is written before anything comes from the others; see `Layout::first_pieces`.
        scope.barrier()?;
        rank.measure(vector)?;
    }
    let messages = rank.encode(0, vector, &|| ())?;
    let mut arriving = wire.all_to_all(&mut rank, 0, messages, Issue::Blocking)?;
    let mut pending: Vec<Words> = Vec::with_capacity(pieces);
    for piece in 0..pieces {
        // The calls of the pieces before are under way: this thread moves them, between the parts that it encodes.
        let advance = || {
            for words in [Some(&arriving), pending.last()].into_iter().flatten() {
                words.advance();
            }
        };
        let is_last = piece + 1 == pieces;
        let next = if is_last {
            Words::Arrived(Vec::new())
        } else {
            let messages = rank.encode(piece + 1, vector, &advance)?;
            wire.all_to_all(&mut rank, piece + 1, messages, Issue::Asynchronous)?
        };
        let messages = std::mem::replace(&mut arriving, next).wait(rank.pool)?;
        let sum = rank.reduce(piece, messages)?;
        let issue = if is_last { Issue::Blocking } else { Issue::Asynchronous };
        pending.push(wire.all_gather(&mut rank, piece, sum, issue)?);
    }
    let mut sums = pending.into_iter().map(|work| work.wait(rank.pool)).collect::<Result<Vec<_>>>()?;
    let accepted = rank.accept(&mut sums);
    accepted.map_err(|fault| wire.error(fault, &*codec))?;
    rank.decode(&sums, weight, vector)?;
    sums.into_iter().for_each(|sum| rank.pool.put(sum));
    rank.keep_first_pieces();
    state.end_call(LastCall::Compressed);
    Ok(())
}

/// The calls that a compressed one is made of.
struct Wire<'a> {
    scope: &'a dyn Scope,
    site: Site,
}

impl Wire<'_> {
    fn call(
        &self,
        collective: Collective,
        counts: Counts,
        [input, mut output]: [Vec<u32>; 2],
        issue: Issue,
        pool: &mut Pool,
    ) -> Result<Words> {
        let descriptor =
            Descriptor { uneven: true, ..Descriptor::new(collective, DType::U32, input.len() as u64) };
        let site = self.site;
        match issue {
            Issue::Blocking => {
                let (read, written) = (Buffer::of(&input), BufferMut::of(&mut output));
                let buffers = Buffers::Separate { input: read, output: written };
                self.scope.issue(Call { counts, site, ..Call::new(descriptor, buffers) })?;
                pool.put(input);
                Ok(Words::Arrived(output))
            }
            Issue::Asynchronous => {
                let (input, output) = (OwnedMemory::of(input), OwnedMemory::of(output));
                let buffers = OwnedBuffers::Separate { input, output };
                let call = OwnedCall { counts, site, ..OwnedCall::new(descriptor, buffers) };
                Ok(Words::OnTheirWay(self.scope.start(call)))
            }
        }
    }

    /// Sends each owner its message of a piece; gives those that came for this rank's share, in rank order.
    fn all_to_all(
        &self,
        rank: &mut Rank<'_>,
        piece: usize,
        messages: Vec<u32>,
        issue: Issue,
    ) -> Result<Words> {
        let ranks = rank.layout.ranks;
        let send = (0..ranks).map(|owner| rank.words(piece, owner) as u64).collect();
        let own = rank.words(piece, rank.own);
        let counts = Counts::PerPair { send, receive: vec![own as u64; ranks] };
        let arriving = rank.pool.take(own * ranks)?;
        self.call(Collective::AllToAll, counts, [messages, arriving], issue, rank.pool)
    }

    /// Sends this rank's sum of a piece to all; gives all sums in rank order.
    fn all_gather(
        &self,
        rank: &mut Rank<'_>,
        piece: usize,
        message: Vec<u32>,
        issue: Issue,
    ) -> Result<Words> {
        let words: Vec<u64> = (0..rank.layout.ranks).map(|owner| rank.words(piece, owner) as u64).collect();
        let total = words.iter().sum::<u64>() as usize;
        let arriving = rank.pool.take(total)?;
        self.call(Collective::AllGather, Counts::PerRank(words), [message, arriving], issue, rank.pool)
    }

    fn error(&self, fault: Fault, codec: &dyn Codec) -> Error {
        let group = self.scope.group();
        let job_rank = |rank: u32| group.job_ranks()[rank as usize];
        let call = Box::new(CallInfo {
            algorithm: Some(CallAlgorithm { name: codec.tag().into(), schedules: 0 }),
            ..call_info(self.scope, self.site)
        });
        match fault {
            Fault::NonFinite { block, rank: from } => {
                let block_elements = codec.block() as u64;
                Error::NonFinite { rank: job_rank(from), block: block.into(), block_elements, call }
            }
            Fault::Damaged { from, to } => {
                let reason = "an encoded part has impossible content".to_owned();
                Error::Corrupted { from: job_rank(from), to: job_rank(to), call: Some(call), reason }
            }
        }
    }
}

/// This rank's part of the work: everything but the calls.
struct Rank<'s> {
    kernels: &'s dyn CodecKernels,
    codec: &'s dyn Codec,
    layout: &'s Layout,
    own: usize,
    worker: (&'s [f32], &'s mut [f32]),
    owner: (&'s [f32], &'s mut [f32]),
    /// The bits of the next residuals of the first pieces, until all ranks are known to have ended the call before.
    first_pieces: Vec<u32>,
    key: u64,
    scale: f32,
    /// The block because of which there is no such scale.
    unmeasured: Option<usize>,
    scratch: Vec<f32>,
    pool: &'s mut Pool,
}

impl<'s> Rank<'s> {
    fn new(kernels: &'s dyn CodecKernels, codec: &'s dyn Codec, state: &'s mut CompressionState) -> Rank<'s> {
        let own = state.members.own;
        Rank {
            kernels,
            codec,
            layout: &state.layout,
            own,
            worker: state.worker.both(),
            owner: state.owner.both(),
            first_pieces: Vec::new(),
            key: random_key(own as u64, state.calls),
            scale: 0.0,
            unmeasured: None,
            scratch: Vec::new(),
            pool: &mut state.pool,
        }
    }

    fn words(&self, piece: usize, owner: usize) -> usize {
        message_words(self.codec, self.layout.piece(piece, owner).len())
    }

    /// Adds what is owed to the whole vector, and finds its scale.
    fn measure(&mut self, vector: &Elements<'_>) -> Result<()> {
        let mut squares = 0.0;
        for from in (0..self.layout.padded).step_by(MEASURED_ELEMENTS) {
            let range = from..self.layout.padded.min(from + MEASURED_ELEMENTS);
            let old = Buffer::of(&self.worker.0[range.clone()]);
            let new = BufferMut::of(&mut self.worker.1[range.clone()]);
            let input = Buffer::of(vector.read(range, &mut self.scratch));
            squares += self.codec.measure(self.kernels, input, Feedback { old, new })?;
        }
        self.scale = self.codec.scale(squares, self.layout.padded);
        let is_bad = !self.scale.is_finite();
        self.unmeasured = is_bad.then(|| worst_element(self.worker.1) / self.codec.block());
        Ok(())
    }

    /// The messages of a piece for all owners. `advance` is called between them.
    fn encode(&mut self, piece: usize, vector: &Elements<'_>, advance: &dyn Fn()) -> Result<Vec<u32>> {
        let ranks = self.layout.ranks;
        let mut messages = self.pool.take((0..ranks).map(|owner| self.words(piece, owner)).sum())?;
        let mut rest = &mut messages[..];
        let is_kept_apart = piece == 0 && self.codec.has_feedback() && !self.codec.measures();
        if is_kept_apart {
            self.first_pieces = self.pool.take(self.layout.first_pieces())?;
        }
        let mut first_piece_at = 0;
        for owner in 0..ranks {
            let range = self.layout.piece(piece, owner);
            let message = rest.split_off_mut(..self.words(piece, owner)).unwrap_or_default();
            if range.is_empty() {
                continue;
            }
            let feedback = self.codec.has_feedback().then(|| Feedback {
                old: Buffer::of(&self.worker.0[range.clone()]),
                new: BufferMut::of(if is_kept_apart {
                    let first_pieces = bytemuck::cast_slice_mut(&mut self.first_pieces);
                    &mut first_pieces[first_piece_at..first_piece_at + range.len()]
                } else {
                    &mut self.worker.1[range.clone()]
                }),
            });
            first_piece_at += range.len();
            if let Some(block) = self.unmeasured {
                message::write_fault(message, self.non_finite(0, block));
                continue;
            }
            let context = EncodeContext { key: self.key, first: range.start, scale: self.scale };
            let input = Buffer::of(vector.read(range.clone(), &mut self.scratch));
            let part = message::part_mut(self.codec, message, range.len());
            let bad = self.codec.encode(self.kernels, input, feedback, context, BufferMut::of(part))?;
            if let Some(bad) = bad {
                message::write_fault(message, self.non_finite(range.start, bad));
            }
            advance();
        }
        Ok(messages)
    }

    fn non_finite(&self, start: usize, bad: usize) -> Fault {
        Fault::NonFinite { block: (start / self.codec.block() + bad) as u32, rank: self.own as u32 }
    }

    /// What was left by the call before the last is overwritten at the very end: a rank that sums nothing knows only
    /// then that all others have ended the last one.
    fn keep_first_pieces(&mut self) {
        // There are none in a codec that writes its residuals in place, and in one that has none.
        if self.first_pieces.is_empty() {
            return;
        }
        let mut rest: &[f32] = bytemuck::cast_slice(&self.first_pieces);
        for owner in 0..self.layout.ranks {
            let range = self.layout.piece(0, owner);
            let (first, behind) = rest.split_at(range.len());
            self.worker.1[range].copy_from_slice(first);
            rest = behind;
        }
        self.pool.put(std::mem::take(&mut self.first_pieces));
    }

    /// The message with the sum of this rank's share of a piece.
    fn reduce(&mut self, piece: usize, mut messages: Vec<u32>) -> Result<Vec<u32>> {
        let range = self.layout.piece(piece, self.own);
        let words = self.words(piece, self.own);
        let mut sum = self.pool.take(words)?;
        if range.is_empty() {
            return Ok(sum);
        }
        let ranks = self.layout.ranks as u32;
        let (codec, own) = (self.codec, self.own as u32);
        let faults = (0u32..).zip(messages.chunks_mut(words)).filter_map(|(from, message)| {
            message::accept(codec, message, range.len(), [from, own], ranks).err()
        });
        if let Some(fault) = faults.min() {
            message::write_fault(&mut sum, fault);
            return Ok(sum);
        }
        let share = self.layout.share(self.own);
        let at = range.start - share.start..range.end - share.start;
        let feedback = codec.has_feedback().then(|| Feedback {
            old: Buffer::of(&self.owner.0[at.clone()]),
            new: BufferMut::of(&mut self.owner.1[at.clone()]),
        });
        let part = |message| Buffer::of(message::part(codec, message, range.len()));
        let parts: Vec<Buffer<'_>> = messages.chunks(words).map(part).collect();
        // The owner's random bits are not those with which it has encoded its own vector.
        let context = EncodeContext { key: !self.key, first: range.start, scale: 0.0 };
        let out = BufferMut::of(message::part_mut(codec, &mut sum, range.len()));
        let bad = codec.reduce_encode(self.kernels, &parts, range.len(), feedback, context, out)?;
        if let Some(bad) = bad {
            message::write_fault(&mut sum, self.non_finite(range.start, bad));
        }
        self.pool.put(messages);
        Ok(sum)
    }

    /// Each owner's message in the sums of each piece: piece, range in the words, elements.
    fn parts(
        &self,
    ) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>, std::ops::Range<usize>)> + use<'_, 's>
    {
        (0..self.layout.pieces).flat_map(move |piece| {
            let mut at = 0;
            (0..self.layout.ranks).filter_map(move |owner| {
                let words = at..at + self.words(piece, owner);
                at = words.end;
                let elements = self.layout.piece(piece, owner);
                (!elements.is_empty()).then_some((piece, owner, words, elements))
            })
        })
    }

    /// Whether all sums can be used; else the lowest fault, which is the same on all ranks unless a part was damaged on
    /// its way to this one.
    fn accept(&self, sums: &mut [Vec<u32>]) -> Result<(), Fault> {
        let ranks = self.layout.ranks as u32;
        let faults = self.parts().filter_map(|(piece, owner, words, elements)| {
            let message = &mut sums[piece][words];
            let way = [owner as u32, self.own as u32];
            message::accept(self.codec, message, elements.len(), way, ranks).err()
        });
        faults.min().map_or(Ok(()), Err)
    }

    /// Writes the sums times `weight`.
    fn decode(&mut self, sums: &[Vec<u32>], weight: f32, vector: &mut Elements<'_>) -> Result<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        for (piece, _, words, elements) in self.parts() {
            let part = message::part(self.codec, &sums[piece][words], elements.len());
            vector.write(elements, &mut scratch, |out| {
                self.codec.decode(self.kernels, Buffer::of(part), weight, BufferMut::of(out))
            })?;
        }
        Ok(())
    }
}

/// A key for the random bits of one rank in one call: a bijection of both that spreads them over all bits (the
/// finaliser of SplitMix64; Steele, Lea and Flood, OOPSLA 2014).
pub(crate) fn random_key(rank: u64, calls: u64) -> u64 {
    let mut key = calls.wrapping_add(rank << 40).wrapping_add(0x9e37_79b9_7f4a_7c15);
    key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}
