//! How ranks find each other. A unique id holds the port of a listener of the process that made it. Every rank tells
//! the listener where it listens itself; when all have come, each is told of all.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use crate::{lock, start_thread};

const MAGIC: u64 = u64::from_le_bytes(*b"unidouble".first_chunk().unwrap());
const TAIL: u64 = 0x5441_494c_5441_494c;

/// What a unique id says. The last eight bytes hold a mark, so that an id which was cut is found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootId {
    port: u16,
    nonce: u64,
}

/// A number that no other call gives.
pub fn nonce() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}

impl RootId {
    /// Writes it; the rest is zeros.
    pub fn to_bytes<const N: usize>(self) -> [u8; N] {
        let mut bytes = [0; N];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.nonce.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.port.to_le_bytes());
        bytes[N - 8..].copy_from_slice(&(self.nonce ^ TAIL).to_le_bytes());
        bytes
    }

    /// Reads it. `None` for bytes that are no id, or a part of one.
    pub fn from_bytes<const N: usize>(bytes: &[u8; N]) -> Option<RootId> {
        let word = |at: usize| bytes[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
        let id = RootId { port: u16::from_le_bytes(*bytes[16..].first_chunk()?), nonce: word(8)? };
        (word(0)? == MAGIC && word(N - 8)? == id.nonce ^ TAIL).then_some(id)
    }
}

/// What a rank says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where it listens.
    pub port: u16,
    /// Its device.
    pub device: u32,
    /// The version of its library.
    pub version: u32,
}

impl Member {
    /// The bytes of [`Member::to_bytes`].
    pub const BYTES: usize = 10;

    /// For the wire.
    pub fn to_bytes(self) -> [u8; Member::BYTES] {
        let mut bytes = [0; Member::BYTES];
        bytes[..2].copy_from_slice(&self.port.to_le_bytes());
        bytes[2..6].copy_from_slice(&self.device.to_le_bytes());
        bytes[6..].copy_from_slice(&self.version.to_le_bytes());
        bytes
    }

    /// From the wire.
    pub fn from_bytes(bytes: [u8; Member::BYTES]) -> Member {
        let [p, q, device @ .., a, b, c, d] = bytes;
        Member {
            port: u16::from_le_bytes([p, q]),
            device: u32::from_le_bytes(device),
            version: u32::from_le_bytes([a, b, c, d]),
        }
    }
}

/// Why a communicator was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinError {
    /// The ranks gave different sizes, or two the same rank.
    Ranks,
    /// It was given up.
    Stopped,
    /// A connection failed.
    Socket,
}

impl From<io::Error> for JoinError {
    fn from(_: io::Error) -> JoinError {
        JoinError::Socket
    }
}

/// Ends what waits for sockets.
#[derive(Debug, Default)]
pub struct Stop {
    is_stopped: AtomicBool,
    is_done: AtomicBool,
    sockets: Mutex<Vec<TcpStream>>,
}

impl Stop {
    /// Shuts all sockets, also those that are added later.
    pub fn stop(&self) {
        let sockets = lock(&self.sockets);
        self.is_stopped.store(true, Ordering::SeqCst);
        sockets.iter().for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
    }

    /// The communicator is made.
    pub fn set_done(&self) {
        self.is_done.store(true, Ordering::SeqCst);
    }

    fn is_done(&self) -> bool {
        self.is_done.load(Ordering::SeqCst)
    }

    /// Whether it was stopped.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// Adds a socket.
    pub(crate) fn add(&self, socket: &TcpStream) -> Result<(), JoinError> {
        let copy = socket.try_clone()?;
        let mut sockets = lock(&self.sockets);
        if self.is_stopped() {
            return Err(JoinError::Stopped);
        }
        sockets.push(copy);
        Ok(())
    }

    /// Forgets all sockets.
    pub(crate) fn clear(&self) {
        lock(&self.sockets).clear();
    }
}

/// What the reset of the double stops.
static AT_RESET: Mutex<Vec<Weak<Stop>>> = Mutex::new(Vec::new());

/// One that the reset of the double stops: the making of a communicator that cannot be aborted, which the vendor's
/// library gives up by itself when ranks do not come.
pub fn stopped_at_reset() -> Arc<Stop> {
    let (stop, mut list) = (Arc::<Stop>::default(), lock(&AT_RESET));
    list.retain(|other| other.strong_count() > 0);
    list.push(Arc::downgrade(&stop));
    stop
}

/// The double is reset. A communicator that has been made has no use for its own any more.
pub(crate) fn stop_at_reset() {
    let list = std::mem::take(&mut *lock(&AT_RESET));
    list.iter().filter_map(Weak::upgrade).filter(|stop| !stop.is_done()).for_each(|stop| stop.stop());
}

/// Listens on a port of the loopback interface.
pub(crate) fn listen() -> io::Result<(TcpListener, u16)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

/// Connects to a port of the loopback interface.
pub(crate) fn connect(port: u16, stop: &Stop) -> Result<TcpStream, JoinError> {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    socket.set_nodelay(true)?;
    stop.add(&socket)?;
    Ok(socket)
}

/// The next connection to a listener.
pub(crate) fn accept(listener: &TcpListener, stop: &Stop) -> Result<TcpStream, JoinError> {
    listener.set_nonblocking(true)?;
    loop {
        if stop.is_stopped() {
            return Err(JoinError::Stopped);
        }
        match listener.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(false)?;
                socket.set_nodelay(true)?;
                stop.add(&socket)?;
                return Ok(socket);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Makes an id, and serves the ranks that use it, once.
///
/// # Errors
/// When there is no socket.
pub fn create() -> io::Result<RootId> {
    let (listener, port) = listen()?;
    let id = RootId { port, nonce: nonce() };
    start_thread(move || drop(serve(&listener, id.nonce)));
    Ok(id)
}

/// nonce, size, rank, member.
const HELLO_BYTES: usize = 16 + Member::BYTES;

fn serve(listener: &TcpListener, nonce: u64) -> io::Result<()> {
    let mut ranks: BTreeMap<u32, (TcpStream, [u8; Member::BYTES])> = BTreeMap::new();
    let mut size = None;
    loop {
        let (mut socket, _) = listener.accept()?;
        let mut hello = [0; HELLO_BYTES];
        // A rank that went away again is one that does not come.
        if socket.read_exact(&mut hello).is_err() || hello[..8] != nonce.to_le_bytes() {
            continue;
        }
        let word = |at: usize| u32::from_le_bytes([hello[at], hello[at + 1], hello[at + 2], hello[at + 3]]);
        let (own_size, rank) = (word(8), word(12));
        let mut member = [0; Member::BYTES];
        member.copy_from_slice(&hello[16..]);
        let is_wrong = *size.get_or_insert(own_size) != own_size || ranks.contains_key(&rank);
        ranks.insert(rank, (socket, member));
        if is_wrong {
            ranks.values_mut().for_each(|(socket, _)| drop(socket.write_all(&[1])));
            return Ok(());
        }
        if ranks.len() == own_size as usize {
            break;
        }
    }
    let table: Vec<u8> =
        [0].into_iter().chain(ranks.values().flat_map(|(_, member)| member.iter().copied())).collect();
    ranks.values_mut().for_each(|(socket, _)| drop(socket.write_all(&table)));
    Ok(())
}

/// Tells the maker of the id of this rank, and waits for all others.
///
/// # Errors
/// See [`JoinError`].
pub fn join(id: RootId, size: u32, rank: u32, own: Member, stop: &Stop) -> Result<Vec<Member>, JoinError> {
    let mut socket = connect(id.port, stop)?;
    let mut hello = Vec::with_capacity(HELLO_BYTES);
    hello.extend(id.nonce.to_le_bytes());
    hello.extend(size.to_le_bytes());
    hello.extend(rank.to_le_bytes());
    hello.extend(own.to_bytes());
    socket.write_all(&hello)?;
    let mut status = [0];
    socket.read_exact(&mut status).map_err(|_| stopped_or_lost(stop))?;
    if status != [0] {
        return Err(JoinError::Ranks);
    }
    let read_member = |_| {
        let mut member = [0; Member::BYTES];
        socket.read_exact(&mut member).map_err(|_| stopped_or_lost(stop))?;
        Ok(Member::from_bytes(member))
    };
    (0..size).map(read_member).collect()
}

fn stopped_or_lost(stop: &Stop) -> JoinError {
    if stop.is_stopped() { JoinError::Stopped } else { JoinError::Socket }
}

impl RootId {
    /// The number that only this id has.
    pub fn nonce(self) -> u64 {
        self.nonce
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_was_cut_is_found_out() {
        let id = RootId { port: 4711, nonce: nonce() };
        let bytes: [u8; 128] = id.to_bytes();
        assert_eq!(RootId::from_bytes(&bytes), Some(id));
        for at in [0, 8, 15, 120, 127] {
            let mut wrong = bytes;
            wrong[at] ^= 1;
            assert_eq!(RootId::from_bytes(&wrong), None, "byte {at}");
        }
        let mut cut = [0; 128];
        cut[..127].copy_from_slice(&bytes[..127]);
        assert!(cut == bytes || RootId::from_bytes(&cut).is_none());
    }

    #[test]
    fn ranks_that_disagree_are_refused() {
        let id = create().unwrap();
        let member = Member { port: 1, device: 0, version: 1 };
        let stop = Stop::default();
        let results: Vec<_> = thread::scope(|scope| {
            let ranks: Vec<_> = [(3, 0), (2, 1)]
                .map(|(size, rank)| {
                    scope.spawn({
                        let stop = &stop;
                        move || join(id, size, rank, member, stop)
                    })
                })
                .into_iter()
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        assert_eq!(results, [Err(JoinError::Ranks), Err(JoinError::Ranks)]);
    }
}
