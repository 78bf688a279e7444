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
pub(crate) fn in_place<T: Element>(descriptor: Descriptor, buffer: &mut [T]) -> Call<'_> {
    Call::in_place(descriptor, BufferMut::of(buffer))
}

/// A call from one slice to another.
#[inline]
#[track_caller]
pub(crate) fn separate<'a, T: Element>(
    descriptor: Descriptor,
    input: &'a [T],
    output: &'a mut [T],
) -> Call<'a> {
    Call::separate(descriptor, Buffer::of(input), BufferMut::of(output))
}

/// A call from a slice to a slice of the root.
#[inline]
#[track_caller]
pub(crate) fn to_root<'a, T: Element>(
    descriptor: Descriptor,
    input: &'a [T],
    output: Option<&'a mut [T]>,
) -> Call<'a> {
    Call::separate(descriptor, Buffer::of(input), optional(output))
}
