//! This rank's part of a compressed call: everything but the calls that it is made of.

use std::ops::Range;

use unisono_communicator::{Buffer, Result, SplitMix, zeroed};

use crate::codec::{Codec, EncodeContext};
use crate::data::Data;
use crate::device::{DeviceMemory, KernelDevice, View, ViewMut};
use crate::kernels::Feedback;
use crate::layout::Layout;
use crate::message::{self, Fault, message_words};
use crate::message_memory::{Message, MessageMemory};
use crate::pool::Pool;
use crate::residuals::{Residuals, feed};
use crate::state::CompressionState;

/// Elements that are measured at a time.
pub(crate) const MEASURED_ELEMENTS: usize = 1 << 20;

/// An encoder.
#[derive(Clone, Copy)]
pub(crate) enum Stage {
    /// The encoder of the vector.
    Worker,
    /// The encoder of the sum, or of the own share in an all-gather.
    Owner,
}

/// The state of a call, and the rank's knowledge so far.
pub(crate) struct Rank<'s, D: KernelDevice> {
    pub(crate) device: &'s D,
    pub(crate) codec: &'s dyn Codec,
    pub(crate) layout: &'s Layout,
    pub(crate) own: usize,
    pub(crate) worker: &'s mut Residuals<D::Memory>,
    owner: &'s mut Residuals<D::Memory>,
    /// The next residuals of the first pieces, until all ranks are known to have ended the call before.
    first_pieces: Option<D::Memory>,
    pub(crate) key: u64,
    scale: f32,
    /// The block because of which there is no such scale.
    unmeasured: Option<usize>,
    pub(crate) pool: &'s mut Pool,
    pub(crate) message_memory: MessageMemory,
}

impl<'s, D: KernelDevice> Rank<'s, D> {
    pub(crate) fn new(codec: &'s dyn Codec, state: &'s mut CompressionState<D>) -> Rank<'s, D> {
        let own = state.members.own;
        Rank {
            device: &state.device,
            codec,
            layout: &state.layout,
            own,
            worker: &mut state.worker,
            owner: &mut state.owner,
            first_pieces: None,
            key: random_key(own as u64, state.calls),
            scale: 0.0,
            unmeasured: None,
            pool: &mut state.pool,
            message_memory: state.message_memory,
        }
    }

    /// Adds the residuals to all that a stage encodes, and finds its scale.
    pub(crate) fn measure(
        &mut self,
        stage: Stage,
        data: &mut dyn Data<D>,
        summed: Option<&D::Memory>,
    ) -> Result<()> {
        let (residuals, first) = match stage {
            Stage::Worker => (&mut *self.worker, 0),
            Stage::Owner => (&mut *self.owner, self.layout.share(self.own).start),
        };
        let (end, mut squares) = (residuals.words(), 0.0);
        let (old, new) = residuals.both();
        for from in (0..end).step_by(MEASURED_ELEMENTS) {
            let range = from..end.min(from + MEASURED_ELEMENTS);
            let input = match summed {
                Some(summed) => summed.view(range.clone()),
                None => data.read(first + range.start..first + range.end)?,
            };
            let (old, mut new) = (old.view(range.clone()), new.view_mut(range));
            let feedback = Feedback { old: old.buffer(), new: new.buffer() };
            squares += self.codec.measure(self.device, input.buffer(), feedback)?;
        }
        self.scale = self.codec.scale(squares, end);
        if !self.scale.is_finite() {
            let worst = self.device.worst_element(new.view_mut(0..end).buffer())?;
            self.unmeasured = Some((first + worst) / self.codec.block());
        }
        Ok(())
    }

    /// The messages of a piece for all owners for whom this rank encodes the elements of its team, `summed` or its own.
    /// `advance` is called between them.
    pub(crate) fn encode(
        &mut self,
        piece: usize,
        data: &mut dyn Data<D>,
        summed: Option<D::Memory>,
        advance: &dyn Fn(),
    ) -> Result<Message<D::Memory>> {
        let (layout, codec, device, own) = (self.layout, self.codec, self.device, self.own);
        let owners = || layout.teams.owners(own);
        let total = owners().map(|owner| self.words(piece, owner)).sum();
        let mut messages = self.memory(total)?;
        let owed = self.worker_parts(piece);
        let is_kept_apart = piece == 0 && codec.has_feedback() && !codec.measures();
        let mut apart = if is_kept_apart {
            let words = owed.iter().flatten().map(ExactSizeIterator::len).sum();
            Some(self.memory(words)?)
        } else {
            None
        };
        let kept = self.worker.kept;
        let (old, new) = self.worker.both();
        let mut faults = Vec::new();
        let (mut at, mut collected, mut apart_at) = (0, 0, 0);
        for (owner, owed) in owners().zip(owed) {
            let range = layout.piece(piece, owner);
            let words = at..at + message_words(codec, range.len());
            let elements = collected..collected + range.len();
            (at, collected) = (words.end, elements.end);
            if range.is_empty() {
                continue;
            }
            if let Some(block) = self.unmeasured {
                faults.push(Some(Fault::NonFinite { block: block as u32, rank: self.own as u32 }));
                continue;
            }
            let context = EncodeContext { key: self.key, first: range.start, scale: self.scale };
            let input = match &summed {
                Some(summed) => summed.view(elements),
                None => data.read(range.clone())?,
            };
            let mut part = messages.view_mut(message::part_words(codec, words, range.len()));
            let owed = owed.map(|owed| {
                let new = match &mut apart {
                    Some(apart) => apart.view_mut(apart_at..apart_at + owed.len()),
                    None => new.view_mut(owed.clone()),
                };
                apart_at += owed.len();
                (old.view(owed), new)
            });
            let mut encode = |feedback: Option<Feedback<'_>>| {
                codec.encode(device, input.buffer(), feedback, context, part.buffer())
            };
            let bad = feed(device, self.pool, kept, range.len(), owed, &mut encode)?;
            faults.push(bad.map(|bad| non_finite(codec, self.own, range.start, bad)));
            advance();
        }
        if let Some(summed) = summed {
            self.give_up(summed);
        }
        self.first_pieces = self.first_pieces.take().or(apart);
        let mut messages = self.written(messages)?;
        self.close_piece(piece, &mut messages, faults)?;
        Ok(messages)
    }

    /// The places of the residuals of the parts of a piece that this rank encodes.
    pub(crate) fn worker_parts(&self, piece: usize) -> Vec<Option<Range<usize>>> {
        let owners = 0..self.layout.teams.owners(self.own).count();
        let part = |number| self.worker.part(number * self.layout.pieces + piece);
        owners.map(|number| self.codec.has_feedback().then(|| part(number))).collect()
    }

    /// Ends the messages of a piece, of which those without elements do not exist.
    fn close_piece(
        &self,
        piece: usize,
        messages: &mut Message<D::Memory>,
        faults: Vec<Option<Fault>>,
    ) -> Result<()> {
        let lengths = self.layout.teams.owners(self.own).map(|owner| self.layout.piece(piece, owner).len());
        let mut at = 0;
        for (length, fault) in lengths.filter(|length| *length > 0).zip(faults) {
            let words = at..at + message_words(self.codec, length);
            at = words.end;
            self.close(messages, words, length, fault)?;
        }
        Ok(())
    }

    /// The residuals of the call before the last are overwritten at the very end: a rank that sums nothing knows only
    /// then that all others have ended the last one.
    pub(crate) fn keep_first_pieces(&mut self) -> Result<()> {
        // There are none in a codec that writes its residuals in place, nor in a codec without residuals.
        let Some(first) = self.first_pieces.take() else { return Ok(()) };
        let mut at = 0;
        for to in self.worker_parts(0).into_iter().flatten() {
            let words = to.len();
            self.device.copy(&first, at, self.worker.both().1, to)?;
            at += words;
        }
        self.give_up(first);
        Ok(())
    }

    /// Takes the messages of a piece of this rank's share off the wire. The lowest fault, if there is one.
    fn accept_pieces(&self, piece: usize, messages: &mut Message<D::Memory>) -> Result<Option<Fault>> {
        let elements = self.layout.piece(piece, self.own).len();
        let words = message_words(self.codec, elements);
        let mut lowest = None;
        for (number, from) in self.layout.teams.senders(self.own).enumerate() {
            let at = number * words..(number + 1) * words;
            let fault = self.accept(messages, at, elements, from)?;
            lowest = [lowest, fault].into_iter().flatten().min();
        }
        Ok(lowest)
    }

    /// The parts of a piece of this rank's share in the words that came.
    fn parts<'m>(&self, piece: usize, came: &'m D::Memory) -> Vec<View<'m>> {
        let elements = self.layout.piece(piece, self.own).len();
        let words = message_words(self.codec, elements);
        let part = |at| came.view(message::part_words(self.codec, at..at + words, elements));
        (0..came.words() / words).map(|message| part(message * words)).collect()
    }

    /// The message with the sum of this rank's share of a piece.
    pub(crate) fn reduce(
        &mut self,
        piece: usize,
        mut messages: Message<D::Memory>,
    ) -> Result<Message<D::Memory>> {
        let range = self.layout.piece(piece, self.own);
        if range.is_empty() {
            return self.nothing();
        }
        if let Some(fault) = self.accept_pieces(piece, &mut messages)? {
            return self.fault(range.len(), fault);
        }
        let came = self.to_read(messages)?;
        let views = self.parts(piece, &came);
        let parts: Vec<Buffer<'_>> = views.iter().map(View::buffer).collect();
        // The owner's random bits differ from the bits with which it has encoded its own vector.
        let context = EncodeContext { key: !self.key, first: range.start, scale: 0.0 };
        let (codec, device) = (self.codec, self.device);
        let mut encode = |feedback: Option<Feedback<'_>>, out: &mut ViewMut<'_>| {
            codec.reduce_encode(device, &parts, range.len(), feedback, context, out.buffer())
        };
        let message = self.encode_share(piece, &mut encode)?;
        self.give_up(came);
        Ok(message)
    }

    /// The message with this rank's own share of a piece.
    pub(crate) fn encode_own(&mut self, piece: usize, data: &mut dyn Data<D>) -> Result<Message<D::Memory>> {
        let range = self.layout.piece(piece, self.own);
        if range.is_empty() {
            return self.nothing();
        }
        if let Some(block) = self.unmeasured {
            let fault = non_finite(self.codec, self.own, 0, block);
            return self.fault(range.len(), fault);
        }
        let context = EncodeContext { key: !self.key, first: range.start, scale: self.scale };
        let (codec, device, input) = (self.codec, self.device, data.read(range)?);
        let mut encode = |feedback: Option<Feedback<'_>>, out: &mut ViewMut<'_>| {
            codec.encode(device, input.buffer(), feedback, context, out.buffer())
        };
        self.encode_share(piece, &mut encode)
    }

    /// The message that `encode` writes with the residuals of this rank's share of a piece.
    pub(crate) fn encode_share(
        &mut self,
        piece: usize,
        encode: &mut EncodeInto<'_>,
    ) -> Result<Message<D::Memory>> {
        let range = self.layout.piece(piece, self.own);
        let words = self.words(piece, self.own);
        let mut message = self.memory(words)?;
        let mut part = message.view_mut(message::part_words(self.codec, 0..words, range.len()));
        let (owed, kept) = (self.codec.has_feedback().then(|| self.owner.part(piece)), self.owner.kept);
        let (old, new) = self.owner.both();
        let owed = owed.map(|owed| (old.view(owed.clone()), new.view_mut(owed)));
        let mut encode = |feedback: Option<Feedback<'_>>| encode(feedback, &mut part);
        let bad = feed(self.device, self.pool, kept, range.len(), owed, &mut encode)?;
        let mut message = self.written(message)?;
        let fault = bad.map(|bad| non_finite(self.codec, self.own, range.start, bad));
        self.close(&mut message, 0..words, range.len(), fault)?;
        Ok(message)
    }

    /// Writes the sum of the parts that came of a piece of this rank's share. The lowest fault, if there is one.
    pub(crate) fn decode_sum(
        &mut self,
        piece: usize,
        mut messages: Message<D::Memory>,
        weight: f32,
        data: &mut dyn Data<D>,
    ) -> Result<Option<Fault>> {
        let range = self.layout.piece(piece, self.own);
        if range.is_empty() {
            return Ok(None);
        }
        let fault = self.accept_pieces(piece, &mut messages)?;
        if fault.is_some() {
            return Ok(fault);
        }
        let came = self.to_read(messages)?;
        let views = self.parts(piece, &came);
        let parts: Vec<Buffer<'_>> = views.iter().map(View::buffer).collect();
        data.write(range, &mut |out| self.codec.decode_sum(self.device, &parts, weight, out))?;
        self.give_up(came);
        Ok(None)
    }

    /// Each owner's message in the sums of a piece: owner, range in the words, elements.
    fn sums(
        &self,
        piece: usize,
    ) -> impl Iterator<Item = (usize, Range<usize>, Range<usize>)> + use<'_, 's, D> {
        let mut at = 0;
        (0..self.layout.ranks).filter_map(move |owner| {
            let words = at..at + self.words(piece, owner);
            at = words.end;
            let elements = self.layout.piece(piece, owner);
            (!elements.is_empty()).then_some((owner, words, elements))
        })
    }

    /// Whether all sums can be used; else the lowest fault, which is the same on all ranks unless a part was damaged on
    /// its way to this one.
    pub(crate) fn accept_sums(&self, sums: &mut [Message<D::Memory>]) -> Result<Option<Fault>> {
        let mut lowest = None;
        for (piece, sums) in sums.iter_mut().enumerate() {
            for (owner, words, elements) in self.sums(piece) {
                let fault = self.accept(sums, words, elements.len(), owner)?;
                lowest = [lowest, fault].into_iter().flatten().min();
            }
        }
        Ok(lowest)
    }

    /// Writes the sums times `weight`.
    pub(crate) fn decode(
        &mut self,
        sums: Vec<Message<D::Memory>>,
        weight: f32,
        data: &mut dyn Data<D>,
    ) -> Result<()> {
        for (piece, sums) in sums.into_iter().enumerate() {
            let sums = self.to_read(sums)?;
            for (_, words, elements) in self.sums(piece) {
                let part = sums.view(message::part_words(self.codec, words, elements.len()));
                data.write(elements, &mut |out| self.codec.decode(self.device, part.buffer(), weight, out))?;
            }
            self.give_up(sums);
        }
        Ok(())
    }

    /// The first element of this rank's vector that is not finite, as a fault.
    pub(crate) fn first_not_finite(&self, data: &mut dyn Data<D>) -> Result<Option<Fault>> {
        let mut copy = zeroed::<f32>(self.layout.padded.min(MEASURED_ELEMENTS))?;
        for from in (0..self.layout.padded).step_by(MEASURED_ELEMENTS) {
            let range = from..self.layout.padded.min(from + MEASURED_ELEMENTS);
            let copy = &mut copy[..range.len()];
            data.copy(range, copy)?;
            if let Some(at) = copy.iter().position(|value| !value.is_finite()) {
                return Ok(Some(non_finite(self.codec, self.own, from + at, 0)));
            }
        }
        Ok(None)
    }
}

/// Encodes with the residuals of a part.
type EncodeInto<'a> = dyn FnMut(Option<Feedback<'_>>, &mut ViewMut<'_>) -> Result<Option<usize>> + 'a;

/// Rank `own` has an element that is not finite, in block `bad` of the blocks from `start` on.
fn non_finite(codec: &dyn Codec, own: usize, start: usize, bad: usize) -> Fault {
    Fault::NonFinite { block: (start / codec.block() + bad) as u32, rank: own as u32 }
}

/// A key for the random bits of one rank in one call: a bijection of both that spreads them over all bits.
pub(crate) fn random_key(rank: u64, calls: u64) -> u64 {
    SplitMix(calls.wrapping_add(rank << 40)).next_u64()
}
