//! Huawei's HCCL, opened at run time: nothing of it is needed to build or to link. Memory and streams of its devices
//! come from ACL, which is opened with it.
//!
//! | file | contents |
//! | --- | --- |
//! | `sys` | the C API of HCCL, ACL and aclnn: types, constants, the tables of functions |
//! | `settings` | [`HcclSettings`]: the folder that a process opens |
//! | `discovery` | [`HcclLibrary`]: the search for its files |
//! | `product` | the reductions and the calls of each device |
//! | `device` | the device with its memory and streams, through ACL: bring-up and tear-down |
//! | `operator` | aclnn's operators: tensors and the two phases |
//! | `signs` | signs of floats as bits, by aclnn |
//! | `combining` | two vectors become one on the device, by aclnn |
//! | `scaling` | multiplication and division on the device, by aclnn |
//! | `vectors` | [`Vectors`]: arithmetic on f32 and their signs, of which kernels of compression are made |
//! | `workspace` | memory that operators need while they run |
//! | `vendor` | its calls on a stream, [`HcclCommunicator`] |
//! | `error` | the meanings of its codes, and their remedies |
//!
//! **Never run on a device.** The signatures come from public headers, and the tests use a test double of HCCL and ACL
//! that was written from them too. Nobody has seen the effect of these calls on Huawei's libraries.

mod combining;
mod device;
mod discovery;
mod error;
mod operator;
mod product;
mod scaling;
mod settings;
mod signs;
#[cfg(test)]
mod signs_tests;
mod sys;
#[cfg(test)]
mod tests;
mod vectors;
#[cfg(test)]
mod vectors_tests;
mod vendor;
#[cfg(test)]
mod vendor_tests;
mod workspace;

pub use discovery::HcclLibrary;
pub use product::Product;
pub use settings::{HcclSettings, SETTINGS};
pub use vectors::Vectors;
pub use vendor::{ARITHMETIC, BACKEND, Hccl, HcclComm, HcclCommunicator, HcclOptions};
