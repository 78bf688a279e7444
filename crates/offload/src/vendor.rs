//! What a vendor's library is to [`crate::Offloaded`]: its communicators, about a dozen calls on memory, and what it
//! can and cannot do.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt;

use unisono_communicator::{DType, Error, Result};

use crate::capabilities::Capabilities;
use crate::turn::LibraryTurn;

/// An operator that libraries have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeOp {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// The sum divided by the number of ranks.
    Avg,
}

impl NativeOp {
    /// Every one.
    pub const ALL: [NativeOp; 5] =
        [NativeOp::Sum, NativeOp::Prod, NativeOp::Max, NativeOp::Min, NativeOp::Avg];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            NativeOp::Sum => "sum",
            NativeOp::Prod => "prod",
            NativeOp::Max => "max",
            NativeOp::Min => "min",
            NativeOp::Avg => "avg",
        }
    }
}

impl fmt::Display for NativeOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The elements that a library reduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements {
    /// How many.
    pub count: usize,
    /// Of which type.
    pub dtype: DType,
    /// How they are combined.
    pub op: NativeOp,
}

/// A vendor's library.
///
/// All calls are on memory of the host and return when their memory may be used. Counts are in elements where there is
/// a type, else in bytes. `input` and `output` may be the same address where that is said. Ranks are those of the
/// communicator.
///
/// # Safety
/// Of every call: the memory at `input` can be read, and that at `output` written, for the length that the call says,
/// and nobody else uses it until the call has returned. Every rank makes the same call.
pub trait Vendor: Send + Sync + Sized + 'static {
    /// The name of the backend, as `UNISONO_BACKEND` has it.
    const BACKEND: &'static str;

    /// The same for calls that run on their caller's thread, without having met: these do not go together.
    const BACKEND_INLINE: &'static str;

    /// Bytes of the id with which the ranks of a communicator find each other.
    const ID_BYTES: usize;

    /// A communicator of the library.
    type Comm: Send + Sync;

    /// The library's name and version, the same on every rank of a job.
    fn version(&self) -> String;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Whether two ranks may be threads of one process.
    fn shares_processes(&self) -> bool;

    /// Who may be in the library, if it can serve only one thread of a process at a time.
    fn turn(&self) -> Option<&LibraryTurn>;

    /// A new id, made by one rank for all.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    fn unique_id(&self) -> Result<Vec<u8>>;

    /// A communicator of `ranks` ranks with this id. Blocks until all have called it, perhaps for ever.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    fn init(&self, id: &[u8], rank: u32, ranks: u32) -> Result<Self::Comm>;

    /// Frees a communicator on which no call is under way. It is not used again.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    fn destroy(&self, comm: &Self::Comm) -> Result<()>;

    /// Ends the call that another thread is in. False when the library cannot: then that thread may never return.
    fn abort(&self, comm: &Self::Comm) -> bool {
        let _ = comm;
        false
    }

    /// Every `output` becomes the reduction of all inputs; the two may be one.
    ///
    /// # Safety
    /// See [`Vendor`].
    ///
    /// # Errors
    /// [`Error::Vendor`].
    unsafe fn all_reduce(
        &self,
        comm: &Self::Comm,
        input: *const c_void,
        output: *mut c_void,
        elements: Elements,
    ) -> Result<()>;

    /// The root's `output` becomes the reduction of all inputs; the two may be one. Null on other ranks.
    ///
    /// # Safety
    /// See [`Vendor`].
    ///
    /// # Errors
    /// [`Error::Vendor`].
    unsafe fn reduce(
        &self,
        comm: &Self::Comm,
        input: *const c_void,
        output: *mut c_void,
        elements: Elements,
        root: u32,
    ) -> Result<()>;

    /// Every `output` becomes the own share, of `elements`, of the reduction of all inputs; it may be that share of the
    /// input.
    ///
    /// # Safety
    /// See [`Vendor`].
    ///
    /// # Errors
    /// [`Error::Vendor`].
    unsafe fn reduce_scatter(
        &self,
        comm: &Self::Comm,
        input: *const c_void,
        output: *mut c_void,
        elements: Elements,
    ) -> Result<()>;

    /// Every `buffer` of this many bytes becomes the root's.
    ///
    /// # Safety
    /// See [`Vendor`].
    ///
    /// # Errors
    /// [`Error::Vendor`].
    unsafe fn broadcast(&self, comm: &Self::Comm, buffer: *mut c_void, bytes: usize, root: u32)
    -> Result<()>;

    /// Every `output` becomes all inputs, of `bytes` each; the input may be the own share of it.
    ///
    /// # Safety
    /// See [`Vendor`].
    ///
    /// # Errors
    /// [`Error::Vendor`].
    unsafe fn all_gather(
        &self,
        comm: &Self::Comm,
        input: *const c_void,
        output: *mut c_void,
        bytes: usize,
    ) -> Result<()>;

    /// Part j of every `input`, of `bytes`, goes to rank j; the two may be one.
    ///
    /// # Safety
    /// See [`Vendor`].
    ///
    /// # Errors
    /// [`Error::Vendor`].
    unsafe fn all_to_all(
        &self,
        comm: &Self::Comm,
        input: *const c_void,
        output: *mut c_void,
        bytes: usize,
    ) -> Result<()>;

    /// As [`Vendor::all_to_all`] with lengths that differ by rank; not in place. Only where
    /// [`crate::Native::AllToAllV`] is there.
    ///
    /// # Safety
    /// See [`Vendor`].
    ///
    /// # Errors
    /// [`Error::Vendor`].
    unsafe fn all_to_all_v(
        &self,
        comm: &Self::Comm,
        input: *const c_void,
        send: &[usize],
        output: *mut c_void,
        receive: &[usize],
    ) -> Result<()> {
        let _ = (comm, input, send, output, receive);
        Err(lacks::<Self>("all_to_all_v"))
    }

    /// Part j of the root's `input` becomes the `output`, of `bytes`, of rank j; not in place. Only where
    /// [`crate::Native::Scatter`] is there.
    ///
    /// # Safety
    /// See [`Vendor`].
    ///
    /// # Errors
    /// [`Error::Vendor`].
    unsafe fn scatter(
        &self,
        comm: &Self::Comm,
        input: *const c_void,
        output: *mut c_void,
        bytes: usize,
        root: u32,
    ) -> Result<()> {
        let _ = (comm, input, output, bytes, root);
        Err(lacks::<Self>("scatter"))
    }

    /// Sends to `peer`. Returns when the memory may be used, or within a group at once.
    ///
    /// # Safety
    /// See [`Vendor`]; within a group the memory stays in use until its end.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    unsafe fn send(&self, comm: &Self::Comm, input: *const c_void, bytes: usize, peer: u32) -> Result<()>;

    /// Receives from `peer` what it sends to this rank.
    ///
    /// # Safety
    /// As [`Vendor::send`].
    ///
    /// # Errors
    /// [`Error::Vendor`].
    unsafe fn recv(&self, comm: &Self::Comm, output: *mut c_void, bytes: usize, peer: u32) -> Result<()>;

    /// The sends and receives that follow are one call. Only where [`crate::Native::Groups`] is there.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    fn group_start(&self) -> Result<()> {
        Err(lacks::<Self>("groups"))
    }

    /// Runs them; returns when all have ended.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    fn group_end(&self) -> Result<()> {
        Err(lacks::<Self>("groups"))
    }
}

/// A call that the library lacks; what is composed does not use it.
fn lacks<V: Vendor>(what: &str) -> Error {
    Error::Unsupported { what: what.to_owned(), backend: V::BACKEND, instead: None }
}
