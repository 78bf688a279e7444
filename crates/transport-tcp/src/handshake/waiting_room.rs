//! Takes in who dials before this rank knows its job: ranks meet one after the other, and strangers come meanwhile.
//! Nobody is spoken to yet, but who stays too long goes, and the oldest of too many, so that the first real connection
//! does not stand behind a thousand others.

use std::collections::VecDeque;
use std::io::{ErrorKind, PipeReader, PipeWriter};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use unisono_communicator::{Error, Result};

use super::acceptor::ACCEPT_PAUSE;

/// Name of the thread.
const THREAD_NAME: &str = "unisono-door";

/// Who has dialled and is not known.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) stream: TcpStream,
    pub(crate) address: SocketAddr,
    pub(crate) since: Instant,
}

/// A listening socket that does not block, and who has come through it, the oldest first.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    pub(crate) guests: VecDeque<Guest>,
}

impl From<TcpListener> for Door {
    fn from(listener: TcpListener) -> Door {
        Door { listener, guests: VecDeque::new() }
    }
}

/// A thread that stands at a door.
#[derive(Debug)]
pub(crate) struct WaitingRoom {
    /// Its end is the sign to leave.
    bell: Option<PipeWriter>,
    thread: Option<JoinHandle<Door>>,
}

impl WaitingRoom {
    /// Lets in at most `guests_max`, each for at most `timeout`.
    pub(crate) fn open(listener: TcpListener, timeout: Duration, guests_max: usize) -> Result<WaitingRoom> {
        let what = |what: &'static str| move |error| Error::system(what, &error);
        let (heard, bell) = std::io::pipe().map_err(what("cannot make a pipe"))?;
        let thread = std::thread::Builder::new().name(THREAD_NAME.to_owned());
        let stand = move || stand(listener.into(), &heard, timeout, guests_max.max(1));
        let thread = thread.spawn(stand).map_err(what("cannot start the thread at the door"))?;
        Ok(WaitingRoom { bell: Some(bell), thread: Some(thread) })
    }

    /// Ends the thread and takes over the door.
    pub(crate) fn close(mut self) -> Door {
        drop(self.bell.take());
        // INVARIANT: only this takes it, and it takes `self`.
        let thread = self.thread.take().expect("the thread runs");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for WaitingRoom {
    fn drop(&mut self) {
        drop(self.bell.take());
        // A panic of that thread has been reported by its own hook; there is nothing to add here.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn stand(mut door: Door, bell: &PipeReader, timeout: Duration, guests_max: usize) -> Door {
    loop {
        let left = door
            .guests
            .front()
            .map(|oldest| (oldest.since + timeout).saturating_duration_since(Instant::now()));
        let left =
            left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        let mut polled = [PollFd::new(bell, PollFlags::IN), PollFd::new(&door.listener, PollFlags::IN)];
        // Whatever ends it, the next lines find out.
        let _ = poll(&mut polled, left.as_ref());
        if !polled[0].revents().is_empty() {
            return door;
        }
        let now = Instant::now();
        while door.guests.front().is_some_and(|oldest| oldest.since + timeout <= now) {
            door.guests.pop_front();
        }
        accept_all(&mut door, guests_max, now);
    }
}

fn accept_all(door: &mut Door, guests_max: usize, now: Instant) {
    loop {
        match door.listener.accept() {
            Ok((stream, address)) => {
                if door.guests.len() == guests_max {
                    door.guests.pop_front();
                }
                door.guests.push_back(Guest { stream, address, since: now });
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                // Anything else is a want of descriptors, and would come again at once.
                if error.kind() != ErrorKind::WouldBlock {
                    std::thread::sleep(ACCEPT_PAUSE);
                }
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn room(timeout: Duration, guests_max: usize) -> (WaitingRoom, SocketAddr) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        (WaitingRoom::open(listener, timeout, guests_max).unwrap(), address)
    }

    fn dial(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        // A hang is a failure.
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// Waits for the other side's close, or that of a socket by which nobody has come in.
    fn is_closed(mut stream: &TcpStream) -> bool {
        match stream.read(&mut [0]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }

    #[test]
    fn the_newest_are_kept_in_order() {
        let (room, address) = room(LONG, 3);
        let dialled: Vec<TcpStream> = (0..8).map(|_| dial(address)).collect();
        assert!(dialled[..5].iter().all(is_closed), "who is too many goes");
        let door = room.close();
        let kept: Vec<SocketAddr> = door.guests.iter().map(|guest| guest.address).collect();
        let expected: Vec<_> = dialled[5..].iter().map(|stream| stream.local_addr().unwrap()).collect();
        assert_eq!(kept, expected);
        dial(address);
    }

    #[test]
    fn who_stays_too_long_goes_and_an_empty_room_ends() {
        let (room, address) = room(Duration::from_millis(20), 9);
        assert!(is_closed(&dial(address)));
        assert!(room.close().guests.is_empty());
        let (room, address) = self::room(LONG, 9);
        let waiting = dial(address);
        drop(room);
        assert!(is_closed(&waiting), "without a job there is nobody to wait for");
    }
}
