//! Links over memory that ranks of one host pass each other. Between hosts they are the TCP sockets themselves.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use unisono_backend::Waker;
use unisono_communicator::{Error, Result};
use unisono_control::wire::ConnectionRole;
use unisono_engine::{Edge, Interest, Lane, Link, Links, Wake};
use unisono_job::sockets::{DataSocket, SocketKind};
use unisono_job::transport::{Connections, Delivery};
use unisono_shared_memory::{self as memory, Bell, Segment, Stream};

use crate::Kinds;

/// The connection of each lane.
const ROLES: [ConnectionRole; 3] =
    [ConnectionRole::First, ConnectionRole::Second, ConnectionRole::PointToPoint];

const RING_BYTES: usize = 256 << 10;

enum State {
    Closed,
    Asked,
    /// This rank has passed this segment; that of the other rank has not come.
    Passed(Arc<DataSocket>, Segment),
    Open(PassedLink),
}

/// One stream.
pub(crate) struct PassedLink {
    socket: Arc<DataSocket>,
    /// `None`: over the socket itself. Else the socket only shows the end of the other rank.
    stream: Option<Stream>,
}

/// All streams of a communicator.
pub(crate) struct PassedLinks {
    connections: Connections,
    /// By edge.
    states: Vec<State>,
    failed: Option<Error>,
    bell: Bell,
    /// Links have come about since the last sleep, of which nothing else tells.
    has_opened: bool,
    rank: u32,
    kinds: Kinds,
}

fn system(error: io::Error) -> Error {
    Error::system("make the links", &error)
}

impl PassedLinks {
    pub(crate) fn new(
        (rank, ranks): (u32, u32),
        connections: Connections,
        kinds: Kinds,
    ) -> Result<PassedLinks> {
        let states = (0..ranks as usize * Lane::ALL.len()).map(|_| State::Closed).collect();
        let bell = Bell::new().map_err(system)?;
        Ok(PassedLinks { connections, states, failed: None, bell, has_opened: false, rank, kinds })
    }

    fn progress(&mut self) {
        while let Some(delivery) = self.connections.next() {
            match delivery {
                Delivery::Failed(error) => self.failed = Some(error),
                Delivery::Socket { peer, role, socket } => {
                    self.kinds.lock().unwrap().insert((self.rank, peer.get(), role), socket.kind());
                    let lane = Lane::ALL[ROLES.iter().position(|one| *one == role).expect("a data role")];
                    self.states[Edge { peer, lane }.index()] = self.begin(socket).expect("descriptors");
                }
            }
        }
        for state in &mut self.states {
            if let State::Passed(socket, _) = state
                && let Some([file, bell]) = passed(socket)
                && let State::Passed(socket, segment) = std::mem::replace(state, State::Closed)
            {
                let stream = Stream::new(segment, file, bell).expect("memory");
                *state = State::Open(PassedLink { socket, stream: Some(stream) });
                self.has_opened = true;
            }
        }
    }

    fn begin(&self, socket: Arc<DataSocket>) -> io::Result<State> {
        if socket.kind() == SocketKind::Tcp {
            return Ok(State::Open(PassedLink { socket, stream: None }));
        }
        let segment = Segment::create(RING_BYTES)?;
        socket.send_descriptors(&[segment.file()?.as_fd(), self.bell.as_fd()])?;
        Ok(State::Passed(socket, segment))
    }

    fn is_missing(&self, edge: &Edge) -> bool {
        !matches!(self.states[edge.index()], State::Open(_))
    }

    fn open_links(&mut self) -> impl Iterator<Item = &mut PassedLink> {
        self.states.iter_mut().filter_map(|state| match state {
            State::Open(link) => Some(link),
            State::Closed | State::Asked | State::Passed(..) => None,
        })
    }
}

/// What the other rank passes, once it is there: its memory and its bell.
fn passed(socket: &DataSocket) -> Option<[std::os::fd::OwnedFd; 2]> {
    match socket.receive_descriptors() {
        Ok(descriptors) => Some(descriptors.try_into().expect("two descriptors")),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

impl PassedLink {
    /// The other rank may have gone.
    fn look_for_its_end(&mut self) {
        if let Some(stream) = &mut self.stream
            && rustix::net::recv(&self.socket, &mut [0u8; 1], RecvFlags::DONTWAIT)
                != Err(rustix::io::Errno::AGAIN)
        {
            stream.hang_up();
        }
    }
}

impl Link for PassedLink {
    fn try_send(&mut self, bytes: &[IoSlice<'_>], _copied_bytes: usize) -> io::Result<usize> {
        match &mut self.stream {
            Some(stream) => stream.try_write(bytes),
            None => {
                let mut control = SendAncillaryBuffer::default();
                Ok(rustix::net::sendmsg(&self.socket, bytes, &mut control, SendFlags::NOSIGNAL)?)
            }
        }
    }

    fn unreleased_bytes(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match &mut self.stream {
            Some(stream) => stream.try_read(into),
            None => Ok(rustix::io::readv(&self.socket, into)?),
        }
    }

    fn is_delivered(&mut self) -> bool {
        self.stream.is_some() || self.socket.is_delivered()
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
        let wanted = |one: &Interest| memory::Interest { readable: one.readable, writable: one.writable };
        for one in interest {
            if let State::Open(PassedLink { stream: Some(stream), .. }) = &self.states[one.edge.index()] {
                stream.arm(wanted(one));
            }
        }
        Stream::look_again();
        let mut is_ready = std::mem::take(&mut self.has_opened);
        for one in interest {
            if let State::Open(PassedLink { stream: Some(stream), .. }) = &mut self.states[one.edge.index()] {
                is_ready |= stream.is_ready(wanted(one));
            }
        }
        let woken = is_ready || self.sleep(interest, until);
        for link in self.open_links() {
            link.look_for_its_end();
            link.stream.iter().for_each(Stream::disarm);
        }
        if woken { Wake::Ready } else { Wake::Expired }
    }

    fn waker(&self) -> Waker {
        let bell = self.bell.try_clone().expect("a descriptor");
        Arc::new(move || {
            // It fails only when the counter is full, and then it is signalled already.
            let _ = rustix::io::write(&bell, &1u64.to_le_bytes());
        })
    }

    fn shut_down(&mut self) {
        for link in self.open_links() {
            match &mut link.stream {
                Some(stream) => stream.end(),
                // A socket that has no other side any more has nothing to end.
                None => drop(rustix::net::shutdown(&link.socket, rustix::net::Shutdown::Write)),
            }
        }
    }

    fn close(&mut self) {
        self.states.iter_mut().for_each(|state| *state = State::Closed);
        self.failed.get_or_insert(Error::closed());
    }
}

impl PassedLinks {
    /// Whether something woke it.
    fn sleep(&self, interest: &[Interest], until: Instant) -> bool {
        let mut polled = vec![PollFd::new(&self.bell, PollFlags::IN)];
        for state in &self.states {
            match state {
                State::Passed(socket, _) => polled.push(PollFd::new(socket, PollFlags::IN)),
                // Its end, of which the thread learns once.
                State::Open(PassedLink { socket, stream: Some(stream) }) if !stream.has_hung_up() => {
                    polled.push(PollFd::new(socket, PollFlags::IN));
                }
                State::Open(_) | State::Closed | State::Asked => {}
            }
        }
        for one in interest {
            if let State::Open(PassedLink { socket, stream: None }) = &self.states[one.edge.index()] {
                let (readable, writable) = (PollFlags::IN, PollFlags::OUT);
                let flags = [(one.readable, readable), (one.writable, writable)];
                let flags = flags.into_iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, flag)| flag);
                polled.push(PollFd::new(socket, flags.collect()));
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let woken = poll(&mut polled, Some(&left)).expect("no signal comes") > 0;
        // A ring that comes after the sleep is for the next one.
        if !polled[0].revents().is_empty() {
            self.bell.silence();
        }
        woken
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
