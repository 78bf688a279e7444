//! The rank that sums an element, the rank that encodes it, and the pieces of shares: the same on all ranks, from
//! lengths alone.

use std::ops::Range;

use crate::codec::Codec;
use crate::route::Teams;

/// Elements of the first piece of each share. A rank's residuals may change only when all others have ended the call
/// before, which the first exchange proves; until then the new ones are kept apart, so this is small.
const FIRST_PIECE_ELEMENTS: usize = 32 * 1024;

/// Elements of a piece of a share, at least and at most. Long enough that a call of the transport costs little.
const PIECE_ELEMENTS_MIN: usize = 256 * 1024;
const PIECE_ELEMENTS_MAX: usize = 1024 * 1024;

/// The number of pieces of a share if their length allows it: encoding the first and decoding all overlap with nothing.
/// In two levels, the first two pieces within hosts overlap with nothing either.
const PIECES_AIM: usize = 8;
const PIECES_AIM_OF_TEAMS: usize = 16;

/// The division of a vector. The owner of a share sums it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Elements of the caller.
    pub(crate) elements: usize,
    /// With the zeros behind them.
    pub(crate) padded: usize,
    pub(crate) ranks: usize,
    /// The starts of the shares, and the end of the last.
    bounds: Vec<usize>,
    /// Elements of the first piece of a share, and of the others.
    first_piece: usize,
    piece: usize,
    pub(crate) pieces: usize,
    /// The ranks that encode for each owner.
    pub(crate) teams: Teams,
}

/// Elements that one rank encodes for one owner at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) piece: usize,
    pub(crate) owner: usize,
    /// In the vector.
    pub(crate) elements: Range<usize>,
}

impl Layout {
    /// Of a vector whose shares are as even as whole blocks allow. They differ by at most one block and may be empty.
    pub(crate) fn even(codec: &dyn Codec, elements: usize, ranks: usize, teams: Teams) -> Layout {
        let padded = codec.padded(elements, ranks);
        // Shares of a vector that is filled up are equal.
        let unit = if padded > elements { padded / ranks } else { codec.block() };
        let units = padded.div_ceil(unit.max(1));
        let bounds = (0..=ranks).map(|rank| (units * rank / ranks * unit).min(padded)).collect();
        Layout { elements, ..Layout::divided(codec, bounds, teams) }
    }

    /// Of a vector whose shares are given.
    pub(crate) fn of_shares(codec: &dyn Codec, shares: &[usize], teams: Teams) -> Layout {
        let mut bounds = vec![0];
        bounds.extend(shares.iter().scan(0, |end, share| {
            *end += share;
            Some(*end)
        }));
        Layout::divided(codec, bounds, teams)
    }

    fn divided(codec: &dyn Codec, bounds: Vec<usize>, teams: Teams) -> Layout {
        let share = bounds.windows(2).map(|bounds| bounds[1] - bounds[0]).max().unwrap_or(0);
        let (first_piece, piece) = if codec.measures() {
            (share, share)
        } else {
            let aim = if teams.has_members() { PIECES_AIM_OF_TEAMS } else { PIECES_AIM };
            let piece = (share / aim).clamp(PIECE_ELEMENTS_MIN, PIECE_ELEMENTS_MAX);
            let block = codec.block();
            (FIRST_PIECE_ELEMENTS.next_multiple_of(block), piece.next_multiple_of(block))
        };
        let pieces = 1 + share.saturating_sub(first_piece).div_ceil(piece.max(1));
        let (ranks, padded) = (bounds.len() - 1, bounds.last().copied().unwrap_or_default());
        Layout { elements: padded, padded, ranks, bounds, first_piece, piece, pieces, teams }
    }

    /// The elements that `owner` sums.
    pub(crate) fn share(&self, owner: usize) -> Range<usize> {
        self.bounds[owner]..self.bounds[owner + 1]
    }

    /// Whether a rank sums nothing while others have several pieces.
    pub(crate) fn has_idle_owner(&self) -> bool {
        self.pieces > 1 && (0..self.ranks).any(|owner| self.share(owner).is_empty())
    }

    /// Piece `piece` of that; empty behind the end.
    pub(crate) fn piece(&self, piece: usize, owner: usize) -> Range<usize> {
        let share = self.share(owner);
        let at = |piece: usize| match piece.checked_sub(1) {
            None => share.start,
            Some(others) => (share.start + self.first_piece + others * self.piece).min(share.end),
        };
        at(piece).min(share.end)..at(piece + 1).min(share.end)
    }

    /// The parts that `rank` encodes, in the order of the elements. Its residuals are kept in this order.
    pub(crate) fn collected(&self, rank: usize) -> impl Iterator<Item = Part> + '_ {
        self.teams.owners(rank).flat_map(move |owner| self.pieces_of(owner))
    }

    /// The parts that `owner` sums, in the order of the elements.
    pub(crate) fn pieces_of(&self, owner: usize) -> impl Iterator<Item = Part> + '_ {
        (0..self.pieces).map(move |piece| Part { piece, owner, elements: self.piece(piece, owner) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bf16, Int8, SignL1, SignRms};

    fn is_covered(layout: &Layout, parts: impl Iterator<Item = Part>) {
        let mut at = 0;
        for part in parts.filter(|part| !part.elements.is_empty()) {
            assert_eq!(part.elements.start, at, "{layout:?}");
            at = part.elements.end;
        }
        assert_eq!(at, layout.padded);
    }

    #[test]
    fn pieces_of_shares_are_the_vector_and_begin_at_blocks() {
        let codecs: [&dyn Codec; 5] =
            [&SignL1::default(), &SignRms::default(), &SignRms::deepspeed(), &Int8::default(), &Bf16];
        for codec in codecs {
            for ranks in 1..=9 {
                for elements in (0..200).chain([1023, 1024, 1025, 70_000, 1_000_003, 40_000_000]) {
                    let layout = Layout::even(codec, elements, ranks, Teams::alone(ranks));
                    assert!(layout.padded >= elements && layout.pieces >= 1);
                    is_covered(&layout, (0..ranks).flat_map(|owner| layout.pieces_of(owner)));
                    is_covered(&layout, layout.collected(ranks - 1));
                    for part in layout.collected(0).filter(|part| !part.elements.is_empty()) {
                        let start = part.elements.start;
                        assert!(layout.padded > elements || start.is_multiple_of(codec.block()));
                    }
                }
            }
        }
    }

    #[test]
    fn a_team_collects_all_and_each_owner_hears_of_each_team_once() {
        for hosts in [&[0, 0, 1, 1][..], &[0, 1, 0, 1], &[5, 5, 5, 2], &[3, 3, 3], &[0, 1, 1, 2, 2, 2]] {
            let teams = Teams::of(hosts);
            let shares: Vec<usize> = (0..hosts.len()).map(|rank| 1000 * rank).collect();
            let layout = Layout::of_shares(&Int8::default(), &shares, teams.clone());
            for rank in 0..hosts.len() {
                let team = teams.team(rank);
                let mut parts: Vec<Part> = team.iter().flat_map(|rank| layout.collected(*rank)).collect();
                parts.sort_by_key(|part| (part.elements.start, part.piece));
                is_covered(&layout, parts.into_iter());
                assert!(teams.collects(rank, rank), "a rank sums its own share in its team");
                let senders: Vec<usize> = teams.senders(rank).collect();
                let mut hosts_of: Vec<u32> = senders.iter().map(|sender| hosts[*sender]).collect();
                hosts_of.sort_unstable();
                hosts_of.dedup();
                let count = hosts.iter().collect::<std::collections::BTreeSet<_>>().len();
                assert_eq!((hosts_of.len(), senders.len()), (count, count), "{hosts:?}");
            }
        }
    }
}
