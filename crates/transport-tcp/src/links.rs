//! The links of one communicator on one rank: through memory to the ranks of its host, over TCP to all others.

use std::task::Poll;
use std::time::Instant;

use unisono_backend::Waker;
use unisono_communicator::{GroupRank, Result};
use unisono_engine::{Edge, Interest, Lane, Links, Wake};
use unisono_job::sockets::Way;
use unisono_job::transport::Connections;
use unisono_shared_memory::look_again;

use crate::data_link::{DataLink, Stream};
use crate::memory_stream::MemoryStream;
use crate::sleep::Sleep;
use crate::socket_stream::SocketStream;
use crate::sockets::Sockets;

/// All streams of one communicator.
pub struct DataLinks {
    sockets: Sockets,
    /// By edge, as far as the edge has a stream of its own.
    links: Vec<Option<DataLink>>,
    sleep: Sleep,
    /// By group rank.
    is_checked: Vec<bool>,
}

impl DataLinks {
    /// The links of group rank `own`, with no connection yet. By group rank, `is_checked` says which streams carry
    /// checksums, and `within_host` which are to go through memory.
    pub(crate) fn new(
        own: GroupRank,
        is_checked: Vec<bool>,
        within_host: Vec<bool>,
        connections: Connections,
    ) -> Result<DataLinks> {
        Ok(DataLinks {
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
                if self.sockets.stream(edge) == edge && self.links[edge.index()].is_none() {
                    self.links[edge.index()] = self.make(edge);
                }
            }
        }
    }

    fn make(&self, edge: Edge) -> Option<DataLink> {
        let (sender, receiver) = self.sockets.of(edge)?;
        let stream = match sender.way() {
            Way::Memory(segments) => {
                let segments = segments.clone();
                Stream::Memory(MemoryStream::new(sender, segments))
            }
            Way::Tcp | Way::Unix => Stream::Sockets(SocketStream::new(sender, receiver)),
        };
        Some(DataLink::new(stream, self.is_checked[edge.peer.index()]))
    }

    fn are_open(&self, edges: &[Edge]) -> bool {
        edges.iter().all(|&edge| self.links[self.place(edge)].is_some())
    }

    /// The links for which a thread waits.
    fn each(&mut self, interest: &[Interest], mut act: impl FnMut(&mut DataLink, &Interest)) {
        for one in interest {
            let place = self.place(one.edge);
            if let Some(link) = &mut self.links[place] {
                act(link, one);
            }
        }
    }

    /// The place of an edge's link.
    fn place(&self, edge: Edge) -> usize {
        self.sockets.stream(edge).index()
    }
}

impl Links for DataLinks {
    type L = DataLink;

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

    fn link(&mut self, edge: Edge) -> &mut DataLink {
        let place = self.place(edge);
        #[expect(clippy::expect_used, reason = "the engine asks only for a link that `open` has confirmed")]
        self.links[place].as_mut().expect("the edge is open")
    }

    fn wait(&mut self, interest: &[Interest], until: Instant) -> Wake {
        self.each(interest, DataLink::arm);
        look_again();
        let mut is_ready = false;
        self.each(interest, |link, one| is_ready |= link.is_ready(one));
        let mut sleep = self.sleep.begin();
        if is_ready {
            sleep.is_ready();
        }
        for one in interest {
            if let Some(link) = &self.links[self.sockets.stream(one.edge).index()] {
                link.list(one, &mut sleep);
            }
        }
        let wake = sleep.until(until);
        self.each(interest, |link, _| link.disarm());
        wake
    }

    fn look(&mut self, interest: &[Interest]) -> Option<bool> {
        let mut is_ready = None;
        self.each(interest, |link, one| {
            if let Some(found) = link.look(one) {
                *is_ready.get_or_insert(false) |= found;
            }
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
