//! A vendor's library as [`crate::Offloaded`] sees it: its communicators, its calls on memory, and its capabilities.

#![expect(unsafe_code, reason = "a vendor's library works on memory, by its address")]

use std::ffi::c_void;
use std::fmt;

use unisono_communicator::{DType, Error, Result};

use crate::capabilities::Capabilities;
use crate::device::{Device, RawStream};
use crate::turn::LibraryTurn;

/// An operator of vendors' libraries.
#[derive(Clone, Copy, Debug, PartialEq)]
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
    /// The sum of inputs that are first multiplied by a factor. Each rank may have its own factor.
    PreMulSum(f64),
}

impl NativeOp {
    /// One operator of each kind.
    pub const KINDS: [NativeOp; 6] = [
        NativeOp::Sum,
        NativeOp::Prod,
        NativeOp::Max,
        NativeOp::Min,
        NativeOp::Avg,
        NativeOp::PreMulSum(1.0),
    ];

    /// The index of its kind in [`NativeOp::KINDS`], for any factor.
    pub(crate) const fn kind(self) -> usize {
        match self {
            NativeOp::Sum => 0,
            NativeOp::Prod => 1,
            NativeOp::Max => 2,
            NativeOp::Min => 3,
            NativeOp::Avg => 4,
            NativeOp::PreMulSum(_) => 5,
        }
    }

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            NativeOp::Sum => "sum",
            NativeOp::Prod => "prod",
            NativeOp::Max => "max",
            NativeOp::Min => "min",
            NativeOp::Avg => "avg",
            NativeOp::PreMulSum(_) => "pre_mul_sum",
        }
    }

    /// The calls that stand in for it where a library lacks it. docs/backends.md has the same table.
    pub const fn instead(self) -> &'static str {
        match self {
            NativeOp::Sum => {
                "none: sum is refused, and so are avg and pre_mul_sum where the library lacks them too"
            }
            NativeOp::Prod | NativeOp::Max | NativeOp::Min => "none: the reduction is refused",
            NativeOp::Avg => "sum, then each rank divides",
            NativeOp::PreMulSum(_) => "each rank multiplies, then sum",
        }
    }
}

impl fmt::Display for NativeOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The elements that a library reduces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Elements {
    /// The number of elements.
    pub count: usize,
    /// Their type.
    pub dtype: DType,
    /// Their operator.
    pub op: NativeOp,
}

/// A call of a library. Lengths are in elements if the call has a type, else in bytes. Addresses are in the memory that
/// the library works on, and null where a rank has no memory in the call.
#[derive(Clone, Copy, Debug)]
pub enum NativeCall<'a> {
    /// Every `output` becomes the reduction of all inputs. Input and output may be the same.
    AllReduce {
        /// Read.
        input: *const c_void,
        /// Written.
        output: *mut c_void,
        /// The elements of each.
        elements: Elements,
    },
    /// The root's `output` becomes the reduction of all inputs. Input and output may be the same. Requires
    /// [`crate::Native::Reduce`].
    Reduce {
        /// Read.
        input: *const c_void,
        /// Written; null on other ranks than the root.
        output: *mut c_void,
        /// The elements of each.
        elements: Elements,
        /// The rank that has the result.
        root: u32,
    },
    /// Every `output` becomes the rank's share of the reduction of all inputs. The output may be that share of the
    /// input.
    ReduceScatter {
        /// Read: a share for each rank.
        input: *const c_void,
        /// Written: a share.
        output: *mut c_void,
        /// The elements of a share.
        elements: Elements,
    },
    /// Every buffer becomes a copy of the root's. Requires [`crate::Native::Broadcast`].
    Broadcast {
        /// Read on the root, written on the others.
        buffer: *mut c_void,
        /// The length.
        bytes: usize,
        /// The rank whose bytes are sent.
        root: u32,
    },
    /// Every `output` becomes all inputs. The input may be the rank's share of the output.
    AllGather {
        /// Read: a share.
        input: *const c_void,
        /// Written: a share of each rank.
        output: *mut c_void,
        /// The length of a share.
        bytes: usize,
    },
    /// Part j of every `input` goes to rank j. Requires [`crate::Native::AllToAll`]. Input and output may be the same
    /// with [`crate::Native::AllToAllInPlace`].
    AllToAll {
        /// Read: a part for each rank.
        input: *const c_void,
        /// Written: a part of each rank.
        output: *mut c_void,
        /// The length of a part.
        bytes: usize,
    },
    /// An all-to-all with lengths that differ by rank; not in place. Requires [`crate::Native::AllToAllV`].
    AllToAllV {
        /// Read.
        input: *const c_void,
        /// The length of each rank's part. Parts follow each other.
        send: &'a [usize],
        /// Written.
        output: *mut c_void,
        /// The length of each rank's part. Parts follow each other.
        receive: &'a [usize],
    },
    /// Every input becomes a part of the root's `output`; not in place. Requires [`crate::Native::Gather`].
    Gather {
        /// Read: a part.
        input: *const c_void,
        /// Written: a part of each rank; null on other ranks than the root.
        output: *mut c_void,
        /// The length of a part.
        bytes: usize,
        /// The rank that has the result.
        root: u32,
    },
    /// Part j of the root's `input` becomes the `output` of rank j; not in place. Requires [`crate::Native::Scatter`].
    Scatter {
        /// Read: a part for each rank; null on other ranks than the root.
        input: *const c_void,
        /// Written: a part.
        output: *mut c_void,
        /// The length of a part.
        bytes: usize,
        /// The rank whose parts are sent.
        root: u32,
    },
    /// Sends to a rank.
    Send {
        /// Read.
        input: *const c_void,
        /// The length.
        bytes: usize,
        /// The receiver.
        peer: u32,
    },
    /// Receives from a rank.
    Recv {
        /// Written.
        output: *mut c_void,
        /// The length.
        bytes: usize,
        /// The sender.
        peer: u32,
    },
}

/// A vendor's library. Ranks are ranks of the communicator.
///
/// A library without a [`Device`] works on memory of the host, and its calls return when their memory may be used. A
/// library with a device works on the device's memory, and its calls enqueue their work on a stream.
pub trait Vendor: Send + Sync + Sized + 'static {
    /// The name of the backend in `UNISONO_BACKEND`.
    const BACKEND: &'static str;

    /// The name for calls that run without meeting, which must not match calls that meet.
    const BACKEND_INLINE: &'static str;

    /// The size of the id with which the ranks of a communicator find each other.
    const ID_BYTES: usize;

    /// Whether the event behind failed work reports the failure, in the library's words. If not, [`Vendor::late_error`]
    /// is asked too when an event is done.
    const EVENTS_TELL_ERRORS: bool = true;

    /// A communicator of the library.
    type Comm: Send + Sync;

    /// The library's name and version, the same on every rank of a job.
    fn version(&self) -> String;

    /// The capabilities of the library.
    fn capabilities(&self) -> Capabilities;

    /// Whether two ranks may be threads of one process.
    fn shares_processes(&self) -> bool;

    /// The turn in the library, if the library can serve only one thread of a process at a time.
    fn turn(&self) -> Option<&LibraryTurn>;

    /// The device on whose memory the library works; `None` for memory of the host.
    fn device(&self) -> Option<&dyn Device> {
        None
    }

    /// Makes a new id. One rank makes it for all.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    fn unique_id(&self) -> Result<Vec<u8>>;

    /// Makes a communicator of `ranks` ranks with this id. Blocks until all ranks have called it. A library that can be
    /// interrupted asks `gives_up` now and then, and returns when that is true; other libraries may block for ever. An
    /// implementation that ends the waits of other ranks, as an abort does, must first give its error to `tell`: the
    /// errors of the other ranks follow from it, and would otherwise be reported first.
    ///
    /// # Errors
    /// [`Error::Vendor`]; any error when it gives up.
    fn init(
        &self,
        id: &[u8],
        rank: u32,
        ranks: u32,
        gives_up: &dyn Fn() -> bool,
        tell: &dyn Fn(&Error),
    ) -> Result<Self::Comm>;

    /// Frees a communicator on which no call is under way. The communicator is not used again.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    fn destroy(&self, comm: &Self::Comm) -> Result<()>;

    /// Ends the call that another thread is in, and the work on streams. May be called again. Returns false if the
    /// library cannot: then the thread may never return, and the work may never end.
    fn abort(&self, comm: &Self::Comm) -> bool {
        let _ = comm;
        false
    }

    /// Reports a failure of the communicator's work that is under way.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    fn late_error(&self, comm: &Self::Comm) -> Result<()> {
        let _ = comm;
        Ok(())
    }

    /// Makes a call. On memory of the host it returns when the memory may be used. On memory of a device it enqueues
    /// the work on `stream`. Between [`Vendor::group_start`] and [`Vendor::group_end`] the library only notes the call.
    ///
    /// # Safety
    /// The memory at every `input` must be readable, and the memory at every `output` and `buffer` writable, for the
    /// length in the call. Nothing else may use the memory until the call has returned, its group has ended, or its
    /// work on the stream is done. Every rank must make the same call.
    ///
    /// # Errors
    /// [`Error::Vendor`]; [`Error::Unsupported`] for a call that the library lacks, which [`Capabilities`] rule out.
    unsafe fn call(&self, comm: &Self::Comm, call: &NativeCall<'_>, stream: RawStream) -> Result<()>;

    /// Begins a group: the following sends and receives of this thread are one call. Requires
    /// [`crate::Native::Groups`].
    ///
    /// # Errors
    /// [`Error::Vendor`].
    fn group_start(&self) -> Result<()> {
        Err(lacks::<Self>("groups"))
    }

    /// Makes the calls of the group, as [`Vendor::call`] does, and closes the group, even if that fails. It is also
    /// called after a call of the group has failed, and then makes no calls.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    fn group_end(&self) -> Result<()> {
        Err(lacks::<Self>("groups"))
    }
}

/// The error for a call that the library lacks. Composed programs do not use such calls.
pub fn lacks<V: Vendor>(what: &str) -> Error {
    Error::Unsupported { what: what.to_owned(), backend: V::BACKEND, instead: None }
}
