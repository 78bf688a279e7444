//! What a vendor's device is to [`crate::Offloaded`]: memory, streams, and events on them.

#![allow(unsafe_code)]

use std::ffi::c_void;

use unisono_communicator::{DType, Error, Result};

use crate::device_turn::DeviceTurn;

/// How many times, or by what, elements are multiplied or divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Multiplied by a factor: floats only.
    Multiply(f64),
    /// Divided by a number of ranks: integers are cut off towards zero.
    Divide(u32),
}

/// What becomes of two values of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combination {
    /// Their sum; of integers without the carry.
    Sum,
    /// Their product; of integers without the carry.
    Prod,
    /// The smaller one, by IEEE 754's `minimum`: a NaN if one is a NaN, and -0.0 is smaller than 0.0.
    Min,
    /// The larger one, by `maximum`.
    Max,
    /// Their sum divided by a number of ranks, which is more than one, rounded once; of integers cut off towards zero.
    Mean {
        /// That number.
        ranks: u32,
    },
    /// Of integers only.
    BitAnd,
    /// Of integers only.
    BitOr,
    /// Of integers only.
    BitXor,
}

/// A stream, as the vendor's library has it: a `cudaStream_t`, an `aclrtStream`, the address of a `sycl::queue`. Zero
/// for memory of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawStream(pub usize);

impl RawStream {
    /// For calls on memory of the host.
    pub const HOST: RawStream = RawStream(0);

    /// As C has it.
    pub fn as_pointer(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

/// A point in a stream, as the vendor's library has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawEvent(pub usize);

/// A device: its memory, its streams, and the events on them. Every function may be called from any thread, and leaves
/// the thread's current device as it was.
///
/// # Safety
/// Of every unsafe function: addresses are of this device's memory, for as many bytes as it says; nobody else uses them
/// until the work on the stream is done; streams and events are of this device and live.
pub trait Device: Send + Sync {
    /// Its number.
    fn ordinal(&self) -> u32;

    /// Whose turn it is to enqueue calls of the library's on it, and to make and free communicators: one value for all
    /// that are on the device in this process. `None` where the library itself has a turn
    /// ([`Vendor::turn`](crate::Vendor::turn)).
    fn turn(&self) -> Option<&DeviceTurn> {
        None
    }

    /// `bytes` bytes of its memory, more than none, of any content, where any element may start.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`] when there is not so much.
    fn allocate(&self, bytes: usize) -> Result<*mut c_void>;

    /// Gives memory of [`Device::allocate`] back, when the work that uses it is done.
    ///
    /// # Safety
    /// See [`Device`].
    unsafe fn free(&self, address: *mut c_void);

    /// Copies to the device, in the order of the stream. Returns when `from` may be changed.
    ///
    /// # Safety
    /// See [`Device`].
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`].
    unsafe fn upload(&self, to: *mut c_void, from: &[u8], stream: RawStream) -> Result<()>;

    /// Copies to the host, in the order of the stream. Returns when the bytes are there, or nothing will write them any
    /// more.
    ///
    /// # Safety
    /// See [`Device`].
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`], also for the work before it on the stream.
    unsafe fn download(&self, to: &mut [u8], from: *const c_void, stream: RawStream) -> Result<()>;

    /// Enqueues a copy on the device; the two do not overlap.
    ///
    /// # Safety
    /// See [`Device`].
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`].
    unsafe fn copy(
        &self,
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        stream: RawStream,
    ) -> Result<()>;

    /// Enqueues the scaling of `count` elements where they are. Only for what
    /// [`Capabilities::scaling`](crate::Capabilities::scaling) has.
    ///
    /// # Safety
    /// See [`Device`].
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`].
    unsafe fn scale(
        &self,
        address: *mut c_void,
        count: usize,
        dtype: DType,
        by: Scale,
        stream: RawStream,
    ) -> Result<()>;

    /// Enqueues the combination of `count` elements of `left` with those of `right`, with one rounding to nearest for
    /// each operation; narrow floats are f32 in between. `to` may be `left` or `right`, or is apart from both. Only for
    /// what [`Capabilities::combining`](crate::Capabilities::combining) has.
    ///
    /// # Safety
    /// See [`Device`].
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`]; [`unisono_communicator::Error::Unsupported`] for what is not there.
    unsafe fn combine(
        &self,
        to: *mut c_void,
        operands: [*const c_void; 2],
        count: usize,
        dtype: DType,
        by: Combination,
        stream: RawStream,
    ) -> Result<()> {
        let (_, _, _, _) = (to, operands, count, stream);
        let (what, instead) = (format!("{by:?} of {dtype} on the device"), None);
        Err(Error::Unsupported { what, backend: "offload", instead })
    }

    /// A new stream, which waits for no other.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`].
    fn create_stream(&self) -> Result<RawStream>;

    /// Frees a stream of [`Device::create_stream`].
    ///
    /// # Safety
    /// See [`Device`].
    unsafe fn destroy_stream(&self, stream: RawStream);

    /// Waits for all work that is on the stream now.
    ///
    /// # Safety
    /// See [`Device`].
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`], also for work that has failed.
    unsafe fn synchronize(&self, stream: RawStream) -> Result<()>;

    /// A new event, which notes no time.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`].
    fn create_event(&self) -> Result<RawEvent>;

    /// Frees an event.
    ///
    /// # Safety
    /// See [`Device`].
    unsafe fn destroy_event(&self, event: RawEvent);

    /// The event is done when all work that is on the stream now is.
    ///
    /// # Safety
    /// See [`Device`].
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`].
    unsafe fn record(&self, event: RawEvent, stream: RawStream) -> Result<()>;

    /// Whether it is done; does not wait.
    ///
    /// # Safety
    /// See [`Device`].
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`] for work that has failed.
    unsafe fn is_done(&self, event: RawEvent) -> Result<bool>;

    /// Refuses a stream that cannot be used: one of another context, and one whose work is being captured into a graph,
    /// which nobody could watch.
    ///
    /// # Safety
    /// The stream lives.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::InvalidArgument`] and [`unisono_communicator::Error::Unsupported`].
    unsafe fn check_stream(&self, stream: RawStream) -> Result<()>;

    /// Refuses an address that is not in memory of this device.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::InvalidArgument`].
    fn check_address(&self, argument: &'static str, address: usize) -> Result<()>;

    /// Work on it was given up, and may never end: from now on nothing here waits for all of the device's work, as some
    /// drivers do when they free memory. What such a wait would come before is kept instead.
    fn leave_work(&self) {}
}
