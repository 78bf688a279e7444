//! Data between the ranks of a job: through memory within a host, over TCP between hosts. [`Tcp`] is the transport that
//! [`unisono_job::Job::join`] takes.
//!
//! The job agrees with each rank of its host on memory for a connection, and hands it over with the connection
//! ([`unisono_job::sockets::Way`]). A pair without memory uses the sockets themselves. It is slower then, and plans
//! nothing differently.
//!
//! | module | contents |
//! | --- | --- |
//! | `communicator` | the transport, and the communicator that users get |
//! | `links` | the connections of a communicator, as the engine's links |
//! | `data_link` | one link: a stream, with checksums or without |
//! | `socket_stream`, `memory_stream` | a stream over sockets, and a stream through memory |
//! | `records` | the format of a stream with checksums |
//! | `sockets` | the connections of a communicator: asked for, and come |
//! | `sleep` | the sleep of a thread that waits for data |

mod communicator;
mod data_link;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod links;
mod memory_stream;
mod records;
mod sleep;
mod socket_stream;
mod sockets;

pub use communicator::{BACKEND, Tcp, TcpCommunicator};
pub use data_link::DataLink;
pub use links::DataLinks;
