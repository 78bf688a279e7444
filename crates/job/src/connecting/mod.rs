//! Connections up to the end of their handshake: accepted, also before this rank knows its job, and dialled.

mod acceptor;
mod handshake;
pub(crate) mod local;
mod stream;

pub use acceptor::{Acceptor, Authenticated};
pub use handshake::{initiate, respond};
pub use stream::Stream;
