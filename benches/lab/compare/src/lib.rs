//! What the program that drives the comparison and the rank of unisono that it measures have in common: the words they
//! speak over pipes. The ranks of the peers (`peers/turns.h`) speak them too.
//!
//! A started system has a folder with these files:
//!
//! | file | what it is |
//! | --- | --- |
//! | `command.R` | pipe to rank R: one [`Command`] per line; its end is the end of the rank |
//! | `reply` | pipe from the ranks: `ready VERSION` once, then one [`Reply`] per turn |
//! | `pid.R` | the process of rank R |
//! | `shared` | [`SHARED_BYTES`] zeros with which the ranks line up, outside of what is timed |

#![forbid(unsafe_code)]

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use unisono::Collective;

/// Size of the file with which ranks line up.
pub const SHARED_BYTES: u64 = 65536;

/// An operation that is compared, on f32. Its bytes say how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ComparedOperation {
    /// Bytes: the larger of a rank's two buffers; a barrier has none. An all-reduce is in place, a reduce where the
    /// system can. A root rotates.
    Collective(Collective),
    /// Half of a round trip between ranks 0 and 1. Bytes: the message.
    SendRecv,
}

impl ComparedOperation {
    /// Those that the programs of the peers know too, in the order of tables.
    pub fn all() -> impl Iterator<Item = ComparedOperation> {
        let of_peers = |collective: &Collective| {
            use Collective::{Exscan, Gather, Scan, Scatter};
            !matches!(collective, Gather | Scatter | Scan | Exscan)
        };
        let collectives = Collective::ALL.into_iter().filter(of_peers);
        collectives.map(ComparedOperation::Collective).chain([ComparedOperation::SendRecv])
    }

    /// As commands and tables write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ComparedOperation::Collective(collective) => collective.name(),
            ComparedOperation::SendRecv => "send_recv",
        }
    }

    /// What turns bytes per time into the bandwidth that the busiest link sees, as NCCL's tests define it.
    ///
    /// ```
    /// use unisono::Collective;
    /// use unisono_compare::ComparedOperation;
    /// assert_eq!(ComparedOperation::from(Collective::AllReduce).bus_factor(4), 1.5);
    /// assert_eq!(ComparedOperation::from(Collective::Broadcast).bus_factor(4), 1.0);
    /// ```
    #[must_use]
    pub fn bus_factor(self, ranks: u32) -> f64 {
        let others = f64::from(ranks - 1) / f64::from(ranks);
        match self {
            ComparedOperation::Collective(collective) => match collective {
                Collective::AllReduce => 2.0 * others,
                Collective::ReduceScatter
                | Collective::AllGather
                | Collective::AllToAll
                | Collective::Gather
                | Collective::Scatter => others,
                Collective::Broadcast
                | Collective::Reduce
                | Collective::Barrier
                | Collective::Scan
                | Collective::Exscan => 1.0,
            },
            ComparedOperation::SendRecv => 1.0,
        }
    }

    /// The unit of its bytes: whole elements, the same number for every rank where they are shared out.
    #[must_use]
    pub fn granularity_bytes(self, ranks: u32) -> u64 {
        match self {
            ComparedOperation::Collective(collective) => match collective {
                Collective::ReduceScatter
                | Collective::AllGather
                | Collective::AllToAll
                | Collective::Gather
                | Collective::Scatter => 4 * u64::from(ranks),
                Collective::AllReduce
                | Collective::Broadcast
                | Collective::Reduce
                | Collective::Scan
                | Collective::Exscan => 4,
                Collective::Barrier => 1,
            },
            ComparedOperation::SendRecv => 4,
        }
    }
}

impl From<Collective> for ComparedOperation {
    fn from(collective: Collective) -> ComparedOperation {
        ComparedOperation::Collective(collective)
    }
}

impl fmt::Display for ComparedOperation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for ComparedOperation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ComparedOperation::all().find(|operation| operation.name() == text).ok_or_else(|| {
            let names: Vec<_> = ComparedOperation::all().map(ComparedOperation::name).collect();
            format!("{text} is none of {}", names.join(", "))
        })
    }
}

impl TryFrom<String> for ComparedOperation {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ComparedOperation> for String {
    fn from(operation: ComparedOperation) -> String {
        operation.name().to_owned()
    }
}

/// One turn, as every rank is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Told back in the reply.
    pub id: u64,
    /// What to call.
    pub operation: ComparedOperation,
    /// How much, see [`ComparedOperation`].
    pub bytes: u64,
    /// How long a block of back-to-back calls should take.
    pub block_us: u64,
    /// How long all blocks together should take.
    pub budget_us: u64,
}

impl fmt::Display for Command {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Command { id, operation, bytes, block_us, budget_us } = self;
        write!(formatter, "{id} {operation} {bytes} {block_us} {budget_us}")
    }
}

impl FromStr for Command {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let problem = || format!("not a command: {line}");
        let [id, operation, bytes, block_us, budget_us] = words(line).ok_or_else(problem)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| problem());
        Ok(Command {
            id: number(id)?,
            operation: operation.parse()?,
            bytes: number(bytes)?,
            block_us: number(block_us)?,
            budget_us: number(budget_us)?,
        })
    }
}

/// What a system measured in one turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Median over the blocks of the time of a call.
    pub median_us: f64,
    /// The least of the blocks.
    pub min_us: f64,
    /// Blocks behind the median.
    pub blocks: u64,
    /// Calls in each block.
    pub calls: u64,
    /// Every element of the checked call's result was right on every rank.
    pub ok: bool,
}

/// A line of the pipe `reply`.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// All ranks are up and wait for commands; what runs here.
    Ready(String),
    /// The turn with this id.
    Measured(u64, Measured),
    /// A rank failed and is about to end.
    Failed(String),
}

impl fmt::Display for Reply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Ready(version) => write!(formatter, "ready {version}"),
            Reply::Failed(problem) => write!(formatter, "0 error {problem}"),
            Reply::Measured(id, Measured { median_us, min_us, blocks, calls, ok }) => {
                write!(formatter, "{id} {median_us:.4} {min_us:.4} {blocks} {calls} {}", u8::from(*ok))
            }
        }
    }
}

impl FromStr for Reply {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let problem = || format!("not a reply: {line}");
        if let Some(version) = line.strip_prefix("ready ") {
            return Ok(Reply::Ready(version.to_owned()));
        }
        if let Some((_, text)) = line.split_once(" error ") {
            return Ok(Reply::Failed(text.to_owned()));
        }
        let [id, median_us, min_us, blocks, calls, ok] = words(line).ok_or_else(problem)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| problem());
        let time = |text: &str| match text.parse::<f64>() {
            Ok(time) if time.is_finite() && time > 0.0 => Ok(time),
            _ => Err(problem()),
        };
        let measured = Measured {
            median_us: time(median_us)?,
            min_us: time(min_us)?,
            blocks: number(blocks)?,
            calls: number(calls)?,
            ok: number(ok)? == 1,
        };
        Ok(Reply::Measured(number(id)?, measured))
    }
}

fn words<const COUNT: usize>(line: &str) -> Option<[&str; COUNT]> {
    line.split_whitespace().collect::<Vec<_>>().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_replies_survive_the_pipe() {
        for operation in ComparedOperation::all() {
            let command = Command { id: 7, operation, bytes: 64, block_us: 5000, budget_us: 50000 };
            assert_eq!(command.to_string().parse(), Ok(command));
        }
        let measured = Measured { median_us: 5.25, min_us: 5.0, blocks: 10, calls: 900, ok: true };
        for reply in [
            Reply::Ready("Open MPI v5.0.11, package x".to_owned()),
            Reply::Measured(7, measured),
            Reply::Measured(8, Measured { ok: false, ..measured }),
            Reply::Failed("rank 1: gone".to_owned()),
        ] {
            assert_eq!(reply.to_string().parse(), Ok(reply));
        }
    }

    #[test]
    fn lines_that_are_cut_or_nonsense_are_refused() {
        for line in ["", "1 all_reduce 64 5000", "1 all_reduce 64 5000 1 2", "1 allreduce 64 1 1"] {
            assert!(line.parse::<Command>().is_err(), "{line}");
        }
        for line in ["", "1 2 3", "1 0 0 1 1 1", "1 -2 1 1 1 1", "1 nan 1 1 1 1", "1 2 1 1 1 1 1"] {
            assert!(line.parse::<Reply>().is_err(), "{line}");
        }
    }
}
