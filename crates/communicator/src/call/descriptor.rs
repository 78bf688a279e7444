//! A call without its data: the value that is checked, scheduled, logged, compared between ranks and shown in errors.

use std::fmt;

use crate::call::operation::Operation;
use crate::elements::dtype::DType;
use crate::elements::reduce_op::ReduceOp;
use crate::short_text::ShortText;

/// The place of the result.
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
/// `count` is in elements. It is the whole vector in all_reduce, broadcast and reduce; one rank's share in
/// reduce_scatter, all_gather, gather and scatter; the part for one other rank in all_to_all; the message in send and
/// recv. With uneven counts it is the total that this rank contributes or receives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Descriptor {
    /// The operation of the call.
    pub operation: Operation,
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
    /// The caller's text for the call. Labels that differ between ranks are a mismatch.
    pub label: Option<ShortText>,
    /// In place or not.
    pub place: Place,
    /// Whether counts differ by rank (the `_v` forms). Ranks then compare a hash of the lengths instead of `count`.
    pub uneven: bool,
}

impl Descriptor {
    /// A descriptor with no op, root, peer, tag or label, even counts and separate buffers.
    pub fn new(operation: impl Into<Operation>, dtype: DType, count: u64) -> Descriptor {
        Descriptor {
            operation: operation.into(),
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
        write!(f, "{}", self.operation)?;
        self.fmt_arguments(f)
    }
}

impl Descriptor {
    /// Everything but the operation, as errors show it.
    pub(crate) fn fmt_arguments(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
