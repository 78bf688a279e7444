//! The connections of a communicator's ranks, one for each pair, and what is sent over them.
//!
//! A thread for each connection takes in what comes, so that no write waits for a reader. What has come lies in the
//! inbox under its channel, its sender and its number, until the work that wants it takes it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::memory::{self, Part};
use crate::movement::descriptor;
use crate::root::{JoinError, Stop, accept, connect, listen};
use crate::{fault, lock, settings, start_thread};

/// What a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Channel {
    Collective,
    Message,
    /// A message has been received.
    Taken,
    /// The making of another communicator.
    Setup,
    /// The sender leaves in peace.
    Goodbye,
}

const CHANNELS: [Channel; 5] =
    [Channel::Collective, Channel::Message, Channel::Taken, Channel::Setup, Channel::Goodbye];

/// Why work on a communicator did not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The communicator was aborted.
    Aborted,
    /// This rank is gone.
    Lost(u32),
    /// This rank has made another call, or one of another size. A vendor's library would hang or mix up bytes.
    Mismatch(u32),
    /// Memory was freed that the work was to use.
    Memory,
}

struct Frame {
    descriptor: u64,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct InboxState {
    frames: HashMap<(Channel, u32, u64), Frame>,
    /// Connections at whose end we are.
    ended: Vec<u32>,
    /// Work is to end; the making of other communicators may go on.
    is_work_aborted: bool,
    is_aborted: bool,
}

#[derive(Default)]
struct Inbox {
    state: Mutex<InboxState>,
    changed: Condvar,
}

/// A send or receive of one rank with another. Its number counts those of the same peer and direction.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// The other rank; also the own one.
    pub peer: u32,
    /// Whether it goes there.
    pub is_send: bool,
    /// The bytes.
    pub part: Part,
    /// From [`Mesh::number`].
    pub number: u64,
}

/// The connections of one rank.
pub struct Mesh {
    rank: u32,
    size: u32,
    nonce: u64,
    links: Vec<Option<Mutex<TcpStream>>>,
    inbox: Arc<Inbox>,
    stop: Arc<Stop>,
    collectives: AtomicU64,
    /// How often each list of members has made a communicator.
    setups: Mutex<HashMap<u64, u64>>,
    messages: Mutex<HashMap<(u32, bool), u64>>,
    /// With the setting `connect=late`: with whom calls have connected so far.
    connected: Mutex<HashSet<Edge>>,
}

/// What a call connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Edge {
    /// All ranks, for collectives.
    All,
    /// A pair, for messages from the one to the other. The first two are in order.
    Pair { low: u32, high: u32, is_upwards: bool },
}

/// A listener that waits for the others.
pub struct Door {
    listener: TcpListener,
    /// Its port.
    pub port: u16,
}

impl Door {
    /// Opens one.
    ///
    /// # Errors
    /// When there is no socket.
    pub fn open() -> io::Result<Door> {
        listen().map(|(listener, port)| Door { listener, port })
    }
}

impl Mesh {
    /// Connects to all others, whose ports are in the order of ranks. `nonce` is the same on all.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub fn connect(
        rank: u32,
        ports: &[u16],
        nonce: u64,
        door: &Door,
        stop: Arc<Stop>,
    ) -> Result<Mesh, JoinError> {
        let mut links: Vec<Option<TcpStream>> = ports.iter().map(|_| None).collect();
        for (peer, port) in ports.iter().enumerate().take(rank as usize) {
            let mut socket = connect(*port, &stop)?;
            socket.write_all(&nonce.to_le_bytes())?;
            socket.write_all(&rank.to_le_bytes())?;
            // A rank that may go at once is known to all before.
            socket.read_exact(&mut [0])?;
            links[peer] = Some(socket);
        }
        while links.iter().skip(rank as usize + 1).any(Option::is_none) {
            let mut socket = accept(&door.listener, &stop)?;
            let (mut its_nonce, mut peer) = ([0; 8], [0; 4]);
            socket.read_exact(&mut its_nonce)?;
            socket.read_exact(&mut peer)?;
            let peer = u32::from_le_bytes(peer) as usize;
            if its_nonce == nonce.to_le_bytes() && peer < links.len() {
                socket.write_all(&[0])?;
                links[peer] = Some(socket);
            }
        }
        let inbox = Arc::new(Inbox::default());
        for (peer, socket) in (0..).zip(&links) {
            if let Some(socket) = socket {
                let (socket, inbox) = (socket.try_clone()?, inbox.clone());
                start_thread(move || inbox.take_in(peer, socket));
            }
        }
        Ok(Mesh {
            rank,
            size: ports.len() as u32,
            nonce,
            links: links.into_iter().map(|link| link.map(Mutex::new)).collect(),
            inbox,
            stop,
            collectives: AtomicU64::new(0),
            setups: Mutex::default(),
            messages: Mutex::new(HashMap::new()),
            connected: Mutex::default(),
        })
    }

    /// The own rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The same on all ranks, and on no other communicator.
    pub fn nonce(&self) -> u64 {
        self.nonce
    }

    /// The number of the next collective, to be taken in the order of the calls.
    pub fn next_collective(&self) -> u64 {
        self.collectives.fetch_add(1, Ordering::SeqCst)
    }

    /// The number of the next message, to be taken in the order of the calls.
    pub fn number(&self, peer: u32, is_send: bool) -> u64 {
        let mut messages = lock(&self.messages);
        let number = messages.entry((peer, is_send)).or_default();
        *number += 1;
        *number
    }

    fn send(&self, channel: Channel, peer: u32, number: u64, frame: Frame) -> Result<(), Broken> {
        if peer == self.rank {
            self.inbox.put(channel, peer, number, frame);
            return Ok(());
        }
        let link = self.links.get(peer as usize).and_then(Option::as_ref).ok_or(Broken::Lost(peer))?;
        let mut header = vec![channel as u8];
        header.extend([number, frame.descriptor, frame.bytes.len() as u64].map(u64::to_le_bytes).concat());
        let mut link = lock(link);
        let written = link.write_all(&header).and_then(|()| link.write_all(&frame.bytes));
        written.map_err(|_| self.inbox.aborted_or(Broken::Lost(peer)))
    }

    /// One exchange: sends each rank what is for it, and waits for what is to come, in bytes of each rank.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn exchange(
        &self,
        number: u64,
        descriptor: u64,
        outgoing: Vec<Option<Vec<u8>>>,
        incoming: &[Option<usize>],
    ) -> Result<Vec<Option<Vec<u8>>>, Broken> {
        let mut sent = Ok(());
        for (peer, bytes) in (0..).zip(outgoing) {
            if let Some(bytes) = bytes {
                // A dead rank keeps nothing from the others.
                sent = sent.and(self.send(Channel::Collective, peer, number, Frame { descriptor, bytes }));
            }
        }
        sent?;
        let awaited: Vec<u32> = (0..).zip(incoming).filter_map(|(peer, bytes)| bytes.map(|_| peer)).collect();
        let take = |(peer, bytes): (u32, &Option<usize>)| {
            let Some(bytes) = *bytes else { return Ok(None) };
            let later = awaited.iter().position(|one| *one == peer).map_or(&[][..], |at| &awaited[at..]);
            let frame = self.inbox.take(Channel::Collective, later, number)?;
            let is_same = frame.descriptor == descriptor && frame.bytes.len() == bytes;
            if is_same { Ok(Some(frame.bytes)) } else { Err(Broken::Mismatch(peer)) }
        };
        (0..).zip(incoming).map(take).collect()
    }

    /// Sends and receives of a group. A send is done when its bytes are received.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn pass(&self, messages: &[Message]) -> Result<(), Broken> {
        for one in messages.iter().filter(|one| one.is_send) {
            let bytes = memory::read(one.part).ok_or(Broken::Memory)?;
            self.send(Channel::Message, one.peer, one.number, Frame { descriptor: 0, bytes })?;
        }
        for one in messages.iter().filter(|one| !one.is_send) {
            let frame = self.inbox.take(Channel::Message, &[one.peer], one.number)?;
            if frame.bytes.len() != one.part.bytes {
                return Err(Broken::Mismatch(one.peer));
            }
            if !memory::write(one.part.address, &frame.bytes) {
                return Err(Broken::Memory);
            }
            let taken = Frame { descriptor: 0, bytes: Vec::new() };
            self.send(Channel::Taken, one.peer, one.number, taken)?;
        }
        for one in messages.iter().filter(|one| one.is_send) {
            self.inbox.take(Channel::Taken, &[one.peer], one.number)?;
        }
        Ok(())
    }

    /// Gives all `members` some bytes, and waits for theirs, to make another communicator. Also the number of this
    /// call, which is the same on all.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn set_up(&self, members: &[u32], own: &[u8]) -> Result<(u64, Vec<Vec<u8>>), Broken> {
        let list = descriptor(members);
        let mut setups = lock(&self.setups);
        let earlier = setups.entry(list).or_default();
        let number = descriptor((list, *earlier));
        *earlier += 1;
        drop(setups);
        for peer in members {
            self.send(Channel::Setup, *peer, number, Frame { descriptor: 0, bytes: own.to_vec() })?;
        }
        let take = |peer: &u32| self.inbox.take(Channel::Setup, &[*peer], number).map(|frame| frame.bytes);
        Ok((number, members.iter().map(take).collect::<Result<_, _>>()?))
    }

    /// With the setting `connect=late`, waits until those who connect for a call have come to it, the first time: all
    /// ranks for a collective, both ends of each of `messages` (a peer, and whether it is a send). So does NCCL since
    /// 2.22 unless `NCCL_RUNTIME_CONNECT=0` (`ncclCollPreconnect`, `ncclP2PPreconnectFunc` in `src/group.cc`), and
    /// HCCL, which sets links up in the first call, at most for HCCL_CONNECT_TIMEOUT.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn connect_for(&self, is_collective: bool, messages: &[(u32, bool)]) -> Result<(), Broken> {
        if !settings::connects_late() {
            return Ok(());
        }
        let pair = |(peer, is_send): &(u32, bool)| {
            let (low, high) = (self.rank.min(*peer), self.rank.max(*peer));
            Edge::Pair { low, high, is_upwards: (self.rank < *peer) == *is_send }
        };
        let all = is_collective.then_some(Edge::All);
        // The same order on all ranks: none waits for one that waits for it.
        let edges: BTreeSet<Edge> = all.into_iter().chain(messages.iter().map(pair)).collect();
        for edge in edges {
            let is_new = lock(&self.connected).insert(edge);
            let members: Vec<u32> = match edge {
                _ if !is_new => continue,
                Edge::All => (0..self.size).collect(),
                Edge::Pair { low, high, .. } if low == high => continue,
                Edge::Pair { low, high, is_upwards: true } => vec![low, high],
                Edge::Pair { low, high, is_upwards: false } => vec![high, low],
            };
            self.set_up(&members, &[])?;
        }
        Ok(())
    }

    /// Ends all work; other communicators can still be made.
    pub fn abort_work(&self) {
        lock(&self.inbox.state).is_work_aborted = true;
        self.inbox.changed.notify_all();
    }

    /// Ends everything, without a goodbye.
    pub fn abort(&self) {
        lock(&self.inbox.state).is_aborted = true;
        self.inbox.changed.notify_all();
        self.stop.stop();
    }

    /// Leaves in peace. What was sent arrives.
    pub fn leave(&self) {
        for (peer, link) in (0..).zip(&self.links) {
            let Some(link) = link else { continue };
            // One who is gone needs none.
            let _ = self.send(Channel::Goodbye, peer, 0, Frame { descriptor: 0, bytes: Vec::new() });
            let _ = lock(link).shutdown(Shutdown::Write);
        }
        self.stop.clear();
    }
}

impl Inbox {
    /// Takes in what a peer sends, until it ends.
    fn take_in(&self, peer: u32, mut socket: TcpStream) {
        loop {
            match read_frame(&mut socket) {
                Ok((Channel::Goodbye, ..)) => {}
                Ok((channel, number, frame)) => self.put(channel, peer, number, frame),
                Err(_) => break,
            }
        }
        lock(&self.state).ended.push(peer);
        self.changed.notify_all();
    }

    fn put(&self, channel: Channel, peer: u32, number: u64, frame: Frame) {
        if lock(&self.state).frames.insert((channel, peer, number), frame).is_some() {
            fault::note_misuse();
        }
        self.changed.notify_all();
    }

    /// Takes the frame of the first of `peers`. When one of the others is lost, whose frames are awaited next, it does
    /// not wait.
    fn take(&self, channel: Channel, peers: &[u32], number: u64) -> Result<Frame, Broken> {
        let mut state = lock(&self.state);
        loop {
            if state.is_aborted || state.is_work_aborted && channel != Channel::Setup {
                return Err(Broken::Aborted);
            }
            let first = peers.first().and_then(|peer| state.frames.remove(&(channel, *peer, number)));
            if let Some(frame) = first {
                return Ok(frame);
            }
            let is_lost = |peer: &&u32| {
                state.ended.contains(peer) && !state.frames.contains_key(&(channel, **peer, number))
            };
            if let Some(lost) = peers.iter().find(is_lost) {
                return Err(Broken::Lost(*lost));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn aborted_or(&self, otherwise: Broken) -> Broken {
        if lock(&self.state).is_aborted { Broken::Aborted } else { otherwise }
    }
}

fn read_frame(socket: &mut TcpStream) -> io::Result<(Channel, u64, Frame)> {
    let mut header = [0; 25];
    socket.read_exact(&mut header)?;
    let word = |at: usize| header[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    let channel = *CHANNELS.get(usize::from(header[0])).ok_or(io::ErrorKind::InvalidData)?;
    let mut bytes = vec![0; word(17) as usize];
    socket.read_exact(&mut bytes)?;
    Ok((channel, word(1), Frame { descriptor: word(9), bytes }))
}
