//! Accepts connections and hands over the authenticated ones. The others cost little and delay none of these.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use unisono_control::handshake::{Expected, Hello, Refusal};
use unisono_control::secret::Secret;

use super::{AcceptedConnection, respond};

/// Pause after a failed accept: it fails for lack of file descriptors, and would fail again at once.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A connection whose other side has proven that it belongs to the job.
#[derive(Debug)]
pub struct Authenticated {
    /// The connection; its next byte is the first after the handshake.
    pub stream: TcpStream,
    /// Where it comes from.
    pub address: SocketAddr,
    /// What the other side said of itself.
    pub hello: Hello,
}

/// A listening socket that authenticates its diallers, many at a time.
///
/// At most `pending_max` connections are within their handshake. When one more comes, the oldest is closed: a genuine
/// handshake takes one round trip, so a slow one most likely belongs to no rank.
#[derive(Debug)]
pub struct Acceptor {
    listener: TcpListener,
    secret: Secret,
    expected: Expected,
    timeout: Duration,
    pending_max: usize,
    pending: JoinSet<Result<Authenticated, Refusal>>,
    in_order: VecDeque<AbortHandle>,
    refused: u64,
}

impl Acceptor {
    /// An acceptor on `listener` with `timeout` for each handshake.
    pub fn new(
        listener: TcpListener,
        secret: Secret,
        expected: Expected,
        timeout: Duration,
        pending_max: usize,
    ) -> Acceptor {
        Acceptor {
            listener,
            secret,
            expected,
            timeout,
            pending_max: pending_max.max(1),
            pending: JoinSet::new(),
            in_order: VecDeque::new(),
            refused: 0,
        }
    }

    /// Takes over a connection that was accepted before, with the rest of its time. A connection that cannot be served
    /// is closed.
    pub(crate) fn admit(&mut self, connection: AcceptedConnection) {
        let left = self.timeout.saturating_sub(connection.since.elapsed());
        let stream =
            connection.stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(connection.stream));
        if let Ok(stream) = stream {
            self.begin(stream, connection.address, left);
        }
    }

    /// The next authenticated connection. May be dropped while it waits; nothing is lost.
    pub async fn next(&mut self) -> Authenticated {
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, address)) => self.begin(stream, address, self.timeout),
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                Some(done) = self.pending.join_next() => match done {
                    Ok(Ok(authenticated)) => return authenticated,
                    Ok(Err(_)) | Err(_) => self.refused += 1,
                },
            }
        }
    }

    /// How many connections were refused so far: without the secret, of another job, or too slow.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn begin(&mut self, mut stream: TcpStream, address: SocketAddr, timeout: Duration) {
        // A slow connection at the front must not keep the finished ones behind it in the list.
        if self.in_order.len() >= 2 * self.pending_max {
            self.in_order.retain(|one| !one.is_finished());
        }
        while self.in_order.front().is_some_and(AbortHandle::is_finished) {
            self.in_order.pop_front();
        }
        if self.pending.len() >= self.pending_max
            && let Some(oldest) = self.in_order.pop_front()
        {
            oldest.abort();
        }
        let (secret, expected) = (self.secret.clone(), self.expected.clone());
        self.in_order.push_back(self.pending.spawn(async move {
            let hello = respond(&mut stream, &secret, &expected, timeout).await?;
            Ok(Authenticated { stream, address, hello })
        }));
    }
}
