//! The means by which the ranks of a job stay one job: their messages to each other, and the conclusions of each. State
//! machines without sockets, threads or a clock of their own: bytes, requests and time go in, messages and [`Effect`]s
//! come out.
//!
//! | module | contents |
//! | --- | --- |
//! | `control_plane` | [`ControlPlane`]: all of one rank; the requests of its engines, the tasks of its owner |
//! | `topology`, `detector`, `flood`, `forwarding`, `plane` | connections, live ranks, forwarded news |
//! | `dials` | connections that are wanted and not there: when they are dialled, and given up |
//! | `probes` | the ranks of a host that may have gone silently, and which survivor looks for which of them |
//! | `process_ends` | the processes of this host that have ended, and whose ranks may have said goodbye |
//! | `clocks` | how far the clocks of other hosts are ahead |
//! | [`hosts`] | which ranks share a host, and whose report proves a loss |
//! | `connections` | the connections whose two sides know each other, until they carry messages |
//! | [`slots`] | which of two simultaneous connections is kept |
//! | [`local_communicator`], [`local_communicators`] | the effect of news on one or all of this rank's |
//! | `communicator_map` | the communicators of this rank by key, and which of them have changed |
//! | [`left_communicators`] | the communicators that this rank has left: whether all ranks made the same calls |
//! | [`derived_key`] | the key of a communicator that was made from another one |
//! | `agreement`, `survival` | how survivors agree on a flag and on the ranks that are left |
//! | [`wire`] | the messages between control planes, byte by byte |
//! | [`handshake`], [`secret`] | mutual authentication of every connection, and its proof |
//! | [`roster`] | the ranks that have come to the meeting of a job, and the answer to all |
//! | [`hash`] | a hash that all ranks compute alike |
//! | [`store`] | a key-value store for the program |
//! | [`codec`] | bounded reading and writing of fixed little-endian messages |
//! | [`checksum`] | the header before messages and data that are checked |
//! | [`intervals`] | how often ranks show that they live, and how long they may be silent |
//! | `simulation` | whole jobs in one thread, for tests |

mod agreement;
pub mod checksum;
mod clocks;
pub mod codec;
mod communicator_map;
mod connections;
mod control_plane;
#[cfg(test)]
mod control_plane_tests;
pub mod derived_key;
mod detector;
mod dials;
mod flood;
mod forwarding;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod handshake;
pub mod hash;
pub mod hosts;
pub mod intervals;
#[cfg(test)]
mod job_tests;
pub mod left_communicators;
pub mod local_communicator;
pub mod local_communicators;
mod plane;
#[cfg(test)]
mod plane_tests;
mod probes;
#[cfg(test)]
mod probes_tests;
mod process_ends;
pub mod roster;
#[cfg(test)]
mod scale;
pub mod secret;
#[cfg(test)]
mod simulation;
pub mod slots;
pub mod store;
mod survival;
#[cfg(test)]
mod survival_tests;
mod topology;
pub mod wire;

pub use connections::{ConnectionNumber, ConnectionStep, End};
pub use control_plane::{Caller, ControlPlane, Effect, Request};
pub use dials::{DialFailure, DialTimeouts, Failure};
pub use plane::{Plane, Presence};

/// The most ranks of a job.
pub const RANKS_MAX: u32 = 65_535;
