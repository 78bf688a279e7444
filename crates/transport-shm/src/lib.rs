//! Data between the ranks of a job: through memory within a host, over TCP between hosts. [`Shm`] is the transport that
//! [`unisono_job::Job::join`] takes.
//!
//! The job agrees with each rank of its host on memory for a connection, and hands it over with the connection
//! ([`unisono_job::sockets::Way`]). A pair without memory uses the sockets themselves. It is slower then, and plans
//! nothing differently.
//!
//! | module | what it does |
//! | --- | --- |
//! | `memory_link` | a stream through memory, as a link |
//! | `links` | the links of a communicator, each through memory or over sockets |
//! | `communicator` | the transport |

#![deny(unsafe_code)]

mod communicator;
mod links;
mod memory_link;

pub use communicator::{Shm, ShmCommunicator};
pub use links::{ShmLink, ShmLinks};
pub use memory_link::{MemoryLink, MemoryStream};
