//! The operations: each collective, and the two sides of a message, with their numbers on the wire.

use std::fmt;
use std::str::FromStr;

use unisono_schedule::Collective;

/// The operation of a call.
///
/// ```
/// use unisono_communicator::{Collective, Operation};
/// assert_eq!(Operation::from(Collective::AllReduce).name(), "all_reduce");
/// assert_eq!(Operation::Send.collective(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Every rank of the group takes part.
    Collective(Collective),
    /// Sends a message to a peer.
    Send,
    /// Receives a message from a peer, or from any rank.
    Recv,
}

impl Operation {
    /// Every operation: the collectives, then the two sides of a message.
    pub fn all() -> impl Iterator<Item = Operation> {
        Collective::ALL.into_iter().map(Operation::Collective).chain([Operation::Send, Operation::Recv])
    }

    /// The name in code, reports and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Collective(collective) => collective.name(),
            Operation::Send => "send",
            Operation::Recv => "recv",
        }
    }

    /// The collective; `None` for a side of a message.
    pub const fn collective(self) -> Option<Collective> {
        match self {
            Operation::Collective(collective) => Some(collective),
            Operation::Send | Operation::Recv => None,
        }
    }

    /// The number that stands for this operation on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Operation::Collective(collective) => match collective {
                Collective::AllReduce => 1,
                Collective::ReduceScatter => 2,
                Collective::AllGather => 3,
                Collective::AllToAll => 4,
                Collective::Broadcast => 5,
                Collective::Reduce => 6,
                Collective::Gather => 7,
                Collective::Scatter => 8,
                Collective::Barrier => 9,
                Collective::Scan => 12,
                Collective::Exscan => 13,
            },
            Operation::Send => 10,
            Operation::Recv => 11,
        }
    }

    /// The operation of a wire code, if there is one.
    pub fn from_code(code: u8) -> Option<Operation> {
        Operation::all().find(|operation| operation.code() == code)
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(name: &str) -> Result<Operation, String> {
        let names = || Operation::all().map(Operation::name).collect::<Vec<_>>().join(", ");
        let found = Operation::all().find(|operation| operation.name() == name);
        found.ok_or_else(|| format!("there is no operation {name:?}; there are {}", names()))
    }
}

impl From<Collective> for Operation {
    fn from(collective: Collective) -> Operation {
        Operation::Collective(collective)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_code_of_its_own() {
        let mut codes: Vec<u8> = Operation::all().map(Operation::code).collect();
        let known = [Operation::Send, Operation::Recv, Collective::Scan.into(), Collective::Exscan.into()];
        assert_eq!(known.map(Operation::code), [10, 11, 12, 13], "ranks of other builds know them by these");
        codes.sort_unstable();
        assert_eq!(codes, (1..=13).collect::<Vec<_>>());
        assert!(Operation::all().all(|operation| Operation::from_code(operation.code()) == Some(operation)));
        assert_eq!([0, 14, 255].map(Operation::from_code), [None; 3]);
    }
}
