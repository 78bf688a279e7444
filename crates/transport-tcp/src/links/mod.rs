//! The data sockets of one communicator on one rank, as the engine's links.
//!
//! | socket | carries |
//! | --- | --- |
//! | first | short collectives both ways, long ones from the lower to the higher rank |
//! | second | long collectives from the higher to the lower rank |
//! | point to point | sends and receives |
//!
//! The control thread dials, accepts and authenticates sockets, and hands them over through an inbox.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod records;
mod socket;
mod wake;

use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use unisono_backend::Waker;
use unisono_communicator::{Error, GroupRank, Result};
use unisono_control::wire::ConnectionRole;
use unisono_engine::{Edge, Interest, Lane, Links, Wake};
use unisono_job::sockets::DataSocket;
use unisono_job::transport::{Connections, Delivery};

pub use socket::TcpLink;
use wake::Alarm;

/// All sockets of one communicator.
pub struct TcpLinks {
    rank: GroupRank,
    connections: Connections,
    alarm: Alarm,
    sockets: Vec<Option<Arc<DataSocket>>>,
    asked: Vec<bool>,
    links: Vec<Option<TcpLink>>,
    failed: Option<Error>,
    polled: Vec<PollFd<'static>>,
    /// By group rank.
    is_checked: Vec<bool>,
}

/// The sockets that an edge needs.
fn roles(lane: Lane) -> &'static [ConnectionRole] {
    match lane {
        Lane::Small => &[ConnectionRole::First],
        Lane::Large => &[ConnectionRole::First, ConnectionRole::Second],
        Lane::PointToPoint => &[ConnectionRole::PointToPoint],
    }
}

fn socket_index(peer: GroupRank, role: ConnectionRole) -> usize {
    peer.index() * ConnectionRole::DATA.len() + role as usize
}

impl TcpLinks {
    /// The links of group rank `rank` of `ranks`, with no socket yet; `is_checked` says which streams carry checksums.
    pub(crate) fn new(
        (rank, ranks): (GroupRank, u32),
        is_checked: Vec<bool>,
        connections: Connections,
    ) -> Result<TcpLinks> {
        let sockets = ranks as usize * ConnectionRole::DATA.len();
        Ok(TcpLinks {
            rank,
            connections,
            alarm: Alarm::new()?,
            sockets: (0..sockets).map(|_| None).collect(),
            asked: vec![false; sockets],
            links: (0..ranks as usize * Lane::ALL.len()).map(|_| None).collect(),
            failed: None,
            polled: Vec::new(),
            is_checked,
        })
    }

    fn empty_inbox(&mut self) {
        while let Some(delivery) = self.connections.next() {
            match delivery {
                Delivery::Failed(error) => self.failed = self.failed.take().or(Some(error)),
                Delivery::Socket { peer, role, socket } => {
                    self.sockets[socket_index(peer, role)] = Some(socket);
                    self.complete_links(peer);
                }
            }
        }
    }

    /// Makes the links to `peer` whose sockets are all there.
    fn complete_links(&mut self, peer: GroupRank) {
        for lane in Lane::ALL {
            let index = Edge { peer, lane }.index();
            if self.links[index].is_some() {
                continue;
            }
            let mut found = roles(lane).iter().map(|&role| self.sockets[socket_index(peer, role)].clone());
            let (Some(Some(first)), last) = (found.next(), found.next()) else { continue };
            let Some(second) = last.unwrap_or_else(|| Some(first.clone())) else { continue };
            // The second socket carries what the higher rank sends.
            let (sender, receiver) = if self.rank < peer { (first, second) } else { (second, first) };
            self.links[index] = Some(TcpLink::new(sender, receiver, self.is_checked[peer.index()]));
        }
    }

    fn ask_for(&mut self, edges: &[Edge]) {
        let mut wanted = Vec::new();
        for edge in edges {
            for &role in roles(edge.lane) {
                let index = socket_index(edge.peer, role);
                if self.sockets[index].is_none() && !self.asked[index] {
                    self.asked[index] = true;
                    wanted.push((edge.peer, role));
                }
            }
        }
        if !wanted.is_empty() {
            self.connections.dial(wanted);
        }
    }

    fn is_missing(&self, edge: &Edge) -> bool {
        self.links[edge.index()].is_none()
    }
}

impl Links for TcpLinks {
    type L = TcpLink;

    fn open(&mut self, edges: &[Edge]) -> Poll<Result<()>> {
        if !edges.iter().any(|edge| self.is_missing(edge)) {
            return Poll::Ready(Ok(()));
        }
        self.empty_inbox();
        if !edges.iter().any(|edge| self.is_missing(edge)) {
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = &self.failed {
            return Poll::Ready(Err(error.clone()));
        }
        self.ask_for(edges);
        Poll::Pending
    }

    fn is_open(&mut self, edge: Edge) -> bool {
        self.empty_inbox();
        !self.is_missing(&edge)
    }

    fn link(&mut self, edge: Edge) -> &mut TcpLink {
        // INVARIANT: the engine asks for a link only after `open` has said that it is there.
        self.links[edge.index()].as_mut().expect("the edge is open")
    }

    fn wait(&mut self, interest: &[Interest], until: Instant) -> Wake {
        let mut polled = emptied(std::mem::take(&mut self.polled));
        polled.push(PollFd::from_borrowed_fd(self.alarm.as_fd(), PollFlags::IN));
        for one in interest {
            let Some(link) = &self.links[one.edge.index()] else { continue };
            if one.readable && link.holds_bytes() {
                self.polled = emptied(polled);
                return Wake::Ready;
            }
            if let Some(socket) = link.recv_fd().filter(|_| one.readable) {
                polled.push(PollFd::from_borrowed_fd(socket, PollFlags::IN));
            }
            if let Some(socket) = link.send_fd().filter(|_| one.writable) {
                polled.push(PollFd::from_borrowed_fd(socket, PollFlags::OUT));
            }
        }
        let wake = sleep(&mut polled, until);
        if !polled[0].revents().is_empty() {
            self.alarm.silence();
        }
        self.polled = emptied(polled);
        wake
    }

    fn waker(&self) -> Waker {
        self.alarm.waker()
    }

    fn shut_down(&mut self) {
        for socket in self.sockets.iter().flatten() {
            // A socket that has no other side any more has nothing to end.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
        }
    }

    fn close(&mut self) {
        self.sockets.fill(None);
        self.links.iter_mut().for_each(|link| *link = None);
        self.failed.get_or_insert(Error::closed());
    }
}

impl Drop for TcpLinks {
    fn drop(&mut self) {
        // The sent bytes must arrive, whatever becomes of this process.
        let sockets: Vec<_> = self.sockets.drain(..).flatten().collect();
        if !sockets.is_empty() {
            self.connections.linger(sockets);
        }
    }
}

/// Polls until something is ready or the time has come. A signal is not a reason to wake.
fn sleep(polled: &mut [PollFd<'_>], until: Instant) -> Wake {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match rustix::event::poll(polled, Some(&timeout)) {
            Ok(0) => return Wake::Expired,
            Err(rustix::io::Errno::INTR) => {}
            // The caller's own attempt on the socket reports an error better than this could.
            Ok(_) | Err(_) => return Wake::Ready,
        }
    }
}

/// The same allocation without its borrows: sleeping again allocates nothing.
fn emptied<'a>(mut list: Vec<PollFd<'_>>) -> Vec<PollFd<'a>> {
    list.clear();
    list.into_iter().map_while(|_| None).collect()
}
