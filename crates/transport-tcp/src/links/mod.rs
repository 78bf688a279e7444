//! The data sockets of one communicator on one rank, as the engine's links.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod records;
mod sleep;
mod sockets;
mod stream_link;
mod tcp_link;

use std::task::Poll;
use std::time::Instant;

use unisono_backend::Waker;
use unisono_communicator::{GroupRank, Result};
use unisono_engine::{Edge, Interest, Lane, Links, Wake};
use unisono_job::transport::Connections;

pub use sleep::{PollList, Sleep};
pub use sockets::Sockets;
pub use stream_link::{ByteStream, StreamLink};
pub use tcp_link::{SocketStream, TcpLink};

/// All sockets of one communicator.
pub struct TcpLinks {
    sockets: Sockets,
    links: Vec<Option<TcpLink>>,
    sleep: Sleep,
    /// By group rank.
    is_checked: Vec<bool>,
}

impl TcpLinks {
    /// The links of group rank `own`, with no socket yet; `is_checked` says by group rank which streams carry
    /// checksums.
    pub(crate) fn new(own: GroupRank, is_checked: Vec<bool>, connections: Connections) -> Result<TcpLinks> {
        let ranks = is_checked.len();
        Ok(TcpLinks {
            sockets: Sockets::new(own, vec![false; ranks], connections),
            links: (0..ranks * Lane::ALL.len()).map(|_| None).collect(),
            sleep: Sleep::new()?,
            is_checked,
        })
    }

    /// Makes the links whose sockets have all come.
    fn take_sockets(&mut self) {
        while let Some(peer) = self.sockets.take_next() {
            for edge in Lane::ALL.map(|lane| Edge { peer, lane }) {
                let (link, is_checked) = (&mut self.links[edge.index()], self.is_checked[peer.index()]);
                if link.is_none() {
                    *link = self.sockets.of(edge).map(|sockets| TcpLink::over(sockets, is_checked));
                }
            }
        }
    }

    fn are_open(&self, edges: &[Edge]) -> bool {
        edges.iter().all(|edge| self.links[edge.index()].is_some())
    }
}

impl Links for TcpLinks {
    type L = TcpLink;

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

    fn link(&mut self, edge: Edge) -> &mut TcpLink {
        // INVARIANT: the engine asks for a link only after `open` has said that it is there.
        self.links[edge.index()].as_mut().expect("the edge is open")
    }

    fn wait(&mut self, interest: &[Interest], until: Instant) -> Wake {
        let mut sleep = self.sleep.begin();
        for one in interest {
            if let Some(link) = &self.links[one.edge.index()] {
                link.list(one, &mut sleep);
            }
        }
        sleep.until(until)
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
