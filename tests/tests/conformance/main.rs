//! What every communicator must do, on every backend of ours; and ranks that are processes, devices, inputs by chance.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![expect(clippy::disallowed_methods, reason = "variables of tests, no settings of the library")]

mod comms_log;
mod compressing;
mod device;
mod endings;
mod faulty;
mod frames;
mod in_process;
mod kernels;
mod late;
mod leaving;
mod mismatch;
mod mixed_checked;
mod pages;
mod processes;
mod property;
mod shm;
mod solo;
mod tcp;
mod tcp_processes;
