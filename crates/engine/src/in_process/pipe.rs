//! A bounded stream of bytes between two threads. After its sender has shut it down, or left the communicator, the
//! receiver reads the remaining bytes and then the end.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read};
use std::sync::{Arc, Mutex};

use unisono_backend::Waker;
use unisono_communicator::GroupRank;

use super::room::{Exit, Exits};
use crate::links::Link;
use crate::lock;

/// The capacity of a pipe.
const PIPE_BYTES_MAX: usize = 1024 * 1024;

#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    is_shut_down: bool,
}

/// One end of a pair of pipes.
pub struct PipeLink {
    outgoing: Arc<Mutex<Pipe>>,
    incoming: Arc<Mutex<Pipe>>,
    peer: GroupRank,
    wake_peer: Waker,
    exits: Exits,
}

/// Two connected ends, for two ranks. Each end wakes the thread that sleeps at the other.
pub(super) fn pair(
    exits: &Exits,
    first: (GroupRank, Waker),
    second: (GroupRank, Waker),
) -> (PipeLink, PipeLink) {
    let (there, back) = (Arc::<Mutex<Pipe>>::default(), Arc::<Mutex<Pipe>>::default());
    let end = |outgoing: &Arc<Mutex<Pipe>>, incoming: &Arc<Mutex<Pipe>>, (peer, wake_peer)| {
        let (outgoing, incoming) = (outgoing.clone(), incoming.clone());
        PipeLink { outgoing, incoming, peer, wake_peer, exits: exits.clone() }
    };
    (end(&there, &back, second), end(&back, &there, first))
}

impl PipeLink {
    /// Ends the outgoing stream: the other side reads the sent bytes, then the end.
    pub(super) fn shut_down(&mut self) {
        lock(&self.outgoing).is_shut_down = true;
        (self.wake_peer)();
    }
}

impl Link for PipeLink {
    fn try_send(&mut self, slices: &[IoSlice<'_>], _copied_bytes: usize) -> io::Result<usize> {
        match self.exits[self.peer.index()].get() {
            // The peer has left, so nothing reads these bytes. A call may go on if it needs no more bytes from the
            // peer.
            Some(Exit::Left { .. }) => return Ok(slices.iter().map(|slice| slice.len()).sum()),
            Some(exit @ Exit::Died { .. }) => return Err(ended(exit)),
            None => {}
        }
        let mut pipe = lock(&self.outgoing);
        if pipe.is_shut_down {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let room = PIPE_BYTES_MAX - pipe.bytes.len();
        if room == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut sent = 0;
        for slice in slices {
            let take = slice.len().min(room - sent);
            pipe.bytes.extend(&slice[..take]);
            sent += take;
        }
        drop(pipe);
        (self.wake_peer)();
        Ok(sent)
    }

    fn unreleased_bytes(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        // Read before the pipe, because a peer sends all its bytes before it leaves.
        let exit = self.exits[self.peer.index()].get();
        let mut pipe = lock(&self.incoming);
        if pipe.bytes.is_empty() {
            return match exit {
                Some(exit) => Err(ended(exit)),
                None if pipe.is_shut_down => Ok(0),
                None => Err(ErrorKind::WouldBlock.into()),
            };
        }
        let was_full = pipe.bytes.len() == PIPE_BYTES_MAX;
        let mut received = 0;
        for slice in into {
            // A deque has two contiguous halves, and one read takes from the first.
            let first = pipe.bytes.read(slice)?;
            received += first + pipe.bytes.read(&mut slice[first..])?;
        }
        drop(pipe);
        if was_full {
            (self.wake_peer)();
        }
        Ok(received)
    }

    /// The pipe outlives this end.
    fn is_delivered(&mut self) -> bool {
        true
    }
}

fn ended(exit: &Exit) -> io::Error {
    io::Error::new(ErrorKind::ConnectionAborted, exit.evidence())
}
