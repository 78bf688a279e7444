//! The operations a bench can measure: their names, the count of a size, and the meaning of bandwidth for each.

use std::fmt;
use std::str::FromStr;

use unisono::Collective;
use unisono::comms_log::{Bandwidth, shares};
use unisono::extend::calls::Operation;

/// An operation that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MeasuredOperation {
    /// One collective call.
    Collective(Collective),
    /// Ranks 2k and 2k + 1 send a message there and back; the time is one way's. A rank without a partner is idle.
    SendRecv,
}

const SENDRECV: &str = "sendrecv";

impl MeasuredOperation {
    /// Every operation, in the order of reports.
    pub(crate) fn all() -> impl Iterator<Item = MeasuredOperation> {
        Collective::ALL.into_iter().map(MeasuredOperation::Collective).chain([MeasuredOperation::SendRecv])
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            MeasuredOperation::Collective(collective) => collective.name(),
            MeasuredOperation::SendRecv => SENDRECV,
        }
    }

    pub(crate) fn collective(self) -> Option<Collective> {
        match self {
            MeasuredOperation::Collective(collective) => Some(collective),
            MeasuredOperation::SendRecv => None,
        }
    }

    pub(crate) fn reduces(self) -> bool {
        self.collective().is_some_and(Collective::reduces)
    }

    pub(crate) fn is_rooted(self) -> bool {
        self.collective().is_some_and(Collective::is_rooted)
    }

    /// Whether the operation has a size.
    pub(crate) fn has_size(self) -> bool {
        self != MeasuredOperation::Collective(Collective::Barrier)
    }

    /// The operation of which S and bandwidth are defined.
    fn operation(self) -> Operation {
        match self {
            MeasuredOperation::Collective(collective) => collective.into(),
            MeasuredOperation::SendRecv => Operation::Send,
        }
    }

    /// The number of shares of `count` elements in the larger of a rank's two buffers: this buffer is the size of a
    /// row.
    pub(crate) fn shares(self, ranks: u32) -> u64 {
        shares(self.operation(), ranks)
    }

    /// Elements per share for a row of about `bytes` bytes, never more.
    pub(crate) fn count(self, bytes: u64, element_bytes: usize, ranks: u32) -> u64 {
        if self.has_size() { bytes / element_bytes as u64 / self.shares(ranks) } else { 0 }
    }

    /// The bandwidth of `bytes` in `seconds`, as the communication log has it.
    pub(crate) fn bandwidth(self, ranks: u32, bytes: u64, seconds: f64) -> Bandwidth {
        Bandwidth::of(self.operation(), ranks, bytes as f64, seconds)
    }
}

impl fmt::Display for MeasuredOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for MeasuredOperation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        MeasuredOperation::all().find(|operation| operation.name() == text).ok_or_else(|| {
            let names: Vec<_> = MeasuredOperation::all().map(MeasuredOperation::name).collect();
            format!("unknown operation {text:?}, one of: {}", names.join(", "))
        })
    }
}

/// An operation that the program can be asked to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BenchOperation {
    /// A call that a descriptor describes.
    Measured(MeasuredOperation),
    /// A call that sends encoded elements.
    Compressed(CompressedOperation),
}

/// The compressed calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompressedOperation {
    AllReduce,
    ReduceScatter,
}

impl CompressedOperation {
    pub(crate) const ALL: [CompressedOperation; 2] =
        [CompressedOperation::AllReduce, CompressedOperation::ReduceScatter];

    pub(crate) fn name(self) -> &'static str {
        match self {
            CompressedOperation::AllReduce => "compressed_all_reduce",
            CompressedOperation::ReduceScatter => "compressed_reduce_scatter",
        }
    }

    /// The exact call.
    pub(crate) fn like(self) -> Collective {
        match self {
            CompressedOperation::AllReduce => Collective::AllReduce,
            CompressedOperation::ReduceScatter => Collective::ReduceScatter,
        }
    }
}

impl BenchOperation {
    /// Every operation that can be asked for.
    pub(crate) fn all() -> impl Iterator<Item = BenchOperation> {
        let compressed = CompressedOperation::ALL.into_iter().map(BenchOperation::Compressed);
        MeasuredOperation::all().map(BenchOperation::Measured).chain(compressed)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            BenchOperation::Measured(operation) => operation.name(),
            BenchOperation::Compressed(operation) => operation.name(),
        }
    }

    /// The collective whose algorithms can be chosen.
    pub(crate) fn collective(self) -> Option<Collective> {
        match self {
            BenchOperation::Measured(operation) => operation.collective(),
            BenchOperation::Compressed(_) => None,
        }
    }

    /// The operation that gives it the meaning of its size and its bandwidth.
    pub(crate) fn like(self) -> MeasuredOperation {
        match self {
            BenchOperation::Measured(operation) => operation,
            BenchOperation::Compressed(operation) => MeasuredOperation::Collective(operation.like()),
        }
    }
}

impl fmt::Display for BenchOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for BenchOperation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(operation) = CompressedOperation::ALL.into_iter().find(|known| known.name() == text) {
            return Ok(BenchOperation::Compressed(operation));
        }
        let names = CompressedOperation::ALL.map(CompressedOperation::name).join(", ");
        let unknown = |answer| format!("{answer}, {names}");
        text.parse().map(BenchOperation::Measured).map_err(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(name: &str) -> MeasuredOperation {
        name.parse().unwrap()
    }

    #[test]
    fn sizes_round_down_to_whole_elements_per_rank() {
        assert_eq!(operation("all_reduce").count(1003, 4, 3), 250);
        assert_eq!(operation("all_gather").count(1003, 4, 3), 83);
        assert_eq!(operation("all_to_all").count(8, 4, 3), 0);
        assert_eq!(operation("barrier").count(1 << 20, 4, 3), 0);
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let answer = "allreduce".parse::<MeasuredOperation>().unwrap_err();
        assert!(MeasuredOperation::all().all(|operation| answer.contains(operation.name())), "{answer}");
        assert!("send".parse::<MeasuredOperation>().is_err());
        let answer = "compressed".parse::<BenchOperation>().unwrap_err();
        assert!(answer.ends_with("sendrecv, compressed_all_reduce, compressed_reduce_scatter"), "{answer}");
    }
}
