//! Accepts connections before this rank knows its job, because ranks join one after the other.
//!
//! Handshakes cannot begin yet. Connections that are older than a handshake may take are closed, and when there are too
//! many, the oldest is. So the first real connection does not wait behind a thousand unauthenticated ones.

use std::collections::VecDeque;
use std::io::{ErrorKind, PipeReader, PipeWriter};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use unisono_communicator::{Error, Result};

use super::acceptor::ACCEPT_PAUSE;

/// Name of the thread.
const THREAD_NAME: &str = "unisono-accept";

/// A connection that has been accepted, before its handshake.
#[derive(Debug)]
pub(crate) struct AcceptedConnection {
    pub(crate) stream: TcpStream,
    pub(crate) address: SocketAddr,
    /// When it was accepted.
    pub(crate) since: Instant,
}

/// A listening socket that does not block, and the connections that it has accepted, the oldest first.
#[derive(Debug)]
pub(crate) struct EarlyListener {
    pub(crate) listener: TcpListener,
    pub(crate) accepted: VecDeque<AcceptedConnection>,
}

impl From<TcpListener> for EarlyListener {
    fn from(listener: TcpListener) -> EarlyListener {
        EarlyListener { listener, accepted: VecDeque::new() }
    }
}

/// A thread that accepts connections until it is stopped.
#[derive(Debug)]
pub(crate) struct EarlyAcceptor {
    /// The write end of a pipe. Closing it stops the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<EarlyListener>>,
}

impl EarlyAcceptor {
    /// Starts the thread. It keeps at most `accepted_max` connections, each for at most `timeout`.
    pub(crate) fn start(
        listener: TcpListener,
        timeout: Duration,
        accepted_max: usize,
    ) -> Result<EarlyAcceptor> {
        let what = |what: &'static str| move |error| Error::system(what, &error);
        let (stopped, stop) = std::io::pipe().map_err(what("cannot make a pipe"))?;
        let thread = std::thread::Builder::new().name(THREAD_NAME.to_owned());
        let accept = move || accept_until(&stopped, listener.into(), timeout, accepted_max.max(1));
        let thread =
            thread.spawn(accept).map_err(what("cannot start the thread that accepts connections"))?;
        Ok(EarlyAcceptor { stop: Some(stop), thread: Some(thread) })
    }

    /// Stops the thread and returns the listener with its connections.
    pub(crate) fn stop(mut self) -> EarlyListener {
        drop(self.stop.take());
        // INVARIANT: only this takes it, and it takes `self`.
        let thread = self.thread.take().expect("the thread runs");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for EarlyAcceptor {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic of that thread has been reported by its own hook; there is nothing to add here.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn accept_until(
    stopped: &PipeReader,
    mut early: EarlyListener,
    timeout: Duration,
    accepted_max: usize,
) -> EarlyListener {
    loop {
        let left = early
            .accepted
            .front()
            .map(|oldest| (oldest.since + timeout).saturating_duration_since(Instant::now()));
        let left =
            left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        let mut polled = [PollFd::new(stopped, PollFlags::IN), PollFd::new(&early.listener, PollFlags::IN)];
        // Why it returned does not matter: the next lines look at everything.
        let _ = poll(&mut polled, left.as_ref());
        if !polled[0].revents().is_empty() {
            return early;
        }
        let now = Instant::now();
        while early.accepted.front().is_some_and(|oldest| oldest.since + timeout <= now) {
            early.accepted.pop_front();
        }
        accept_all(&mut early, accepted_max, now);
    }
}

fn accept_all(early: &mut EarlyListener, accepted_max: usize, now: Instant) {
    loop {
        match early.listener.accept() {
            Ok((stream, address)) => {
                if early.accepted.len() == accepted_max {
                    early.accepted.pop_front();
                }
                early.accepted.push_back(AcceptedConnection { stream, address, since: now });
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                // Anything else is a lack of descriptors, and would come again at once.
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

    fn acceptor(timeout: Duration, accepted_max: usize) -> (EarlyAcceptor, SocketAddr) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        (EarlyAcceptor::start(listener, timeout, accepted_max).unwrap(), address)
    }

    fn dial(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        // A hang is a failure.
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// Waits until the other side, or the listener before it accepted this one, has closed.
    fn is_closed(mut stream: &TcpStream) -> bool {
        match stream.read(&mut [0]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }

    #[test]
    fn the_newest_are_kept_in_order() {
        let (acceptor, address) = acceptor(LONG, 3);
        let dialled: Vec<TcpStream> = (0..8).map(|_| dial(address)).collect();
        assert!(dialled[..5].iter().all(is_closed), "the oldest of too many are closed");
        let early = acceptor.stop();
        let kept: Vec<SocketAddr> = early.accepted.iter().map(|connection| connection.address).collect();
        let expected: Vec<_> = dialled[5..].iter().map(|stream| stream.local_addr().unwrap()).collect();
        assert_eq!(kept, expected);
        dial(address);
    }

    #[test]
    fn a_connection_is_closed_at_its_timeout_and_by_a_drop() {
        let (acceptor, address) = acceptor(Duration::from_millis(20), 9);
        assert!(is_closed(&dial(address)));
        assert!(acceptor.stop().accepted.is_empty());
        let (acceptor, address) = self::acceptor(LONG, 9);
        let waiting = dial(address);
        drop(acceptor);
        assert!(is_closed(&waiting), "without a job nothing is kept");
    }
}
