//! The engines of this rank as the control thread reaches them: where each waits, and who waits for which answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossbeam_channel::Sender;
use unisono_backend::{Agreed, Waker};
use unisono_communicator::{Error, GroupRank, Result};
use unisono_control::Caller;
use unisono_control::store::StoreReply;
use unisono_control::wire::{CommunicatorKey, ConnectionRole};

use crate::sockets::DataSocket;

/// The things that the control thread hands to a communicator.
#[derive(Debug)]
pub enum Delivery {
    /// An authenticated, nonblocking socket.
    Socket {
        /// The other side.
        peer: GroupRank,
        /// The role among the sockets to that peer.
        role: ConnectionRole,
        /// The socket.
        socket: Arc<DataSocket>,
    },
    /// A socket that was asked for will never come.
    Failed(Error),
}

/// The place where an engine waits.
pub(crate) struct Mailbox {
    pub(crate) inbox: Sender<Delivery>,
    pub(crate) waker: Waker,
}

/// Takes the answer to [`super::command::Command::Close`].
pub(crate) type CloseAnswer = Sender<Result<()>>;

/// Takes the answer to [`super::command::Command::Agree`].
pub(crate) type AgreeAnswer = Sender<Result<Agreed>>;

/// Takes the answer to [`super::command::Command::Store`].
pub(crate) type StoreResult = Sender<Result<StoreReply>>;

/// All engines of this rank. An engine that is being dropped ignores deliveries; a caller that has given up takes no
/// answer.
#[derive(Default)]
pub(super) struct Engines {
    mailboxes: BTreeMap<CommunicatorKey, Mailbox>,
    agreeing: BTreeMap<Caller, AgreeAnswer>,
    closing: BTreeMap<Caller, CloseAnswer>,
    storing: BTreeMap<Caller, StoreResult>,
    callers: u64,
}

impl Engines {
    /// The engine of a communicator waits there.
    pub(super) fn add(&mut self, key: CommunicatorKey, mailbox: Mailbox) {
        self.mailboxes.insert(key, mailbox);
    }

    /// It is gone.
    pub(super) fn remove(&mut self, key: CommunicatorKey) {
        self.mailboxes.remove(&key);
    }

    /// Wakes its threads.
    pub(super) fn wake(&self, key: CommunicatorKey) {
        if let Some(mailbox) = self.mailboxes.get(&key) {
            (mailbox.waker)();
        }
    }

    /// Hands something to it.
    pub(super) fn deliver(&self, key: CommunicatorKey, delivery: Delivery) {
        if let Some(mailbox) = self.mailboxes.get(&key)
            && mailbox.inbox.send(delivery).is_ok()
        {
            (mailbox.waker)();
        }
    }

    /// A caller waits for an agreement.
    pub(super) fn agreeing(&mut self, answer: AgreeAnswer) -> Caller {
        let caller = self.next_caller();
        self.agreeing.insert(caller, answer);
        caller
    }

    /// A caller waits in its close.
    pub(super) fn closing(&mut self, answer: CloseAnswer) -> Caller {
        let caller = self.next_caller();
        self.closing.insert(caller, answer);
        caller
    }

    /// A caller waits for a store.
    pub(super) fn storing(&mut self, answer: StoreResult) -> Caller {
        let caller = self.next_caller();
        self.storing.insert(caller, answer);
        caller
    }

    fn next_caller(&mut self) -> Caller {
        self.callers += 1;
        Caller(self.callers)
    }

    /// The answer to a caller that agrees.
    pub(super) fn agreed(&mut self, caller: Caller, result: Result<Agreed>) {
        let _ = self.agreeing.remove(&caller).map(|answer| answer.send(result));
    }

    /// The answer to a caller of a store.
    pub(super) fn stored(&mut self, caller: Caller, result: Result<StoreReply>) {
        let _ = self.storing.remove(&caller).map(|answer| answer.send(result));
    }

    /// The answer to a caller that closes.
    pub(super) fn closed(&mut self, caller: Caller, result: Result<()>) {
        let _ = self.closing.remove(&caller).map(|answer| answer.send(result));
    }
}
