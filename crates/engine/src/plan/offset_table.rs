//! The offset table of a call: where its chunks lie. It gives a schedule's extents their offsets and lengths.
//!
//! All lengths and offsets are in elements. Uneven sizes, counts below the number of ranks, and 0 need no special case.

use unisono_communicator::{Collective, Counts, Descriptor, Group, Place};

/// The offset table of one call on one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OffsetTable {
    /// The vector, cut into equal chunks: all_reduce, reduce, broadcast, scan, exscan.
    Cut {
        /// The number of elements of the vector.
        count: u64,
        /// The number of chunks. Chunk c is `[count c / chunks, count (c+1) / chunks)`.
        chunks: u64,
    },
    /// A share for each rank: reduce_scatter, all_gather, gather, scatter. Extent r cut + c is chunk c of share r.
    Shares {
        /// The number of chunks of a share.
        cut: u64,
        /// Share r is `[offsets[r], offsets[r+1])`.
        offsets: Vec<u64>,
        /// Whether this rank's input holds all shares, or only its own share (at 0).
        whole_input: bool,
        /// Whether this rank's output holds all shares, or only its own share (at 0).
        whole_output: bool,
    },
    /// A part for each ordered pair of ranks: all_to_all. Extent (i p + j) cut + c is chunk c of the part from i to j.
    Pairs {
        /// The number of chunks of a part.
        cut: u64,
        /// The part for rank j is `[send[j], send[j+1])` of the input.
        send: Vec<u64>,
        /// The part from rank i is `[receive[i], receive[i+1])` of the output.
        receive: Vec<u64>,
        /// This rank.
        rank: u64,
    },
    /// One byte that says "I am here": barrier.
    Token,
}

impl OffsetTable {
    /// The table of a `collective` on this rank of `group`, for an algorithm with `chunks` extents.
    pub(crate) fn new(
        collective: Collective,
        descriptor: &Descriptor,
        counts: &Counts,
        group: &Group,
        chunks: u32,
    ) -> OffsetTable {
        let ranks = u64::from(group.size());
        let at_root = descriptor.root == Some(group.rank());
        let in_place = descriptor.place == Place::InPlace;
        let shares = |whole_input, whole_output| {
            let list = match counts {
                Counts::PerRank(list) => list.clone(),
                Counts::Even | Counts::PerPair { .. } => vec![descriptor.count; ranks as usize],
            };
            let cut = (u64::from(chunks) / ranks).max(1);
            OffsetTable::Shares { cut, offsets: prefix_sums(&list), whole_input, whole_output }
        };
        match collective {
            Collective::AllReduce
            | Collective::Reduce
            | Collective::Broadcast
            | Collective::Scan
            | Collective::Exscan => OffsetTable::Cut { count: descriptor.count, chunks: u64::from(chunks) },
            Collective::ReduceScatter => shares(true, in_place),
            Collective::AllGather => shares(in_place, true),
            Collective::Gather => shares(in_place && at_root, true),
            Collective::Scatter => shares(true, in_place && at_root),
            Collective::AllToAll => {
                let even = || vec![descriptor.count; ranks as usize];
                let (send, receive) = match counts {
                    Counts::PerPair { send, receive } => (send.clone(), receive.clone()),
                    Counts::Even | Counts::PerRank(_) => (even(), even()),
                };
                OffsetTable::Pairs {
                    cut: (u64::from(chunks) / (ranks * ranks)).max(1),
                    send: prefix_sums(&send),
                    receive: prefix_sums(&receive),
                    rank: u64::from(group.rank()),
                }
            }
            Collective::Barrier => OffsetTable::Token,
        }
    }

    /// The number of elements of an extent.
    pub(crate) fn length(&self, extent: u32) -> u64 {
        let (part, nth, cuts) = self.part(extent);
        let whole = match self {
            OffsetTable::Cut { count, .. } => *count,
            OffsetTable::Shares { offsets, .. } => offsets[part + 1] - offsets[part],
            OffsetTable::Pairs { send, receive, rank, .. } => match self.pair(part) {
                (from, to) if from as u64 == *rank => send[to + 1] - send[to],
                (from, _) => receive[from + 1] - receive[from],
            },
            OffsetTable::Token => 1,
        };
        cut(whole, cuts, nth + 1) - cut(whole, cuts, nth)
    }

    /// The start of an extent in the input.
    pub(crate) fn input_offset(&self, extent: u32) -> u64 {
        let (part, nth, cuts) = self.part(extent);
        match self {
            OffsetTable::Cut { count, .. } => cut(*count, cuts, nth),
            OffsetTable::Shares { offsets, whole_input, .. } => {
                let start = if *whole_input { offsets[part] } else { 0 };
                start + cut(offsets[part + 1] - offsets[part], cuts, nth)
            }
            OffsetTable::Pairs { send, .. } => {
                let (_, to) = self.pair(part);
                send[to] + cut(send[to + 1] - send[to], cuts, nth)
            }
            OffsetTable::Token => 0,
        }
    }

    /// The start of an extent in the output.
    pub(crate) fn output_offset(&self, extent: u32) -> u64 {
        let (part, nth, cuts) = self.part(extent);
        match self {
            OffsetTable::Cut { count, .. } => cut(*count, cuts, nth),
            OffsetTable::Shares { offsets, whole_output, .. } => {
                let start = if *whole_output { offsets[part] } else { 0 };
                start + cut(offsets[part + 1] - offsets[part], cuts, nth)
            }
            OffsetTable::Pairs { receive, .. } => {
                let (from, _) = self.pair(part);
                receive[from] + cut(receive[from + 1] - receive[from], cuts, nth)
            }
            OffsetTable::Token => 0,
        }
    }

    /// The share or part of an extent, the extent's number in it, and its number of extents.
    fn part(&self, extent: u32) -> (usize, u64, u64) {
        let extent = u64::from(extent);
        match self {
            OffsetTable::Cut { chunks, .. } => (0, extent, *chunks),
            OffsetTable::Shares { cut, .. } | OffsetTable::Pairs { cut, .. } => {
                ((extent / cut) as usize, extent % cut, *cut)
            }
            // Each token of an algorithm is one byte, for any number of tokens.
            OffsetTable::Token => (0, 0, 1),
        }
    }

    /// The sender and the receiver of a part.
    fn pair(&self, part: usize) -> (usize, usize) {
        let ranks = match self {
            OffsetTable::Pairs { send, .. } => send.len() - 1,
            OffsetTable::Cut { .. } | OffsetTable::Shares { .. } | OffsetTable::Token => 1,
        };
        (part / ranks, part % ranks)
    }
}

/// The number of elements of the full vector: the larger of one rank's input and output. `None` if counts differ by
/// rank.
pub(crate) fn vector_elements(
    collective: Collective,
    count: u64,
    counts: &Counts,
    ranks: u32,
) -> Option<u64> {
    match (collective, counts) {
        // Ranks with different lists must choose the same algorithm, else they would not meet and find the difference.
        (_, Counts::PerRank(_) | Counts::PerPair { .. }) => None,
        (
            Collective::ReduceScatter
            | Collective::AllGather
            | Collective::Gather
            | Collective::Scatter
            | Collective::AllToAll,
            Counts::Even,
        ) => Some(count.saturating_mul(u64::from(ranks))),
        (
            Collective::AllReduce
            | Collective::Reduce
            | Collective::Broadcast
            | Collective::Barrier
            | Collective::Scan
            | Collective::Exscan,
            Counts::Even,
        ) => Some(count),
    }
}

/// The start of chunk `c`: `count c / chunks`, without overflow.
fn cut(count: u64, chunks: u64, c: u64) -> u64 {
    (u128::from(count) * u128::from(c) / u128::from(chunks)) as u64
}

fn prefix_sums(list: &[u64]) -> Vec<u64> {
    let mut sum = 0;
    let mut offsets = Vec::with_capacity(list.len() + 1);
    offsets.push(0);
    for length in list {
        sum += length;
        offsets.push(sum);
    }
    offsets
}

#[cfg(test)]
mod tests {
    use unisono_communicator::DType;

    use super::*;

    #[test]
    fn chunks_cover_any_count_without_a_gap() {
        for count in [0, 1, 2, 3, 7, 64, 1_000_003] {
            for chunks in [1, 2, 3, 5, 8] {
                let table = OffsetTable::Cut { count, chunks };
                let mut end = 0;
                for chunk in 0..chunks as u32 {
                    assert_eq!(table.input_offset(chunk), end);
                    end += table.length(chunk);
                }
                assert_eq!(end, count);
            }
        }
    }

    #[test]
    fn pairs_know_their_own_row_and_column() {
        let group = Group::world(1, 3);
        let counts = Counts::PerPair { send: vec![1, 2, 3], receive: vec![4, 2, 6] };
        let descriptor = Descriptor { uneven: true, ..Descriptor::new(Collective::AllToAll, DType::U8, 6) };
        let table = OffsetTable::new(Collective::AllToAll, &descriptor, &counts, &group, 9);
        assert_eq!((table.length(5), table.input_offset(5)), (3, 3));
        assert_eq!((table.length(7), table.output_offset(7)), (6, 6));
        assert_eq!((table.length(4), table.input_offset(4), table.output_offset(4)), (2, 1, 4));
    }

    #[test]
    fn shares_are_cut_further() {
        let group = Group::world(1, 3);
        let counts = Counts::PerRank(vec![4, 5, 0]);
        let descriptor = Descriptor { uneven: true, ..Descriptor::new(Collective::AllGather, DType::U8, 5) };
        let table = OffsetTable::new(Collective::AllGather, &descriptor, &counts, &group, 6);
        let places = |extent| (table.length(extent), table.input_offset(extent), table.output_offset(extent));
        assert_eq!([2, 3].map(places), [(2, 0, 4), (3, 2, 6)]);
        assert_eq!([0, 1, 4, 5].map(|extent| table.length(extent)), [2, 2, 0, 0]);
        let counts = Counts::PerPair { send: vec![1, 2, 3], receive: vec![4, 2, 6] };
        let descriptor = Descriptor { operation: Collective::AllToAll.into(), ..descriptor };
        let table = OffsetTable::new(Collective::AllToAll, &descriptor, &counts, &group, 18);
        // The second halves of the parts from rank 1 to rank 2 and from rank 2 to rank 1.
        assert_eq!((table.length(11), table.input_offset(11)), (2, 4));
        assert_eq!((table.length(15), table.output_offset(15)), (3, 9));
    }
}
