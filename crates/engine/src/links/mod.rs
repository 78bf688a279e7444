//! A transport as the engine sees it: byte streams to the peers, which never block, and one place to sleep.

#[cfg(any(test, fuzzing))]
pub(crate) mod doubles;
pub(crate) mod faulty;
pub(crate) mod tapped;
pub(crate) mod traced;

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::AtomicU8;
use std::task::Poll;
use std::time::Instant;

use unisono_backend::{Peers, Waker};
use unisono_communicator::{CallInfo, Error, GroupRank, Result};

use crate::plan::header::{HeaderBytes, HeaderKey};

/// The stream between two ranks that a message takes. Both ranks derive it from fields of the call that headers
/// compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Short collectives. Both directions share one socket, so that acknowledgements ride on data.
    Small,
    /// Long collectives. Each direction has its own socket, so that neither waits for the buffers of the other.
    Large,
    /// Sends and receives, which have no order with collectives.
    PointToPoint,
}

impl Lane {
    /// Every lane.
    pub const ALL: [Lane; 3] = [Lane::Small, Lane::Large, Lane::PointToPoint];
}

/// One duplex byte stream from this rank to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The peer, which is never this rank itself.
    pub peer: GroupRank,
    /// The stream to that peer.
    pub lane: Lane,
}

impl Edge {
    /// A dense number for tables: three edges per peer.
    pub fn index(self) -> usize {
        self.peer.index() * Lane::ALL.len() + self.lane as usize
    }
}

/// The reason why a stream cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The stream has ended, or the peer has violated the protocol.
    Lost(String),
    /// A checksum shows that bytes changed on their way.
    Corrupted(String),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        match error.kind() {
            io::ErrorKind::InvalidData => Broken::Corrupted(error.to_string()),
            _ => Broken::Lost(error.to_string()),
        }
    }
}

impl From<&str> for Broken {
    fn from(reason: &str) -> Broken {
        Broken::Lost(reason.to_owned())
    }
}

impl Broken {
    /// The failure of a call that needs the stream from `peer`.
    pub(crate) fn error(self, peers: &Peers, peer: GroupRank, call: Option<CallInfo>) -> Error {
        match self {
            Broken::Lost(reason) => peers.disconnected(peer, reason, call),
            Broken::Corrupted(reason) => peers.corrupted(peer, reason, call),
        }
    }
}

/// The most bytes of a short message, behind a header of at most 1 KiB. A link that takes whole messages takes so many
/// as one, and [`Link::peek`] shows them in one piece.
pub const WHOLE_BYTES_MAX: usize = 31 << 10;

/// For [`Link::try_send`]: copy every byte.
pub const COPY_ALL: usize = usize::MAX;

/// One duplex byte stream to one peer. It never blocks.
///
/// A byte is *posted* when [`Link::try_send`] has taken it, and *released* when its owner may overwrite it. A copying
/// link releases bytes as it takes them. Any other link reads them in place, and releases them later.
pub trait Link {
    /// Takes as many bytes as fit now, from the first slice on. The caller must offer the remaining bytes again, before
    /// any new bytes: a link may have promised them to the peer.
    ///
    /// The link copies the first `copied_bytes` of the taken bytes. The caller must neither move nor change the other
    /// taken bytes until the link has released them, or until [`Links::shut_down`] or [`Links::close`] has returned.
    ///
    /// # Errors
    /// `WouldBlock` when no byte fits. Any other error means that the peer is lost.
    fn try_send(&mut self, bytes: &[IoSlice<'_>], copied_bytes: usize) -> io::Result<usize>;

    /// Whether [`Link::try_send_whole`] is cheaper than [`Link::try_send`] for a message of a header and this number of
    /// bytes.
    fn takes_whole(&self, bytes: u64) -> bool {
        let _ = bytes;
        false
    }

    /// Takes a call's header and the bytes behind it, or nothing; they are copied. `key` stands for the header: headers
    /// of equal keys are equal. A peer that sleeps may learn of the bytes only from [`Link::notify`].
    ///
    /// # Errors
    /// Any error means that the peer is lost.
    fn try_send_whole(&mut self, header: &HeaderBytes, key: HeaderKey, bytes: &[u8]) -> io::Result<bool> {
        let _ = (header, key, bytes);
        Ok(false)
    }

    /// Takes all bytes of both slices, or nothing; they are copied. A peer that sleeps may learn of them only from
    /// [`Link::notify`]. A link without a cheap way takes nothing.
    ///
    /// # Errors
    /// Any error means that the peer is lost.
    fn try_send_all(&mut self, bytes: [IoSlice<'_>; 2]) -> io::Result<bool> {
        let _ = bytes;
        Ok(false)
    }

    /// Whether the next bytes are not all to be copied; `is_faster` says whether reading these bytes in place is
    /// expected to be faster within a host. A wrapper asks its inner link.
    fn takes_in_place(&mut self, is_faster: bool) -> bool {
        let _ = is_faster;
        true
    }

    /// The number of taken bytes that are not released; 0 for a link that copies everything. The link releases bytes in
    /// order, at the latest when the peer's `try_recv` has given them, without another call of the peer. A wrapper asks
    /// its inner link.
    ///
    /// # Errors
    /// Any error means that the peer is lost.
    fn unreleased_bytes(&mut self) -> io::Result<u64>;

    /// Fills the slices in order with arrived bytes. Never takes more than the slices hold.
    ///
    /// # Errors
    /// `WouldBlock` when nothing has arrived. `InvalidData` when bytes changed on their way; the link gives none of
    /// them. `Ok(0)` and any other error mean that the peer is lost.
    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// The bytes that have arrived, where they lie: at most `most` of them, which is not 0. They stay there until
    /// [`Link::consume`], but the peer may change them at any time. `None` for a link that only copies bytes out. A
    /// wrapper asks its inner link.
    ///
    /// A call that waits for a header gives the key of it. If a short message with this header comes next, the answer
    /// is true with the bytes behind the header, which counts as received and takes part of `most`; there may be none.
    ///
    /// # Errors
    /// As [`Link::try_recv`]; false without a byte means that the peer is lost.
    fn peek(&mut self, most: usize, header: Option<HeaderKey>) -> Option<io::Result<(bool, &[AtomicU8])>> {
        let _ = (most, header);
        None
    }

    /// The first `count` of the bytes that [`Link::peek`] has given are needed no more. A peer that sleeps may learn of
    /// the room only from [`Link::notify`].
    ///
    /// # Panics
    /// When it has not given so many.
    fn consume(&mut self, count: usize) {
        assert_eq!(count, 0, "this link gives no bytes where they lie");
    }

    /// Wakes a peer that sleeps and waits for the bytes of [`Link::try_send_whole`] or for the room of
    /// [`Link::consume`].
    fn notify(&mut self) {}

    /// Whether all sent bytes will arrive even if this process ends now.
    fn is_delivered(&mut self) -> bool;
}

/// The events of one edge that end the engine's sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// The edge.
    pub edge: Edge,
    /// Wake when bytes have arrived (or the peer is lost).
    pub readable: bool,
    /// Wake when bytes can be sent (or the peer is lost).
    pub writable: bool,
    /// Wake when [`Link::unreleased_bytes`] becomes less (or the peer is lost).
    pub releasable: bool,
}

/// Why [`Links::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// An edge is ready, a new edge has arrived, or another thread called the waker.
    Ready,
    /// The time has come, without such an event since the last sleep. An event that is not reported is lost, because
    /// the engine may sleep on.
    Expired,
}

/// All streams of one communicator on one rank.
pub trait Links: Send {
    /// The stream type.
    type L: Link;

    /// Starts to open all edges that are not open yet, at once. Ready when all are open. New streams arrive on the
    /// transport's own thread, which wakes [`Links::wait`].
    ///
    /// # Errors
    /// When a peer refuses or cannot be reached.
    fn open(&mut self, edges: &[Edge]) -> Poll<Result<()>>;

    /// Whether the edge is open; either side may have opened it.
    fn is_open(&mut self, edge: Edge) -> bool;

    /// The stream of an edge.
    ///
    /// # Panics
    /// When the edge is not open.
    fn link(&mut self, edge: Edge) -> &mut Self::L;

    /// Sleeps until an edge is ready, a new edge arrives, the waker is called, or `until` has come. An edge that has
    /// arrived in [`Links::open`] or [`Links::is_open`] since the last sleep counts too: the engine may not have looked
    /// since.
    fn wait(&mut self, interest: &[Interest], until: Instant) -> Wake;

    /// Whether one of these edges is ready, for a rank that looks again and again before it gives its core away.
    /// `None` if none of them can be seen without a system call.
    fn look(&mut self, interest: &[Interest]) -> Option<bool> {
        let _ = interest;
        None
    }

    /// A handle that ends a [`Links::wait`] from another thread.
    fn waker(&self) -> Waker;

    /// Ends the outgoing half of every open stream: the peers receive the sent bytes, then the end. The incoming half
    /// can still be read. When it returns, links have copied or dropped all unreleased bytes, and read none in place.
    fn shut_down(&mut self);

    /// Closes every stream for good; peers see their end.
    fn close(&mut self);

    /// The clock of deadlines. Simulated links have their own.
    fn now(&self) -> Instant {
        Instant::now()
    }
}
