//! Intel's oneCCL, opened at run time: nothing of it is needed to build or to link. Its plugin for processors reaches
//! other ranks over libfabric's TCP provider, so that it needs no MPI.
//!
//! | file | contents |
//! | --- | --- |
//! | `sys` | the C API of oneCCL 2022: types, constants, the table of functions |
//! | `settings` | [`CclSettings`]: where its files are, and the variables that it reads itself |
//! | `discovery` | [`Ccl`]: where its files come from ([`CclOptions`]), and which versions are taken |
//! | `vendor` | its calls, [`CclCommunicator`] |
//! | `queue` | [`SyclFunctions`]: memory of SYCL's devices, for programs that have SYCL |
//! | `error` | the meanings of its codes, and their remedies |
//!
//! oneCCL reads its own variables from the environment when it is opened, and a process must not change its environment
//! while others of its threads read it. So the starter of the process sets them: `CCL_WORKER_OFFLOAD=0` and
//! `CCL_YIELD=sched_yield` where ranks share cores, and `FI_PROVIDER_PATH` for a libfabric that has its providers in
//! files of their own.

mod discovery;
#[cfg(test)]
mod discovery_tests;
mod error;
mod queue;
mod settings;
mod sys;
mod vendor;

pub use discovery::{Ccl, CclOptions, Version};
pub use queue::SyclFunctions;
pub use settings::{CclSettings, SETTINGS};
pub use vendor::{BACKEND, CclComm, CclCommunicator, CclVendor, arithmetic};
