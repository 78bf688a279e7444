//! Runs schedules over links: the engine that every transport shares.
//!
//! A transport implements [`Links`] (byte streams that never block) and [`unisono_backend::Control`] (spread a failure,
//! ask a silent rank). An [`EngineCommunicator`] is made of both. The engine knows no sockets; [`in_process`] runs it
//! between threads.

mod calls;
mod communicator;
mod drive;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod in_process;
mod links;
mod memory;
mod options;
mod plan;
mod point_to_point;
mod reduce;
mod registration;
mod run;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use calls::progress_threads::ProgressThreads;
pub use communicator::{EngineCommunicator, Parts};
pub use links::faulty::{FaultPlan, Faults, Faulty};
pub use links::tapped::{Flow, Tap, Tapped, TappedLink};
pub use links::traced::{TRACE_EVENTS_MAX, Trace, TraceEvent, Traced};
pub use links::{COPY_ALL, Edge, Interest, Lane, Link, Links, WHOLE_BYTES_MAX, Wake};
pub use options::{EngineOptions, SharedRegistry};
pub use plan::header::PIECE_BYTES_MAX;
pub use plan::header::{HEADER_BYTES, HEADER_VERSION, HeaderBytes, HeaderKey, header_digest};
pub use plan::{LARGE_CALL_BYTES_MIN, PIECE_BYTES};
pub use unisono_schedule::CostModel;

/// Takes a lock even if a holder has panicked: the guarded value is valid at every step.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
