//! Blocking calls, from descriptors and slices.

use unisono_communicator::{
    Buffer, BufferMut, Call, Communicator, Descriptor, Element, Outcome, Result, check,
};

use crate::arguments::optional;
use crate::skip::skip;

/// Checks a call and makes it, unless its operation is switched off or its peer is nobody.
#[inline]
pub(crate) fn issue<C: Communicator + ?Sized>(comm: &C, mut call: Call<'_>) -> Result<Outcome> {
    call.descriptor.label = call.descriptor.label.or(call.options.label);
    if let Err(error) = check(&call, comm.group()) {
        return Err(error.in_call(&call));
    }
    if let Some(skipped) = skip(comm, &call.descriptor, &call.options) {
        return skipped.map_err(|error| error.in_call(&call));
    }
    comm.execute(&mut call).map_err(|error| error.in_call(&call))
}

/// A call on one slice.
#[inline]
#[track_caller]
pub(crate) fn in_place<T: Element, C: Communicator + ?Sized>(
    comm: &C,
    descriptor: Descriptor,
    buffer: &mut [T],
) -> Result<()> {
    issue(comm, Call::in_place(descriptor, BufferMut::of(buffer))).map(drop)
}

/// A call from one slice to another.
#[inline]
#[track_caller]
pub(crate) fn separate<T: Element, C: Communicator + ?Sized>(
    comm: &C,
    descriptor: Descriptor,
    input: &[T],
    output: &mut [T],
) -> Result<()> {
    issue(comm, Call::separate(descriptor, Buffer::of(input), BufferMut::of(output))).map(drop)
}

/// A call from a slice to a slice of the root.
#[inline]
#[track_caller]
pub(crate) fn to_root<T: Element, C: Communicator + ?Sized>(
    comm: &C,
    descriptor: Descriptor,
    input: &[T],
    output: Option<&mut [T]>,
) -> Result<()> {
    issue(comm, Call::separate(descriptor, Buffer::of(input), optional(output))).map(drop)
}
