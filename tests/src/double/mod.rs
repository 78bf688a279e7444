//! A test double of an accelerator and of a vendor's backend: device memory is host memory, a stream is a thread, and
//! calls on a stream run through another communicator.

mod communicator;
mod device;

pub use communicator::DeviceDouble;
pub use device::{Device, DeviceArray};
