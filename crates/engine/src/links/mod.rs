//! A transport as the engine sees it: byte streams to the peers, and one place to sleep. Streams never block.

#[cfg(any(test, fuzzing))]
pub(crate) mod doubles;
pub(crate) mod faulty;
pub(crate) mod tapped;
pub(crate) mod traced;

use std::io::{self, IoSlice, IoSliceMut};
use std::task::Poll;
use std::time::Instant;

use unisono_backend::{Peers, Waker};
use unisono_communicator::{CallInfo, Error, GroupRank, Result};

/// The stream between two ranks on which a message travels. Both sides derive it from fields of the call that headers
/// compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Short collectives. Both directions have one socket, so that acknowledgements ride on data.
    Small,
    /// Long collectives. Each direction has a socket, so that neither waits for the other's buffers.
    Large,
    /// Sends and receives, which are not ordered with collectives.
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

/// Why a stream cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// It has ended, or the peer has violated the protocol.
    Lost(String),
    /// Bytes were changed on their way, as a checksum shows.
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

/// For [`Link::try_send`]: every byte is to be copied.
pub const COPY_ALL: usize = usize::MAX;

/// One duplex byte stream to one peer; never blocks.
///
/// A byte is *posted* when [`Link::try_send`] has taken it, and *released* when its owner may overwrite it. A copying
/// link releases bytes as soon as it takes them. Any other link reads them in place later, and releases them then.
pub trait Link {
    /// Takes as many bytes as fit now, from the first slice on. The caller must offer the other bytes again, before any
    /// new ones: a link may have promised them to the peer.
    ///
    /// Of the taken bytes the link copies the first `copied_bytes`. The caller must neither move nor change the other
    /// taken bytes until the link has released them, or until [`Links::shut_down`] or [`Links::close`] has returned.
    ///
    /// # Errors
    /// `WouldBlock` when no byte fits. Any other error means that the peer is lost.
    fn try_send(&mut self, bytes: &[IoSlice<'_>], copied_bytes: usize) -> io::Result<usize>;

    /// How many of the taken bytes are not released. The link releases bytes in their order, at the latest when the
    /// peer's `try_recv` has given them; no further call of the peer is needed. A link that copies everything returns
    /// 0. A wrapper asks the link inside.
    ///
    /// # Errors
    /// Any error means that the peer is lost.
    fn unreleased_bytes(&mut self) -> io::Result<u64>;

    /// Fills the slices in order with the arrived bytes. Never takes more than the slices hold.
    ///
    /// # Errors
    /// `WouldBlock` when nothing has arrived. `InvalidData` when bytes were changed on their way; the link gives none
    /// of them. `Ok(0)` and any other error mean that the peer is lost.
    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

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
    /// The time has come, and no such event since the last sleep. The engine may sleep on after this, so an event that
    /// is forgotten here is lost.
    Expired,
}

/// All streams of one communicator on one rank.
pub trait Links: Send {
    /// The stream type.
    type L: Link;

    /// Starts to open all edges that are not open yet, at once. Ready when all edges are open. New streams arrive from
    /// the transport's own thread, which wakes [`Links::wait`].
    ///
    /// # Errors
    /// When a peer refuses or cannot be reached.
    fn open(&mut self, edges: &[Edge]) -> Poll<Result<()>>;

    /// Whether the edge is open, whichever side opened it.
    fn is_open(&mut self, edge: Edge) -> bool;

    /// The stream of an edge.
    ///
    /// # Panics
    /// When the edge is not open.
    fn link(&mut self, edge: Edge) -> &mut Self::L;

    /// Sleeps until an edge is ready, a new edge arrives, the waker is called, or `until` has come.
    fn wait(&mut self, interest: &[Interest], until: Instant) -> Wake;

    /// A handle that ends a [`Links::wait`] from another thread.
    fn waker(&self) -> Waker;

    /// Ends the outgoing half of every open stream: the peers receive the sent bytes, and then the end of the stream.
    /// The incoming half can still be read. Afterwards a link reads no unreleased bytes: it has copied or dropped them.
    fn shut_down(&mut self);

    /// Closes every stream for good; peers see their end.
    fn close(&mut self);

    /// The clock of deadlines; simulated links have their own.
    fn now(&self) -> Instant {
        Instant::now()
    }
}
