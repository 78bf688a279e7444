//! The words of other threads to the control thread: about the job at its start, and by commands later.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use unisono_backend::{Ask, CallHistory};
use unisono_communicator::{Error, GroupRank, JobRank, Result};
use unisono_control::DialTimeouts;
use unisono_control::Request;
use unisono_control::handshake::{Expected, JobId, Purpose};
use unisono_control::intervals::Intervals;
use unisono_control::local_communicator::LocalCommunicator;
use unisono_control::secret::Secret;
use unisono_control::store::StoreCall;
use unisono_control::wire::{CommunicatorKey, ConnectionRole, RankSet};

use super::engines::{AgreeAnswer, CloseAnswer, Mailbox, StoreResult};
use crate::connecting::RingShare;
use crate::connecting::local::LocalRank;
use crate::descriptors::share;
use crate::rendezvous::RankProcess;
use crate::report::Reporter;
use crate::sockets::{DataSocket, SocketOptions};

/// The number of unauthenticated connections that may be within their handshake beside the job's own.
const UNAUTHENTICATED_MAX: usize = 64;

/// Name of the thread.
pub(crate) const THREAD_NAME: &str = "unisono-control";

const _: () =
    assert!(THREAD_NAME.len() <= 15, "the kernel cuts a longer name, and other ranks look for this one");

/// The most handshakes at once: as many as a job of `world_size` ranks can cause itself, and some unauthenticated ones.
/// A process with few descriptors keeps fewer: a rank whose handshake was ended dials again.
pub(crate) fn pending_max(world_size: u32) -> usize {
    share(UNAUTHENTICATED_MAX + world_size as usize * (ConnectionRole::DATA.len() + 1))
}

/// The control thread's knowledge of the job from the start.
pub(crate) struct Identity {
    /// Our rank in the job.
    pub(crate) rank: JobRank,
    /// The job.
    pub(crate) job: JobId,
    /// Its secret.
    pub(crate) secret: Secret,
    /// The address at which every rank listens, in rank order.
    pub(crate) addresses: Arc<[SocketAddr]>,
    /// The number of the host of every rank.
    pub(crate) hosts: Arc<[u32]>,
    /// The process of every rank; empty when nobody knows.
    pub(crate) processes: Vec<RankProcess>,
}

impl Identity {
    pub(super) fn size(&self) -> u32 {
        self.addresses.len() as u32
    }

    /// The demands on the ranks that dial this one. At first no rank counts as lost.
    pub(super) fn expected(&self) -> Expected {
        Expected {
            purposes: &[Purpose::Data, Purpose::Control],
            job: self.job,
            world_size: Some(self.size()),
            rank: self.rank.get(),
            lost: Arc::default(),
        }
    }

    /// A rank, as ranks of its host dial it.
    pub(super) fn local_rank(&self, rank: JobRank) -> LocalRank {
        let process = self.processes.get(rank.index()).cloned();
        LocalRank { secret: self.secret.clone(), address: self.addresses[rank.index()], process }
    }

    /// Whether a rank counts as being on this host.
    pub(super) fn is_here(&self, rank: JobRank) -> bool {
        self.hosts[rank.index()] == self.hosts[self.rank.index()]
    }
}

/// The settings of the control thread.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The intervals of the failure detector.
    pub(crate) intervals: Intervals,
    /// The time limits of a connection to another rank.
    pub(crate) dial_timeouts: DialTimeouts,
    /// The options of every socket.
    pub(crate) socket_options: SocketOptions,
    /// The share of this rank in the memory of its host, if data goes through memory between ranks of one host.
    pub(crate) rings: Option<Arc<RingShare>>,
    /// The time that the world waits at its end until the sent bytes have been acknowledged.
    pub(crate) drop_timeout: Duration,
    /// The congestion control of data sockets within a host; `None` leaves the system's.
    pub(crate) congestion_control: Option<String>,
    /// Takes the errors that no call can return any more.
    pub(crate) reporter: Option<Reporter>,
}

/// The commands of other threads to the control thread. Ranks are ranks of the group.
pub(crate) enum Command {
    /// A request of an engine that does not wait.
    Request(Request),
    /// A communicator exists from now on, and its engine waits there.
    Register(Box<LocalCommunicator>, Mailbox),
    /// Its engine found the first cause; its board is revoked. The sender is dropped once the cause has been written to
    /// every control connection.
    Revoke { key: CommunicatorKey, members: RankSet, cause: Arc<Error>, handed_over: HandedOver },
    /// Its survivors are to agree; see [`unisono_backend::Control::agree`].
    Agree { key: CommunicatorKey, ask: Ask, answer: AgreeAnswer },
    /// It closes; the answer says whether the others made the same calls. It comes by the deadline, and mostly long
    /// before.
    Close { key: CommunicatorKey, ours: CallHistory, deadline: Instant, answer: CloseAnswer },
    /// The program calls a store.
    Store { call: Box<StoreCall>, answer: StoreResult },
    /// Its engine needs these sockets.
    Dial { key: CommunicatorKey, wanted: Vec<(GroupRank, ConnectionRole)> },
    /// The engine no longer needs these sockets, but the bytes that were sent on them must still arrive.
    Linger { sockets: Vec<Arc<DataSocket>> },
    /// The world ends here. Started calls go on first if `finishes`.
    Leave { finishes: bool },
}

/// Dropping it says that something has been handed over.
pub(crate) type HandedOver = crossbeam_channel::Sender<Infallible>;

/// Sends commands to the control thread, from any thread.
#[derive(Clone)]
pub(crate) struct Commands {
    sender: UnboundedSender<Command>,
    /// The process in which the thread runs: a forked child has no such thread.
    pid: u32,
}

impl Commands {
    pub(crate) fn new() -> (Commands, UnboundedReceiver<Command>) {
        let (sender, receiver) = unbounded_channel();
        (Commands { sender, pid: std::process::id() }, receiver)
    }

    /// Never blocks. After the thread has ended, and in a forked child, a command is ignored.
    pub(crate) fn send(&self, command: Command) {
        if self.has_thread() {
            let _ = self.sender.send(command);
        }
    }

    /// Refuses a forked child, to which no answer comes.
    pub(crate) fn check_process(&self) -> Result<()> {
        let (owner, pid) = (self.pid, std::process::id());
        if pid == owner { Ok(()) } else { Err(Error::Forked { owner, pid }) }
    }

    pub(super) fn has_thread(&self) -> bool {
        std::process::id() == self.pid
    }
}
