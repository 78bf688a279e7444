//! Where the chunks of a call lie: the offset table that a schedule's extents are bound to at run time.
//!
//! All lengths and offsets are in elements. Sizes that do not divide, counts below the number of ranks and 0 need no
//! special case.

use unisono_communicator::{Collective, Counts, Descriptor, Group, Place};

/// The offset table of one call on one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OffsetTable {
    /// The whole vector cut into equal chunks: all_reduce, reduce, broadcast.
    Cut {
        /// Elements of the vector.
        count: u64,
        /// Chunks; chunk c is `[count c / chunks, count (c+1) / chunks)`.
        chunks: u64,
    },
    /// One share for each rank: reduce_scatter, all_gather, gather, scatter.
    Shares {
        /// Share r is `[offsets[r], offsets[r+1])`.
        offsets: Vec<u64>,
        /// Whether this rank's input holds all shares, or its own only (then at 0).
        whole_input: bool,
        /// Whether this rank's output holds all shares, or its own only (then at 0).
        whole_output: bool,
    },
    /// One part for each ordered pair of ranks: all_to_all. Extent i p + j is what i sends to j.
    Pairs {
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
    /// The table of a `collective` on this rank of `group`, for an algorithm that cuts the vector into `chunks`.
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
            OffsetTable::Shares { offsets: prefix_sums(&list), whole_input, whole_output }
        };
        match collective {
            Collective::AllReduce | Collective::Reduce | Collective::Broadcast => {
                OffsetTable::Cut { count: descriptor.count, chunks: u64::from(chunks) }
            }
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
                    send: prefix_sums(&send),
                    receive: prefix_sums(&receive),
                    rank: u64::from(group.rank()),
                }
            }
            Collective::Barrier => OffsetTable::Token,
        }
    }

    /// Elements of an extent.
    pub(crate) fn length(&self, extent: u32) -> u64 {
        let e = extent as usize;
        match self {
            OffsetTable::Cut { count, chunks } => {
                cut(*count, *chunks, u64::from(extent) + 1) - cut(*count, *chunks, u64::from(extent))
            }
            OffsetTable::Shares { offsets, .. } => offsets[e + 1] - offsets[e],
            OffsetTable::Pairs { send, receive, rank } => {
                let (from, to) = self.pair(extent);
                match from == *rank {
                    true => send[to as usize + 1] - send[to as usize],
                    false => receive[from as usize + 1] - receive[from as usize],
                }
            }
            OffsetTable::Token => 1,
        }
    }

    /// Where an extent starts in the input.
    pub(crate) fn input_offset(&self, extent: u32) -> u64 {
        match self {
            OffsetTable::Cut { count, chunks } => cut(*count, *chunks, u64::from(extent)),
            OffsetTable::Shares { offsets, whole_input: true, .. } => offsets[extent as usize],
            OffsetTable::Pairs { send, .. } => send[self.pair(extent).1 as usize],
            OffsetTable::Shares { whole_input: false, .. } | OffsetTable::Token => 0,
        }
    }

    /// Where an extent starts in the output.
    pub(crate) fn output_offset(&self, extent: u32) -> u64 {
        match self {
            OffsetTable::Cut { count, chunks } => cut(*count, *chunks, u64::from(extent)),
            OffsetTable::Shares { offsets, whole_output: true, .. } => offsets[extent as usize],
            OffsetTable::Pairs { receive, .. } => receive[self.pair(extent).0 as usize],
            OffsetTable::Shares { whole_output: false, .. } | OffsetTable::Token => 0,
        }
    }

    fn pair(&self, extent: u32) -> (u64, u64) {
        let ranks = match self {
            OffsetTable::Pairs { send, .. } => send.len() as u64 - 1,
            OffsetTable::Cut { .. } | OffsetTable::Shares { .. } | OffsetTable::Token => 1,
        };
        (u64::from(extent) / ranks, u64::from(extent) % ranks)
    }
}

/// Elements of the full vector, the larger of one rank's input and output; `None` when counts differ by rank.
pub(crate) fn vector_elements(
    collective: Collective,
    count: u64,
    counts: &Counts,
    ranks: u32,
) -> Option<u64> {
    match (collective, counts) {
        // Ranks with different lists must still meet, to find that they differ.
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
            Collective::AllReduce | Collective::Reduce | Collective::Broadcast | Collective::Barrier,
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
        let table = OffsetTable::new(Collective::AllToAll, &descriptor, &counts, &group, 3);
        assert_eq!((table.length(5), table.input_offset(5)), (3, 3));
        assert_eq!((table.length(7), table.output_offset(7)), (6, 6));
        assert_eq!((table.length(4), table.input_offset(4), table.output_offset(4)), (2, 1, 4));
    }
}
