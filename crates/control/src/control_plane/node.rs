//! One rank of a job for the tests of its control plane: connections and messages of other ranks go in, the steps
//! of the connections come out.

use std::sync::Arc;
use std::time::Instant;

use unisono_backend::{Board, CallHistory};
use unisono_communicator::{Error, Group, JobRank};

use super::{ControlPlane, Effect, Request};
use crate::DialTimeouts;
use crate::connections::{ConnectionNumber, ConnectionStep};
use crate::hosts::Hosts;
use crate::intervals::Intervals;
use crate::local_communicator::LocalCommunicator;
use crate::slots::Slot;
use crate::wire::{CommunicatorKey, ConnectionRole, JointNews, Message, Publisher, Topic};

pub(super) const KEY: CommunicatorKey = CommunicatorKey { id: 5, epoch: 0 };
pub(super) const HISTORY: CallHistory = CallHistory { calls: 0, digest: 0 };
pub(super) const LOWER: JobRank = JobRank::new(0);
pub(super) const HIGHER: JobRank = JobRank::new(2);

/// Rank 1 of three on one host.
pub(super) struct Node {
    pub(super) control: ControlPlane,
    pub(super) now: Instant,
}

impl Node {
    pub(super) fn new() -> Node {
        let (now, times) = (Instant::now(), (Intervals::default(), DialTimeouts::default()));
        let control = ControlPlane::new(JobRank::new(1), Hosts::new([0; 3].into()), times, now);
        Node { control, now }
    }

    pub(super) fn register(&mut self) {
        let group = Group::world_on(1, [0; 3].into());
        let board = Arc::new(Board::new(group.own_rank(), 3));
        let communicator = LocalCommunicator::new(KEY, group, board);
        self.control.request(Request::Register(Box::new(communicator)), self.now);
    }

    /// The steps of connections since the last call, and the ranks of whose departure boards are told.
    pub(super) fn steps(&mut self) -> Vec<(ConnectionNumber, Result<ConnectionStep, JobRank>)> {
        let mut number_before = ConnectionNumber::default();
        let effects = self.control.take_effects(self.now).into_iter();
        let steps = effects.filter_map(|effect| match effect {
            Effect::Connection { number, step, .. } => {
                number_before = number;
                Some((number, Ok(step)))
            }
            Effect::Left(_, peer) => Some((number_before, Err(peer))),
            _ => None,
        });
        steps.collect()
    }

    /// The number of dials of data connections since the last call, and the failures that their engine is told of.
    pub(super) fn dials(&mut self) -> (usize, Vec<Error>) {
        let (mut dials, mut failures) = (0, Vec::new());
        for effect in self.control.take_effects(self.now) {
            match effect {
                Effect::Dial { slot, .. } if slot.key == KEY => dials += 1,
                Effect::NotConnected(KEY, error) => failures.push(error),
                _ => {}
            }
        }
        (dials, failures)
    }

    pub(super) fn accept(&mut self, slot: Slot) -> ConnectionNumber {
        self.control.on_accepted(slot, self.now).unwrap()
    }

    pub(super) fn hear(&mut self, rank: JobRank, number: ConnectionNumber, topic: Topic) {
        let news = JointNews { origins: vec![Publisher { rank, sequence: 1 }], topic };
        self.control.on_message(rank, number, Message::News(news), self.now);
    }

    /// The control connection to the higher rank, in use and heard.
    pub(super) fn connected() -> (Node, ConnectionNumber) {
        let (mut node, number) = Node::unheard();
        node.control.on_message(HIGHER, number, Message::Beat, node.now);
        (node, number)
    }

    /// The control connection to the higher rank, in use.
    pub(super) fn unheard() -> (Node, ConnectionNumber) {
        let mut node = Node::new();
        let number = node.accept(Slot::control(HIGHER));
        node.control.on_acknowledged(number, Ok(()), node.now);
        let keep = ConnectionStep::Keep(DialTimeouts::default().attempt);
        assert_eq!(node.steps(), [(number, Ok(keep)), (number, Ok(ConnectionStep::Use))]);
        node.control.on_connected(Slot::control(HIGHER), node.now);
        (node, number)
    }
}

pub(super) fn data(peer: JobRank, role: ConnectionRole) -> Slot {
    Slot { key: KEY, role, peer }
}
