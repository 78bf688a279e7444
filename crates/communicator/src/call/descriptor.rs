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

/// The other side of a point-to-point call. A number is a rank, and `Option::None` is [`Peer::None`], so that
/// `comm.send(&row, 1, 0)` and the neighbours of a grid are peers as they stand.
///
/// ```
/// use unisono_communicator::Peer;
/// assert_eq!([Peer::from(3), Peer::from(None), Peer::from(Some(3))], [Peer::Rank(3), Peer::None, Peer::Rank(3)]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// This rank of the group.
    Rank(u32),
    /// Any rank: the first message with a tag that fits matches (receives only).
    #[doc(alias = "MPI_ANY_SOURCE")]
    Any,
    /// Nobody, as beyond the edge of a grid: a send to nobody and a receive from nobody succeed at once, and move
    /// nothing (MPI 4.1, section 3.11).
    #[doc(alias = "MPI_PROC_NULL")]
    None,
}

impl From<u32> for Peer {
    fn from(rank: u32) -> Peer {
        Peer::Rank(rank)
    }
}

impl From<Option<u32>> for Peer {
    fn from(rank: Option<u32>) -> Peer {
        rank.map_or(Peer::None, Peer::Rank)
    }
}

/// The tags that a receive takes. A number is a tag.
///
/// ```
/// use unisono_communicator::Tag;
/// assert_eq!(Tag::from(7), Tag::Is(7));
/// assert!(Tag::Any.fits(7) && Tag::Is(7).fits(7) && !Tag::Is(7).fits(8));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    /// Messages with this tag.
    Is(u32),
    /// Messages with any tag (receives only).
    #[doc(alias = "MPI_ANY_TAG")]
    Any,
}

impl Tag {
    /// Whether a message with `tag` is one of them.
    pub const fn fits(self, tag: u32) -> bool {
        match self {
            Tag::Is(wanted) => wanted == tag,
            Tag::Any => true,
        }
    }

    /// The one tag; `None` for any.
    pub const fn one(self) -> Option<u32> {
        match self {
            Tag::Is(tag) => Some(tag),
            Tag::Any => None,
        }
    }
}

impl From<u32> for Tag {
    fn from(tag: u32) -> Tag {
        Tag::Is(tag)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tag::Is(tag) => write!(f, "tag {tag}"),
            Tag::Any => f.write_str("any tag"),
        }
    }
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
    pub tag: Tag,
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
            tag: Tag::Is(0),
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
            Some(Peer::Rank(rank)) => write!(f, ", peer {rank}, {}", self.tag)?,
            Some(Peer::Any) => write!(f, ", any peer, {}", self.tag)?,
            Some(Peer::None) => write!(f, ", no peer, {}", self.tag)?,
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
