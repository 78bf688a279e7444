//! Test doubles of links: all streams are open from the start, and nothing waits.
//!
//! Compiled for tests and cargo-fuzz only.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::task::Poll;
use std::time::Instant;

use unisono_backend::Waker;
use unisono_communicator::Result;

use crate::links::{Edge, Interest, Link, Links, Wake};
use crate::plan::header::HeaderKey;

/// A double of [`Links`], defined by its streams alone.
pub trait LinksDouble: Send {
    type Stream: Link;

    fn stream(&mut self, edge: Edge) -> &mut Self::Stream;
}

impl<D: LinksDouble> Links for D {
    type L = D::Stream;

    fn open(&mut self, _edges: &[Edge]) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn is_open(&mut self, _edge: Edge) -> bool {
        true
    }

    fn link(&mut self, edge: Edge) -> &mut D::Stream {
        self.stream(edge)
    }

    fn wait(&mut self, _interest: &[Interest], _until: Instant) -> Wake {
        Wake::Expired
    }

    fn waker(&self) -> Waker {
        Arc::new(|| {})
    }

    fn shut_down(&mut self) {}

    fn close(&mut self) {}
}

/// About the most calls for one stream: a long stream in short pieces takes time and finds nothing more.
const CALLS_MAX: usize = 64;

/// The only stream of a rank. The fuzzer decides which bytes arrive, and how many bytes a call moves.
pub(crate) struct WireDouble {
    pub(crate) arrived: Vec<u8>,
    pub(crate) read: usize,
    call_bytes: usize,
    /// The bytes that this side has sent.
    pub(crate) sent: Vec<u8>,
    /// The most bytes that it keeps sent.
    pub(crate) capacity: usize,
    pub(crate) is_closed: bool,
    /// Whether it takes messages whole, and shows the arrived bytes where they lie.
    pub(crate) is_direct: bool,
    peeked: Vec<AtomicU8>,
}

impl WireDouble {
    pub(crate) fn new(arrived: Vec<u8>, call_bytes: usize) -> WireDouble {
        WireDouble {
            arrived,
            read: 0,
            call_bytes,
            sent: Vec::new(),
            capacity: usize::MAX,
            is_closed: false,
            is_direct: false,
            peeked: Vec::new(),
        }
    }
}

impl Link for WireDouble {
    fn try_send(&mut self, slices: &[IoSlice<'_>], _copied_bytes: usize) -> io::Result<usize> {
        let before = self.sent.len();
        let offered: usize = slices.iter().map(|slice| slice.len()).sum();
        let call_bytes = self.call_bytes.max(offered / CALLS_MAX).min(self.capacity - before);
        if call_bytes == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        for slice in slices {
            let room = call_bytes - (self.sent.len() - before);
            self.sent.extend_from_slice(&slice[..room.min(slice.len())]);
        }
        Ok(self.sent.len() - before)
    }

    fn unreleased_bytes(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let before = self.read;
        let call_bytes = self.call_bytes.max((self.arrived.len() - before) / CALLS_MAX);
        for slice in into {
            let left = self.arrived.len() - self.read;
            let bytes = slice.len().min(call_bytes - (self.read - before)).min(left);
            slice[..bytes].copy_from_slice(&self.arrived[self.read..self.read + bytes]);
            self.read += bytes;
        }
        let is_pause = self.read == before && !self.is_closed;
        if is_pause { Err(ErrorKind::WouldBlock.into()) } else { Ok(self.read - before) }
    }

    fn try_send_all(&mut self, slices: [IoSlice<'_>; 2]) -> io::Result<bool> {
        let offered = slices.iter().map(|slice| slice.len()).sum::<usize>();
        let takes = self.is_direct && offered <= self.capacity - self.sent.len();
        if takes {
            slices.iter().for_each(|slice| self.sent.extend_from_slice(slice));
        }
        Ok(takes)
    }

    fn peek(&mut self, most: usize, _header: Option<HeaderKey>) -> Option<io::Result<(bool, &[AtomicU8])>> {
        let arrived = self.arrived[self.read..].iter().take(most.min(self.call_bytes));
        self.peeked = arrived.map(|byte| AtomicU8::new(*byte)).collect();
        let is_pause = self.peeked.is_empty() && !self.is_closed;
        let shown = if is_pause { Err(ErrorKind::WouldBlock.into()) } else { Ok((false, &self.peeked[..])) };
        self.is_direct.then_some(shown)
    }

    fn consume(&mut self, count: usize) {
        self.read += count;
    }

    fn is_delivered(&mut self) -> bool {
        true
    }
}

impl LinksDouble for WireDouble {
    type Stream = WireDouble;

    fn stream(&mut self, _edge: Edge) -> &mut WireDouble {
        self
    }
}
