//! The control plane of ranks that share memory: it sends nothing, every rank looks at the shared state.

use std::sync::Arc;
use std::time::Instant;

use unisono_backend::{Agreed, Ask, CallHistory, Control, Peers, asked_next, judge_answer};
use unisono_communicator::{Certainty, Communicator, Error, Group, Result};

use super::links::InProcessLinks;
use super::room::{Origin, Room, RoomKey};
use super::world::World;
use crate::communicator::{EngineCommunicator, Parts};
use crate::links::Links;
use crate::options::EngineOptions;

/// The communicator of `key` on one rank that enters it, with its links wrapped.
pub(super) fn communicator<L: Links + 'static>(
    world: &Arc<World>,
    key: &RoomKey,
    group: Group,
    options: &EngineOptions,
    wrap: impl FnOnce(InProcessLinks) -> L,
) -> Arc<EngineCommunicator<L>> {
    let room = world.enter(key, &group);
    let links = InProcessLinks::new(group.rank(), world.clone(), room.clone());
    let board = room.boards[group.rank() as usize].clone();
    let (world, group_here, options_here) = (world.clone(), group.clone(), options.clone());
    let control = InProcessControl { room, world, group: group_here, options: options_here };
    EngineCommunicator::new(Parts {
        group,
        links: wrap(links),
        control: Arc::new(control),
        board,
        options: options.clone(),
        backend: "in_process",
    })
}

struct InProcessControl {
    room: Arc<Room>,
    world: Arc<World>,
    group: Group,
    options: EngineOptions,
}

impl Control for InProcessControl {
    /// The boards share their first cause, so every rank has seen it and is awake.
    fn flood(&self, _cause: Arc<Error>) {}

    fn stream_ended(&self, peer: u32) {
        let Some(exit) = self.room.exit_of(peer) else { return };
        let (rank, board) = (self.group.rank(), &self.room.boards[self.group.rank() as usize]);
        let running = board.entered().checked_sub(1).filter(|&last| last >= board.finished());
        let call = running.and_then(|last| board.call_info(last));
        let reporter = self.group.global_ranks()[rank as usize];
        let peers = Peers::new(self.group.clone(), board.clone());
        let cause = peers.lost(peer, reporter, Certainty::Confirmed, exit.evidence(), call);
        board.revoke(rank, Arc::new(cause));
    }

    fn ask(&self, awaited: u32, number: u64) {
        let ours = &self.room.boards[self.group.rank() as usize];
        let mut next = Some(awaited);
        while let Some(asked) = next {
            let answer = self.room.boards[asked as usize].status(number);
            if let Some(cause) = judge_answer(ours, asked, number, &answer) {
                ours.revoke(self.group.rank(), Arc::new(cause));
            }
            next = asked_next(ours, number, &answer);
        }
    }

    fn close(&self, ours: CallHistory, deadline: Instant) -> Result<()> {
        self.world.close(&self.room, self.group.rank(), ours, deadline)
    }

    fn agree(&self, ask: &Ask) -> Result<Agreed> {
        self.world.agree(&self.room, self.group.rank(), ask)
    }

    fn succeed(&self, survivors: &[u32], number: u64) -> Result<Arc<dyn Communicator>> {
        let made = self.make(survivors, Origin::Shrink(number), self.group.epoch() + 1);
        made.ok_or_else(|| Error::invalid("survivors", "this rank is not among them"))
    }

    fn derive(&self, ranks: &[u32], counter: u64) -> Result<Option<Arc<dyn Communicator>>> {
        Ok(self.make(ranks, Origin::Derive(counter), self.group.epoch()))
    }

    fn abandon(&self) {
        self.world.abandon(&self.room, self.group.rank());
    }
}

impl InProcessControl {
    /// `None` when this rank is not in the list.
    fn make(&self, ranks: &[u32], origin: Origin, epoch: u32) -> Option<Arc<dyn Communicator>> {
        let group = self.group.subgroup(ranks, epoch)?;
        let key = RoomKey { parent: Some((self.room.number, origin)), members: ranks.to_vec() };
        Some(communicator(&self.world, &key, group, &self.options, |links| links))
    }
}
