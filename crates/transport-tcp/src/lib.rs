//! The ranks of a job over TCP: how they find each other, prove that they belong together, and talk.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`config`] | every setting, in one table; the only file that reads the environment |
//! | [`codec`] | bounded reading and writing of fixed little-endian messages |
//! | [`secret`] | the job's secret and the private files that carry it |
//! | [`private_files`] | files and directories of one user, closed to others |
//! | [`handshake`] | mutual authentication of every connection |
//! | [`environment`] | what launchers say about this process |
//! | [`rendezvous`] | the store that ranks use once, to join |
//! | [`report`] | the first error of a rank, for the launcher that started it |
//! | [`flight`] | what a rank remembers of its last calls, as a file |
//! | [`job_settings`] | what rank 0 decides for all ranks: the cost model, cores, checksums |
//! | `intervals` | how often ranks show that they live, and how long they may be silent |
//! | `descriptors` | how many descriptors go to strangers |
//! | `size_limit` | files that would become too large |
//! | `checksum` | the header before data and messages that are checked |
//! | `wire` | the messages between control planes, byte by byte |
//! | `control` | the thread that connects, watches the other ranks and spreads failures |
//! | `links` | the data sockets of a communicator, as the engine's links |
//! | `world`, `communicator` | the job, and what users get |

#![deny(unsafe_code)]

mod checksum;
pub mod codec;
mod communicator;
pub mod config;
mod control;
mod descriptors;
pub mod environment;
mod exit;
pub mod flight;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod handshake;
mod intervals;
mod job;
pub mod job_settings;
mod links;
pub mod private_files;
pub mod rendezvous;
pub mod report;
pub mod secret;
mod size_limit;
#[doc(hidden)]
pub mod testing;
mod wire;

pub use communicator::{BACKEND, TcpCommunicator};
pub use job::TcpJob;
pub use links::{TcpLink, TcpLinks};
