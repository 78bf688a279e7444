//! The first half of an all-reduce whose codes are added on their way, as integers: by any reduce-scatter, through any
//! number of hops, without loss.
//!
//! First all ranks find the largest magnitude of each block on any rank, which gives a scale that all of them share.
//! Codes with one scale can be added, and integers that are wide enough lose nothing: of p ranks, codes to 7 need bytes
//! up to p = 18, codes to 127 need 16 bits up to p = 258. So each element is rounded once by each rank and once by its
//! owner, however many ranks there are; the scale fits the largest rank, not the sum so far, and the error grows as the
//! root of the number of ranks, as the sum does. (Summable codes: THC, Li et al., NSDI 2024.) A ring that encodes each
//! hop's sum again rounds p times, each time with the larger scale of a longer sum.

use unisono_collectives::Collectives;
use unisono_communicator::{Error, ReduceOp, Result};
use unisono_kernels::CodeSize;

use crate::codec::{EncodeContext, Summable};
use crate::data::Data;
use crate::device::{DeviceMemory, KernelDevice, View};
use crate::exchange::to_all;
use crate::kernels::{Feedback, Shared};
use crate::message::Fault;
use crate::message_memory::{Message, SendReceive};
use crate::rank::{MEASURED_ELEMENTS, Rank};
use crate::residuals::feed;
use crate::wire::{Issue, Wire, Words, WordsCall};

/// The bytes of a sum of codes of `ranks` ranks.
///
/// # Errors
/// [`Error::Unsupported`] for so many ranks that f32 does not hold every sum.
pub fn code_size(summable: Summable, ranks: usize) -> Result<CodeSize> {
    let largest = ranks as u64 * u64::from(summable.format.width.symmetric_max());
    match largest {
        0..=0x7f => Ok(CodeSize::One),
        0x80..=0x7fff => Ok(CodeSize::Two),
        0x8000..=0xff_ffff => Ok(CodeSize::Four),
        _ => Err(Error::Unsupported {
            what: format!("sums of the codes of {ranks} ranks"),
            backend: "compression",
            instead: Some("Route::Direct".to_owned()),
        }),
    }
}

/// The first block whose largest magnitude has no scale: it is not finite, or too large for the codec.
fn without_scale(summable: Summable, magnitudes: &[u32]) -> Option<usize> {
    magnitudes.iter().position(|magnitude| summable.format.scale(f32::from_bits(*magnitude)).is_none())
}

/// Sends codes to their owners, who get sums, and starts to send the encoded sums to all. A fault if a block has no
/// scale: nothing was encoded then.
pub(crate) fn send_codes<D: KernelDevice>(
    wire: &Wire<'_>,
    rank: &mut Rank<'_, D>,
    summable: Summable,
    data: &mut dyn Data<D>,
    gathering: &mut Vec<Words<D::Memory>>,
) -> Result<Option<Fault>> {
    let size = code_size(summable, rank.layout.ranks)?;
    let mut magnitudes = rank.magnitudes(summable, data)?;
    // When it has come, all ranks have ended the call before: residuals may change in place. Magnitudes have no sign,
    // and not every library reduces unsigned integers.
    wire.scope.all_reduce(bytemuck::cast_slice_mut::<u32, i32>(&mut magnitudes), ReduceOp::Max)?;
    if let Some(block) = without_scale(summable, &magnitudes) {
        return Ok(Some(Fault::NonFinite { block: block as u32, rank: 0 }));
    }
    let magnitudes = rank.device.to_read(magnitudes)?;
    let shared = SharedCodes { summable, size, magnitudes: &magnitudes };
    let codes = rank.encode_shared(0, &shared, data)?;
    let mut arriving = reduce(wire, rank, &shared, 0, codes, Issue::Blocking)?;
    for piece in 0..rank.layout.pieces {
        let next = if piece + 1 == rank.layout.pieces {
            Words::NONE
        } else {
            let codes = rank.encode_shared(piece + 1, &shared, data)?;
            reduce(wire, rank, &shared, piece + 1, codes, Issue::Asynchronous)?
        };
        let sums = std::mem::replace(&mut arriving, next).wait(wire, rank.pool)?;
        let message = rank.encode_summed(piece, &shared, sums)?;
        gathering.push(to_all(wire, rank, piece, message)?);
    }
    let magnitudes = rank.device.was_read(magnitudes);
    rank.pool.put(magnitudes);
    Ok(None)
}

/// Adds the codes of a piece; gives the sums of this rank's share.
fn reduce<D: KernelDevice>(
    wire: &Wire<'_>,
    rank: &mut Rank<'_, D>,
    shared: &SharedCodes<'_, D::Memory>,
    piece: usize,
    codes: Vec<u32>,
    issue: Issue,
) -> Result<Words<D::Memory>> {
    let in_word = size_of::<u32>() / shared.size.bytes();
    let ranks = 0..rank.layout.ranks;
    let counts = ranks.map(|owner| (rank.code_words(piece, owner, shared.size) * in_word) as u64).collect();
    let arriving = rank.pool.take(rank.code_words(piece, rank.own, shared.size))?;
    let call = WordsCall::SumOfCodes { size: shared.size, of_ranks: counts };
    wire.call(call, SendReceive::Host([codes, arriving]), issue, rank.pool)
}

/// The common knowledge of all ranks about a call's codes.
pub(crate) struct SharedCodes<'a, M> {
    summable: Summable,
    size: CodeSize,
    magnitudes: &'a M,
}

impl<M: DeviceMemory> SharedCodes<'_, M> {
    /// The magnitudes of the blocks of these elements.
    fn magnitudes(&self, elements: &std::ops::Range<usize>) -> View<'_> {
        let block = self.summable.format.block;
        self.magnitudes.view(elements.start / block..elements.end.div_ceil(block))
    }

    fn of<'v>(&self, magnitudes: &'v View<'_>) -> Shared<'v> {
        Shared { format: self.summable.format, size: self.size, magnitudes: magnitudes.buffer() }
    }
}

impl<D: KernelDevice> Rank<'_, D> {
    /// Words of the codes of a piece for `owner`.
    fn code_words(&self, piece: usize, owner: usize, size: CodeSize) -> usize {
        (self.layout.piece(piece, owner).len() * size.bytes()).div_ceil(size_of::<u32>())
    }

    /// The largest magnitude of each block of this rank's vector with its residuals, as bits.
    fn magnitudes(&mut self, summable: Summable, data: &mut dyn Data<D>) -> Result<Vec<u32>> {
        let block = summable.format.block;
        let blocks = self.layout.padded.div_ceil(block);
        let mut magnitudes = self.device.to_write(self.pool.take(blocks)?)?;
        for from in (0..self.layout.padded).step_by(MEASURED_ELEMENTS.next_multiple_of(block)) {
            let to = self.layout.padded.min(from + MEASURED_ELEMENTS.next_multiple_of(block));
            let old = self.codec.has_feedback().then(|| self.worker.current().view(from..to));
            let (input, old) = (data.read(from..to)?, old.as_ref().map(View::buffer));
            let mut out = magnitudes.view_mut(from / block..to.div_ceil(block));
            self.device.int_magnitudes(input.buffer(), old, block, out.buffer())?;
        }
        self.device.written(magnitudes)
    }

    /// The first block of this rank's vector, with its residuals, that has no scale, as a fault.
    pub(crate) fn first_without_scale(
        &mut self,
        summable: Summable,
        data: &mut dyn Data<D>,
    ) -> Result<Option<Fault>> {
        let magnitudes = self.magnitudes(summable, data)?;
        let block = without_scale(summable, &magnitudes);
        self.pool.put(magnitudes);
        Ok(block.map(|block| Fault::NonFinite { block: block as u32, rank: self.own as u32 }))
    }

    /// The codes of a piece for all owners.
    fn encode_shared(
        &mut self,
        piece: usize,
        shared: &SharedCodes<'_, D::Memory>,
        data: &mut dyn Data<D>,
    ) -> Result<Vec<u32>> {
        let owners = 0..self.layout.ranks;
        let total = owners.clone().map(|owner| self.code_words(piece, owner, shared.size)).sum();
        let mut codes = self.device.to_write(self.pool.take(total)?)?;
        let owed = self.worker_parts(piece);
        let (mut at, kept, device) = (0, self.worker.kept, self.device);
        for (owner, owed) in owners.zip(owed) {
            let range = self.layout.piece(piece, owner);
            let words = at..at + self.code_words(piece, owner, shared.size);
            at = words.end;
            if range.is_empty() {
                continue;
            }
            let context = EncodeContext { key: self.key, first: range.start, scale: 0.0 };
            let (rounding, elements) = (context.rounding(shared.summable.stochastic), range.len());
            let magnitudes = shared.magnitudes(&range);
            let (input, mut out) = (data.read(range)?, codes.view_mut(words));
            let (old, new) = self.worker.both();
            let owed = owed.map(|owed| (old.view(owed.clone()), new.view_mut(owed)));
            let mut encode = |feedback: Option<Feedback<'_>>| {
                let shared = shared.of(&magnitudes);
                device.int_encode_shared(input.buffer(), feedback, rounding, shared, out.buffer())?;
                Ok(None)
            };
            feed(device, self.pool, kept, elements, owed, &mut encode)?;
        }
        self.device.written(codes)
    }

    /// The message with the sums of a piece of this rank's share.
    fn encode_summed(
        &mut self,
        piece: usize,
        shared: &SharedCodes<'_, D::Memory>,
        sums: Message<D::Memory>,
    ) -> Result<Message<D::Memory>> {
        let range = self.layout.piece(piece, self.own);
        if range.is_empty() {
            return self.nothing();
        }
        let (codec, device) = (self.codec, self.device);
        let sums = self.to_read(sums)?;
        let mut values = device.to_write(self.pool.take(range.len())?)?;
        let magnitudes = shared.magnitudes(&range);
        let codes = sums.view(0..self.code_words(piece, self.own, shared.size));
        let mut out = values.view_mut(0..range.len());
        device.int_expand_shared(codes.buffer(), shared.of(&magnitudes), 1.0, out.buffer())?;
        drop((codes, out));
        let values_read = values.view(0..range.len());
        let context = EncodeContext { key: !self.key, first: range.start, scale: 0.0 };
        let message = self.encode_share(piece, &mut |feedback, out| {
            codec.encode(device, values_read.buffer(), feedback, context, out.buffer())
        })?;
        drop(values_read);
        for memory in [sums, values] {
            self.pool.put(device.was_read(memory));
        }
        Ok(message)
    }
}
