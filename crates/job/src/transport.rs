//! The seam for transports. The job makes the connections of every communicator, authenticates them, and hands them
//! over by peer and role; a transport moves data over them.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use unisono_backend::{Board, Companion};
use unisono_communicator::{Group, GroupRank, Result};
use unisono_control::local_communicator::LocalCommunicator;
use unisono_control::wire::{CommunicatorKey, ConnectionRole};
use unisono_engine::{EngineCommunicator, EngineOptions, Links, Parts, SharedRegistry};

pub use crate::control_thread::Delivery;
use crate::control_thread::{Command, Commands, ControlHandle, Mailbox};
use crate::job::Job;
use crate::sockets::DataSocket;

/// Moves the data of the communicators of a job.
pub trait Transport: Send + Sync {
    /// Makes one communicator, by [`NewCommunicator::over`]. Needs no message: every member does the same.
    ///
    /// # Errors
    /// The reason why this rank cannot make it. The job tells the other members.
    fn communicator(&self, new: NewCommunicator<'_>) -> Result<Companion>;

    /// Whether it moves data through memory between ranks of one host. It gets any [`Way`] then: the ranks may be in
    /// containers with networks of their own, or have no memory left.
    ///
    /// [`Way`]: crate::sockets::Way
    fn shares_memory(&self) -> bool {
        false
    }
}

/// A communicator that is being made.
pub struct NewCommunicator<'a> {
    pub(crate) job: &'a Job,
    pub(crate) key: CommunicatorKey,
    pub(crate) group: Group,
    pub(crate) registry: SharedRegistry,
}

impl NewCommunicator<'_> {
    /// Its group, with this rank's place in it.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// By group rank: whether the streams between it and this rank carry checksums.
    pub fn is_checked(&self) -> Vec<bool> {
        self.job.checked(&self.group)
    }

    /// By group rank: whether data between it and this rank is to go through memory.
    pub fn shares_memory(&self) -> Vec<bool> {
        self.job.shares_memory(&self.group)
    }

    /// The communicator over the links that `links` makes of its connections; `backend` is its backend's name.
    ///
    /// # Errors
    /// The errors of `links`.
    pub fn over<L: Links + 'static>(
        self,
        backend: &'static str,
        links: impl FnOnce(Connections) -> Result<L>,
    ) -> Result<Companion> {
        let NewCommunicator { job, key, group, registry } = self;
        let board = Arc::new(Board::new(group.own_rank(), group.size()));
        let (inbox, connections) = Connections::new(key, job.commands().clone());
        let links = links(connections)?;
        job.recorder().register(key, group.clone(), &board);
        if let Some(reporter) = job.reporter() {
            reporter.watch(group.own_job_rank(), key.to_string(), &board);
        }
        let member = LocalCommunicator::new(key, group.clone(), board.clone());
        job.commands().send(Command::Register(Box::new(member), Mailbox { inbox, waker: links.waker() }));
        let control = ControlHandle::new(job.clone(), key, group.clone(), board.clone(), registry.clone());
        let options = EngineOptions { registry, ..job.options(&group) };
        let parts = Parts { group, links, control: Arc::new(control), board, options, backend };
        Ok(EngineCommunicator::new(parts).as_companion())
    }
}

/// The connections of one communicator, as the control thread makes them.
pub struct Connections {
    key: CommunicatorKey,
    commands: Commands,
    inbox: Receiver<Delivery>,
}

impl Connections {
    fn new(key: CommunicatorKey, commands: Commands) -> (Sender<Delivery>, Connections) {
        let (sender, inbox) = crossbeam_channel::unbounded();
        (sender, Connections { key, commands, inbox })
    }

    /// Asks for connections that are not there yet; each needs to be asked for once. The other side may ask for the
    /// same: both get the same connection.
    pub fn dial(&self, wanted: Vec<(GroupRank, ConnectionRole)>) {
        self.commands.send(Command::Dial { key: self.key, wanted });
    }

    /// The next delivery, if one has come. The waker of the links has been called for it.
    pub fn next(&self) -> Option<Delivery> {
        self.inbox.try_recv().ok()
    }

    /// The engine needs these sockets no more. The job holds them until the bytes that were sent on them have
    /// arrived.
    pub fn linger(&self, sockets: Vec<Arc<DataSocket>>) {
        self.commands.send(Command::Linger { sockets });
    }
}
