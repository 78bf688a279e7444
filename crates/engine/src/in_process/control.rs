//! The control plane of ranks that share memory. It sends nothing: every rank reads the shared state.

use std::sync::Arc;
use std::time::Instant;

use unisono_backend::{
    Agreed, Ask, Asked, CallHistory, CallStatus, CommunicatorKey, Companion, Control, Peers,
    answered_elsewhere, asked_next, judge_answer, order_mismatch, with_call_ahead, with_call_elsewhere,
};
use unisono_communicator::{Certainty, Error, Group, GroupOptions, GroupRank, JobRank, Result};

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
        let mut next = self.asked(awaited, number);
        while let Some(asked) = next {
            let Asked { rank, communicator, number, .. } = asked;
            let answer = self.answer(rank, communicator, number);
            let here = self.room.group_rank_of(rank).filter(|_| communicator == self.room.communicator());
            let Some(here) = here else {
                next = answered_elsewhere(&self.peers, (rank, communicator, number), &answer);
                continue;
            };
            let cause = judge_answer(&self.peers, here, number, &answer);
            if let Some(cause) = cause.or_else(|| self.order_mismatch(here, &answer)) {
                self.peers.board().first_cause().revoke(self.peers.group().own_job_rank(), Arc::new(cause));
            }
            next = asked_next(&self.peers, here, number, &answer);
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
    /// The question about call `number` of this communicator.
    fn asked(&self, rank: GroupRank, number: u64) -> Option<Asked> {
        let (rank, communicator) = (*self.room.job_ranks.get(rank.index())?, self.room.communicator());
        Some(Asked { rank, communicator, number, is_message: false })
    }

    /// The answer of a rank about its call `number`.
    fn answer(&self, rank: JobRank, communicator: CommunicatorKey, number: u64) -> CallStatus {
        let rooms = self.world.rooms_of(rank);
        let all = || rooms.iter().filter_map(|room| room.membership(rank));
        let asked = all().find(|one| one.key == communicator);
        let nothing = CallStatus::NotYet { last: None, doing: Box::default() };
        let status = asked.map_or(nothing, |asked| with_call_ahead(asked.board.status(number), asked, all()));
        with_call_elsewhere(status, communicator, all())
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
