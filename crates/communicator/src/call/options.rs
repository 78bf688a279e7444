//! A caller's options: deadline, label, algorithm, order of reduction, a place in the queue.

use std::time::{Duration, Instant};

use unisono_schedule::{NotInterned, intern};

use crate::call::log_name::LogName;
use crate::error::{Error, Result};
use crate::short_text::ShortText;

/// The name of an algorithm that a caller forces. The process keeps the text for ever, so the name is `Copy`.
///
/// The constructor takes any name, so that options need no `unwrap`. A call refuses a name that could not be kept
/// ([`Error::InvalidArgument`]).
///
/// ```
/// use unisono_communicator::AlgorithmName;
/// assert_eq!(AlgorithmName::new("ring").text()?, "ring");
/// assert!(AlgorithmName::new(&"x".repeat(257)).text().is_err());
/// # Ok::<(), unisono_communicator::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlgorithmName(std::result::Result<&'static str, NotInterned>);

impl AlgorithmName {
    /// The name. Cost: a lock and a search; make the options once, not for each call.
    pub fn new(name: &str) -> AlgorithmName {
        AlgorithmName(intern(name))
    }

    /// Its text.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a name of more than [`unisono_schedule::INTERNED_BYTES_MAX`] bytes, and when the
    /// process already keeps [`unisono_schedule::INTERNED_MAX`] names.
    pub fn text(self) -> Result<&'static str> {
        self.0.map_err(|problem| Error::invalid("algorithm", problem.to_string()))
    }
}

/// Default deadline of a call.
pub const CALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(600);

/// The longest timeout. A year is as good as never, and every clock can represent it.
const ENDLESS: Duration = Duration::from_secs(366 * 24 * 3600);

/// `now` plus `timeout`. The result is at most a year away, so [`Duration::MAX`] means "no timeout".
pub fn deadline_after(now: Instant, timeout: Duration) -> Instant {
    now + timeout.min(ENDLESS)
}

/// A caller's demand on the order of a reduction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Determinism {
    /// Any proven algorithm. The result has the same bits on all ranks, and again in each run of the same shape. The
    /// sign and the payload of a NaN are excepted: processors and compilers choose these.
    #[default]
    AnyOrder,
    /// Only the canonical summation tree, one for each number of ranks. The bits of the result do not depend on the
    /// vector's length, the piece size and the transport, but for the sign and the payload of a NaN.
    Fixed,
}

/// The fate of a call while another thread is in a call of the same communicator. A call past a scope that its own
/// thread has open is refused in any case; see [`crate::Scope`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenBusy {
    /// [`crate::Error::ConcurrentUse`], because the threads of other ranks may come in another order. Only a call with
    /// a label waits: labels are compared, so they reveal a wrong order.
    #[default]
    Refuse,
    /// The call waits, first come first served. The caller guarantees the same order on the other ranks.
    Queue,
}

/// Whether the communication log records a call; see [`crate::CommsLogger`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// The log's configuration decides.
    #[default]
    AsConfigured,
    /// Whenever the log is on.
    Always,
    /// Never.
    Never,
}

/// A caller's options for one call; see `Collectives::with`.
///
/// ```
/// # use unisono_communicator as unisono;
/// use std::time::{Duration, Instant};
/// use unisono::CallOptions;
/// let options = CallOptions::new().timeout(Duration::from_secs(5)).algorithm("ring");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CallOptions {
    /// The deadline, from the call's start; the communicator's default when `None`.
    pub timeout: Option<Duration>,
    /// The label; ranks compare it.
    pub label: Option<ShortText>,
    /// The algorithm by name. The call fails if it does not fit.
    pub algorithm: Option<AlgorithmName>,
    /// The order of reduction.
    pub determinism: Determinism,
    /// Whether the call waits for another thread's call.
    pub when_busy: WhenBusy,
    /// Whether the call runs although its operation is switched off; see [`crate::SkippedOperations`].
    pub is_needed: bool,
    /// Whether the companion makes the call where the backend refuses memory of the host.
    pub host_by_companion: bool,
    /// Whether the communication log records the call.
    pub profile: Profile,
    /// The name of the call in the communication log; ranks do not compare it.
    pub log_name: Option<LogName>,
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

    /// Gives the call a label of at most [`ShortText::BYTES_MAX`] bytes, which ranks compare. The call refuses a longer
    /// label with [`crate::Error::InvalidArgument`].
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

    /// Queues the call behind the calls of other threads, instead of [`crate::Error::ConcurrentUse`]. The wait counts
    /// for the deadline: if the deadline passes in the queue, [`crate::Error::Timeout`] revokes the communicator. An
    /// asynchronous call waits before its handle is returned.
    ///
    /// ```
    /// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
    /// use unisono::{CallOptions, Collectives, ReduceOp, Solo};
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

    /// Runs the call although its operation is switched off ([`crate::SkippedOperations`]): its result steers the
    /// program.
    pub fn needed(mut self) -> CallOptions {
        self.is_needed = true;
        self
    }

    /// Lets the [companion](crate::Communicator::companion) make the call where a vendor's library works on a device
    /// and its backend refuses memory of the host: for a few values that steer the program, beside the data on the
    /// device. The same on every rank. On other backends it changes nothing.
    pub fn host_by_companion(mut self) -> CallOptions {
        self.host_by_companion = true;
        self
    }

    /// Names the call in the communication log ([`crate::CommsLogger`]), in place of its label or operation: with at
    /// most [`ShortText::BYTES_MAX`] bytes. Other ranks may give another name. Make such options once; see [`LogName`].
    pub fn log_name(mut self, text: &str) -> CallOptions {
        self.log_name = Some(LogName::new(text));
        self
    }

    /// Records the call in the communication log whenever the log is on, or never; else the log's configuration
    /// decides.
    #[doc(alias = "prof")]
    pub fn profiled(mut self, is_profiled: bool) -> CallOptions {
        self.profile = if is_profiled { Profile::Always } else { Profile::Never };
        self
    }

    /// These options; an option that is not set here comes from `outer`.
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
            is_needed: self.is_needed || outer.is_needed,
            host_by_companion: self.host_by_companion || outer.host_by_companion,
            profile: match self.profile {
                Profile::AsConfigured => outer.profile,
                Profile::Always | Profile::Never => self.profile,
            },
            log_name: self.log_name.or(outer.log_name),
        }
    }
}
