//! All communicators of one in-process world, and the ranks that have left them. One lock orders the events, so all
//! ranks see the same order.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use unisono_backend::{
    Agreed, Ask, CallHistory, FirstDifference, GroupText, Peers, Question, SEARCH_MAX, SearchStep,
    closed_differently, closing_error, different_groups, judge_answer, not_agreed,
};
use unisono_communicator::{Error, Group, GroupRank, JobRank, Result};

use super::room::{Exit, Origin, Room, RoomKey};
use crate::lock;

/// The evidence of a panic whose text is unknown.
pub(super) const THREAD_PANICKED: &str = "its thread panicked";

/// The longest wait of `close` for the other ranks' goodbyes.
const GOODBYE_MAX: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct World {
    rooms: Mutex<Rooms>,
    /// Notified when a rank has left, closed, or voted.
    news: Condvar,
}

#[derive(Default)]
struct Rooms {
    /// By number, until every member has left.
    open: BTreeMap<usize, OpenRoom>,
    made: usize,
    /// The job ranks that have panicked, in the order in which the panics became known.
    deaths: Vec<JobRank>,
}

struct OpenRoom {
    room: Arc<Room>,
    members: Vec<Member>,
    /// For each rank, its history when it closed.
    goodbyes: Vec<Option<CallHistory>>,
    agreements: HashMap<(Question, u64), Agreement>,
}

/// The time after which a barrier notices a first cause.
const CAUSE_NOTICED_AFTER: Duration = Duration::from_millis(5);

/// The state of a rank in one of its communicators.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    /// The rank has not entered the communicator yet.
    Coming,
    /// The rank has the communicator.
    Here,
    /// The rank has dropped the communicator, or left its parent before it entered.
    Gone,
}

/// One agreement.
struct Agreement {
    ballots: Vec<Option<Ballot>>,
    /// Decided once, so that a rank that leaves afterwards does not change the result.
    agreed: Option<Agreed>,
}

/// A rank's flag, and its number of finished calls.
#[derive(Clone, Copy)]
struct Ballot {
    flag: bool,
    finished_calls: u64,
}

impl World {
    /// Joins the communicator of `key`; the first member makes it. `group` is this rank's view of it.
    ///
    /// # Errors
    /// [`Error::Evicted`] for a rank that has panicked and goes on, because the others have given it up.
    pub(super) fn join(&self, key: &RoomKey, group: &Group) -> Result<Arc<Room>> {
        let mut rooms = lock(&self.rooms);
        let own = group.own_job_rank();
        if rooms.deaths.contains(&own) {
            return Err(Error::Evicted { reported_by: own, evidence: THREAD_PANICKED.to_owned() });
        }
        let found = rooms.open.iter().find(|(_, open)| open.room.key == *key).map(|(&number, _)| number);
        let conflict = rooms.conflict(key, group);
        let number = found.unwrap_or_else(|| rooms.make(key, group));
        let open = rooms.open(number);
        open.members[group.own_rank().index()] = Member::Here;
        let room = open.room.clone();
        if let Some((other, cause)) = conflict {
            other.boards[0].first_cause().revoke(own, cause.clone());
            room.boards[0].first_cause().revoke(own, cause);
        }
        Ok(room)
    }

    /// Notes that a rank has died, in this communicator.
    pub(super) fn abandon(&self, room: &Room, rank: GroupRank) {
        let mut rooms = lock(&self.rooms);
        rooms.exit(room.number, rank, Some(THREAD_PANICKED));
        self.news.notify_all();
    }

    /// Notes that a rank has dropped its communicator. `death` is the evidence of a panic.
    pub(super) fn leave(&self, room: &Room, rank: GroupRank, death: Option<&str>) {
        let mut rooms = lock(&self.rooms);
        rooms.exit(room.number, rank, death);
        rooms.forget(room.number, rank);
        self.news.notify_all();
    }

    /// Notes that a rank of the job has died, in all its communicators.
    pub(super) fn die(&self, rank: JobRank, evidence: &str) {
        let mut rooms = lock(&self.rooms);
        let exits =
            rooms.open.values().filter_map(|open| Some((open.room.number, open.room.group_rank_of(rank)?)));
        for (number, rank) in exits.collect::<Vec<_>>() {
            rooms.exit(number, rank, Some(evidence));
        }
        self.news.notify_all();
    }

    pub(super) fn rooms_of(&self, rank: JobRank) -> Vec<Arc<Room>> {
        let rooms = lock(&self.rooms);
        let open = rooms.open.values().map(|open| open.room.clone());
        open.filter(|room| room.group_rank_of(rank).is_some()).collect()
    }

    /// The job ranks that have panicked, the first one first.
    pub(super) fn deaths(&self) -> Vec<JobRank> {
        lock(&self.rooms).deaths.clone()
    }

    /// Says goodbye, and checks that the others have made the same calls. Ranks that have left do not answer.
    pub(super) fn close(
        &self,
        room: &Room,
        peers: &Peers,
        ours: CallHistory,
        deadline: Instant,
    ) -> Result<()> {
        let rank = peers.group().own_rank();
        let mut until = deadline.min(Instant::now() + GOODBYE_MAX);
        for closings in room.boards.iter().map(|board| board.closings()) {
            closings.note_closed(rank);
            // A stream is there for both ranks as soon as one of them has made it.
            closings.note_complete(rank);
        }
        let mut rooms = lock(&self.rooms);
        rooms.open(room.number).goodbyes[rank.index()] = Some(ours);
        rooms.exit(room.number, rank, None);
        self.news.notify_all();
        let is_complete = || room.exits.iter().all(|exit| exit.get().is_some());
        let mut is_searched = false;
        while !room.boards[rank.index()].first_cause().is_revoked() {
            let is_late = Instant::now() >= until;
            if !is_searched && (is_late || is_complete()) {
                let goodbyes = rooms.open(room.number).goodbyes.clone();
                if !closed_differently(&goodbyes) {
                    break;
                }
                drop(rooms);
                // The lowest rank searches, and the other closed ranks wait for its result.
                if let Some(error) = first_difference(room, peers, &goodbyes) {
                    room.boards[rank.index()]
                        .first_cause()
                        .revoke(peers.group().own_job_rank(), Arc::new(error));
                }
                (is_searched, until) = (true, Instant::now() + SEARCH_MAX);
                rooms = lock(&self.rooms);
                self.news.notify_all();
                continue;
            }
            if is_late {
                break;
            }
            rooms = self.wait(rooms, until.saturating_duration_since(Instant::now()));
        }
        let goodbyes = rooms.open(room.number).goodbyes.clone();
        drop(rooms);
        closing_error(peers, ours, &goodbyes).map_or(Ok(()), Err)
    }

    /// Agrees with all ranks of `group` that have not left.
    pub(super) fn agree(&self, room: &Room, group: &Group, ask: &Ask) -> Result<Agreed> {
        let (started, rank) = (Instant::now(), group.own_rank());
        let mut rooms = lock(&self.rooms);
        loop {
            if let Some(Exit::Died { evidence }) = room.exit_of(rank) {
                let reported_by = group.own_job_rank();
                return Err(Error::Evicted { reported_by, evidence: evidence.clone() });
            }
            let cause = room.boards[rank.index()].first_cause().error();
            if let Some(cause) = cause.filter(|_| ask.heeds_cause) {
                return Err(cause);
            }
            let agreement = rooms.open(room.number).agreement(ask);
            agreement.ballots[rank.index()] =
                Some(Ballot { flag: ask.flag, finished_calls: ask.finished_calls });
            let awaited = match agreement.decide(room) {
                Ok(agreed) => {
                    // The last ballot decides, and the others wait for it.
                    self.news.notify_all();
                    return Ok(agreed);
                }
                Err(awaited) => awaited,
            };
            let now = Instant::now();
            if now >= ask.deadline {
                return Err(not_agreed(group, ask, now - started, &awaited));
            }
            let left = ask.deadline - now;
            // A first cause wakes the waits for links only.
            rooms = self.wait(rooms, if ask.heeds_cause { left.min(CAUSE_NOTICED_AFTER) } else { left });
        }
    }

    fn wait<'w>(&self, rooms: MutexGuard<'w, Rooms>, longest: Duration) -> MutexGuard<'w, Rooms> {
        self.news.wait_timeout(rooms, longest).unwrap_or_else(PoisonError::into_inner).0
    }

    /// The number of communicators in use.
    #[cfg(test)]
    pub(super) fn open_rooms(&self) -> usize {
        lock(&self.rooms).open.len()
    }
}

/// The first difference between the closed ranks' histories, if this rank is the lowest of them.
fn first_difference(room: &Room, peers: &Peers, closed: &[Option<CallHistory>]) -> Option<Error> {
    let mut search = FirstDifference::begin(peers.group().own_rank(), closed)?;
    let mut step = search.start(peers);
    loop {
        match step {
            SearchStep::Ask(ranks, number) => {
                step = SearchStep::Wait;
                for rank in ranks {
                    let answer = room.boards[rank.index()].status(number);
                    if let Some(error) = judge_answer(peers, rank, number, &answer) {
                        return Some(error);
                    }
                    step = search.answered(peers, rank, number, &answer);
                }
            }
            SearchStep::Wait => return None,
            SearchStep::Found(error) => return Some(*error),
        }
    }
}

impl Rooms {
    /// A room that has a member.
    fn open(&mut self, number: usize) -> &mut OpenRoom {
        #[expect(clippy::expect_used, reason = "a room outlives the communicators of its members")]
        self.open.get_mut(&number).expect("a communicator that a rank still has")
    }

    fn make(&mut self, key: &RoomKey, group: &Group) -> usize {
        let (number, ranks) = (self.made, group.size() as usize);
        self.made += 1;
        let open = OpenRoom {
            room: Arc::new(Room::new(number, key.clone(), group)),
            members: vec![Member::Coming; ranks],
            goodbyes: vec![None; ranks],
            agreements: HashMap::new(),
        };
        self.open.insert(number, open);
        self.exit_with_parent(number);
        self.exit_the_dead(number);
        number
    }

    /// Marks dead ranks as gone from this new communicator.
    fn exit_the_dead(&mut self, number: usize) {
        let Some(open) = self.open.get(&number) else { return };
        let dead = self.deaths.iter().filter_map(|&rank| open.room.group_rank_of(rank));
        for rank in dead.collect::<Vec<_>>() {
            self.exit(number, rank, Some(THREAD_PANICKED));
            self.forget(number, rank);
        }
    }

    /// A communicator that other ranks have made in the same way from another list with a common member, or with other
    /// options, and the error that reports it.
    fn conflict(&self, key: &RoomKey, group: &Group) -> Option<(Arc<Room>, Arc<Error>)> {
        match key.origin {
            Origin::Named { .. } | Origin::Derive { .. } => {}
            Origin::Whole | Origin::Shrink { .. } => return None,
        }
        let own = group.own_job_rank();
        self.open.values().find_map(|open| {
            let room = &open.room;
            if room.key.origin != key.origin || room.key == *key {
                return None;
            }
            let mut here = room.ranks().filter(|rank| open.members[rank.index()] == Member::Here);
            let is_ours = |rank: &GroupRank| {
                let member = room.job_ranks[rank.index()];
                room.group_rank_of(own).is_some() || group.group_rank_of(member).is_some()
            };
            let member = room.job_ranks[here.find(is_ours)?.index()];
            let cause = different_groups((own, &GroupText::of(group)), (member, &room.text));
            Some((room.clone(), Arc::new(cause)))
        })
    }

    /// Marks ranks that have left the parent as gone from this new communicator.
    fn exit_with_parent(&mut self, number: usize) {
        let Some(open) = self.open.get(&number) else { return };
        let Some(parent) = open.room.key.parent() else { return };
        let Some(parent) = self.open.get(&parent).map(|parent| parent.room.clone()) else { return };
        let members = open.room.key.members.iter().zip(&open.members).zip(open.room.ranks());
        let coming = members.filter(|((_, member), _)| **member == Member::Coming);
        let exits: Vec<_> =
            coming.filter_map(|((&of_parent, _), rank)| Some((rank, parent.exit_of(of_parent)?))).collect();
        for (rank, exit) in exits {
            self.exit(number, rank, exit.death());
            self.forget(number, rank);
        }
    }

    /// Notes that a rank has left a communicator, and so the derived communicators that it has not entered.
    fn exit(&mut self, number: usize, rank: GroupRank, death: Option<&str>) {
        let Some(open) = self.open.get(&number) else { return };
        open.room.note_exit(rank, death);
        let job_rank = open.room.job_ranks[rank.index()];
        if death.is_some() && !self.deaths.contains(&job_rank) {
            self.deaths.push(job_rank);
        }
        let derived = self.open.values().filter(|open| open.room.key.parent() == Some(number));
        for derived in derived.map(|open| open.room.number).collect::<Vec<_>>() {
            self.exit_with_parent(derived);
        }
    }

    /// Notes that a rank no longer uses this communicator. The last rank frees it.
    fn forget(&mut self, number: usize, rank: GroupRank) {
        let Some(open) = self.open.get_mut(&number) else { return };
        open.members[rank.index()] = Member::Gone;
        if open.members.iter().all(|&member| member == Member::Gone) {
            self.open.remove(&number);
        }
    }
}

impl OpenRoom {
    /// The agreement of `ask`. Another rank may still be in the previous agreement; older ones are over.
    fn agreement(&mut self, ask: &Ask) -> &mut Agreement {
        self.agreements.retain(|(question, number), _| *question != ask.question || number + 1 >= ask.number);
        let ranks = self.members.len();
        let none = || Agreement { ballots: vec![None; ranks], agreed: None };
        self.agreements.entry((ask.question, ask.number)).or_insert_with(none)
    }
}

impl Agreement {
    /// The result of the agreement, once every rank has voted or left.
    ///
    /// # Errors
    /// The ranks that have neither voted nor left.
    fn decide(&mut self, room: &Room) -> Result<Agreed, Vec<GroupRank>> {
        if let Some(agreed) = &self.agreed {
            return Ok(agreed.clone());
        }
        let is_here = |rank: &GroupRank| room.exit_of(*rank).is_none();
        let survivors: Vec<GroupRank> = room.ranks().filter(is_here).collect();
        let ballot = |rank: &GroupRank| self.ballots[rank.index()];
        let awaited: Vec<GroupRank> =
            survivors.iter().copied().filter(|rank| ballot(rank).is_none()).collect();
        if !awaited.is_empty() {
            return Err(awaited);
        }
        let ballots = || survivors.iter().filter_map(ballot);
        let agreed = Agreed {
            flag: ballots().all(|ballot| ballot.flag),
            finished_calls: ballots().map(|ballot| ballot.finished_calls).min().unwrap_or(0),
            survivors: survivors.clone(),
        };
        self.agreed = Some(agreed.clone());
        Ok(agreed)
    }
}
