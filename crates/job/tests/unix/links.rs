//! Links over descriptors that ranks of one host pass each other: each rank makes a pair of sockets for what it sends,
//! and passes one end. Between hosts they are the TCP sockets themselves.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType};
use unisono_backend::Waker;
use unisono_communicator::{Error, Result};
use unisono_control::wire::ConnectionRole;
use unisono_engine::{Edge, Interest, Lane, Link, Links, Wake};
use unisono_job::sockets::{DataSocket, SocketKind};
use unisono_job::transport::{Connections, Delivery};

use crate::Kinds;

/// The connection of each lane.
const ROLES: [ConnectionRole; 3] =
    [ConnectionRole::First, ConnectionRole::Second, ConnectionRole::PointToPoint];

enum State {
    Closed,
    Asked,
    /// What this rank sends goes there; the end that the other rank passes has not come.
    Passed(Arc<DataSocket>, OwnedFd),
    Open(PassedLink),
}

/// One stream.
pub(crate) struct PassedLink {
    /// Ends when the other process does.
    socket: Arc<DataSocket>,
    /// `None`: the socket itself.
    passed: Option<[OwnedFd; 2]>,
}

/// All streams of a communicator.
pub(crate) struct PassedLinks {
    connections: Connections,
    /// By edge.
    states: Vec<State>,
    failed: Option<Error>,
    alarm: Arc<OwnedFd>,
    rank: u32,
    kinds: Kinds,
}

impl PassedLinks {
    pub(crate) fn new(
        (rank, ranks): (u32, u32),
        connections: Connections,
        kinds: Kinds,
    ) -> Result<PassedLinks> {
        let alarm = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::system("make an eventfd", &error.into()))?;
        let states = (0..ranks as usize * Lane::ALL.len()).map(|_| State::Closed).collect();
        Ok(PassedLinks { connections, states, failed: None, alarm: Arc::new(alarm), rank, kinds })
    }

    fn progress(&mut self) {
        while let Some(delivery) = self.connections.next() {
            match delivery {
                Delivery::Failed(error) => self.failed = Some(error),
                Delivery::Socket { peer, role, socket } => {
                    self.kinds.lock().unwrap().insert((self.rank, peer.get(), role), socket.kind());
                    let lane = Lane::ALL[ROLES.iter().position(|one| *one == role).expect("a data role")];
                    self.states[Edge { peer, lane }.index()] = begin(socket).expect("descriptors");
                }
            }
        }
        for state in &mut self.states {
            if let State::Passed(socket, _) = state
                && let Some(theirs) = passed(socket)
                && let State::Passed(socket, ours) = std::mem::replace(state, State::Closed)
            {
                *state = State::Open(PassedLink { socket, passed: Some([ours, theirs]) });
            }
        }
    }

    fn is_missing(&self, edge: &Edge) -> bool {
        !matches!(self.states[edge.index()], State::Open(_))
    }
}

/// The descriptor of the other rank, once it is there.
fn passed(socket: &DataSocket) -> Option<OwnedFd> {
    match socket.receive_descriptors() {
        Ok(mut descriptors) => Some(descriptors.pop().expect("one descriptor")),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

fn begin(socket: Arc<DataSocket>) -> io::Result<State> {
    if socket.kind() == SocketKind::Tcp {
        return Ok(State::Open(PassedLink { socket, passed: None }));
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    socket.send_descriptors(&[theirs.as_fd()])?;
    Ok(State::Passed(socket, ours))
}

impl PassedLink {
    fn sender(&self) -> &dyn AsFd {
        self.passed.as_ref().map_or(&self.socket, |[ours, _]| ours)
    }

    fn receiver(&self) -> &dyn AsFd {
        self.passed.as_ref().map_or(&self.socket, |[_, theirs]| theirs)
    }
}

impl Link for PassedLink {
    fn try_send(&mut self, bytes: &[IoSlice<'_>], _copied_bytes: usize) -> io::Result<usize> {
        let mut control = SendAncillaryBuffer::default();
        Ok(rustix::net::sendmsg(self.sender().as_fd(), bytes, &mut control, SendFlags::NOSIGNAL)?)
    }

    fn unreleased_bytes(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Ok(rustix::io::readv(self.receiver().as_fd(), into)?)
    }

    fn is_delivered(&mut self) -> bool {
        self.passed.is_some() || self.socket.is_delivered()
    }
}

impl Links for PassedLinks {
    type L = PassedLink;

    fn open(&mut self, edges: &[Edge]) -> Poll<Result<()>> {
        self.progress();
        if !edges.iter().any(|edge| self.is_missing(edge)) {
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = &self.failed {
            return Poll::Ready(Err(error.clone()));
        }
        for edge in edges {
            let state = &mut self.states[edge.index()];
            if let State::Closed = state {
                *state = State::Asked;
                self.connections.dial(vec![(edge.peer, ROLES[edge.lane as usize])]);
            }
        }
        Poll::Pending
    }

    fn is_open(&mut self, edge: Edge) -> bool {
        self.progress();
        !self.is_missing(&edge)
    }

    fn link(&mut self, edge: Edge) -> &mut PassedLink {
        match &mut self.states[edge.index()] {
            State::Open(link) => link,
            State::Closed | State::Asked | State::Passed(..) => panic!("the edge is not open"),
        }
    }

    fn wait(&mut self, interest: &[Interest], until: Instant) -> Wake {
        let mut polled = vec![PollFd::new(&self.alarm, PollFlags::IN)];
        for state in &self.states {
            if let State::Passed(socket, _) = state {
                polled.push(PollFd::new(socket, PollFlags::IN));
            }
        }
        for one in interest {
            let State::Open(link) = &self.states[one.edge.index()] else { continue };
            if one.readable {
                polled.push(PollFd::from_borrowed_fd(link.receiver().as_fd(), PollFlags::IN));
            }
            if one.writable {
                polled.push(PollFd::from_borrowed_fd(link.sender().as_fd(), PollFlags::OUT));
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let woken = poll(&mut polled, Some(&left)).expect("no signal comes");
        // Nothing to read when it was not signalled.
        let _ = rustix::io::read(&self.alarm, &mut [0; 8]);
        if woken == 0 { Wake::Expired } else { Wake::Ready }
    }

    fn waker(&self) -> Waker {
        let alarm = self.alarm.clone();
        Arc::new(move || {
            // It fails only when the counter is full, and then it is signalled already.
            let _ = rustix::io::write(&alarm, &1u64.to_le_bytes());
        })
    }

    fn shut_down(&mut self) {
        for state in &self.states {
            if let State::Open(link) = state {
                // A socket that has no other side any more has nothing to end.
                let _ = rustix::net::shutdown(link.sender().as_fd(), rustix::net::Shutdown::Write);
            }
        }
    }

    fn close(&mut self) {
        self.states.iter_mut().for_each(|state| *state = State::Closed);
        self.failed.get_or_insert(Error::closed());
    }
}

impl Drop for PassedLinks {
    fn drop(&mut self) {
        self.shut_down();
        let open = self.states.drain(..).filter_map(|state| match state {
            State::Open(link) => Some(link.socket),
            State::Passed(socket, _) => Some(socket),
            State::Closed | State::Asked => None,
        });
        self.connections.linger(open.collect());
    }
}
