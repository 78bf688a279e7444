//! The vocabulary that every part of unisono shares: what a call is, who the ranks are, what can go wrong.
//!
//! A [`Communicator`] executes a [`Call`]: a [`Descriptor`] (operation, dtype, count, op, root, ...) plus buffers and
//! options. Users write the typed calls of [`Collectives`], which check arguments once, above all backends:
//!
//! ```
//! use unisono_communicator::{Collectives, ReduceOp, Solo};
//! let comm = Solo::new();
//! let mut gradients = vec![0.5f32; 8];
//! comm.all_reduce(&mut gradients, ReduceOp::Sum)?;
//! # Ok::<(), unisono_communicator::Error>(())
//! ```
//!
//! Typed calls take slices, and those of [`CollectivesOnDevice`] elements on a device. Lists, uneven counts and memory
//! of others go into a [`Call`] or an [`OwnedCall`] made by hand, which [`Collectives::issue`] and
//! [`CollectivesAsync::start`] check.
//!
//! This crate starts no thread and opens no file.

#![deny(unsafe_code)]

mod algorithm_name;
mod allocation;
mod buffer;
mod call;
mod check;
mod check_memory;
mod check_segments;
mod collectives;
mod collectives_async;
mod collectives_device;
mod collectives_uneven;
mod communicator;
#[cfg(feature = "cudarc")]
mod cudarc_elements;
mod descriptor;
mod device;
mod device_slice;
mod dtype;
mod ending;
mod error;
mod error_code;
mod float8;
mod group;
mod log;
mod operation;
mod owned;
mod rank;
mod raw_memory;
mod reduce_op;
mod scope;
mod segments;
mod short_text;
mod site;
mod sizes;
mod solo;
mod solo_messages;
mod solo_scope;
mod ticket;
mod work;

pub use algorithm_name::{AlgorithmName, CallAlgorithm};
pub use allocation::{reserve, zeroed};
pub use buffer::{Buffer, BufferMut, Buffers, MemoryKind};
pub use call::{
    CALL_TIMEOUT_DEFAULT, Call, CallOptions, Completion, Counts, Determinism, Outcome, OwnedCall, WhenBusy,
    deadline_after,
};
pub use check::{Lengths, check, check_request, lengths};
pub use collectives::{Collectives, Received};
pub use collectives_async::CollectivesAsync;
pub use collectives_device::{CollectivesOnDevice, OnStream};
pub use collectives_uneven::CollectivesUneven;
pub use communicator::{Communicator, Shrunk, With};
pub use descriptor::{Descriptor, Peer, Place};
pub use device::{DeviceBuffer, DeviceBufferMut, DeviceSpan, DeviceStream};
pub use device_slice::{DeviceElements, DeviceSlice, DeviceSliceMut};
pub use dtype::{
    Bool, Complex, DTYPE_CODE_BYTES, DType, Element, FloatFormat, Kind, OPAQUE_BYTES_MAX, bf16, f8e4m3,
    f8e5m2, f16,
};
pub use ending::{AfterEnd, DoneCallback, Ending, call_back};
pub use error::{Awaited, CallInfo, Certainty, Culprit, Error, Result};
pub use error_code::ErrorCode;
pub use group::{Group, Process};
pub use log::{Holding, LogLevel, Severity, flush_log, is_logged, log, set_log_level};
pub use operation::Operation;
pub use owned::{OwnedBuffer, OwnedBuffers, OwnedMemory};
pub use rank::{GroupRank, JobRank};
pub use raw_memory::Keeper;
pub use reduce_op::{ReduceOp, UserFunction, UserOp};
pub use scope::{ParentCall, Scope};
pub use segments::{Division, Segment, SegmentList, Segments, SegmentsMut};
pub use short_text::ShortText;
pub use site::{Site, SiteText};
pub use sizes::{LENGTHS_KNOWN_MAX, LengthList, Sizes};
pub use solo::Solo;
pub use ticket::Ticket;
pub use unisono_schedule::{Algorithm, Collective, CostModel, Trust, UnknownCollective};
pub use work::{Finished, TypedWork, Work, WorkResult, WorkSource};
