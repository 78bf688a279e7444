//! The lengths of a call besides its count: of coalesced segments, or per rank. A call keeps the first few for errors,
//! and sends them to other ranks.

use crate::elements::dtype::DType;

/// Element counts per rank, for the calls whose counts differ by rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Counts {
    /// The descriptor's count holds for every rank.
    #[default]
    Even,
    /// The share of each rank, for all_gather_v, reduce_scatter_v, gather_v and scatter_v; the same list on every rank.
    PerRank(Vec<u64>),
    /// The elements that this rank sends to and receives from each rank, for all_to_all_v.
    PerPair {
        /// Elements to each rank.
        send: Vec<u64>,
        /// Elements from each rank.
        receive: Vec<u64>,
    },
}

/// The sum of a list, at most the greatest number.
pub(crate) fn total(list: &[u64]) -> u64 {
    list.iter().fold(0, |sum, &count| sum.saturating_add(count))
}

/// The number of lengths of a list that are kept.
pub const LENGTHS_KNOWN_MAX: usize = 64;

const DIGEST_START: u64 = 0xcbf2_9ce4_8422_2325;

/// Odd, with well-mixed bits: the fraction of the golden ratio.
const DIGEST_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Brings the high bits of a product down, where the next length is.
const DIGEST_TURN: u32 = 32;

/// A list of lengths in elements; only the first [`LENGTHS_KNOWN_MAX`] are kept, and a digest of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LengthList {
    known: Vec<u64>,
    count: u64,
    digest: u64,
}

impl LengthList {
    /// A list, of which the first [`LENGTHS_KNOWN_MAX`] lengths are kept.
    pub fn new(lengths: impl ExactSizeIterator<Item = u64>) -> LengthList {
        let (count, mut digest) = (lengths.len(), DIGEST_START);
        let mut known = Vec::with_capacity(count.min(LENGTHS_KNOWN_MAX));
        for length in lengths {
            if known.len() < LENGTHS_KNOWN_MAX {
                known.push(length);
            }
            digest = (digest ^ length).wrapping_mul(DIGEST_FACTOR).rotate_left(DIGEST_TURN);
        }
        LengthList { known, count: count as u64, digest }
    }

    /// A list of `count` lengths that begins with `known` and has this digest. `None` when `known` has too few or too
    /// many lengths.
    pub fn from_known(known: Vec<u64>, count: u64, digest: u64) -> Option<LengthList> {
        let is_whole = known.len() as u64 == count.min(LENGTHS_KNOWN_MAX as u64);
        is_whole.then_some(LengthList { known, count, digest })
    }

    /// The first lengths.
    pub fn known(&self) -> &[u64] {
        &self.known
    }

    /// The number of lengths, the forgotten ones included.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// A digest of all lengths.
    pub fn digest(&self) -> u64 {
        self.digest
    }
}

/// The lengths that a call has besides its count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Lengths of the segments of a coalesced call.
    Segments(LengthList),
    /// Lengths of the ranks' shares.
    PerRank(LengthList),
    /// Lengths that this rank sends to and receives from each rank.
    PerPair {
        /// To each rank.
        send: LengthList,
        /// From each rank.
        receive: LengthList,
    },
}

impl Sizes {
    /// The lengths of a call with these counts. `segment_ends` are the ends of coalesced segments, in bytes; the counts
    /// of such a call follow from them. `None` when the descriptor's count says all.
    pub fn of(dtype: DType, counts: &Counts, segment_ends: Option<&[usize]>) -> Option<Sizes> {
        let list = |counts: &[u64]| LengthList::new(counts.iter().copied());
        if let Some(ends) = segment_ends {
            let start = |index: usize| index.checked_sub(1).map_or(0, |before| ends[before]);
            let length = |index| ((ends[index] - start(index)) / dtype.bytes()) as u64;
            return Some(Sizes::Segments(LengthList::new((0..ends.len()).map(length))));
        }
        match counts {
            Counts::PerRank(counts) => Some(Sizes::PerRank(list(counts))),
            Counts::PerPair { send, receive } => {
                Some(Sizes::PerPair { send: list(send), receive: list(receive) })
            }
            Counts::Even => None,
        }
    }

    /// A digest of all lengths.
    pub fn digest(&self) -> u64 {
        match self {
            Sizes::Segments(list) | Sizes::PerRank(list) => list.digest(),
            Sizes::PerPair { send, receive } => send.digest() ^ receive.digest().rotate_left(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_between_the_ends() {
        let of = |ends: &[usize]| match Sizes::of(DType::F32, &Counts::Even, Some(ends)) {
            Some(Sizes::Segments(list)) => (list.known().to_vec(), list.count()),
            other => panic!("{other:?}"),
        };
        assert_eq!(of(&[16, 16, 24]), (vec![4, 0, 2], 3));
        assert_eq!(of(&[]), (vec![], 0));
        let ends: Vec<usize> = (1..=100).map(|index| index * 4).collect();
        assert_eq!(of(&ends), (vec![1; LENGTHS_KNOWN_MAX], 100));
        assert_eq!(Sizes::of(DType::F32, &Counts::Even, None), None);
    }

    #[test]
    fn only_lists_of_what_is_remembered_are_taken() {
        assert!(LengthList::from_known(vec![1, 2], 2, 0).is_some());
        assert!(LengthList::from_known(vec![1; LENGTHS_KNOWN_MAX], 1000, 0).is_some());
        assert!(LengthList::from_known(vec![1, 2], 3, 0).is_none());
        assert!(LengthList::from_known(vec![1, 2], 1, 0).is_none());
    }

    #[test]
    fn lists_that_differ_beyond_what_is_kept_are_unequal() {
        let list = |odd: usize| LengthList::new((0..100).map(|index| u64::from(index == odd)));
        assert_eq!(list(99), list(99));
        assert_ne!(list(99), list(98));
        assert_eq!(list(99).known(), list(98).known());
    }
}
