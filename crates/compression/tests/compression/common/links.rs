//! Links that change a byte of the messages that arrive, or stop to send.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use unisono_communicator::{GroupRank, Result};
use unisono_engine::in_process::InProcessLinks;
use unisono_engine::{Edge, Flow, Interest, Lane, Link, Links, Tap, Wake};

/// The byte of a stream that changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Damage {
    /// The rank that sends the stream.
    pub(crate) from: u32,
    /// The rank that receives it.
    pub(crate) to: u32,
    /// Bytes before it, headers included.
    pub(crate) offset: u64,
    /// The bits to flip; 0 for none.
    pub(crate) flipped: u8,
}

/// The links of one rank, on which a byte changes on its way to this rank.
pub(crate) struct DamagedLinks(DamagedLink);

/// The link that was asked for last.
pub(crate) struct DamagedLink {
    links: InProcessLinks,
    edge: Edge,
    damage: Option<Damage>,
    received: u64,
}

impl DamagedLinks {
    /// The links of rank `rank`.
    pub(crate) fn new(rank: u32, links: InProcessLinks, damage: Damage) -> DamagedLinks {
        let edge = Edge { peer: GroupRank::new(u32::MAX), lane: Lane::Small };
        let damage = (damage.to == rank).then_some(damage);
        DamagedLinks(DamagedLink { links, edge, damage, received: 0 })
    }
}

impl Link for DamagedLink {
    fn try_send(&mut self, bytes: &[IoSlice<'_>], copied_bytes: usize) -> io::Result<usize> {
        self.links.link(self.edge).try_send(bytes, copied_bytes)
    }

    fn unreleased_bytes(&mut self) -> io::Result<u64> {
        self.links.link(self.edge).unreleased_bytes()
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let count = self.links.link(self.edge).try_recv(into)?;
        let is_damaged = |damage: &Damage| self.edge.peer.get() == damage.from;
        if let Some(damage) = self.damage.filter(is_damaged) {
            let bytes = into.iter_mut().flat_map(|slice| slice.iter_mut()).take(count);
            for (_, byte) in (self.received..).zip(bytes).filter(|(at, _)| *at == damage.offset) {
                *byte ^= damage.flipped;
            }
            self.received += count as u64;
        }
        Ok(count)
    }

    fn is_delivered(&mut self) -> bool {
        self.links.link(self.edge).is_delivered()
    }
}

impl Links for DamagedLinks {
    type L = DamagedLink;

    fn open(&mut self, edges: &[Edge]) -> Poll<Result<()>> {
        self.0.links.open(edges)
    }

    fn is_open(&mut self, edge: Edge) -> bool {
        self.0.links.is_open(edge)
    }

    fn link(&mut self, edge: Edge) -> &mut DamagedLink {
        self.0.edge = edge;
        &mut self.0
    }

    fn wait(&mut self, interest: &[Interest], until: Instant) -> Wake {
        self.0.links.wait(interest, until)
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.0.links.waker()
    }

    fn shut_down(&mut self) {
        self.0.links.shut_down();
    }

    fn close(&mut self) {
        self.0.links.close();
    }
}

/// Counts the bytes that a rank sends, headers included.
pub(crate) struct Counter {
    pub(crate) sent: Arc<AtomicU64>,
    /// Only the bytes for this rank, if it is there.
    pub(crate) to: Option<u32>,
}

impl Tap for Counter {
    fn before(&mut self, _edge: Edge, _flow: Flow, bytes: usize) -> io::Result<usize> {
        Ok(bytes)
    }

    fn after(&mut self, edge: Edge, flow: Flow, bytes: usize) {
        if flow == Flow::Out && self.to.is_none_or(|to| edge.peer.get() == to) {
            self.sent.fetch_add(bytes as u64, Ordering::SeqCst);
        }
    }

    fn forbids_sleep(&mut self) -> bool {
        false
    }
}

/// A rank that sends so many bytes to one other and then no more to that one; all its links break when the others
/// have gone on as far as they can.
pub(crate) struct Stopper {
    /// Whether this is that rank.
    pub(crate) is_victim: bool,
    /// The rank that misses the bytes that are not sent.
    pub(crate) deprived: u32,
    /// The number of bytes that it gets.
    pub(crate) bytes: u64,
    /// Some other rank has ended the call without it.
    pub(crate) is_ahead: Arc<AtomicBool>,
    /// When this rank first had something that it did not send.
    pub(crate) since: Option<Instant>,
}

/// The time that the others have for going on: long for a rank that can, since the result of a test depends on it only
/// in how many cases are seen.
const TIME_TO_GO_ON: Duration = Duration::from_millis(30);

impl Tap for Stopper {
    fn before(&mut self, edge: Edge, flow: Flow, bytes: usize) -> io::Result<usize> {
        if !self.is_victim {
            return Ok(bytes);
        }
        if self.is_over() {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if flow == Flow::In || edge.peer.get() != self.deprived {
            return Ok(bytes);
        }
        if self.bytes == 0 {
            self.since.get_or_insert_with(Instant::now);
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(bytes.min(self.bytes as usize))
    }

    fn after(&mut self, edge: Edge, flow: Flow, bytes: usize) {
        if self.is_victim && flow == Flow::Out && edge.peer.get() == self.deprived {
            self.bytes -= bytes as u64;
        }
    }

    fn forbids_sleep(&mut self) -> bool {
        // Also when its time has come between the refusal and this question: only another attempt breaks the links.
        self.since.is_some()
    }
}

impl Stopper {
    fn is_over(&self) -> bool {
        let most = if self.is_ahead.load(Ordering::SeqCst) { TIME_TO_GO_ON / 4 } else { TIME_TO_GO_ON };
        self.since.is_some_and(|since| since.elapsed() > most)
    }
}

/// Links that move few bytes at a time, and those slowly.
#[derive(Default)]
pub(crate) struct Thin {
    next: Option<Instant>,
    /// Whether the last bytes were refused. Nothing but time lets them through, so the rank must not sleep, also when
    /// their time has come between the refusal and the question.
    has_refused: bool,
}

impl Tap for Thin {
    fn before(&mut self, _edge: Edge, flow: Flow, bytes: usize) -> io::Result<usize> {
        if flow == Flow::In {
            return Ok(bytes);
        }
        self.has_refused = self.next.is_some_and(|next| Instant::now() < next);
        if self.has_refused {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(bytes.min(64 * 1024))
    }

    fn after(&mut self, _edge: Edge, flow: Flow, bytes: usize) {
        if flow == Flow::Out {
            // 4 GB/s would be a fast link; this one has 20 MB/s.
            self.next = Some(Instant::now() + Duration::from_nanos(50 * bytes as u64));
        }
    }

    fn forbids_sleep(&mut self) -> bool {
        self.has_refused
    }
}
