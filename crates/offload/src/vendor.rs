//! What a vendor's library is to [`crate::Offloaded`]: its communicators, its calls on memory, and what it can and
//! cannot do.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt;

use unisono_communicator::{DType, Error, Result};

use crate::capabilities::Capabilities;
use crate::device::{Device, RawStream};
use crate::turn::LibraryTurn;

/// An operator that libraries have.
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
    /// The sum of inputs that are multiplied by a factor first; each rank may have its own.
    PreMulSum(f64),
}

impl NativeOp {
    /// One of each kind.
    pub const KINDS: [NativeOp; 6] = [
        NativeOp::Sum,
        NativeOp::Prod,
        NativeOp::Max,
        NativeOp::Min,
        NativeOp::Avg,
        NativeOp::PreMulSum(1.0),
    ];

    /// Its place in [`NativeOp::KINDS`], whatever its factor.
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
}

impl fmt::Display for NativeOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The elements that a library reduces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Elements {
    /// How many.
    pub count: usize,
    /// Of which type.
    pub dtype: DType,
    /// How they are combined.
    pub op: NativeOp,
}

/// A call of a library's. Lengths are in elements where there is a type, else in bytes. Addresses are those of the
/// memory that the vendor's calls are made on, and null where a rank has no memory in the call.
#[derive(Clone, Copy, Debug)]
pub enum NativeCall<'a> {
    /// Every `output` becomes the reduction of all inputs; the two may be one.
    AllReduce {
        /// Read.
        input: *const c_void,
        /// Written.
        output: *mut c_void,
        /// What both hold.
        elements: Elements,
    },
    /// The root's `output` becomes the reduction of all inputs; the two may be one. Only where
    /// [`crate::Native::Reduce`] is there.
    Reduce {
        /// Read.
        input: *const c_void,
        /// Written; null on other ranks than the root.
        output: *mut c_void,
        /// What both hold.
        elements: Elements,
        /// The rank that has the result.
        root: u32,
    },
    /// Every `output` becomes the own share of the reduction of all inputs; it may be that share of the input.
    ReduceScatter {
        /// Read: a share for each rank.
        input: *const c_void,
        /// Written: a share.
        output: *mut c_void,
        /// What a share holds.
        elements: Elements,
    },
    /// Every buffer becomes the root's. Only where [`crate::Native::Broadcast`] is there.
    Broadcast {
        /// Read on the root, written on the others.
        buffer: *mut c_void,
        /// How long.
        bytes: usize,
        /// The rank whose bytes they are.
        root: u32,
    },
    /// Every `output` becomes all inputs; the input may be the own share of it.
    AllGather {
        /// Read: a share.
        input: *const c_void,
        /// Written: a share of each rank.
        output: *mut c_void,
        /// Of a share.
        bytes: usize,
    },
    /// Part j of every `input` goes to rank j; the two may be one where [`crate::Native::AllToAllInPlace`] is there.
    /// Only where [`crate::Native::AllToAll`] is there.
    AllToAll {
        /// Read: a part for each rank.
        input: *const c_void,
        /// Written: a part of each rank.
        output: *mut c_void,
        /// Of a part.
        bytes: usize,
    },
    /// The same with lengths that differ by rank; not in place. Only where [`crate::Native::AllToAllV`] is there.
    AllToAllV {
        /// Read.
        input: *const c_void,
        /// The bytes for each rank, which follow each other.
        send: &'a [usize],
        /// Written.
        output: *mut c_void,
        /// The bytes of each rank, which follow each other.
        receive: &'a [usize],
    },
    /// Every input becomes a part of the root's `output`; not in place. Only where [`crate::Native::Gather`] is there.
    Gather {
        /// Read: a part.
        input: *const c_void,
        /// Written: a part of each rank; null on other ranks than the root.
        output: *mut c_void,
        /// Of a part.
        bytes: usize,
        /// The rank that has the result.
        root: u32,
    },
    /// Part j of the root's `input` becomes the `output` of rank j; not in place. Only where
    /// [`crate::Native::Scatter`] is there.
    Scatter {
        /// Read: a part for each rank; null on other ranks than the root.
        input: *const c_void,
        /// Written: a part.
        output: *mut c_void,
        /// Of a part.
        bytes: usize,
        /// The rank whose parts they are.
        root: u32,
    },
    /// Sends to a rank.
    Send {
        /// Read.
        input: *const c_void,
        /// How long.
        bytes: usize,
        /// To whom.
        peer: u32,
    },
    /// Receives from a rank what it sends to this one.
    Recv {
        /// Written.
        output: *mut c_void,
        /// How long.
        bytes: usize,
        /// From whom.
        peer: u32,
    },
}

/// A vendor's library. Ranks are those of the communicator.
///
/// A library without a [`Device`] works on memory of the host, and its calls return when their memory may be used. The
/// calls of one with a device are on its memory, and enqueue their work on a stream.
pub trait Vendor: Send + Sync + Sized + 'static {
    /// The name of the backend, as `UNISONO_BACKEND` has it.
    const BACKEND: &'static str;

    /// The same for calls that run without having met: these do not go together.
    const BACKEND_INLINE: &'static str;

    /// Bytes of the id with which the ranks of a communicator find each other.
    const ID_BYTES: usize;

    /// Whether the event behind work that has failed says so, in the library's words. Else [`Vendor::late_error`] is
    /// asked too when an event is done.
    const EVENTS_TELL_ERRORS: bool = true;

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

    /// The device on whose memory the calls are made; `None` for memory of the host.
    fn device(&self) -> Option<&dyn Device> {
        None
    }

    /// A new id, made by one rank for all.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    fn unique_id(&self) -> Result<Vec<u8>>;

    /// A communicator of `ranks` ranks with this id. Blocks until all have called it; a library that can be interrupted
    /// asks `gives_up` now and then, and returns when that is true. Others may block for ever. Before it ends what the
    /// other ranks wait for, as an abort does, it gives `tell` its error: else theirs, which follow from that, could
    /// be the first that anybody hears of.
    ///
    /// # Errors
    /// [`Error::Vendor`]; anything when it gives up.
    fn init(
        &self,
        id: &[u8],
        rank: u32,
        ranks: u32,
        gives_up: &dyn Fn() -> bool,
        tell: &dyn Fn(&Error),
    ) -> Result<Self::Comm>;

    /// Frees a communicator on which no call is under way. It is not used again.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    fn destroy(&self, comm: &Self::Comm) -> Result<()>;

    /// Ends the call that another thread is in, and what is under way on streams; may be called again. False when the
    /// library cannot: then that thread may never return, and the work never end.
    fn abort(&self, comm: &Self::Comm) -> bool {
        let _ = comm;
        false
    }

    /// What has gone wrong on the communicator since, in work that is under way.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    fn late_error(&self, comm: &Self::Comm) -> Result<()> {
        let _ = comm;
        Ok(())
    }

    /// Makes a call. On memory of the host it returns when that may be used; else it is enqueued on `stream`. Between
    /// [`Vendor::group_start`] and [`Vendor::group_end`] it is only noted.
    ///
    /// # Safety
    /// The memory at every `input` can be read, and that at every `output` and `buffer` written, for the length that
    /// the call says, and nobody else uses it until the call has returned, its group has ended, or its work on the
    /// stream is done. Every rank makes the same call.
    ///
    /// # Errors
    /// [`Error::Vendor`]; [`Error::Unsupported`] for one that the library lacks, which [`Capabilities`] rule out.
    unsafe fn call(&self, comm: &Self::Comm, call: &NativeCall<'_>, stream: RawStream) -> Result<()>;

    /// The sends and receives that follow on this thread are one call. Only where [`crate::Native::Groups`] is there.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    fn group_start(&self) -> Result<()> {
        Err(lacks::<Self>("groups"))
    }

    /// Makes them, as [`Vendor::call`] does, and closes the group, also when that fails. After a call of the group that
    /// has failed it makes none of them; it is called then too.
    ///
    /// # Errors
    /// [`Error::Vendor`].
    fn group_end(&self) -> Result<()> {
        Err(lacks::<Self>("groups"))
    }
}

/// The error of a call that a library lacks; what is composed does not use it.
pub fn lacks<V: Vendor>(what: &str) -> Error {
    Error::Unsupported { what: what.to_owned(), backend: V::BACKEND, instead: None }
}
