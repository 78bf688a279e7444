//! One call value: a descriptor, the buffers, and the caller's options.

pub(crate) mod body;
pub(crate) mod counts;
pub(crate) mod descriptor;
pub(crate) mod info;
mod interned_site;
pub(crate) mod log_name;
pub(crate) mod operation;
pub(crate) mod options;
pub(crate) mod outcome;
pub(crate) mod parent;
pub(crate) mod prepared;
pub(crate) mod shape;
pub(crate) mod site;
pub(crate) mod skipped;

use std::fmt;

use crate::call::body::CallBody;
use crate::call::counts::Counts;
use crate::call::descriptor::{Descriptor, Place};
use crate::call::options::CallOptions;
use crate::call::parent::ScopeId;
use crate::call::prepared::PreparedNumber;
use crate::call::site::Site;
use crate::elements::reduce_op::UserFunction;
use crate::memory::device::DeviceStream;
use crate::memory::owned::OwnedBuffers;
use crate::memory::{Buffer, BufferMut, Buffers, MemoryKind};

/// A call on borrowed memory: blocking on the host, enqueued on a device. `Collectives::issue` makes it.
pub struct Call<'a> {
    /// The operation and its arguments.
    pub descriptor: Descriptor,
    /// The memory that it reads and writes.
    pub buffers: Buffers<'a>,
    /// The stream that orders the call: always one on device memory, `None` on host memory.
    pub stream: Option<DeviceStream>,
    /// Uneven counts.
    pub counts: Counts,
    /// The caller's options.
    pub options: CallOptions,
    /// The function of a [`crate::ReduceOp::User`].
    pub user_function: Option<UserFunction>,
    /// The scope whose order the call follows; `None` for the order of the communicator. [`crate::Scope`] sets it.
    pub scope: Option<ScopeId>,
    /// The code that runs a collective in place of a schedule. A communicator on top of another one sets it.
    pub body: Option<Box<dyn CallBody>>,
    /// The plan that was prepared for it, with the same arguments.
    pub prepared: Option<PreparedNumber>,
    /// The line that called.
    pub site: Site,
}

/// An asynchronous call on owned memory. `CollectivesAsync::start` makes it.
pub struct OwnedCall {
    /// The operation and its arguments.
    pub descriptor: Descriptor,
    /// The memory that it reads and writes.
    pub buffers: OwnedBuffers,
    /// The stream that orders the call: always one on device memory, `None` on host memory.
    pub stream: Option<DeviceStream>,
    /// Uneven counts.
    pub counts: Counts,
    /// The caller's options.
    pub options: CallOptions,
    /// The function of a [`crate::ReduceOp::User`].
    pub user_function: Option<UserFunction>,
    /// The scope whose order the call follows; `None` for the order of the communicator. [`crate::Scope`] sets it.
    pub scope: Option<ScopeId>,
    /// The code that runs a collective in place of a schedule. A communicator on top of another one sets it.
    pub body: Option<Box<dyn CallBody>>,
    /// The plan that was prepared for it, with the same arguments.
    pub prepared: Option<PreparedNumber>,
    /// The line that called.
    pub site: Site,
}

/// The call and its line, for errors of a call that has no number yet.
impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.descriptor, self.site.at())
    }
}

/// As for [`Call`].
impl fmt::Display for OwnedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.descriptor, self.site.at())
    }
}

impl<'a> Call<'a> {
    /// A call with even counts, no stream and no options. Its site is the caller's line.
    #[inline]
    #[track_caller]
    pub fn new(descriptor: Descriptor, buffers: Buffers<'a>) -> Call<'a> {
        let (counts, options, site) = (Counts::Even, CallOptions::default(), Site::caller());
        let (user_function, scope, body, prepared) = (None, None, None, None);
        Call {
            descriptor,
            buffers,
            stream: None,
            counts,
            options,
            user_function,
            scope,
            body,
            prepared,
            site,
        }
    }

    /// [`Call::new`] from one buffer to another.
    #[inline]
    #[track_caller]
    pub fn separate(descriptor: Descriptor, input: Buffer<'a>, output: BufferMut<'a>) -> Call<'a> {
        Call::new(descriptor, Buffers::Separate { input, output })
    }

    /// [`Call::new`] on one buffer.
    #[inline]
    #[track_caller]
    pub fn in_place(descriptor: Descriptor, buffer: BufferMut<'a>) -> Call<'a> {
        Call::new(Descriptor { place: Place::InPlace, ..descriptor }, Buffers::InOut(buffer))
    }

    /// The place of its memory. A call without memory, such as a barrier, is on the device if it has a stream.
    #[inline]
    pub fn memory(&self) -> MemoryKind {
        memory_kind(self.stream, self.buffers.on_device())
    }
}

#[inline]
fn memory_kind(stream: Option<DeviceStream>, on_device: bool) -> MemoryKind {
    if stream.is_some() || on_device { MemoryKind::Device } else { MemoryKind::Host }
}

impl OwnedCall {
    /// A call with even counts, no stream and no options. Its site is the caller's line.
    #[track_caller]
    pub fn new(descriptor: Descriptor, buffers: OwnedBuffers) -> OwnedCall {
        let (counts, options, site) = (Counts::Even, CallOptions::default(), Site::caller());
        let (user_function, scope, body, prepared) = (None, None, None, None);
        OwnedCall {
            descriptor,
            buffers,
            stream: None,
            counts,
            options,
            user_function,
            scope,
            body,
            prepared,
            site,
        }
    }

    /// The place of its memory; see [`Call::memory`].
    pub fn memory(&self) -> MemoryKind {
        memory_kind(self.stream, self.buffers.on_device())
    }

    /// The same call on borrowed buffers. It takes the body out of this one.
    pub fn borrow(&mut self) -> Call<'_> {
        Call {
            descriptor: self.descriptor,
            buffers: self.buffers.borrow(),
            stream: self.stream,
            counts: self.counts.clone(),
            options: self.options,
            user_function: self.user_function.clone(),
            scope: self.scope,
            body: self.body.take(),
            prepared: self.prepared,
            site: self.site,
        }
    }
}
