//! Connections up to the end of their handshake: accepted before and after this rank knows its job, and dialled.

mod acceptor;
mod early_acceptor;
mod handshake;

pub use acceptor::{Acceptor, Authenticated};
pub(crate) use early_acceptor::{AcceptedConnection, EarlyAcceptor, EarlyListener};
pub use handshake::{initiate, respond};
