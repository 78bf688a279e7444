//! Test doubles. Of an accelerator and of a vendor's backend: device memory is host memory, a stream is a thread, and
//! calls on a stream run through another communicator. Of a vendor's library: [`LibraryDouble`].

mod communicator;
mod device;
mod library;

pub use communicator::DeviceDouble;
pub use device::{Device, DeviceArray};
pub use library::{Fault, LibraryComm, LibraryDouble, LibraryRoom, Moment};
