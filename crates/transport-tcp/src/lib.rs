//! The ranks of a job over TCP: how they find each other, prove that they belong together, and talk.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`config`] | every setting, in one table; the only file that reads the environment |
//! | [`codec`] | bounded reading and writing of fixed little-endian messages |
//! | [`secret`] | the job's secret and the private files that carry it |
//! | [`handshake`] | mutual authentication of every connection |
//! | [`environment`] | what launchers say about this process |
//! | [`rendezvous`] | the store that ranks use once, to join |

#![forbid(unsafe_code)]

pub mod codec;
pub mod config;
pub mod environment;
pub mod handshake;
pub mod secret;
