//! The lengths that a call has besides its count: of coalesced segments, or counts that differ by rank. Remembered and
//! sent to other ranks up to a bound, so that errors can show them.

use crate::buffer::Buffers;
use crate::call::Counts;
use crate::dtype::DType;

/// How many lengths of a list are remembered.
pub const LENGTHS_KNOWN_MAX: usize = 64;

/// Lists up to this long are shown whole.
const LENGTHS_SHOWN_MAX: usize = 12;

/// A list of lengths in elements, of which the first [`LENGTHS_KNOWN_MAX`] are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LengthList {
    known: Vec<u64>,
    count: u64,
}

impl LengthList {
    /// The list, of which as many are kept as are remembered.
    pub fn new(lengths: impl ExactSizeIterator<Item = u64>) -> LengthList {
        let count = lengths.len() as u64;
        LengthList { known: lengths.take(LENGTHS_KNOWN_MAX).collect(), count }
    }

    /// A list of `count` lengths that begins with `known`. `None` when these are more, or not as many as are
    /// remembered.
    pub fn from_known(known: Vec<u64>, count: u64) -> Option<LengthList> {
        let is_whole = known.len() as u64 == count.min(LENGTHS_KNOWN_MAX as u64);
        is_whole.then_some(LengthList { known, count })
    }

    /// The first lengths.
    pub fn known(&self) -> &[u64] {
        &self.known
    }

    /// How many lengths there are, the forgotten ones included.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// In what two lists differ, as far as they are known: "[4, 2] / [2, 4]".
    fn difference(&self, theirs: &LengthList) -> Option<String> {
        if self == theirs {
            return None;
        }
        if self.count.max(theirs.count) <= LENGTHS_SHOWN_MAX as u64 {
            return Some(format!("{:?} / {:?}", self.known, theirs.known));
        }
        let counts = format!("of {} / {}", self.count, theirs.count);
        let mut pairs = self.known.iter().zip(&theirs.known);
        Some(match pairs.position(|(ours, theirs)| ours != theirs) {
            Some(first) => {
                format!("{} / {} at position {first} {counts}", self.known[first], theirs.known[first])
            }
            None => counts,
        })
    }
}

/// The lengths that a call has besides its count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Of the segments of a coalesced call.
    Segments(LengthList),
    /// Of each rank's share.
    PerRank(LengthList),
    /// Of what this rank sends to and receives from each rank.
    PerPair {
        /// To each rank.
        send: LengthList,
        /// From each rank.
        receive: LengthList,
    },
}

impl Sizes {
    /// Those of a call with these counts, or with coalesced segments that end at these bytes; `None` when its count
    /// says all.
    pub fn of(dtype: DType, counts: &Counts, segment_ends: Option<&[usize]>) -> Option<Sizes> {
        let list = |counts: &[u64]| LengthList::new(counts.iter().copied());
        match counts {
            Counts::PerRank(counts) => Some(Sizes::PerRank(list(counts))),
            Counts::PerPair { send, receive } => {
                Some(Sizes::PerPair { send: list(send), receive: list(receive) })
            }
            Counts::Even => {
                let ends = segment_ends?;
                let start = |index: usize| index.checked_sub(1).map_or(0, |before| ends[before]);
                let length = |index| ((ends[index] - start(index)) / dtype.bytes()) as u64;
                Some(Sizes::Segments(LengthList::new((0..ends.len()).map(length))))
            }
        }
    }

    /// In what the segments of two calls of one count differ; a call that is not coalesced has one.
    pub fn segments_difference(count: u64, ours: Option<&Sizes>, theirs: Option<&Sizes>) -> Option<String> {
        let whole = LengthList { known: vec![count], count: 1 };
        let text = segments(ours, &whole)?.difference(segments(theirs, &whole)?)?;
        Some(format!("segment lengths {text}"))
    }

    /// In what the uneven counts of ours, on rank `own`, and of theirs, on rank `other`, differ: whole lists where
    /// every rank gives the whole list, else what the two have for each other.
    pub fn counts_difference(&self, theirs: &Sizes, own: u32, other: u32) -> Option<String> {
        match (self, theirs) {
            (Sizes::PerRank(ours), Sizes::PerRank(theirs)) => {
                ours.difference(theirs).map(|text| format!("counts {text}"))
            }
            (
                Sizes::PerPair { send: our_send, receive: our_receive },
                Sizes::PerPair { send: their_send, receive: their_receive },
            ) => {
                let pairs = [(own, other, our_send, their_receive), (other, own, our_receive, their_send)];
                pairs.into_iter().find_map(|(from, to, ours, theirs)| {
                    let ours = ours.known.get(other as usize)?;
                    let theirs = theirs.known.get(own as usize)?;
                    (ours != theirs)
                        .then(|| format!("counts from rank {from} to rank {to} {ours} / {theirs}"))
                })
            }
            (Sizes::Segments(_) | Sizes::PerRank(_) | Sizes::PerPair { .. }, _) => None,
        }
    }
}

/// The segments of a call, or `whole`, its one.
fn segments<'a>(sizes: Option<&'a Sizes>, whole: &'a LengthList) -> Option<&'a LengthList> {
    match sizes {
        Some(Sizes::Segments(list)) => Some(list),
        None => Some(whole),
        Some(Sizes::PerRank(_) | Sizes::PerPair { .. }) => None,
    }
}

impl Buffers<'_> {
    /// Where the segments of a coalesced call end, in bytes. `None` for any other call, and for one segment, which is
    /// as good as none.
    pub fn segment_ends(&self) -> Option<&[usize]> {
        let (input, output) = match self {
            Buffers::InOut(buffer) => (None, buffer),
            Buffers::Separate { input, output } => (Some(input), output),
        };
        let ends = input.and_then(|input| input.coalesced_ends()).or_else(|| output.coalesced_ends());
        ends.filter(|ends| ends.len() != 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(dtype: DType, ends: &[usize]) -> Option<Sizes> {
        Sizes::of(dtype, &Counts::Even, Some(ends))
    }

    #[test]
    fn segments_are_compared_with_their_lengths() {
        let of = |ends: &[usize]| segments(DType::F32, ends);
        let difference = |count, ours: &Option<Sizes>, theirs: &Option<Sizes>| {
            Sizes::segments_difference(count, ours.as_ref(), theirs.as_ref())
        };
        let text = difference(6, &of(&[16, 24]), &of(&[8, 24]));
        assert_eq!(text.as_deref(), Some("segment lengths [4, 2] / [2, 4]"));
        assert_eq!(difference(6, &of(&[16, 24]), &of(&[16, 24])), None);
        let text = difference(6, &of(&[0, 24]), &None);
        assert_eq!(text.as_deref(), Some("segment lengths [0, 6] / [6]"));
        assert_eq!(difference(0, &of(&[]), &None).as_deref(), Some("segment lengths [] / [0]"));
    }

    #[test]
    fn long_lists_show_where_they_differ() {
        let long = |odd: usize| {
            let length = |index| if index == odd { 9 } else { 8 };
            LengthList::new((0..100).map(length).collect::<Vec<_>>().into_iter())
        };
        assert_eq!(long(0).known().len(), LENGTHS_KNOWN_MAX);
        let text = long(20).difference(&long(100));
        assert_eq!(text.as_deref(), Some("9 / 8 at position 20 of 100 / 100"));
        assert_eq!(long(99).difference(&long(100)), None, "beyond what is known");
        let shorter = LengthList::new([8; 90].into_iter());
        assert_eq!(long(99).difference(&shorter).as_deref(), Some("of 100 / 90"));
    }

    #[test]
    fn counts_of_pairs_are_those_that_two_ranks_have_for_each_other() {
        let of = |send: [u64; 2], receive: [u64; 2]| {
            let counts = Counts::PerPair { send: send.into(), receive: receive.into() };
            Sizes::of(DType::U8, &counts, None).unwrap()
        };
        let text = of([1, 5], [1, 3]).counts_difference(&of([3, 7], [6, 7]), 0, 1);
        assert_eq!(text.as_deref(), Some("counts from rank 0 to rank 1 5 / 6"));
        let text = of([1, 5], [1, 2]).counts_difference(&of([3, 7], [5, 7]), 0, 1);
        assert_eq!(text.as_deref(), Some("counts from rank 1 to rank 0 2 / 3"));
        assert_eq!(of([1, 5], [1, 3]).counts_difference(&of([3, 7], [5, 7]), 0, 1), None);
    }

    #[test]
    fn only_lists_of_what_is_remembered_are_taken() {
        assert!(LengthList::from_known(vec![1, 2], 2).is_some());
        assert!(LengthList::from_known(vec![1; LENGTHS_KNOWN_MAX], 1000).is_some());
        assert!(LengthList::from_known(vec![1, 2], 3).is_none());
        assert!(LengthList::from_known(vec![1, 2], 1).is_none());
    }
}
