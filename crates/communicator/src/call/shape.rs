//! The shape of a plain call: the arguments on which its check and its plan depend, as a few words. To compare these
//! takes less time than to check the arguments, or to compare two descriptors.

use crate::call::Call;
use crate::call::counts::Counts;
use crate::call::descriptor::{Peer, Place, Tag};
use crate::call::options::Determinism;
use crate::elements::reduce_op::ReduceOp;
use crate::memory::host::{Segments, SegmentsMut};
use crate::memory::{Buffer, BufferMut, Buffers};

/// The number of words of a shape.
pub(crate) const SHAPE_WORDS: usize = 6;

/// The shape of a plain call. On one group, calls of one shape pass the same checks, and have the same plan.
#[derive(Clone, Copy, Debug, Eq)]
pub struct CallShape([u64; SHAPE_WORDS]);

impl PartialEq for CallShape {
    #[inline]
    fn eq(&self, other: &CallShape) -> bool {
        are_equal(&self.0, &other.0)
    }
}

/// `==` for a few words, without the call of a function that `==` makes for any number of bytes.
#[inline]
pub(crate) fn are_equal<const WORDS: usize>(one: &[u64; WORDS], other: &[u64; WORDS]) -> bool {
    one.iter().zip(other).fold(0, |difference, (one, other)| difference | (one ^ other)) == 0
}

impl CallShape {
    /// The shape of a plain call, which has one segment of host memory on each side, even counts, no text, no function
    /// and no body; `None` for any other call.
    #[inline]
    pub fn of(call: &Call<'_>) -> Option<CallShape> {
        let (descriptor, options) = (&call.descriptor, &call.options);
        let has_text =
            descriptor.label.is_some() || options.log_name.is_some() || options.algorithm.is_some();
        let is_uneven = descriptor.uneven || !matches!(call.counts, Counts::Even);
        if has_text || is_uneven || call.stream.is_some() || call.body.is_some() {
            return None;
        }
        let (op, factor_bits) = match descriptor.op {
            None => (0, 0),
            Some(ReduceOp::User(_)) => return None,
            Some(op @ ReduceOp::PreMulSum(factor)) => (op.code(), factor.to_bits()),
            Some(op) => (op.code(), 0),
        };
        let is_separate = u8::from(descriptor.place == Place::Separate);
        let is_fixed = u8::from(options.determinism == Determinism::Fixed);
        let [dtype, opaque_low, opaque_high] = descriptor.dtype.code();
        let (has_two, input_bytes, output_bytes) = lengths(&call.buffers)?;
        let kinds = [
            descriptor.operation.code(),
            dtype,
            opaque_low,
            opaque_high,
            op,
            is_separate | is_fixed << 1 | u8::from(has_two) << 2,
            0,
            0,
        ];
        // A call has a root or a peer, and a factor or a tag: the check refuses any other, and finds no such shape.
        let (peer, tag) = match (descriptor.peer, descriptor.tag) {
            (None, Tag::Is(0)) => (0, 0),
            (Some(Peer::Rank(rank)), Tag::Is(tag)) => (u64::from(rank) + 3, u64::from(tag)),
            (Some(Peer::Any | Peer::None | Peer::Rank(_)) | None, _) => return None,
        };
        let root = descriptor.root.map_or(0, |root| u64::from(root) + 1);
        if peer != 0 && (root != 0 || factor_bits != 0 || op != 0) {
            return None;
        }
        let words = [
            u64::from_le_bytes(kinds),
            descriptor.count,
            root | peer << 33,
            input_bytes,
            output_bytes,
            factor_bits | tag,
        ];
        Some(CallShape(words))
    }

    #[inline]
    pub(crate) fn words(self) -> [u64; SHAPE_WORDS] {
        self.0
    }
}

/// Whether there are two buffers, and the bytes of the input and the output; `None` unless each is one segment of host
/// memory.
#[inline]
fn lengths(buffers: &Buffers<'_>) -> Option<(bool, u64, u64)> {
    match buffers {
        Buffers::InOut(BufferMut::Host(SegmentsMut::One(buffer))) => Some((false, 0, buffer.len() as u64)),
        Buffers::Separate {
            input: Buffer::Host(Segments::One(input)),
            output: BufferMut::Host(SegmentsMut::One(output)),
        } => Some((true, input.len() as u64, output.len() as u64)),
        Buffers::InOut(_) | Buffers::Separate { .. } => None,
    }
}
