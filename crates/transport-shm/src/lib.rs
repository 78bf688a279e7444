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

#[cfg(target_os = "linux")]
mod communicator;
#[cfg(target_os = "linux")]
mod links;
#[cfg(target_os = "linux")]
mod memory_link;

#[cfg(target_os = "linux")]
pub use communicator::{Shm, ShmCommunicator};
#[cfg(target_os = "linux")]
pub use links::{ShmLink, ShmLinks};
#[cfg(target_os = "linux")]
pub use memory_link::{MemoryLink, MemoryStream};
// Elsewhere no memory can be shared in this way.
#[cfg(not(target_os = "linux"))]
pub use unisono_transport_tcp::Tcp as Shm;
