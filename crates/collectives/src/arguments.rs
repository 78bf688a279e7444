//! From the arguments of typed operations to descriptors.

use std::sync::Arc;

use unisono_communicator::{
    BufferMut, Communicator, DType, Descriptor, Element, Error, Operation, Peer, ReduceOp, Result, Site, Tag,
    UserFunction,
};
use unisono_schedule::Collective;

/// The operation of this name.
///
/// # Errors
/// [`Error::InvalidArgument`] with all names.
pub(super) fn operation_named(name: &str) -> Result<Operation> {
    name.parse().map_err(|problem: String| Error::invalid("name", problem))
}

pub(crate) fn reducing(collective: Collective, dtype: DType, count: usize, op: ReduceOp) -> Descriptor {
    Descriptor { op: Some(op), ..Descriptor::new(collective, dtype, count as u64) }
}

pub(crate) fn rooted(collective: Collective, dtype: DType, count: usize, root: u32) -> Descriptor {
    Descriptor { root: Some(root), ..Descriptor::new(collective, dtype, count as u64) }
}

/// A reduction to `root`.
pub(crate) fn reducing_at(dtype: DType, count: usize, op: ReduceOp, root: u32) -> Descriptor {
    Descriptor { op: Some(op), ..rooted(Collective::Reduce, dtype, count, root) }
}

pub(crate) fn moving(collective: Collective, dtype: DType, count: usize) -> Descriptor {
    Descriptor::new(collective, dtype, count as u64)
}

pub(crate) fn message_descriptor(
    operation: Operation,
    dtype: DType,
    count: usize,
    peer: Peer,
    tag: Tag,
) -> Descriptor {
    Descriptor { peer: Some(peer), tag, ..Descriptor::new(operation, dtype, count as u64) }
}

/// The number of elements of one rank's share.
#[track_caller]
pub(crate) fn share_of<C: Communicator + ?Sized>(
    comm: &C,
    collective: Collective,
    dtype: DType,
    elements: usize,
    argument: &'static str,
) -> Result<usize> {
    let ranks = comm.group().size() as usize;
    if elements.is_multiple_of(ranks) {
        return Ok(elements / ranks);
    }
    let problem =
        format!("{elements} elements do not divide among {ranks} ranks; the _v forms take uneven counts");
    let call = format_args!("{collective} of {elements} x {dtype} at {}", Site::caller());
    Err(Error::invalid(argument, problem).in_call(&call))
}

pub(crate) fn optional<T: Element>(output: Option<&mut [T]>) -> BufferMut<'_> {
    output.map_or(BufferMut::empty(), BufferMut::of)
}

pub(super) fn typed_function<T: Element>(
    function: impl Fn(&[T], &[T], &mut [T]) + Send + Sync + 'static,
) -> UserFunction {
    Arc::new(move |left, right, out| {
        // The engine's bytes may be unaligned; then they are copied.
        match (
            bytemuck::try_cast_slice(left),
            bytemuck::try_cast_slice(right),
            bytemuck::try_cast_slice_mut(out),
        ) {
            (Ok(left), Ok(right), Ok(out)) => function(left, right, out),
            _ => {
                let left: Vec<T> = bytemuck::allocation::pod_collect_to_vec(left);
                let right: Vec<T> = bytemuck::allocation::pod_collect_to_vec(right);
                let mut result = left.clone();
                function(&left, &right, &mut result);
                out.copy_from_slice(bytemuck::cast_slice(&result));
            }
        }
    })
}
