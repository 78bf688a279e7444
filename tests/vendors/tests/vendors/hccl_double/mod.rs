//! HCCL's backend over a test double of HCCL, ACL and aclnn: plumbing, errors and hangs. What Huawei's libraries do on
//! a device is not shown here.

mod algorithms;
mod compressed;
mod faults;
mod on_device;
mod suite;
mod turns;
