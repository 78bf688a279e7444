//! What the test doubles of vendors' libraries share. A double is a library with a vendor's C ABI and no device: it
//! exists so that loading, order of arguments, streams, errors and hangs are tested where no vendor's library runs.
//! It proves nothing of speed, nor that the vendor's binary behaves so.
//!
//! * Device memory is host memory with a device's number, guards around it and rubbish in it ([`memory`]).
//! * A stream is a queue and a thread ([`stream`]): a call returns before its work is done.
//! * Ranks are threads or processes. They find each other by the unique id ([`root`]), and each pair has a TCP
//!   connection over loopback ([`mesh`]).
//! * A collective is one exchange ([`movement`]): each rank sends each other one what that one needs, and computes
//!   its result in the order of ranks, so that all have the same bits.
//! * Threads that meet where a vendor forbids it are counted ([`callers`]).
//! * Everything can be made to fail or to hang ([`fault`]), and everything that lives is counted ([`handles`]).
//!
//! Settings come from the environment, `UNISONO_DOUBLE_DEVICES=2`, or from the name of the library's file,
//! `libnccl-double.devices=2.so` ([`settings`]): a process can open copies that differ.

pub mod callers;
mod clock;
pub mod control;
pub mod element;
mod export;
pub mod fault;
pub mod file;
pub mod handles;
pub mod memory;
pub mod mesh;
pub mod movement;
mod number;
pub mod pointer;
pub mod root;
pub mod settings;
pub mod stream;
pub mod text;
pub mod work;

pub use element::{Element, Reduction};
pub use handles::Handles;
pub use pointer::{In, Out, Text};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a thread has panicked: a double goes on as a vendor's library does.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread of a double's own, under a name of its own: without one it would inherit its caller's name, maybe
/// that of a vendor's thread.
///
/// # Panics
/// When the system has no thread left.
#[expect(clippy::expect_used, reason = "a double without its thread is none")]
pub fn start_thread(body: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().name("double".to_owned()).spawn(body).expect("the system has a thread left");
}
