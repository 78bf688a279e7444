//! The words of ranks for each other in one all-to-all: codes for owners, and f32 for the ranks of the own team.
//!
//! Calls of a communicator run one after the other, links beside each other. So one call carries an encoded piece
//! between hosts, and the f32 of a later piece within hosts: the network does not wait for them.

use unisono_communicator::{Buffer, Result};

use crate::data::Data;
use crate::device::{DeviceMemory, KernelDevice, View};
use crate::message::message_words;
use crate::message_memory::Message;
use crate::rank::Rank;

/// An all-to-all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// The piece whose codes go to its owners, if there is one.
    pub(crate) encoded: Option<usize>,
    /// The piece whose f32 go to their encoders; none behind the last.
    pub(crate) raw: usize,
}

/// The f32 of a piece that came from the other ranks of the team, among other words.
#[derive(Default)]
pub(crate) struct FromTeam {
    words: Vec<u32>,
    /// The start of the f32 of each other rank, in rank order.
    starts: Vec<usize>,
}

impl<D: KernelDevice> Rank<'_, D> {
    /// Words that `from` sends to `to`: codes, and f32. One of the two is none, for an owner of the own team is its own
    /// collector.
    pub(crate) fn words_between(&self, turn: Turn, from: usize, to: usize) -> [usize; 2] {
        let teams = &self.layout.teams;
        let encoded = turn.encoded.filter(|_| teams.collects(from, to));
        let is_mate = from != to && teams.team(from).contains(&to);
        [
            encoded.map_or(0, |piece| self.words(piece, to)),
            if is_mate { self.collected(turn.raw, to) } else { 0 },
        ]
    }

    /// Elements of a piece that `rank` encodes.
    pub(crate) fn collected(&self, piece: usize, rank: usize) -> usize {
        self.layout.teams.owners(rank).map(|owner| self.layout.piece(piece, owner).len()).sum()
    }

    /// Everything for all ranks, in their order: `codes` are in the order of owners.
    pub(crate) fn assemble(
        &mut self,
        turn: Turn,
        codes: Message<D::Memory>,
        data: &mut dyn Data<D>,
    ) -> Result<Message<D::Memory>> {
        // Codes in the memory of a device have no teams.
        let codes = match codes {
            Message::Host(codes) if self.layout.teams.has_members() => codes,
            alone => return Ok(alone),
        };
        let lengths: Vec<[usize; 2]> =
            (0..self.layout.ranks).map(|to| self.words_between(turn, self.own, to)).collect();
        let mut words = self.pool.take(lengths.iter().flatten().sum())?;
        let (mut rest, mut codes_left) = (&mut words[..], &codes[..]);
        for (to, [coded, raw]) in lengths.into_iter().enumerate() {
            let part = codes_left.split_off(..coded).unwrap_or_default();
            rest.split_off_mut(..coded).unwrap_or_default().copy_from_slice(part);
            let mut elements: &mut [f32] =
                bytemuck::cast_slice_mut(rest.split_off_mut(..raw).unwrap_or_default());
            for owner in self.layout.teams.owners(to).filter(|_| raw > 0) {
                let range = self.layout.piece(turn.raw, owner);
                let part = elements.split_off_mut(..range.len()).unwrap_or_default();
                data.copy(range, part)?;
            }
        }
        self.pool.put(codes);
        Ok(Message::Host(words))
    }

    /// The codes for this rank in rank order, and the f32 that came from its team.
    pub(crate) fn divide(
        &mut self,
        turn: Turn,
        words: Message<D::Memory>,
    ) -> Result<(Message<D::Memory>, FromTeam)> {
        let words = match words {
            Message::Host(words) if self.layout.teams.has_members() => words,
            alone => return Ok((alone, FromTeam::default())),
        };
        let lengths: Vec<[usize; 2]> =
            (0..self.layout.ranks).map(|from| self.words_between(turn, from, self.own)).collect();
        let mut codes = self.pool.take(lengths.iter().map(|[coded, _]| coded).sum())?;
        let (mut rest, mut at, mut starts) = (&mut codes[..], 0, Vec::new());
        let team = self.layout.teams.team(self.own);
        for (from, [coded, raw]) in lengths.into_iter().enumerate() {
            rest.split_off_mut(..coded).unwrap_or_default().copy_from_slice(&words[at..at + coded]);
            at += coded;
            if from != self.own && team.contains(&from) {
                starts.push(at);
            }
            at += raw;
        }
        Ok((Message::Host(codes), FromTeam { words, starts }))
    }

    /// The sum of the team over a piece of this rank's part, when the team has more ranks: its own f32 and the f32 that
    /// came.
    pub(crate) fn sum_team(
        &mut self,
        piece: usize,
        data: &mut dyn Data<D>,
        came: FromTeam,
    ) -> Result<Option<D::Memory>> {
        let team = self.layout.teams.team(self.own);
        if team.len() == 1 {
            self.pool.put(came.words);
            return Ok(None);
        }
        let words = self.device.to_read(came.words)?;
        let mut sums = self.device.to_write(self.pool.take(self.collected(piece, self.own))?)?;
        let place = team.iter().position(|rank| *rank == self.own).unwrap_or_default();
        let mut at = 0;
        for owner in self.layout.teams.owners(self.own) {
            let range = self.layout.piece(piece, owner);
            let length = range.len();
            let own = data.read(range)?;
            let others: Vec<View<'_>> =
                came.starts.iter().map(|start| words.view(start + at..start + at + length)).collect();
            let mut parts: Vec<Buffer<'_>> = others.iter().map(View::buffer).collect();
            parts.insert(place, own.buffer());
            self.device.sum(&parts, sums.view_mut(at..at + length).buffer())?;
            at += length;
        }
        self.pool.put(self.device.was_read(words));
        Ok(Some(sums))
    }

    /// The length of the message with a piece for `owner`, or of its sum.
    pub(crate) fn words(&self, piece: usize, owner: usize) -> usize {
        message_words(self.codec, self.layout.piece(piece, owner).len())
    }
}
