//! The types that every part of unisono shares: calls, ranks, memory, errors, [`settings`].
//!
//! A [`Communicator`] executes a [`Call`]: a [`Descriptor`] (operation, dtype, count, op, root, ...) plus buffers and
//! options. Users write the typed calls of `Collectives`, which check arguments once, above all backends:
//!
//! ```
//! # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*}; }
//! use unisono::{Collectives, ReduceOp, Solo};
//! let comm = Solo::new();
//! let mut gradients = vec![0.5f32; 8];
//! comm.all_reduce(&mut gradients, ReduceOp::Sum)?;
//! # Ok::<(), unisono::Error>(())
//! ```
//!
//! Typed calls take slices; the calls of `CollectivesOnDevice` take elements on a device. For lists, uneven counts
//! and foreign memory, make a [`Call`] or an [`OwnedCall`] and pass it to `Collectives::issue` or
//! `CollectivesAsync::start`.
//!
//! This crate opens only files that its caller names. It starts at most one thread, which writes log lines of threads
//! that must not wait.

mod aside;
mod call;
mod check;
mod comms_log;
mod communicator;
mod elements;
mod error;
mod executor;
mod group;
mod interrupt;
mod life;
mod log;
mod memory;
mod message;
mod monotonic;
mod named_file;
mod scope;
pub mod settings;
mod short_text;
mod work;

pub use aside::{Aside, NotTaken};
pub use bytes::Bytes;
pub use call::body::{BodyStage, CallBody};
pub use call::counts::{Counts, LENGTHS_KNOWN_MAX, LengthList, Sizes};
pub use call::descriptor::{Descriptor, Peer, Place, Tag};
pub use call::info::{CallAlgorithm, CallInfo, SiteText};
pub use call::log_name::LogName;
pub use call::operation::Operation;
pub use call::options::{
    AlgorithmName, CALL_TIMEOUT_DEFAULT, CallOptions, Determinism, Profile, WhenBusy, deadline_after,
};
pub use call::outcome::{Completion, Outcome, Ticket};
pub use call::parent::{ParentCall, ScopeId};
pub use call::prepared::{PreparedCall, PreparedNumber};
pub use call::shape::CallShape;
pub use call::site::Site;
pub use call::skipped::SkippedOperations;
pub use call::{Call, OwnedCall};
pub use check::{Lengths, check, check_label, check_options, check_request, lengths};
pub use comms_log::CommsLogger;
pub use comms_log::clocks::{ClockOffset, HostClock, host_clocks};
pub use comms_log::config::CommsLoggerConfig;
pub use comms_log::counters::{Counted, Counters};
pub use comms_log::figures::{Bandwidth, busbw_factor, shares, size_bytes};
pub use comms_log::histogram::Histogram;
pub use comms_log::link_time::LinkTime;
pub use comms_log::observations::Observations;
pub use comms_log::recorded::{EnteredCall, RecordedCall, RecordedEnd};
pub use comms_log::recording::Recording;
pub use comms_log::report::{CommsReport, CommsRow, size_text, write_table};
pub use communicator::{Communicator, Shrunk};
pub use elements::dtype::{
    Bool, Complex, DTYPE_CODE_BYTES, DType, Element, FloatFormat, Kind, OPAQUE_BYTES_MAX, bf16, f8e4m3,
    f8e5m2, f16,
};
pub use elements::reduce_op::{ReduceOp, UserFunction, UserOp};
pub use error::code::ErrorCode;
pub use error::{Awaited, Certainty, Culprit, Error, Result};
pub use executor::Executor;
pub use group::Group;
pub use group::options::{GroupBackend, GroupOptions};
pub use group::process::Process;
pub use group::rank::{GroupRank, JobRank};
pub use interrupt::{InterruptCheck, has_interrupt_check, interrupt_check};
pub use life::Life;
pub use log::{Holding, LogLevel, Severity, flush_log, is_logged, log, set_log_level};
pub use memory::allocation::{reserve, zeroed};
pub use memory::device::{DeviceBuffer, DeviceBufferMut, DeviceSpan, DeviceStream};
pub use memory::device_slice::{DeviceElements, DeviceSlice, DeviceSliceMut};
pub use memory::host::{Segments, SegmentsMut};
pub use memory::owned::{OwnedBuffers, OwnedMemory};
pub use memory::raw::{Keeper, OwnedBuffer};
pub use memory::segments::{Division, Segment, SegmentList};
pub use memory::{Buffer, BufferMut, Buffers, MemoryKind};
pub use message::{FoundMessage, Probed, Received};
pub use monotonic::monotonic_ns;
pub use named_file::{open_regular, read_regular};
pub use scope::{OpenScope, Scope};
pub use short_text::{ShortText, beginning};
pub use unisono_schedule::{Algorithm, Collective, CostModel, SplitMix, Trust, UnknownCollective, mix64};
pub use work::ending::{AfterEnd, DoneCallback, Ending, call_back};
pub use work::many::{wait_all, wait_any, wait_any_timeout};
pub use work::{Finished, FromMemory, TypedWork, Work, WorkSource};
