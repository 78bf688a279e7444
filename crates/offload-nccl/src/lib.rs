//! NVIDIA's NCCL, opened at run time: nothing of it is needed to build or to link. Memory and streams of a device come
//! from the driver (`unisono-cuda`), which is opened at run time too.
//!
//! | file | contents |
//! | --- | --- |
//! | `sys` | the C API of NCCL 2.19 to 2.32: types, constants, the table of functions |
//! | `settings` | [`NcclSettings`]: the files that a process opens |
//! | `discovery` | [`NcclLibrary`]: the search for its file, and the check of its version |
//! | `device` | the device with its memory and streams, through the driver |
//! | `arithmetic` | the kernels that add messages, for algorithms by name |
//! | `comm` | a communicator, which any thread may abort; the group that a thread has open |
//! | `vendor` | its calls on a stream, [`NcclCommunicator`] |
//! | `error` | the meanings of its codes, and their remedies |
//!
//! AMD's RCCL has the same functions by the same names, and is found by its own file name. Its memory and streams are
//! HIP's, which nothing here opens, so [`Nccl::open`] refuses it.

mod arithmetic;
mod comm;
mod device;
mod discovery;
#[cfg(test)]
mod discovery_tests;
mod error;
mod settings;
mod sys;
mod vendor;
#[cfg(test)]
mod vendor_tests;

pub use arithmetic::source as arithmetic_source;
pub use comm::NcclComm;
pub use device::CudaDevice;
pub use discovery::{NcclLibrary, Version};
pub use settings::{NcclSettings, SETTINGS};
pub use vendor::{ARITHMETIC, BACKEND, Nccl, NcclCommunicator, NcclOptions};
