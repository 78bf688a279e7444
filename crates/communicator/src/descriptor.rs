//! What a call is, without its data: the value that is checked, scheduled, logged, compared between ranks and
//! printed in errors.

use std::fmt;
use std::str::FromStr;

use crate::dtype::DType;
use crate::reduce_op::ReduceOp;
use crate::short_text::ShortText;

/// The operations of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Collective {
    /// Every rank ends with the reduction of all inputs.
    AllReduce,
    /// Rank r ends with share r of the reduction of all inputs.
    ReduceScatter,
    /// Every rank ends with the inputs of all ranks in rank order.
    AllGather,
    /// Rank r ends with part r of every rank's input, in rank order.
    AllToAll,
    /// Every rank ends with the root's buffer.
    Broadcast,
    /// The root ends with the reduction of all inputs.
    Reduce,
    /// The root ends with the inputs of all ranks in rank order.
    Gather,
    /// Rank r ends with share r of the root's input.
    Scatter,
    /// No rank returns before every rank has called.
    Barrier,
    /// Point-to-point: sends a message to a peer.
    Send,
    /// Point-to-point: receives a message from a peer, or from any rank.
    Recv,
}

impl Collective {
    /// Every operation.
    pub const ALL: &'static [Collective] = &[
        Collective::AllReduce,
        Collective::ReduceScatter,
        Collective::AllGather,
        Collective::AllToAll,
        Collective::Broadcast,
        Collective::Reduce,
        Collective::Gather,
        Collective::Scatter,
        Collective::Barrier,
        Collective::Send,
        Collective::Recv,
    ];

    /// The name used in code, on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Collective::AllReduce => "all_reduce",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::AllGather => "all_gather",
            Collective::AllToAll => "all_to_all",
            Collective::Broadcast => "broadcast",
            Collective::Reduce => "reduce",
            Collective::Gather => "gather",
            Collective::Scatter => "scatter",
            Collective::Barrier => "barrier",
            Collective::Send => "send",
            Collective::Recv => "recv",
        }
    }

    /// The number that stands for this operation on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Collective::AllReduce => 1,
            Collective::ReduceScatter => 2,
            Collective::AllGather => 3,
            Collective::AllToAll => 4,
            Collective::Broadcast => 5,
            Collective::Reduce => 6,
            Collective::Gather => 7,
            Collective::Scatter => 8,
            Collective::Barrier => 9,
            Collective::Send => 10,
            Collective::Recv => 11,
        }
    }

    /// The operation of a wire code, if there is one.
    pub fn from_code(code: u8) -> Option<Collective> {
        Collective::ALL.iter().copied().find(|collective| collective.code() == code)
    }

    /// Whether one rank is named as the root.
    pub const fn is_rooted(self) -> bool {
        matches!(self, Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter)
    }

    /// Whether a reduce operator takes part.
    pub const fn reduces(self) -> bool {
        matches!(self, Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce)
    }

    /// Whether this is a send or a receive, which only two ranks take part in.
    pub const fn is_point_to_point(self) -> bool {
        matches!(self, Collective::Send | Collective::Recv)
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Collective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Collective::ALL.iter().copied().find(|collective| collective.name() == text).ok_or_else(|| {
            let names: Vec<_> = Collective::ALL.iter().map(|collective| collective.name()).collect();
            format!("unknown operation {text:?}, one of: {}", names.join(", "))
        })
    }
}

/// Where the result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Input and output are separate buffers; the input is left as it was.
    Separate,
    /// One buffer is input and output; after an error its content is indeterminate.
    InPlace,
}

/// The other side of a point-to-point call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// This rank of the group.
    Rank(u32),
    /// Any rank: the first message with this tag matches (receives only).
    Any,
}

/// Everything about a call that is not data.
///
/// `count` is in elements and means, per collective: all_reduce, broadcast and reduce the whole vector;
/// reduce_scatter, all_gather, gather and scatter the share of one rank; all_to_all what one rank sends to one
/// other; send and recv the message. With uneven counts it is the total this rank contributes or receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Descriptor {
    /// The operation.
    pub collective: Collective,
    /// The element type.
    pub dtype: DType,
    /// Elements; see above.
    pub count: u64,
    /// The reduce operator, for the collectives that reduce.
    pub op: Option<ReduceOp>,
    /// The root, for rooted collectives.
    pub root: Option<u32>,
    /// The other side, for point-to-point calls.
    pub peer: Option<Peer>,
    /// The tag, for point-to-point calls.
    pub tag: u32,
    /// A text that the caller gives to the call; calls whose labels differ between ranks are a mismatch.
    pub label: Option<ShortText>,
    /// In place or not.
    pub place: Place,
    /// Whether counts differ by rank (the `_v` forms); they are then compared by the plan hash.
    pub uneven: bool,
}

impl Descriptor {
    /// A descriptor with no op, root, peer, tag or label, even counts and separate buffers.
    pub const fn new(collective: Collective, dtype: DType, count: u64) -> Descriptor {
        Descriptor {
            collective,
            dtype,
            count,
            op: None,
            root: None,
            peer: None,
            tag: 0,
            label: None,
            place: Place::Separate,
            uneven: false,
        }
    }
}

impl fmt::Display for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.collective)?;
        if self.uneven {
            f.write_str("_v")?;
        }
        write!(f, "({} x {}", self.count, self.dtype)?;
        if let Some(op) = self.op {
            write!(f, ", {op}")?;
        }
        if let Some(root) = self.root {
            write!(f, ", root {root}")?;
        }
        match self.peer {
            Some(Peer::Rank(rank)) => write!(f, ", peer {rank}, tag {}", self.tag)?,
            Some(Peer::Any) => write!(f, ", any peer, tag {}", self.tag)?,
            None => {}
        }
        if self.place == Place::InPlace {
            f.write_str(", in place")?;
        }
        if let Some(label) = self.label {
            write!(f, ", label {label:?}")?;
        }
        f.write_str(")")
    }
}
