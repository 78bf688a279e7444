//! What a backend of your own is made of: the vocabulary of calls below the typed ones, the gate that every call
//! passes, and the engine that runs schedules over links.
//!
//! A transport implements [`Links`] and [`Control`] and gets a whole communicator, [`EngineCommunicator`]. A library
//! that does its own collectives implements [`Communicator`] with a [`CallGate`].

pub use unisono_backend::*;
pub use unisono_communicator::*;
pub use unisono_engine::*;
pub use unisono_transport_tcp::{BACKEND, TcpCommunicator, TcpJob, TcpLink, TcpLinks};
