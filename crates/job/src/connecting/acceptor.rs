//! Accepts connections and hands over the authenticated ones. The others cost little and delay none of these.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use unisono_control::handshake::{Expected, Hello, Refusal};
use unisono_control::secret::Secret;

use super::local::is_of_this_user;
use super::{Stream, respond};
use crate::sockets::is_shortage;

/// Pause after a failed accept: it fails for lack of file descriptors, and would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A connection whose other side has proven that it belongs to the job.
#[derive(Debug)]
pub(crate) struct Authenticated {
    /// The connection; its next byte is the first after the handshake.
    pub(crate) stream: Stream,
    /// The claims of the other side about itself.
    pub(crate) hello: Hello,
}

/// The proof that the other side of a handshake must give.
#[derive(Clone, Debug)]
struct Demands {
    secret: Secret,
    expected: Expected,
}

/// The demands of an acceptor, which may change while it accepts.
#[derive(Clone, Debug)]
pub(crate) struct Terms(watch::Sender<Option<Demands>>);

impl Terms {
    /// A rank counts as lost from now on, and is told so when it dials.
    pub(crate) fn count_as_lost(&self, rank: u32) {
        self.0.send_modify(|demands| {
            if let Some(demands) = demands {
                Arc::make_mut(&mut demands.expected.lost).insert(rank);
            }
        });
    }
}

/// The sockets on which a rank listens.
#[derive(Debug)]
struct Listeners {
    tcp: TcpListener,
    unix: Option<UnixListener>,
}

/// A listening socket that authenticates its diallers, many at a time.
///
/// At most `pending_max` connections are within their handshake, each for at most a timeout. When one more comes, the
/// oldest is closed: a genuine handshake takes one round trip, so a slow one most likely belongs to no rank.
///
/// A rank accepts before it knows its job, because ranks join one after the other. Until [`Acceptor::begin`] gives the
/// demands on the others, handshakes wait.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listeners: Listeners,
    terms: watch::Sender<Option<Demands>>,
    timeout: Duration,
    pending_max: usize,
    pending: JoinSet<Result<Authenticated, Refusal>>,
    in_order: VecDeque<AbortHandle>,
}

impl Acceptor {
    /// An acceptor on `listener` with `timeout` for each handshake. Needs a tokio runtime.
    pub(crate) fn new(listener: TcpListener, timeout: Duration, pending_max: usize) -> Acceptor {
        Acceptor {
            listeners: Listeners { tcp: listener, unix: None },
            terms: watch::Sender::new(None),
            timeout,
            pending_max: pending_max.max(1),
            pending: JoinSet::new(),
            in_order: VecDeque::new(),
        }
    }

    /// Accepts Unix sockets of this host too.
    pub(crate) fn accept_within_host(&mut self, listener: UnixListener) {
        self.listeners.unix = Some(listener);
    }

    /// Begins the handshakes.
    pub(crate) fn begin(&self, secret: Secret, expected: Expected) {
        self.terms.send_replace(Some(Demands { secret, expected }));
    }

    /// The demands on the ranks that dial.
    pub(crate) fn terms(&self) -> Terms {
        Terms(self.terms.clone())
    }

    /// The next authenticated connection. May be dropped while it waits; nothing is lost.
    pub(crate) async fn next(&mut self) -> Authenticated {
        loop {
            if let Ok(authenticated) = self.next_or_shortage().await {
                return authenticated;
            }
        }
    }

    /// The same, for a host that has to tell the others when it cannot accept for lack of descriptors or memory.
    ///
    /// # Errors
    /// The shortage, after a pause. Connections that have come before go on.
    pub(crate) async fn next_or_shortage(&mut self) -> io::Result<Authenticated> {
        loop {
            tokio::select! {
                // A handshake that was given up has its descriptor until its task is joined: no other comes before.
                accepted = self.listeners.accept(), if self.pending.len() <= self.pending_max => match accepted {
                    Ok(Some(stream)) => self.admit(stream),
                    Ok(None) => {}
                    Err(error) => {
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        if is_shortage(&error) {
                            return Err(error);
                        }
                    }
                },
                Some(done) = self.pending.join_next() => if let Ok(Ok(authenticated)) = done {
                    return Ok(authenticated);
                },
            }
        }
    }

    /// Closes the connection that has been longest in its handshake; `false` if none is.
    pub(crate) fn close_oldest(&mut self) -> bool {
        let oldest = std::iter::from_fn(|| self.in_order.pop_front()).find(|one| !one.is_finished());
        oldest.as_ref().map(AbortHandle::abort).is_some()
    }

    fn admit(&mut self, mut stream: Stream) {
        // A slow connection at the front must not keep the finished ones behind it in the list.
        if self.in_order.len() >= 2 * self.pending_max {
            self.in_order.retain(|one| !one.is_finished());
        }
        while self.in_order.front().is_some_and(AbortHandle::is_finished) {
            self.in_order.pop_front();
        }
        if self.pending.len() >= self.pending_max {
            self.close_oldest();
        }
        let until = Instant::now() + self.timeout;
        let mut terms = self.terms.subscribe();
        self.in_order.push_back(self.pending.spawn(async move {
            let known = async { terms.wait_for(Option::is_some).await.ok()?.clone() };
            let known = tokio::time::timeout_at(until, known).await;
            let Ok(Some(Demands { secret, expected })) = known else {
                return Err(Refusal::Closed { text: "this rank does not know its job".into() });
            };
            let left = until.saturating_duration_since(Instant::now());
            let hello = respond(&mut stream, &secret, &expected, left).await?;
            Ok(Authenticated { stream, hello })
        }));
    }
}

impl Listeners {
    /// `None` for a connection of another user.
    async fn accept(&self) -> io::Result<Option<Stream>> {
        let within_host = async {
            match &self.unix {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = self.tcp.accept() => {
                let (stream, _) = accepted?;
                // Every message of a handshake waits for the message before it: collecting small packets only adds
                // delay. A stranger that has gone already must not look like a lack of descriptors.
                let _ = stream.set_nodelay(true);
                Ok(Some(Stream::Tcp(stream)))
            }
            accepted = within_host => {
                let (stream, _) = accepted?;
                Ok(is_of_this_user(&stream).then_some(Stream::Unix(stream)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::net::TcpStream;
    use std::sync::Arc;

    use unisono_control::handshake::{JobId, Purpose};

    use super::*;
    use crate::connecting::initiate;
    use crate::task_thread::TaskThread;

    const LONG: Duration = Duration::from_secs(60);

    fn acceptor(timeout: Duration, pending_max: usize) -> (Acceptor, std::net::SocketAddr) {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        (Acceptor::new(TcpListener::from_std(listener).unwrap(), timeout, pending_max), address)
    }

    fn dial(address: std::net::SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    fn is_closed(mut stream: &TcpStream) -> bool {
        match stream.read(&mut [0]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }

    /// Accepts until these connections have been closed.
    async fn accept_until_closed(acceptor: &mut Acceptor, dialled: &[TcpStream]) {
        let until = Instant::now() + LONG;
        while !dialled.iter().all(is_closed) {
            assert!(Instant::now() < until, "a connection stays");
            let none = tokio::time::timeout(Duration::from_millis(1), acceptor.next()).await;
            assert!(none.is_err(), "nobody has proven anything");
        }
    }

    /// The hello of a rank of nine that dials rank 0.
    fn hello(job: JobId, from: u32) -> Hello {
        let (communicator, epoch, lane) = (0, 0, 0);
        Hello { purpose: Purpose::Data, job, communicator, epoch, lane, world_size: 9, from, to: 0 }
    }

    #[test]
    fn a_rank_that_counts_as_lost_is_told_so_from_then_on() {
        TaskThread::start("test").unwrap().wait_for(async {
            let (mut acceptor, address) = acceptor(LONG, 3);
            let (secret, job) = (Secret::random().unwrap(), JobId::from_key("tests"));
            let (purposes, world_size, lost) = (&[Purpose::Data], Some(9), Arc::default());
            acceptor.begin(secret.clone(), Expected { purposes, job, world_size, rank: 0, lost });
            acceptor.terms().count_as_lost(3);
            let dialled = async |from| {
                let mut stream = tokio::net::TcpStream::from_std(dial(address)).unwrap();
                initiate(&mut stream, &secret, &hello(job, from), LONG).await
            };
            let refused = async {
                let refusal = dialled(3).await.map(|other| other.from);
                (refusal, dialled(4).await.map(|other| other.from))
            };
            let ((lost, live), accepted) = tokio::join!(refused, acceptor.next());
            assert_eq!((lost, live), (Err(Refusal::Lost { from: 3, to: 0 }), Ok(0)));
            assert_eq!(accepted.hello.from, 4, "the other one is not handed over");
        });
    }

    #[test]
    fn the_newest_wait_until_the_job_is_known() {
        TaskThread::start("test").unwrap().wait_for(async {
            let (mut acceptor, address) = acceptor(LONG, 3);
            let mut dialled: Vec<TcpStream> = (0..8).map(|_| dial(address)).collect();
            accept_until_closed(&mut acceptor, &dialled[..5]).await;
            assert!(!dialled[5..].iter().any(is_closed), "the newest stay");
            let (secret, job) = (Secret::random().unwrap(), JobId::from_key("tests"));
            let (purposes, world_size, lost) = (&[Purpose::Data], Some(9), Arc::default());
            let expected = Expected { purposes, job, world_size, rank: 0, lost };
            acceptor.begin(secret.clone(), expected);
            for (from, stream) in (1..).zip(dialled.drain(5..)) {
                let mut stream = tokio::net::TcpStream::from_std(stream).unwrap();
                let hello = hello(job, from);
                let (proven, accepted) =
                    tokio::join!(initiate(&mut stream, &secret, &hello, LONG), acceptor.next());
                assert_eq!((proven.map(|other| other.from), accepted.hello), (Ok(0), hello));
            }
        });
    }

    #[test]
    fn a_connection_is_closed_at_its_timeout_and_with_the_acceptor() {
        TaskThread::start("test").unwrap().wait_for(async {
            let (mut brief, address) = acceptor(Duration::from_millis(20), 9);
            accept_until_closed(&mut brief, &[dial(address)]).await;
            let (patient, address) = acceptor(LONG, 9);
            let waiting = dial(address);
            drop(patient);
            let until = Instant::now() + LONG;
            while !is_closed(&waiting) {
                assert!(Instant::now() < until, "without a job nothing is kept");
            }
        });
    }
}
