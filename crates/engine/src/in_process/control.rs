//! The control plane of ranks that share memory. It sends nothing: every rank reads the shared state.

use std::sync::Arc;
use std::time::Instant;

use unisono_backend::{
    Agreed, Ask, CallHistory, CallStatus, Companion, Control, Peers, asked_next, judge_answer,
    order_mismatch, with_call_ahead,
};
use unisono_communicator::{Certainty, Error, Group, GroupOptions, GroupRank, Result};

use super::links::InProcessLinks;
use super::room::{Origin, Room, RoomKey};
use super::world::World;
use crate::communicator::{EngineCommunicator, Parts};
use crate::links::Links;
use crate::options::EngineOptions;

/// Enters the communicator of `key` on one rank. `wrap` wraps its links.
///
/// # Errors
/// As [`World::join`].
pub(super) fn communicator<L: Links + 'static>(
    world: &Arc<World>,
    key: &RoomKey,
    group: Group,
    options: &EngineOptions,
    wrap: impl FnOnce(InProcessLinks) -> L,
) -> Result<Arc<EngineCommunicator<L>>> {
    let options = EngineOptions { registry: options.registry.inherit(), ..options.clone() };
    let engine_options = options.of_group(&group);
    let room = world.join(key, &group)?;
    let group = group.with_id(room.number as u64);
    let links = InProcessLinks::new(group.own_rank(), world.clone(), room.clone());
    let board = room.boards[group.own_rank().index()].clone();
    let peers = Peers::new(group.clone(), board.clone());
    let control = InProcessControl { room, world: world.clone(), peers, options };
    Ok(EngineCommunicator::new(Parts {
        group,
        links: wrap(links),
        control: Arc::new(control),
        board,
        options: engine_options,
        backend: "in_process",
    }))
}

struct InProcessControl {
    room: Arc<Room>,
    world: Arc<World>,
    peers: Peers,
    options: EngineOptions,
}

impl Control for InProcessControl {
    /// The boards share their first cause, so every rank has seen it and is awake.
    fn flood(&self, _cause: Arc<Error>) {}

    fn stream_ended(&self, peer: GroupRank) {
        let Some(exit) = self.room.exit_of(peer) else { return };
        let (own, board) = (self.peers.group().own_job_rank(), self.peers.board());
        let running =
            board.calls().entered().checked_sub(1).filter(|&last| last >= board.progress().finished());
        let call = running.and_then(|last| board.calls().info(last));
        let cause = self.peers.lost(peer, own, Certainty::Confirmed, exit.evidence(), call);
        board.first_cause().revoke(own, Arc::new(cause));
    }

    fn ask(&self, awaited: GroupRank, number: u64) {
        let mut next = Some(awaited);
        while let Some(asked) = next {
            let answer = self.answer(asked, number);
            let cause = judge_answer(&self.peers, asked, number, &answer);
            if let Some(cause) = cause.or_else(|| self.order_mismatch(asked, &answer)) {
                self.peers.board().first_cause().revoke(self.peers.group().own_job_rank(), Arc::new(cause));
            }
            next = asked_next(&self.peers, number, &answer);
        }
    }

    fn close(&self, ours: CallHistory, deadline: Instant) -> Result<()> {
        self.world.close(&self.room, &self.peers, ours, deadline)
    }

    fn agree(&self, ask: &Ask) -> Result<Agreed> {
        self.world.agree(&self.room, self.peers.group(), ask)
    }

    fn succeed(&self, survivors: &[GroupRank], number: u64) -> Result<Companion> {
        let origin = Origin::Shrink { parent: self.room.number, number };
        let group = self.peers.group();
        let made = self.make(survivors, group.options(), origin, group.epoch() + 1)?;
        made.ok_or_else(|| Error::invalid("survivors", "this rank is not among them"))
    }

    fn derive(&self, ranks: &[GroupRank], options: &GroupOptions, counter: u64) -> Result<Option<Companion>> {
        let group = self.peers.group();
        let origin = Origin::Derive { parent: self.room.number, counter };
        self.make(ranks, &options.or(group.options()), origin, group.epoch())
    }

    fn abandon(&self) {
        self.world.abandon(&self.room, self.peers.group().own_rank());
    }
}

impl InProcessControl {
    /// The answer of a rank about its call `number`.
    fn answer(&self, asked: GroupRank, number: u64) -> CallStatus {
        let status = self.room.boards[asked.index()].status(number);
        let rank = self.room.job_ranks[asked.index()];
        let Some(own) = self.room.membership(rank) else { return status };
        let rooms = self.world.rooms_of(rank);
        with_call_ahead(status, own, rooms.iter().filter_map(|room| room.membership(rank)))
    }

    fn order_mismatch(&self, asked: GroupRank, answer: &CallStatus) -> Option<Error> {
        let own = self.peers.group().own_job_rank();
        let rooms = self.world.rooms_of(own);
        let mut all = rooms.iter().filter_map(|room| room.membership(own));
        let rank = self.room.job_ranks[asked.index()];
        order_mismatch(own, self.room.membership(own)?, rank, answer, |key| all.find(|one| one.key == key))
    }

    /// A communicator of `ranks`; `None` when this rank is not among them.
    fn make(
        &self,
        ranks: &[GroupRank],
        options: &GroupOptions,
        origin: Origin,
        epoch: u32,
    ) -> Result<Option<Companion>> {
        let Some(group) = self.peers.group().subgroup(ranks, epoch) else { return Ok(None) };
        let group = group.with_options(*options);
        let key = RoomKey { origin, members: ranks.to_vec(), options: *options };
        Ok(Some(communicator(&self.world, &key, group, &self.options, |links| links)?.as_companion()))
    }
}
