//! A vendor's device as [`crate::Offloaded`] sees it: memory, streams, and events on them.

#![expect(unsafe_code, reason = "memory and streams of a device, by their addresses")]

use std::ffi::c_void;

use unisono_communicator::{DType, Error, Result};

use crate::device_turn::DeviceTurn;

/// The factor or the divisor of elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Multiplication by a factor, for floats only.
    Multiply(f64),
    /// Division by a number of ranks. Integers round towards zero.
    Divide(u32),
}

/// The combination of two values of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combination {
    /// The sum. Integers wrap around.
    Sum,
    /// The product. Integers wrap around.
    Prod,
    /// The smaller one, by IEEE 754's `minimum`: a NaN if one is a NaN, and -0.0 is smaller than 0.0.
    Min,
    /// The larger one, by `maximum`.
    Max,
    /// The sum divided by a number of ranks, which is more than one. The result is rounded once; integers round towards
    /// zero.
    Mean {
        /// The number of ranks.
        ranks: u32,
    },
    /// For integers only.
    BitAnd,
    /// For integers only.
    BitOr,
    /// For integers only.
    BitXor,
}

/// A stream in the vendor's representation: a `cudaStream_t`, an `aclrtStream`, the address of a `sycl::queue`. Zero
/// for memory of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RawStream(pub usize);

impl RawStream {
    /// For calls on memory of the host.
    pub const HOST: RawStream = RawStream(0);

    /// The stream as a C pointer.
    pub fn as_pointer(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

/// An event, which marks a point in a stream, in the vendor's representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawEvent(pub usize);

/// A device: its memory, its streams, and the events on them. Every function may be called from any thread, and leaves
/// the thread's current device as it was.
///
/// # Safety
/// Every unsafe function requires: addresses lie in this device's memory, with as many bytes behind them as the call
/// uses. Nothing else uses these bytes until the work on the stream is done. Streams and events belong to this device
/// and live.
pub trait Device: Send + Sync {
    /// The number of the device.
    fn ordinal(&self) -> u32;

    /// The turn to enqueue the library's calls on the device, and to make and free communicators. All communicators of
    /// this process on the device share one value. `None` if the library itself has a turn
    /// ([`Vendor::turn`](crate::Vendor::turn)).
    fn turn(&self) -> Option<&DeviceTurn> {
        None
    }

    /// Runs `work`, which calls functions of this value, one after the other, and of the library. The needs of each on
    /// the thread, such as that the device is current, may be met once for all.
    fn hold(&self, work: &mut dyn FnMut()) {
        work();
    }

    /// Allocates `bytes` bytes of the device's memory, which is more than 0. Their content is arbitrary, and their
    /// address is aligned for any element.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`] when there is not enough memory.
    fn allocate(&self, bytes: usize) -> Result<*mut c_void>;

    /// Frees memory of [`Device::allocate`]. The work that uses it must be done.
    ///
    /// # Safety
    /// See [`Device`].
    unsafe fn free(&self, address: *mut c_void);

    /// Copies to the device, in stream order. Returns when `from` may be changed.
    ///
    /// # Safety
    /// See [`Device`].
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`].
    unsafe fn upload(&self, to: *mut c_void, from: &[u8], stream: RawStream) -> Result<()>;

    /// Copies to the host, in stream order. Returns when the bytes have arrived, or when nothing will write to them any
    /// more.
    ///
    /// # Safety
    /// See [`Device`].
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`], also for earlier work on the stream.
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

    /// Enqueues the scaling of `count` elements in place. Only for types of
    /// [`Capabilities::scaling`](crate::Capabilities::scaling).
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

    /// Enqueues the combination of `count` elements of the left operand with elements of the right one. Each operation
    /// rounds once, to nearest; narrow floats are f32 in between. `to` is one of the operands, or overlaps neither.
    /// Only for the reductions of [`Capabilities::combining`](crate::Capabilities::combining).
    ///
    /// # Safety
    /// See [`Device`].
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`]; [`unisono_communicator::Error::Unsupported`] if the device lacks the
    /// arithmetic.
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

    /// Makes a stream that waits for no other stream.
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

    /// Makes an event that records no time.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`].
    fn create_event(&self) -> Result<RawEvent>;

    /// Frees an event.
    ///
    /// # Safety
    /// See [`Device`].
    unsafe fn destroy_event(&self, event: RawEvent);

    /// Records the event: it is done when all work that is on the stream now is done.
    ///
    /// # Safety
    /// See [`Device`].
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`].
    unsafe fn record(&self, event: RawEvent, stream: RawStream) -> Result<()>;

    /// Whether the event is done. Does not wait.
    ///
    /// # Safety
    /// See [`Device`].
    ///
    /// # Errors
    /// [`unisono_communicator::Error::Vendor`] for work that has failed.
    unsafe fn is_done(&self, event: RawEvent) -> Result<bool>;

    /// Refuses a stream of another context, and a stream whose work is being captured into a graph, where the work
    /// could not be watched.
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

    /// Notes that work on the device was given up, and may never end. From now on nothing here may wait for all of the
    /// device's work, as some drivers do when they free memory. Memory that such a wait would free is kept instead.
    fn leave_work(&self) {}
}
