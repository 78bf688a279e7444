//! Connections up to the end of their handshake: accepted, also before this rank knows its job, and dialled.

mod acceptor;
mod handshake;
pub(crate) mod local;
mod stream;

pub(crate) use acceptor::{Acceptor, Authenticated};
pub(crate) use handshake::{initiate, respond};
pub(crate) use stream::Stream;
