//! A test double: links with a clock that the test controls.

use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use unisono_backend::Waker;
use unisono_communicator::Result;
use unisono_engine::{Edge, Interest, Links, Wake};

/// The clock of a test.
pub(crate) trait Clock: Send {
    /// The time.
    fn now(&self) -> Instant;

    /// Called when a sleep begins. Bytes in these directions end the sleep.
    fn notice(&mut self, _interest: &[Interest]) {}

    /// Whether a waker wakes nobody.
    fn is_deaf(&self) -> bool {
        false
    }

    /// Passes the time up to `until` in place of a sleep; false if the links must sleep.
    fn skip_to(&mut self, _until: Instant) -> bool {
        false
    }
}

/// Links on a clock of the test.
pub(crate) struct Clocked<K, C> {
    pub(crate) links: K,
    pub(crate) clock: C,
}

impl<K: Links, C: Clock> Links for Clocked<K, C> {
    type L = K::L;

    fn open(&mut self, edges: &[Edge]) -> Poll<Result<()>> {
        self.links.open(edges)
    }

    fn is_open(&mut self, edge: Edge) -> bool {
        self.links.is_open(edge)
    }

    fn link(&mut self, edge: Edge) -> &mut Self::L {
        self.links.link(edge)
    }

    fn wait(&mut self, interest: &[Interest], until: Instant) -> Wake {
        self.clock.notice(interest);
        if self.clock.skip_to(until) { Wake::Expired } else { self.links.wait(interest, until) }
    }

    fn waker(&self) -> Waker {
        if self.clock.is_deaf() { Arc::new(|| {}) } else { self.links.waker() }
    }

    fn shut_down(&mut self) {
        self.links.shut_down();
    }

    fn close(&mut self) {
        self.links.close();
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }
}
