//! The links of one communicator on one rank: through memory to the ranks of its host, over TCP to all others.

use std::io::{self, IoSlice, IoSliceMut};
use std::task::Poll;
use std::time::Instant;

use unisono_backend::Waker;
use unisono_communicator::{GroupRank, Result};
use unisono_engine::{Edge, HeaderBytes, HeaderKey, Interest, Lane, Link, Links, Peeked, Wake};
use unisono_job::sockets::Way;
use unisono_job::transport::Connections;
use unisono_shared_memory::look_again;
use unisono_transport_tcp::{Sleep, Sockets, StreamLink, TcpLink};

use crate::memory_link::{MemoryLink, MemoryStream};

/// One stream between two ranks.
pub enum ShmLink {
    /// Through memory.
    Memory(MemoryLink),
    /// Over sockets.
    Sockets(TcpLink),
}

/// All streams of one communicator.
pub struct ShmLinks {
    sockets: Sockets,
    /// By edge. Through memory, all collectives share the link of the short ones.
    links: Vec<Option<ShmLink>>,
    sleep: Sleep,
    /// By group rank.
    is_checked: Vec<bool>,
}

impl ShmLinks {
    /// The links of group rank `own`, with no connection yet. By group rank, `is_checked` says which streams carry
    /// checksums, and `within_host` which are to go through memory.
    pub(crate) fn new(
        own: GroupRank,
        is_checked: Vec<bool>,
        within_host: Vec<bool>,
        connections: Connections,
    ) -> Result<ShmLinks> {
        Ok(ShmLinks {
            links: (0..within_host.len() * Lane::ALL.len()).map(|_| None).collect(),
            sockets: Sockets::new(own, within_host, connections),
            sleep: Sleep::new()?,
            is_checked,
        })
    }

    /// Makes the links whose connections have all come.
    fn take_sockets(&mut self) {
        while let Some(peer) = self.sockets.take_next() {
            for edge in Lane::ALL.map(|lane| Edge { peer, lane }) {
                if place(&self.links, edge) == edge.index() && self.links[edge.index()].is_none() {
                    self.links[edge.index()] = self.make(edge);
                }
            }
        }
    }

    fn make(&self, edge: Edge) -> Option<ShmLink> {
        let (sender, receiver) = self.sockets.of(edge)?;
        let is_checked = self.is_checked[edge.peer.index()];
        Some(match sender.way() {
            Way::Memory(segments) => {
                let stream = MemoryStream::new(sender.clone(), segments.clone());
                ShmLink::Memory(StreamLink::new(stream, is_checked))
            }
            Way::Tcp | Way::Unix => ShmLink::Sockets(TcpLink::over((sender, receiver), is_checked)),
        })
    }

    fn are_open(&self, edges: &[Edge]) -> bool {
        edges.iter().all(|&edge| self.links[place(&self.links, edge)].is_some())
    }

    /// The streams through memory among the edges for which a thread waits.
    fn memory_streams(&mut self, interest: &[Interest], mut act: impl FnMut(&mut MemoryLink, &Interest)) {
        for one in interest {
            let place = place(&self.links, one.edge);
            if let Some(ShmLink::Memory(link)) = &mut self.links[place] {
                act(link, one);
            }
        }
    }
}

/// Where the link of an edge is.
fn place(links: &[Option<ShmLink>], edge: Edge) -> usize {
    let short = Edge { lane: Lane::Small, ..edge }.index();
    match (edge.lane, &links[short]) {
        (Lane::Large, Some(ShmLink::Memory(_))) => short,
        (Lane::Small | Lane::Large | Lane::PointToPoint, _) => edge.index(),
    }
}

impl Links for ShmLinks {
    type L = ShmLink;

    fn open(&mut self, edges: &[Edge]) -> Poll<Result<()>> {
        if self.are_open(edges) {
            return Poll::Ready(Ok(()));
        }
        self.take_sockets();
        if self.are_open(edges) {
            return Poll::Ready(Ok(()));
        }
        match self.sockets.ask_for(edges) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn is_open(&mut self, edge: Edge) -> bool {
        self.take_sockets();
        self.are_open(&[edge])
    }

    fn link(&mut self, edge: Edge) -> &mut ShmLink {
        let place = place(&self.links, edge);
        // INVARIANT: the engine asks for a link only after `open` has said that it is there.
        self.links[place].as_mut().expect("the edge is open")
    }

    fn wait(&mut self, interest: &[Interest], until: Instant) -> Wake {
        self.memory_streams(interest, |link, one| link.stream_mut().arm(one));
        look_again();
        let mut is_ready = false;
        self.memory_streams(interest, |link, one| {
            is_ready |= link.stream_mut().is_ready() || one.readable && link.holds_bytes();
        });
        let mut sleep = self.sleep.begin();
        if is_ready {
            sleep.is_ready();
        }
        for one in interest {
            match &self.links[place(&self.links, one.edge)] {
                Some(ShmLink::Memory(link)) => link.stream().list(&mut sleep),
                Some(ShmLink::Sockets(link)) => link.list(one, &mut sleep),
                None => {}
            }
        }
        let wake = sleep.until(until);
        self.memory_streams(interest, |link, _| link.stream_mut().disarm());
        wake
    }

    fn look(&mut self, interest: &[Interest]) -> Option<bool> {
        let mut is_ready = None;
        self.memory_streams(interest, |link, one| {
            *is_ready.get_or_insert(false) |=
                link.stream_mut().look(one) || one.readable && link.holds_bytes();
        });
        is_ready
    }

    fn waker(&self) -> Waker {
        self.sleep.waker()
    }

    fn shut_down(&mut self) {
        self.sockets.shut_down();
    }

    fn close(&mut self) {
        self.sockets.close();
        self.links.iter_mut().for_each(|link| *link = None);
    }
}

impl Link for ShmLink {
    fn try_send(&mut self, bytes: &[IoSlice<'_>], copied_bytes: usize) -> io::Result<usize> {
        match self {
            ShmLink::Memory(link) => link.try_send(bytes, copied_bytes),
            ShmLink::Sockets(link) => link.try_send(bytes, copied_bytes),
        }
    }

    fn short_bytes_max(&self) -> Option<usize> {
        match self {
            ShmLink::Memory(link) => link.short_bytes_max(),
            ShmLink::Sockets(_) => None,
        }
    }

    fn try_send_short(&mut self, header: &HeaderBytes, key: HeaderKey, bytes: &[u8]) -> io::Result<bool> {
        match self {
            ShmLink::Memory(link) => link.try_send_short(header, key, bytes),
            ShmLink::Sockets(_) => Ok(false),
        }
    }

    fn unreleased_bytes(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            ShmLink::Memory(link) => link.try_recv(into),
            ShmLink::Sockets(link) => link.try_recv(into),
        }
    }

    fn peek(&mut self, most: usize, header: Option<HeaderKey>) -> Option<io::Result<Peeked<'_>>> {
        match self {
            ShmLink::Memory(link) => link.peek(most, header),
            ShmLink::Sockets(link) => link.peek(most, header),
        }
    }

    fn consume(&mut self, count: usize) {
        match self {
            ShmLink::Memory(link) => link.consume(count),
            ShmLink::Sockets(link) => link.consume(count),
        }
    }

    fn is_delivered(&mut self) -> bool {
        match self {
            ShmLink::Memory(link) => link.is_delivered(),
            ShmLink::Sockets(link) => link.is_delivered(),
        }
    }
}
