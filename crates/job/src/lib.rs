//! The steps by which processes become the ranks of a job, and stay connected: the environments of launchers, the
//! secret, the meeting, the thread that connects and watches, flight records. The conclusions of the ranks are in
//! `unisono_control`; a [`transport`] moves the data.
//!
//! | module | contents |
//! | --- | --- |
//! | [`config`], [`settings`] | the settings of a rank, and their rows |
//! | [`environment`] | the variables of launchers about this process |
//! | [`secret`], [`private_files`] | the source of the secret; files that are closed to other users |
//! | [`rendezvous`] | the store that ranks use once, to join |
//! | [`job_settings`] | the decisions of rank 0 for all ranks: the cost model, cores, checksums |
//! | [`job`](Job) | the job as this process sees it |
//! | [`transport`] | the seam for transports |
//! | `connecting`, [`sockets`] | connections up to the end of their handshake; sockets and their options |
//! | `control_thread` | the thread that connects, watches the other ranks and spreads failures |
//! | [`report`] | the first error of a rank, for the launcher that started it |
//! | [`store`] | calls of the key-value stores of a job |
//! | [`flight`] | a rank's record of its last calls, as a file |
//! | [`comms_log`] | the communication log of a process, from its settings to its end |
//! | `task_thread`, `answers` | a thread for asynchronous tasks; a caller's wait for the answer of such a thread |
//! | `pmi` | the key-value store of PMI-1 |
//! | `descriptors`, `size_limit`, `exit` | few descriptors, files that would become too large, the end of the process |

mod answers;
pub mod comms_log;
pub mod config;
mod connecting;
mod control_thread;
mod descriptors;
pub mod environment;
mod exit;
pub mod flight;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod job;
pub mod job_settings;
mod meeting_store;
mod pmi;
pub mod private_files;
#[cfg(test)]
#[path = "../../../tests/src/program.rs"]
mod program;
#[cfg(test)]
mod programs;
pub mod rendezvous;
pub mod report;
pub mod secret;
pub mod settings;
mod size_limit;
#[cfg(test)]
#[path = "../../../tests/src/skip.rs"]
mod skip;
pub mod sockets;
pub mod store;
mod task_thread;
pub mod transport;

pub use connecting::{Listener, RING_BYTES, SingleCopy, memory_problem};
pub use job::Job;
pub use meeting_store::MeetingStore;
pub use unisono_communicator::{open_regular, read_regular};
pub use unisono_shared_memory::{Budget, MemoryLimit, Nonce, OtherProcess, cgroup_path, with_parents};
