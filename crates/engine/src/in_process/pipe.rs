//! A bounded stream of bytes between two threads.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use unisono_backend::Waker;

use crate::links::Link;

/// Bytes in one pipe.
const PIPE_BYTES_MAX: usize = 1024 * 1024;

struct Pipe {
    bytes: VecDeque<u8>,
    is_closed: bool,
}

/// One end of a pair of pipes.
pub struct PipeLink {
    outgoing: Arc<Mutex<Pipe>>,
    incoming: Arc<Mutex<Pipe>>,
    wake_peer: Waker,
}

/// Two ends that talk to each other; each wakes the other's sleeper.
pub(super) fn pair(wake_first: Waker, wake_second: Waker) -> (PipeLink, PipeLink) {
    let pipe = || Arc::new(Mutex::new(Pipe { bytes: VecDeque::new(), is_closed: false }));
    let (there, back) = (pipe(), pipe());
    let first = PipeLink { outgoing: there.clone(), incoming: back.clone(), wake_peer: wake_second };
    (first, PipeLink { outgoing: back, incoming: there, wake_peer: wake_first })
}

impl Link for PipeLink {
    fn try_send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut pipe = lock(&self.outgoing);
        if pipe.is_closed {
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

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut pipe = lock(&self.incoming);
        if pipe.bytes.is_empty() {
            return if pipe.is_closed { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
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

    /// The pipe outlives this end of it.
    fn is_delivered(&mut self) -> bool {
        true
    }
}

impl Drop for PipeLink {
    fn drop(&mut self) {
        lock(&self.outgoing).is_closed = true;
        lock(&self.incoming).is_closed = true;
        (self.wake_peer)();
    }
}

fn lock(pipe: &Mutex<Pipe>) -> MutexGuard<'_, Pipe> {
    pipe.lock().unwrap_or_else(PoisonError::into_inner)
}
