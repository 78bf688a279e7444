//! Runs schedules over links: the engine that every transport shares.
//!
//! A transport implements [`Links`] (byte streams that never block) and [`Control`] (spread a failure, ask a silent
//! rank) and gets a whole [`EngineCommunicator`]. The engine knows no sockets; [`in_process`] runs it between threads.

#![deny(unsafe_code)]

mod active;
mod baton;
mod bell;
mod board;
mod communicator;
mod control;
mod faulty;
mod fork;
mod header;
#[cfg(any(test, fuzzing))]
pub mod hostile;
pub mod in_process;
mod job;
mod layout;
mod links;
mod memory;
mod messages;
mod peers;
mod plan;
mod planner;
mod point_to_point;
mod progress;
mod queue;
mod reduce;
mod run;
mod stream;
mod survival;
mod tapped;
mod tasks;
mod traced;

pub use board::{Board, CALLS_REMEMBERED, CallStatus, Farewell, Revocation};
pub use communicator::{EngineCommunicator, EngineOptions, Parts};
pub use control::{
    Agreed, Ask, Control, Question, asked_next, farewell_error, judge_answer, mismatch, not_agreed,
    status_text,
};
pub use faulty::{FaultPlan, Faults, Faulty};
pub use header::{HEADER_BYTES, HEADER_VERSION, header_digest};
pub use links::{Edge, Interest, Lane, Link, Links, Wake, Waker};
pub use peers::Peers;
pub use plan::{LARGE_CALL_BYTES_MIN, PIECE_BYTES, PIECE_BYTES_MAX};
pub use tapped::{Flow, Tap, Tapped, TappedLink};
pub use traced::{TRACE_EVENTS_MAX, Trace, TraceEvent, Traced};
pub use unisono_schedule::Parameters;
