//! The shared state of the ranks of one communicator: their boards, their pipes, and how each has left.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use unisono_backend::{Board, CommunicatorKey, GroupText, Membership, Waker};
use unisono_communicator::{CallInfo, Certainty, Culprit, Error, Group, GroupOptions, GroupRank, JobRank};

use super::pipe::{self, PipeLink};
use crate::links::Edge;
use crate::lock;

/// Identifies a communicator of a world by its origin, its members and its options.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct RoomKey {
    pub(super) origin: Origin,
    /// Ranks of the parent, or of the whole world, in the order of their new ranks.
    pub(super) members: Vec<GroupRank>,
    pub(super) options: GroupOptions,
}

/// The origin of a communicator. The numbers tell apart communicators of the same kind.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// With the world.
    Whole,
    /// As a subgroup or duplicate of the room `parent`.
    Derive { parent: usize, counter: u64 },
    /// By the survivors of the room `parent`.
    Shrink { parent: usize, number: u64 },
    /// By its members alone, under a name that they had used `uses` times before.
    Named { name: String, uses: u64 },
}

impl RoomKey {
    /// The number of the room from which it was derived.
    pub(super) fn parent(&self) -> Option<usize> {
        match self.origin {
            Origin::Derive { parent, .. } | Origin::Shrink { parent, .. } => Some(parent),
            Origin::Whole | Origin::Named { .. } => None,
        }
    }
}

/// The way in which a rank has left a communicator.
pub(super) enum Exit {
    /// The rank has closed or dropped it. Its earlier messages can still be received.
    Left {
        /// The number of collectives that the rank had finished.
        finished_calls: u64,
    },
    /// The rank's thread has panicked.
    Died {
        /// The evidence of the panic.
        evidence: String,
    },
}

impl Exit {
    /// The evidence of the panic, if the rank has died.
    pub(super) fn death(&self) -> Option<&str> {
        match self {
            Exit::Left { .. } => None,
            Exit::Died { evidence } => Some(evidence),
        }
    }

    /// The text of errors about it.
    pub(super) fn evidence(&self) -> String {
        match self {
            Exit::Left { finished_calls } => format!("left with {finished_calls} calls finished"),
            Exit::Died { evidence } => evidence.clone(),
        }
    }
}

/// For each rank, how it has left, if it has.
pub(super) type Exits = Arc<[OnceLock<Exit>]>;

/// One communicator, shared by all its ranks.
pub(super) struct Room {
    pub(super) number: usize,
    epoch: u32,
    pub(super) key: RoomKey,
    /// The request of its members, which must be the same for all.
    pub(super) text: GroupText,
    /// The job rank of each rank.
    pub(super) job_ranks: Vec<JobRank>,
    pub(super) boards: Vec<Arc<Board>>,
    pub(super) exits: Exits,
    /// Ends of pipes that one rank has made and the other rank has not fetched.
    ends: Mutex<HashMap<(GroupRank, Edge), PipeLink>>,
    wakers: Mutex<Vec<Option<Waker>>>,
}

impl Room {
    /// Notes that two ranks have a stream for messages.
    pub(super) fn note_message_stream(&self, rank: GroupRank, peer: GroupRank) {
        self.boards[rank.index()].closings().note_message_stream(peer);
        self.boards[peer.index()].closings().note_message_stream(rank);
    }

    /// A communicator of the ranks of `group`.
    pub(super) fn new(number: usize, key: RoomKey, group: &Group) -> Room {
        let ranks = group.size();
        Room {
            number,
            epoch: group.epoch(),
            key,
            text: GroupText::of(group),
            job_ranks: group.job_ranks().to_vec(),
            boards: Board::of_threads(ranks).into_iter().map(Arc::new).collect(),
            exits: (0..ranks).map(|_| OnceLock::new()).collect(),
            ends: Mutex::default(),
            wakers: Mutex::new(vec![None; ranks as usize]),
        }
    }

    /// Its ranks, in order.
    pub(super) fn ranks(&self) -> impl Iterator<Item = GroupRank> + use<> {
        GroupRank::all(self.job_ranks.len() as u32)
    }

    /// The rank here of a rank of the job; `None` if it is not a member.
    pub(super) fn group_rank_of(&self, rank: JobRank) -> Option<GroupRank> {
        self.ranks().zip(&self.job_ranks).find(|(_, of_job)| **of_job == rank).map(|(member, _)| member)
    }

    /// Its key.
    pub(super) fn communicator(&self) -> CommunicatorKey {
        CommunicatorKey { id: self.number as u64, epoch: self.epoch }
    }

    /// A job rank's view of this communicator.
    pub(super) fn membership(&self, rank: JobRank) -> Option<Membership<'_>> {
        let board = &self.boards[self.group_rank_of(rank)?.index()];
        Some(Membership { key: self.communicator(), ranks: &self.job_ranks, board })
    }

    /// The way in which a rank has left, if it has.
    pub(super) fn exit_of(&self, rank: GroupRank) -> Option<&Exit> {
        self.exits[rank.index()].get()
    }

    /// Notes that a rank has left, once for each rank. `death` is the evidence of a panic, which revokes the
    /// communicator.
    pub(super) fn note_exit(&self, rank: GroupRank, death: Option<&str>) {
        if self.exit_of(rank).is_some() {
            return;
        }
        let (board, job_rank) = (&self.boards[rank.index()], self.job_ranks[rank.index()]);
        let exit = match death {
            Some(evidence) => {
                board.first_cause().revoke(job_rank, Arc::new(loss(board, job_rank, evidence)));
                Exit::Died { evidence: evidence.to_owned() }
            }
            None => Exit::Left { finished_calls: board.progress().finished() },
        };
        // The caller holds the world's lock, so no other thread has noted an exit meanwhile.
        let _ = self.exits[rank.index()].set(exit);
        lock(&self.wakers).iter().flatten().for_each(|wake| wake());
    }

    /// Sets the waker of this rank.
    pub(super) fn set_waker(&self, rank: GroupRank, waker: Waker) {
        lock(&self.wakers)[rank.index()] = Some(waker);
    }

    /// Fetches our end of a pipe. If the peer has not made the pipe, it is made here if `make` is set, or if the peer
    /// has left: then reads find the end of the stream.
    pub(super) fn fetch(self: &Arc<Room>, rank: GroupRank, edge: Edge, make: bool) -> Option<PipeLink> {
        let make = make || self.exit_of(edge.peer).is_some();
        let mut ends = lock(&self.ends);
        if let Some(end) = ends.remove(&(rank, edge)) {
            return Some(end);
        }
        make.then(|| {
            let side = |rank| (rank, self.waker(rank));
            let (ours, theirs) = pipe::pair(&self.exits, side(rank), side(edge.peer));
            ends.insert((edge.peer, Edge { peer: rank, lane: edge.lane }), theirs);
            ours
        })
    }

    fn waker(self: &Arc<Room>, rank: GroupRank) -> Waker {
        // A pipe may outlive its communicator, so it must not keep the room.
        let room: Weak<Room> = Arc::downgrade(self);
        Arc::new(move || {
            if let Some(room) = room.upgrade()
                && let Some(wake) = &lock(&room.wakers)[rank.index()]
            {
                wake();
            }
        })
    }
}

/// The error for the death of a rank of the job, which the rank itself reports while it unwinds.
fn loss(board: &Board, rank: JobRank, evidence: &str) -> Error {
    let last_call = board.calls().entered().checked_sub(1).and_then(|last| board.calls().info(last));
    let last_call = last_call.map(|call| Box::new(CallInfo { site: None, ..call }));
    Error::PeerLost {
        culprits: vec![Culprit { rank, process: None, last_call }],
        call: None,
        reported_by: rank,
        certainty: Certainty::Confirmed,
        evidence: evidence.to_owned(),
    }
}
