//! The conformance suite: what every communicator must do, written once and run on every backend.
//!
//! A suite function is run by all ranks of a world at once, each with its own [`Communicator`]; a backend is one
//! [`Backend`] and one line, `unisono_tests::conformance!(InProcess)`. Results are compared with the plain reference
//! in [`sample`] and [`case`], which shares no code with the engine. Every test runs under a [`mod@watchdog`].
//!
//! [`Communicator`]: unisono_communicator::Communicator

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "variables of tests, no settings of the library")]

mod alone;
pub mod backend;
pub mod bits;
pub mod calls_made;
pub mod capabilities;
pub mod case;
pub mod ccl;
mod companions;
pub mod compiled;
pub mod compressed;
pub mod cuda;
pub mod double;
pub mod doubles;
pub mod kernels_suite;
mod late;
mod offloaded;
pub mod on_device;
pub mod overhead;
#[cfg(doctest)]
mod pages;
pub mod processes;
pub mod program;
pub mod sample;
mod skip;
pub mod suite;
pub mod vendor_files;
pub mod vendor_rank;
pub mod waits;
pub mod watchdog;
pub mod world;

pub use alone::{alone, test_name};
pub use backend::{Backend, FaultyInProcess, InProcess, LateInProcess, MixedChecked, Shm, Tcp, WorldOfOne};
pub use capabilities::{Algorithms, Arithmetic, NanInMinMax};
pub use companions::{companions, companions_with};
pub use offloaded::OffloadedDouble;
pub use processes::Processes;
pub use skip::skip;
pub use watchdog::watchdog;
