//! The fuzz target `store`: the input of the meeting of a job, under cargo-fuzz and as a plain test.
//!
//! Compiled for tests and for cargo-fuzz alone.

#[allow(dead_code, reason = "another crate needs the rest of it")]
#[path = "../../../fuzz/shared/input.rs"]
pub(crate) mod input;
#[cfg(test)]
#[path = "../../../fuzz/shared/replay.rs"]
mod replay;

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, ReadBuf};

pub use crate::rendezvous::fuzz::store;

/// A socket on which everything has arrived that ever will, and that gives so many bytes at a time.
pub(crate) struct BufferedSocket<'a> {
    pub(crate) rest: &'a [u8],
    pub(crate) piece: usize,
}

impl AsyncRead for BufferedSocket<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (head, rest) = self.rest.split_at(self.piece.min(into.remaining()).min(self.rest.len()));
        into.put_slice(head);
        self.rest = rest;
        Poll::Ready(Ok(()))
    }
}

/// The result of something that only waits for such a socket.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits for something else"),
    }
}

#[cfg(test)]
mod tests {
    use super::replay::replay;

    #[test]
    fn fuzzed_words_to_the_store_do_no_harm() {
        replay("store", super::store);
    }
}
