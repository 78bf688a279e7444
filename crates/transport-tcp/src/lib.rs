//! Data between the ranks of a job over TCP: [`Tcp`] is the transport that [`unisono_job::Job::join`] takes.
//!
//! | module | what it does |
//! | --- | --- |
//! | `links` | the data sockets of a communicator, as the engine's links |
//! | `communicator` | the transport, and the communicator that users get |

#![deny(unsafe_code)]

mod communicator;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod links;

pub use communicator::{BACKEND, Tcp, TcpCommunicator};
pub use links::{ByteStream, PollList, Sleep, SocketStream, Sockets, StreamLink, TcpLink, TcpLinks};
