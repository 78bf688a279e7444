//! A message that is arriving on a lane, and the memory of its bytes.

use super::frame::Message;
use super::transfer::{Borrowed, Sink};

/// A message that is arriving.
pub(super) struct Incoming {
    pub(super) message: Message,
    pub(super) received: u64,
    pub(super) into: Into,
}

/// The place of an arriving message.
pub(super) enum Into {
    Sink(Sink),
    /// A short message without a receive.
    Queue(Vec<u8>),
}

impl Into {
    pub(super) fn sink(&self) -> Option<&Sink> {
        match self {
            Into::Sink(sink) => Some(sink),
            Into::Queue(_) => None,
        }
    }
}

impl Incoming {
    /// The number of bytes that have not arrived.
    pub(super) fn left(&self) -> u64 {
        self.message.bytes - self.received
    }

    /// Counts `bytes` more bytes as arrived.
    pub(super) fn take(&mut self, bytes: usize, lent: &mut [Borrowed<'_>]) {
        self.received += bytes as u64;
        if let Into::Sink(Sink::Receive(receive)) = &mut self.into {
            receive.moved(lent);
        }
    }

    /// The memory of its next bytes; `None` if the receive has refused the message.
    pub(super) fn room<'r>(&'r mut self, lent: &'r mut [Borrowed<'_>]) -> Option<&'r mut [u8]> {
        let (from, end) = (self.received as usize, self.message.bytes as usize);
        match &mut self.into {
            Into::Sink(Sink::Receive(receive)) => Some(&mut receive.room(lent)[from..end]),
            Into::Sink(Sink::Drain) => None,
            Into::Queue(bytes) => Some(&mut bytes[from..]),
        }
    }
}
