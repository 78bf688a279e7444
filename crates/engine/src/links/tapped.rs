//! Links with a tap: one wrapper for everything that watches or disturbs links.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::AtomicU8;
use std::task::Poll;
use std::time::Instant;

use unisono_communicator::{GroupRank, Result};

use unisono_backend::Waker;

use crate::links::{Edge, Interest, Link, Links, Wake};
use crate::plan::header::HeaderKey;

/// The direction of bytes, seen from this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To the peer.
    Out,
    /// From the peer.
    In,
}

/// Watches or disturbs links, between the engine and the transport.
pub trait Tap: Send {
    /// Called before at most `bytes` bytes move on `edge`. Returns how many of them may move.
    ///
    /// # Errors
    /// The engine gets the error as the link's answer.
    fn before(&mut self, edge: Edge, flow: Flow, bytes: usize) -> io::Result<usize>;

    /// Called after `bytes` bytes have moved.
    fn after(&mut self, edge: Edge, flow: Flow, bytes: usize);

    /// Called before a sleep. Returns true to prevent it, if this tap has hidden that a link is ready: then nothing
    /// would end the sleep. It stays true until the engine has tried again, even if time alone has made the link ready.
    fn forbids_sleep(&mut self) -> bool;
}

/// Links seen through a [`Tap`].
pub struct Tapped<K, T> {
    link: TappedLink<K, T>,
}

/// One link of a [`Tapped`].
pub struct TappedLink<K, T> {
    links: K,
    tap: T,
    edge: Edge,
}

impl<K: Links, T: Tap> Tapped<K, T> {
    /// Puts `tap` between the engine and `links`.
    pub fn with_tap(links: K, tap: T) -> Tapped<K, T> {
        let nowhere = Edge { peer: GroupRank::new(u32::MAX), lane: crate::links::Lane::Small };
        Tapped { link: TappedLink { links, tap, edge: nowhere } }
    }
}

impl<K: Links, T: Tap> Link for TappedLink<K, T> {
    fn try_send(&mut self, slices: &[IoSlice<'_>], copied_bytes: usize) -> io::Result<usize> {
        let wanted = slices.iter().map(|slice| slice.len()).sum();
        let allowed = self.tap.before(self.edge, Flow::Out, wanted)?;
        let link = self.links.link(self.edge);
        let sent = if allowed >= wanted {
            link.try_send(slices, copied_bytes)?
        } else {
            let first: &[u8] = slices.iter().find(|slice| !slice.is_empty()).map_or(&[], |slice| slice);
            link.try_send(&[IoSlice::new(&first[..allowed.min(first.len())])], copied_bytes)?
        };
        self.tap.after(self.edge, Flow::Out, sent);
        Ok(sent)
    }

    fn takes_in_place(&mut self, is_faster: bool) -> bool {
        self.links.link(self.edge).takes_in_place(is_faster)
    }

    fn unreleased_bytes(&mut self) -> io::Result<u64> {
        self.links.link(self.edge).unreleased_bytes()
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let wanted = into.iter().map(|slice| slice.len()).sum();
        let allowed = self.tap.before(self.edge, Flow::In, wanted)?;
        let link = self.links.link(self.edge);
        let received = match into.iter_mut().find(|slice| !slice.is_empty()) {
            Some(first) if allowed < wanted => {
                let end = allowed.min(first.len());
                link.try_recv(&mut [IoSliceMut::new(&mut first[..end])])?
            }
            _ => link.try_recv(into)?,
        };
        self.tap.after(self.edge, Flow::In, received);
        Ok(received)
    }

    /// Headers come as bytes, which the tap counts.
    fn peek(&mut self, most: usize, _header: Option<HeaderKey>) -> Option<io::Result<(bool, &[AtomicU8])>> {
        match self.tap.before(self.edge, Flow::In, most) {
            Ok(allowed) => self.links.link(self.edge).peek(allowed.clamp(1, most), None),
            Err(error) => Some(Err(error)),
        }
    }

    fn consume(&mut self, count: usize) {
        self.links.link(self.edge).consume(count);
        self.tap.after(self.edge, Flow::In, count);
    }

    fn notify(&mut self) {
        self.links.link(self.edge).notify();
    }

    fn is_delivered(&mut self) -> bool {
        self.links.link(self.edge).is_delivered()
    }
}

impl<K: Links, T: Tap> Links for Tapped<K, T> {
    type L = TappedLink<K, T>;

    fn open(&mut self, edges: &[Edge]) -> Poll<Result<()>> {
        self.link.links.open(edges)
    }

    fn is_open(&mut self, edge: Edge) -> bool {
        self.link.links.is_open(edge)
    }

    fn link(&mut self, edge: Edge) -> &mut TappedLink<K, T> {
        self.link.edge = edge;
        &mut self.link
    }

    fn wait(&mut self, interest: &[Interest], until: Instant) -> Wake {
        if self.link.tap.forbids_sleep() { Wake::Ready } else { self.link.links.wait(interest, until) }
    }

    fn waker(&self) -> Waker {
        self.link.links.waker()
    }

    fn shut_down(&mut self) {
        self.link.links.shut_down();
    }

    fn close(&mut self) {
        self.link.links.close();
    }

    fn now(&self) -> Instant {
        self.link.links.now()
    }
}
