//! The bar: how many times faster than the best peer over the same medium, and than torch's Gloo, unisono is to be; and
//! what the figures say about it.

use unisono::Collective;
use unisono_compare::ComparedOperation;

use crate::plan::Cell;
use crate::systems::Role;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// From here on bandwidth is all that counts.
const LONG: u64 = 16 * MIB;

/// Peer time divided by our time, at least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bar {
    pub(crate) best_peer: f64,
    /// Over TCP only.
    pub(crate) torch: Option<f64>,
}

/// The bar of a row; none where it has none. `role` says over which medium ours runs, and with whose congestion
/// control.
pub(crate) fn bar(ranks: u32, cell: Cell, role: Role) -> Option<Bar> {
    if role == Role::OursMemory {
        let best_peer = wanted_through_memory(cell.operation, ranks, cell.bytes)?;
        return Some(Bar { best_peer, torch: None });
    }
    let (best_peer, torch) = match cell.operation {
        ComparedOperation::Collective(collective) => wanted(collective, ranks, cell.bytes, role)?,
        ComparedOperation::SendRecv if (ranks, cell.bytes) == (2, 64) => (1.15, 8.0),
        ComparedOperation::SendRecv => return None,
    };
    Some(Bar { best_peer, torch: Some(torch) })
}

/// The bar against the best peer through shared memory.
fn wanted_through_memory(operation: ComparedOperation, ranks: u32, bytes: u64) -> Option<f64> {
    let collective = match operation {
        ComparedOperation::Collective(collective) => collective,
        ComparedOperation::SendRecv => return (bytes >= MIB).then_some(1.2),
    };
    Some(match (collective, ranks, bytes) {
        (Collective::AllReduce, 2, ..=64) => 0.5,
        (Collective::AllReduce, 4, ..=64) => 0.6,
        (Collective::AllReduce, 8, ..=64) => 1.0,
        (Collective::AllReduce, 2, KIB) => 0.75,
        (Collective::AllReduce, 4, KIB) => 0.9,
        (Collective::AllReduce, 2 | 4, 16_384 | 262_144) => 1.1,
        (Collective::AllReduce, 2, MIB) => 1.15,
        (Collective::AllReduce, 4, MIB) => 1.1,
        (Collective::AllReduce, 8, MIB) => 0.9,
        (Collective::AllReduce, 2, LONG..) => 2.0,
        (Collective::AllReduce, 4, LONG..) => 1.5,
        (
            Collective::AllGather | Collective::Broadcast | Collective::ReduceScatter | Collective::AllToAll,
            2 | 4,
            MIB..,
        ) => 1.2,
        _ => return None,
    })
}

/// The two numbers of the bar of a collective.
fn wanted(collective: Collective, ranks: u32, bytes: u64, role: Role) -> Option<(f64, f64)> {
    Some(match (collective, ranks, bytes) {
        (Collective::AllReduce, 2, ..=KIB) => (1.3, 15.0),
        (Collective::AllReduce, 4, ..=KIB) => (1.35, 15.0),
        (Collective::AllReduce, 8, ..=KIB) => (1.5, 15.0),
        (Collective::AllReduce, 2, 16_384) => (1.2, 10.0),
        (Collective::AllReduce, 2, 262_144) => (1.1, 2.0),
        (Collective::AllReduce, 2, MIB) => (1.05, 1.5),
        (Collective::AllReduce, 4, 16_384) => (1.5, 10.0),
        (Collective::AllReduce, 4, 262_144) => (1.3, 4.0),
        (Collective::AllReduce, 4, MIB) => (1.05, 2.0),
        (Collective::AllReduce, 8, MIB) => (1.15, 3.0),
        (Collective::AllReduce, 2 | 4, LONG..) => match role {
            Role::OursSame => (1.2, 1.2),
            Role::OursOwn => (1.4, 1.45),
            Role::OursMemory | Role::Peer => return None,
        },
        (Collective::ReduceScatter | Collective::AllGather | Collective::Reduce, 2 | 4, LONG..) => (1.3, 1.5),
        (Collective::AllToAll, 2 | 4, LONG..) => (1.2, 1.2),
        (Collective::Broadcast, 2 | 4, LONG..) => (1.05, 1.05),
        (Collective::Barrier, 2, _) => (1.3, 8.0),
        _ => return None,
    })
}

/// What the figures say about a ratio that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The whole interval is at or above the bar.
    Holds,
    /// The median is, the lower end of the interval is not.
    HoldsInMedian,
    FallsShort,
    /// Too few good rounds, or no such peer.
    NotMeasured,
    /// Nothing is wanted here.
    NoBar,
}

impl Verdict {
    pub(crate) fn of(wanted: Option<f64>, ratio: Option<&Ratio>) -> Verdict {
        match (wanted, ratio) {
            (_, None) => Verdict::NotMeasured,
            (None, Some(_)) => Verdict::NoBar,
            (Some(bar), Some(ratio)) if ratio.low >= bar => Verdict::Holds,
            (Some(bar), Some(ratio)) if ratio.median >= bar => Verdict::HoldsInMedian,
            (Some(_), Some(_)) => Verdict::FallsShort,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::HoldsInMedian => "holds in the median",
            Verdict::FallsShort => "falls short",
            Verdict::NotMeasured => "not measured",
            Verdict::NoBar => "no bar",
        }
    }
}

/// The ratios of the good rounds, in short.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) min: f64,
    /// Of the interval of the median.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::cells;

    #[test]
    fn the_rows_have_their_bars() {
        let same = |ranks, collective, bytes| wanted(collective, ranks, bytes, Role::OursSame);
        assert_eq!(same(2, Collective::AllReduce, 64), Some((1.3, 15.0)));
        assert_eq!(same(4, Collective::AllReduce, KIB), Some((1.35, 15.0)));
        assert_eq!(same(8, Collective::AllReduce, MIB), Some((1.15, 3.0)));
        assert_eq!(same(4, Collective::AllReduce, 256 * KIB), Some((1.3, 4.0)));
        assert_eq!(same(2, Collective::AllReduce, 16 * MIB), Some((1.2, 1.2)));
        assert_eq!(wanted(Collective::AllReduce, 2, 16 * MIB, Role::OursOwn), Some((1.4, 1.45)));
        assert_eq!(same(4, Collective::Reduce, 64 * MIB), Some((1.3, 1.5)));
        assert_eq!(same(4, Collective::AllToAll, 64 * MIB), Some((1.2, 1.2)));
        assert_eq!(same(2, Collective::Barrier, 0), Some((1.3, 8.0)));
        assert_eq!(same(2, Collective::Broadcast, 16 * MIB), Some((1.05, 1.05)));
        assert_eq!(same(2, Collective::AllReduce, 4 * MIB), None);
    }

    #[test]
    fn everything_that_is_measured_has_a_bar() {
        for ranks in [2, 4, 8] {
            for cell in cells(ranks) {
                assert!(bar(ranks, cell, Role::OursSame).is_some(), "{cell} on {ranks}");
            }
        }
    }

    #[test]
    fn through_memory_the_bars_are_others() {
        let of = |collective, ranks, bytes| {
            let operation = ComparedOperation::Collective(collective);
            bar(ranks, Cell { operation, bytes }, Role::OursMemory).map(|bar| bar.best_peer)
        };
        assert_eq!(of(Collective::AllReduce, 2, 64), Some(0.5));
        assert_eq!(of(Collective::AllReduce, 4, 16 * MIB), Some(1.5));
        assert_eq!(of(Collective::Broadcast, 2, MIB), Some(1.2));
        assert_eq!(of(Collective::Reduce, 2, MIB), None);
    }

    #[test]
    fn a_verdict_is_about_the_interval() {
        let ratio = Ratio { median: 1.4, min: 1.0, low: 1.2, high: 1.6 };
        let of = |bar| Verdict::of(Some(bar), Some(&ratio));
        assert_eq!(
            [of(1.2), of(1.3), of(1.4), of(1.41)].map(Verdict::text),
            ["holds", "holds in the median", "holds in the median", "falls short"]
        );
        assert_eq!(Verdict::of(Some(0.1), None), Verdict::NotMeasured);
        assert_eq!(Verdict::of(None, Some(&ratio)), Verdict::NoBar);
    }
}
