//! Links between ranks of one process that release bytes late: not before the peer has received them.
//!
//! They copy the bytes all the same, so they show whether calls wait for the releases, sleep and wake, and not whether
//! a byte is overwritten too early. A test of the engine shows that (`engine/src/run/tests/late.rs`).

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Instant;

use unisono_backend::Waker;
use unisono_communicator::Result;
use unisono_engine::in_process::InProcessLinks;
use unisono_engine::{Edge, Interest, Lane, Link, Links, Wake};

/// What the ranks of a world know of each other's streams.
#[derive(Clone, Default)]
pub(crate) struct Releases(Arc<Mutex<Ledger>>);

#[derive(Default)]
struct Ledger {
    /// By sender, receiver and lane.
    streams: HashMap<(u32, u32, Lane), StreamLedger>,
    ranks: HashMap<u32, Presence>,
}

/// How far one stream is.
#[derive(Default)]
struct StreamLedger {
    taken: u64,
    received: u64,
    /// The bytes that were not to be copied, and may not be released.
    borrowed: VecDeque<Range<u64>>,
}

/// Whether a rank can still receive.
enum Presence {
    Here(Waker),
    Left,
}

impl Releases {
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The links of one rank.
pub(crate) struct LateLinks {
    link: LateLink,
}

/// The link that was asked for last.
pub(crate) struct LateLink {
    links: InProcessLinks,
    releases: Releases,
    rank: u32,
    edge: Edge,
}

impl LateLinks {
    pub(crate) fn new(rank: u32, links: InProcessLinks, releases: &Releases) -> LateLinks {
        releases.lock().ranks.insert(rank, Presence::Here(links.waker()));
        let nowhere = Edge { peer: unisono_communicator::GroupRank::new(u32::MAX), lane: Lane::Small };
        LateLinks { link: LateLink { links, releases: releases.clone(), rank, edge: nowhere } }
    }

    /// Nobody receives at this end any more, so nothing needs to stay for it.
    fn leave(&self) {
        let mut ledger = self.link.releases.lock();
        ledger.ranks.insert(self.link.rank, Presence::Left);
        for presence in ledger.ranks.values() {
            if let Presence::Here(waker) = presence {
                waker();
            }
        }
    }
}

impl Drop for LateLinks {
    fn drop(&mut self) {
        self.leave();
    }
}

impl LateLink {
    fn peer(&self) -> u32 {
        self.edge.peer.get()
    }
}

impl Link for LateLink {
    fn try_send(&mut self, bytes: &[IoSlice<'_>], copied_bytes: usize) -> io::Result<usize> {
        // The lock is held, so that the peer cannot count bytes as received before they are counted as taken.
        let mut ledger = self.releases.lock();
        let sent = self.links.link(self.edge).try_send(bytes, copied_bytes)?;
        let stream = ledger.streams.entry((self.rank, self.peer(), self.edge.lane)).or_default();
        let start = stream.taken;
        stream.taken += sent as u64;
        if sent > copied_bytes {
            stream.borrowed.push_back(start + copied_bytes as u64..stream.taken);
        }
        Ok(sent)
    }

    fn unreleased_bytes(&mut self) -> io::Result<u64> {
        let ledger = &mut *self.releases.lock();
        if matches!(ledger.ranks.get(&self.peer()), Some(Presence::Left)) {
            return Ok(0);
        }
        let stream = ledger.streams.entry((self.rank, self.peer(), self.edge.lane)).or_default();
        while stream.borrowed.front().is_some_and(|range| range.end <= stream.received) {
            stream.borrowed.pop_front();
        }
        let first = stream.borrowed.front().map(|range| range.start.max(stream.received));
        Ok(first.map_or(0, |first| stream.taken - first))
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let received = self.links.link(self.edge).try_recv(into)?;
        let ledger = &mut *self.releases.lock();
        let stream = ledger.streams.entry((self.peer(), self.rank, self.edge.lane)).or_default();
        stream.received += received as u64;
        if let (false, Some(Presence::Here(waker))) =
            (stream.borrowed.is_empty(), ledger.ranks.get(&self.peer()))
        {
            waker();
        }
        Ok(received)
    }

    fn is_delivered(&mut self) -> bool {
        self.links.link(self.edge).is_delivered()
    }
}

impl Links for LateLinks {
    type L = LateLink;

    fn open(&mut self, edges: &[Edge]) -> Poll<Result<()>> {
        self.link.links.open(edges)
    }

    fn is_open(&mut self, edge: Edge) -> bool {
        self.link.links.is_open(edge)
    }

    fn link(&mut self, edge: Edge) -> &mut LateLink {
        self.link.edge = edge;
        &mut self.link
    }

    fn wait(&mut self, interest: &[Interest], until: Instant) -> Wake {
        self.link.links.wait(interest, until)
    }

    fn waker(&self) -> Waker {
        self.link.links.waker()
    }

    fn shut_down(&mut self) {
        self.link.links.shut_down();
    }

    fn close(&mut self) {
        self.leave();
        self.link.links.close();
    }
}
