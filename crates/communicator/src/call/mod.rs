//! One call value: a descriptor, the buffers, and the caller's options.

pub(crate) mod counts;
pub(crate) mod descriptor;
pub(crate) mod operation;
pub(crate) mod options;
pub(crate) mod outcome;
pub(crate) mod parent;
pub(crate) mod site;

use std::fmt;
use std::time::{Duration, Instant};

use crate::call::descriptor::Descriptor;
use crate::call::options::AlgorithmName;
use crate::call::outcome::Ticket;
use crate::call::site::Site;
use crate::elements::reduce_op::UserFunction;
use crate::memory::device::DeviceStream;
use crate::memory::owned::OwnedBuffers;
use crate::memory::{Buffers, MemoryKind};
use crate::short_text::ShortText;

/// Default deadline of a call.
pub const CALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(600);

/// The longest timeout. A year is as good as never, and every clock can represent it.
const ENDLESS: Duration = Duration::from_secs(366 * 24 * 3600);

/// The end of `timeout`, counted from `now`; at most a year away, so that [`Duration::MAX`] means "no timeout".
pub fn deadline_after(now: Instant, timeout: Duration) -> Instant {
    now + timeout.min(ENDLESS)
}

/// What a caller may require of the order of a reduction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Determinism {
    /// Any proven algorithm. The result is bit-identical on all ranks, and from run to run of the same shape.
    #[default]
    AnyOrder,
    /// The canonical summation tree only: the same bits at any size, piece size and transport.
    Fixed,
}

/// What becomes of a call while another thread is in a call of the same communicator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenBusy {
    /// [`crate::Error::ConcurrentUse`], since nothing says that the other ranks' threads come in the same order. Only a
    /// labelled call waits its turn: its label reveals a wrong order.
    #[default]
    Refuse,
    /// It waits its turn, first come first served. The caller vouches for the order on the other ranks.
    Queue,
}

/// A caller's options for one call; see [`crate::Collectives::with`].
///
/// ```
/// use std::time::{Duration, Instant};
/// use unisono_communicator::CallOptions;
/// let options = CallOptions::new().timeout(Duration::from_secs(5)).algorithm("ring");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CallOptions {
    /// The deadline, from the call's start; the communicator's default when `None`.
    pub timeout: Option<Duration>,
    /// Compared between ranks.
    pub label: Option<ShortText>,
    /// The algorithm by name. The call fails if it does not fit.
    pub algorithm: Option<AlgorithmName>,
    /// The order of reduction.
    pub determinism: Determinism,
    /// Whether it waits for another thread's call.
    pub when_busy: WhenBusy,
}

impl CallOptions {
    /// No option set.
    pub fn new() -> CallOptions {
        CallOptions::default()
    }

    /// Ends the call with [`crate::Error::Timeout`] after this long.
    pub fn timeout(mut self, timeout: Duration) -> CallOptions {
        self.timeout = Some(timeout);
        self
    }

    /// Gives the call a name of at most [`ShortText::BYTES_MAX`] bytes, compared between ranks. A longer one is
    /// [`crate::Error::InvalidArgument`] when the call is made.
    pub fn label(mut self, text: &str) -> CallOptions {
        self.label = Some(ShortText::new(text));
        self
    }

    /// Forces an algorithm; see [`AlgorithmName`].
    pub fn algorithm(mut self, name: &str) -> CallOptions {
        self.algorithm = Some(AlgorithmName::new(name));
        self
    }

    /// Chooses the order of reduction.
    pub fn determinism(mut self, determinism: Determinism) -> CallOptions {
        self.determinism = determinism;
        self
    }

    /// Queues the call behind those of other threads in place of [`crate::Error::ConcurrentUse`]. The wait counts: when
    /// the deadline passes in it, the communicator is revoked with [`crate::Error::Timeout`], as by any late call. An
    /// asynchronous call waits before its handle is returned.
    ///
    /// ```
    /// use unisono_communicator::{CallOptions, Collectives, ReduceOp, Solo};
    /// let comm = Solo::new();
    /// let queued = comm.with(CallOptions::new().queued());
    /// std::thread::scope(|scope| {
    ///     for _ in 0..4 {
    ///         scope.spawn(|| queued.all_reduce(&mut [1u32], ReduceOp::Sum).unwrap());
    ///     }
    /// });
    /// ```
    pub fn queued(mut self) -> CallOptions {
        self.when_busy = WhenBusy::Queue;
        self
    }

    /// These options, with those of `outer` for what is not set here.
    pub fn or(&self, outer: &CallOptions) -> CallOptions {
        CallOptions {
            timeout: self.timeout.or(outer.timeout),
            label: self.label.or(outer.label),
            algorithm: self.algorithm.or(outer.algorithm),
            determinism: match self.determinism {
                Determinism::AnyOrder => outer.determinism,
                Determinism::Fixed => Determinism::Fixed,
            },
            when_busy: match self.when_busy {
                WhenBusy::Refuse => outer.when_busy,
                WhenBusy::Queue => WhenBusy::Queue,
            },
        }
    }
}

/// Element counts per rank, for the calls whose counts differ by rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Counts {
    /// The descriptor's count holds for every rank.
    #[default]
    Even,
    /// The share of each rank, for all_gather_v, reduce_scatter_v, gather_v and scatter_v: every rank gives all.
    PerRank(Vec<u64>),
    /// What this rank sends to each rank and receives from each, for all_to_all_v.
    PerPair {
        /// Elements to each rank.
        send: Vec<u64>,
        /// Elements from each rank.
        receive: Vec<u64>,
    },
}

/// A call on borrowed memory: blocking on the host, enqueued on a device. [`crate::Collectives::issue`] makes it.
pub struct Call<'a> {
    /// The operation and its arguments.
    pub descriptor: Descriptor,
    /// The memory that it reads and writes.
    pub buffers: Buffers<'a>,
    /// The stream in whose order it runs; `None` on host memory, and never on device memory.
    pub stream: Option<DeviceStream>,
    /// Uneven counts.
    pub counts: Counts,
    /// The caller's options.
    pub options: CallOptions,
    /// The function of a [`crate::ReduceOp::User`].
    pub user_function: Option<UserFunction>,
    /// The line that called.
    pub site: Site,
}

/// An asynchronous call on owned memory. [`crate::CollectivesAsync::start`] makes it.
pub struct OwnedCall {
    /// The operation and its arguments.
    pub descriptor: Descriptor,
    /// The memory that it reads and writes.
    pub buffers: OwnedBuffers,
    /// The stream in whose order it runs; `None` on host memory, and never on device memory.
    pub stream: Option<DeviceStream>,
    /// Uneven counts.
    pub counts: Counts,
    /// The caller's options.
    pub options: CallOptions,
    /// The function of a [`crate::ReduceOp::User`].
    pub user_function: Option<UserFunction>,
    /// The line that called.
    pub site: Site,
}

/// The call and the line that made it, as errors show a call without a number.
impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.descriptor, self.site)
    }
}

/// As [`Call`] is shown.
impl fmt::Display for OwnedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.descriptor, self.site)
    }
}

impl<'a> Call<'a> {
    /// A call with even counts, no stream and no options, at the line that calls this.
    #[track_caller]
    pub fn new(descriptor: Descriptor, buffers: Buffers<'a>) -> Call<'a> {
        let (counts, options, site) = (Counts::Even, CallOptions::default(), Site::caller());
        Call { descriptor, buffers, stream: None, counts, options, user_function: None, site }
    }

    /// Where its memory lies. What has no memory, such as a barrier, is a call on the device if it has a stream.
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
    /// A call with even counts, no stream and no options, at the line that calls this.
    #[track_caller]
    pub fn new(descriptor: Descriptor, buffers: OwnedBuffers) -> OwnedCall {
        let (counts, options, site) = (Counts::Even, CallOptions::default(), Site::caller());
        OwnedCall { descriptor, buffers, stream: None, counts, options, user_function: None, site }
    }

    /// Where its memory lies; see [`Call::memory`].
    pub fn memory(&self) -> MemoryKind {
        memory_kind(self.stream, self.buffers.on_device())
    }

    /// The same call on borrowed buffers.
    pub fn borrow(&mut self) -> Call<'_> {
        Call {
            descriptor: self.descriptor,
            buffers: self.buffers.borrow(),
            stream: self.stream,
            counts: self.counts.clone(),
            options: self.options,
            user_function: self.user_function.clone(),
            site: self.site,
        }
    }
}

/// How far a call got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The result is in the buffer.
    Done,
    /// The operation is switched off; the buffers are untouched.
    Skipped,
    /// Enqueued on the device's stream: the result will be in the buffer for what is enqueued there behind it. The
    /// ticket tells when that is so, and a late error.
    StreamOrdered(Ticket),
}

/// What is known of a call that has ended, or of one that was enqueued on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How far it got.
    pub completion: Completion,
    /// The rank that sent the message (receives).
    pub source: Option<u32>,
    /// The message's tag (receives).
    pub tag: u32,
    /// Bytes received (receives) or bytes of this rank's buffer (collectives).
    pub bytes: u64,
    /// The algorithm that ran.
    pub algorithm: &'static str,
}

impl Outcome {
    /// A call that was enqueued on a stream, and moves `bytes` by `algorithm`.
    pub const fn enqueued(ticket: Ticket, bytes: u64, algorithm: &'static str) -> Outcome {
        Outcome { completion: Completion::StreamOrdered(ticket), ..Outcome::done(bytes, algorithm) }
    }

    /// The ticket of a call that was enqueued on a stream; `None` when the call has ended.
    pub const fn ticket(&self) -> Option<Ticket> {
        match self.completion {
            Completion::StreamOrdered(ticket) => Some(ticket),
            Completion::Done | Completion::Skipped => None,
        }
    }

    /// A finished call that moved `bytes` by `algorithm`.
    pub const fn done(bytes: u64, algorithm: &'static str) -> Outcome {
        Outcome { completion: Completion::Done, source: None, tag: 0, bytes, algorithm }
    }
}
