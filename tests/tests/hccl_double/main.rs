//! HCCL's backend over a test double of HCCL, ACL and aclnn: plumbing, errors and hangs. What Huawei's libraries do on
//! a device is not shown here.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod algorithms;
mod compressed;
mod faults;
mod on_device;
mod suite;
