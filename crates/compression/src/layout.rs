//! Which rank sums which elements, and in which pieces: the same on all ranks, from lengths alone.

use std::ops::Range;

use crate::codec::Codec;

/// Elements of the first piece of each share. What a rank owes by error feedback may change only when all others have
/// ended the call before, which the first exchange proves; until then it is kept apart, so this is small.
const FIRST_PIECE_ELEMENTS: usize = 32 * 1024;

/// Elements of a piece of a share, at least and at most. Long enough that a call of the transport costs little.
const PIECE_ELEMENTS_MIN: usize = 256 * 1024;
const PIECE_ELEMENTS_MAX: usize = 1024 * 1024;

/// How many pieces a share has if their length allows it: encoding the first and decoding all overlap with nothing.
const PIECES_AIM: usize = 8;

/// How a vector is divided. The owner of a share sums it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Elements of the caller.
    pub(crate) elements: usize,
    /// With the zeros behind them.
    pub(crate) padded: usize,
    pub(crate) ranks: usize,
    /// Elements that stay together.
    unit: usize,
    /// Elements of the first piece of a share, and of the others.
    first_piece: usize,
    piece: usize,
    pub(crate) pieces: usize,
}

impl Layout {
    pub(crate) fn new(codec: &dyn Codec, elements: usize, ranks: usize) -> Layout {
        let padded = codec.padded(elements, ranks);
        // Shares of a vector that is filled up are equal.
        let unit = if padded > elements { padded / ranks } else { codec.block() };
        let share = padded.div_ceil(unit).div_ceil(ranks) * unit;
        let (first_piece, piece) = if codec.measures() {
            (share, share)
        } else {
            let piece = (share / PIECES_AIM).clamp(PIECE_ELEMENTS_MIN, PIECE_ELEMENTS_MAX);
            (FIRST_PIECE_ELEMENTS.next_multiple_of(unit), piece.next_multiple_of(unit))
        };
        let pieces = 1 + share.saturating_sub(first_piece).div_ceil(piece.max(1));
        Layout { elements, padded, ranks, unit, first_piece, piece, pieces }
    }

    /// The elements that `owner` sums. Shares differ by at most one unit and may be empty.
    pub(crate) fn share(&self, owner: usize) -> Range<usize> {
        let units = self.padded.div_ceil(self.unit.max(1));
        let at = |rank: usize| (units * rank / self.ranks * self.unit).min(self.padded);
        at(owner)..at(owner + 1)
    }

    /// Piece `piece` of that; empty behind the end.
    pub(crate) fn piece(&self, piece: usize, owner: usize) -> Range<usize> {
        let share = self.share(owner);
        let at = |piece: usize| match piece.checked_sub(1) {
            None => share.start,
            Some(others) => (share.start + self.first_piece + others * self.piece).min(share.end),
        };
        at(piece)..at(piece + 1)
    }

    /// Elements of the first pieces of all shares together.
    pub(crate) fn first_pieces(&self) -> usize {
        (0..self.ranks).map(|owner| self.piece(0, owner).len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bf16, Int8, SignL1, SignRms};

    #[test]
    fn pieces_of_shares_are_the_vector_and_begin_at_blocks() {
        let codecs: [&dyn Codec; 5] =
            [&SignL1::default(), &SignRms::default(), &SignRms::deepspeed(), &Int8::default(), &Bf16];
        for codec in codecs {
            for ranks in 1..=9 {
                for elements in (0..200).chain([1023, 1024, 1025, 70_000, 1_000_003, 40_000_000]) {
                    let layout = Layout::new(codec, elements, ranks);
                    assert!(layout.padded >= elements && layout.pieces >= 1);
                    let mut at = 0;
                    for owner in 0..ranks {
                        for piece in 0..layout.pieces {
                            let range = layout.piece(piece, owner);
                            assert_eq!(range.start, at, "{codec:?}, {elements} elements, {ranks} ranks");
                            let is_whole = range.start.is_multiple_of(layout.unit);
                            assert!(is_whole || range.is_empty());
                            at = range.end;
                        }
                    }
                    assert_eq!(at, layout.padded);
                }
            }
        }
    }
}
