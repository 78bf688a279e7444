//! Test doubles of links: all streams are open from the start, and nothing waits.
//!
//! Compiled for tests and cargo-fuzz only.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use unisono_backend::Waker;
use unisono_communicator::Result;

use crate::links::{Edge, Interest, Link, Links, Wake};

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
    pub(crate) is_closed: bool,
}

impl WireDouble {
    pub(crate) fn new(arrived: Vec<u8>, call_bytes: usize) -> WireDouble {
        WireDouble { arrived, read: 0, call_bytes, sent: Vec::new(), is_closed: false }
    }
}

impl Link for WireDouble {
    fn try_send(&mut self, slices: &[IoSlice<'_>], _copied_bytes: usize) -> io::Result<usize> {
        let before = self.sent.len();
        let offered: usize = slices.iter().map(|slice| slice.len()).sum();
        let call_bytes = self.call_bytes.max(offered / CALLS_MAX);
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
