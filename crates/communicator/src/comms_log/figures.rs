//! The figures of operations: the size S of a call, and bandwidths. The communication log and `unisono bench` share
//! them.
//!
//! The definitions come from nccl-tests (`doc/PERFORMANCE.md`): S is the larger buffer of a rank, the algorithm's
//! bandwidth (`algbw`) is S divided by the time, and the bus's (`busbw`) is this times a factor, which makes numbers of
//! ranks comparable: the load of the busiest link if the algorithm is the best.
//!
//! | operation | S, in elements | factor for n ranks |
//! | --- | --- | --- |
//! | all_reduce | count | 2 (n-1) / n |
//! | reduce_scatter, all_gather, gather, scatter | n count; uneven: the sum of the counts | (n-1) / n |
//! | all_to_all | n count; uneven: the larger one of the sums to and from all ranks | (n-1) / n |
//! | broadcast, reduce, send | count | 1 |
//! | recv | the elements that have come | 1 |
//! | barrier | 0 | 1 |
//!
//! n is the number of ranks of the group.

use unisono_schedule::Collective;

use crate::call::counts::{Counts, total};
use crate::call::descriptor::Descriptor;
use crate::call::operation::Operation;

const GIGABYTE: f64 = 1e9;

/// The number of shares in the size S of a call: 1, or one for each of the ranks.
///
/// ```
/// use unisono_communicator::{Collective, shares};
/// assert_eq!(shares(Collective::AllGather.into(), 8), 8);
/// assert_eq!(shares(Collective::AllReduce.into(), 8), 1);
/// ```
pub fn shares(operation: Operation, ranks: u32) -> u64 {
    match operation {
        Operation::Collective(collective) => match collective {
            Collective::ReduceScatter
            | Collective::AllGather
            | Collective::AllToAll
            | Collective::Gather
            | Collective::Scatter => u64::from(ranks),
            Collective::AllReduce
            | Collective::Broadcast
            | Collective::Reduce
            | Collective::Barrier
            | Collective::Scan
            | Collective::Exscan => 1,
        },
        Operation::Send | Operation::Recv => 1,
    }
}

/// The factor from `algbw` to `busbw`.
///
/// ```
/// use unisono_communicator::{Collective, busbw_factor};
/// assert_eq!(busbw_factor(Collective::AllReduce.into(), 4), 1.5);
/// ```
pub fn busbw_factor(operation: Operation, ranks: u32) -> f64 {
    let n = f64::from(ranks);
    match operation {
        Operation::Collective(collective) => match collective {
            Collective::AllReduce => 2.0 * (n - 1.0) / n,
            Collective::ReduceScatter
            | Collective::AllGather
            | Collective::AllToAll
            | Collective::Gather
            | Collective::Scatter => (n - 1.0) / n,
            Collective::Broadcast
            | Collective::Reduce
            | Collective::Barrier
            | Collective::Scan
            | Collective::Exscan => 1.0,
        },
        Operation::Send | Operation::Recv => 1.0,
    }
}

/// The size S of a call of a group with so many ranks, in bytes. Every rank of an uneven gather or scatter gives all
/// counts, so the root is not the only rank that knows their sum.
pub fn size_bytes(descriptor: &Descriptor, counts: &Counts, ranks: u32) -> u64 {
    let elements = match counts {
        Counts::Even => descriptor.count.saturating_mul(shares(descriptor.operation, ranks)),
        Counts::PerRank(counts) => total(counts),
        Counts::PerPair { send, receive } => total(send).max(total(receive)),
    };
    elements.saturating_mul(descriptor.dtype.bytes() as u64)
}

/// Bytes per second of calls of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Bandwidth {
    /// Bytes of the calls divided by their time, in units of 10^9 bytes per second.
    pub algbw_gb_per_s: f64,
    /// The same times the factor of the operation.
    pub busbw_gb_per_s: f64,
}

impl Bandwidth {
    /// The bandwidth of `bytes` in `seconds`; 0 for no time.
    ///
    /// ```
    /// use unisono_communicator::{Bandwidth, Collective};
    /// let bandwidth = Bandwidth::of(Collective::AllReduce.into(), 4, 2e9, 0.5);
    /// assert_eq!((bandwidth.algbw_gb_per_s, bandwidth.busbw_gb_per_s), (4.0, 6.0));
    /// ```
    pub fn of(operation: Operation, ranks: u32, bytes: f64, seconds: f64) -> Bandwidth {
        let algbw_gb_per_s = if seconds > 0.0 { bytes / seconds / GIGABYTE } else { 0.0 };
        Bandwidth { algbw_gb_per_s, busbw_gb_per_s: algbw_gb_per_s * busbw_factor(operation, ranks) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elements::dtype::DType;

    #[test]
    fn i3_the_factors_are_those_of_nccl_tests() {
        let expected = [
            ("all_reduce", 1.5, 1),
            ("reduce_scatter", 0.75, 4),
            ("all_gather", 0.75, 4),
            ("all_to_all", 0.75, 4),
            ("broadcast", 1.0, 1),
            ("reduce", 1.0, 1),
            ("gather", 0.75, 4),
            ("scatter", 0.75, 4),
            ("barrier", 1.0, 1),
            ("scan", 1.0, 1),
            ("exscan", 1.0, 1),
            ("send", 1.0, 1),
            ("recv", 1.0, 1),
        ];
        assert_eq!(expected.len(), Operation::all().count());
        for (name, factor, share) in expected {
            let operation = name.parse().unwrap();
            assert_eq!((busbw_factor(operation, 4), shares(operation, 4)), (factor, share), "{name}");
        }
        assert_eq!(busbw_factor(Collective::AllReduce.into(), 1), 0.0);
    }

    #[test]
    fn i3_the_size_is_by_the_group_and_counts_uneven_shares() {
        let size = |collective: Collective, counts: &Counts, count| {
            let uneven = *counts != Counts::Even;
            let root = collective.is_rooted().then_some(0);
            let descriptor = Descriptor { uneven, root, ..Descriptor::new(collective, DType::F32, count) };
            size_bytes(&descriptor, counts, 3)
        };
        assert_eq!(size(Collective::AllReduce, &Counts::Even, 10), 40);
        assert_eq!(size(Collective::AllGather, &Counts::Even, 10), 120);
        assert_eq!(size(Collective::Gather, &Counts::Even, 10), 120);
        assert_eq!(size(Collective::Barrier, &Counts::Even, 0), 0);
        let per_rank = Counts::PerRank(vec![1, 0, 4]);
        for collective in
            [Collective::AllGather, Collective::ReduceScatter, Collective::Gather, Collective::Scatter]
        {
            assert_eq!(size(collective, &per_rank, 0), 20, "{collective}");
        }
        let per_pair = Counts::PerPair { send: vec![1, 2, 3], receive: vec![0, 2, 7] };
        assert_eq!(size(Collective::AllToAll, &per_pair, 6), 36);
    }
}
