//! Connections up to the end of their handshake: accepted, also before this rank knows its job, and dialled.

mod acceptor;
mod handshake;
mod listener;
pub(crate) mod local;
mod memory;
mod single_copy;
mod stream;

pub(crate) use acceptor::{Acceptor, Authenticated, Terms};
pub(crate) use handshake::{initiate, respond};
pub use listener::Listener;
pub(crate) use memory::RingShare;
pub use memory::{RING_BYTES, memory_problem};
pub use single_copy::SingleCopy;
pub(crate) use stream::Stream;
