//! Ranks as threads of one process: the same engine and schedules over pipes in memory.
//!
//! For tests without sockets, and the proof that the engine is generic over its links.

mod pipe;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use crossbeam::sync::{Parker, Unparker};
use unisono_communicator::{Communicator, Error, Group, Result};
use unisono_schedule::Parameters;

use crate::communicator::{EngineCommunicator, EngineOptions, Parts};
use crate::links::{Edge, Interest, Links, Wake};
use crate::lock;
use unisono_backend::Waker;
use unisono_backend::{
    Agreed, Ask, Board, CallHistory, Control, Question, asked_next, closing_error, judge_answer, not_agreed,
};

pub use pipe::PipeLink;

/// A communicator whose ranks are threads of this process.
pub type InProcessCommunicator = EngineCommunicator<InProcessLinks>;

/// How long `close` waits for the other ranks' goodbyes.
const GOODBYE_MAX: Duration = Duration::from_millis(100);

/// How often a rank looks for what the others have said.
const POLL: Duration = Duration::from_millis(1);

/// A world of `ranks` communicators, one for each thread to take.
///
/// ```
/// use unisono_communicator::{Collectives, ReduceOp};
/// let world = unisono_engine::in_process::world(3);
/// std::thread::scope(|scope| {
///     for comm in &world {
///         scope.spawn(move || {
///             let mut value = [1u32];
///             comm.all_reduce(&mut value, ReduceOp::Sum).unwrap();
///             assert_eq!(value, [3]);
///         });
///     }
/// });
/// ```
pub fn world(ranks: u32) -> Vec<Arc<InProcessCommunicator>> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let parameters = Parameters::LOOPBACK.with_ranks_on_cores(u64::from(ranks), cores);
    world_of(ranks, &EngineOptions { parameters, ..EngineOptions::default() }, |_, links| links)
}

/// A world with settings, whose links are wrapped, for instance by [`crate::Faulty`].
pub fn world_of<L: Links + 'static>(
    ranks: u32,
    options: &EngineOptions,
    wrap: impl Fn(u32, InProcessLinks) -> L,
) -> Vec<Arc<EngineCommunicator<L>>> {
    let switchboard = Arc::new(Switchboard::default());
    let room = switchboard.room(RoomKey { parent: None, members: (0..ranks).collect() });
    let make =
        |rank| room.communicator(&switchboard, Group::world(rank, ranks), options, |links| wrap(rank, links));
    (0..ranks).map(make).collect()
}

/// Which communicator of a world: from which and how, with whom.
#[derive(Clone, PartialEq, Eq, Hash)]
struct RoomKey {
    /// `None` for the whole world.
    parent: Option<(usize, Origin)>,
    members: Vec<u32>,
}

/// How a communicator came about, and the how-manieth of its kind it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Origin {
    Derive(u64),
    Shrink(u64),
}

/// All communicators of one world.
#[derive(Default)]
struct Switchboard {
    /// Until every member has come for it.
    rooms: Mutex<HashMap<RoomKey, Waiting>>,
    made: AtomicUsize,
}

/// A communicator that some of its members have not asked for yet.
struct Waiting {
    room: Arc<Room>,
    members_to_come: usize,
}

/// What the ranks of one communicator share.
struct Room {
    number: usize,
    boards: Vec<Arc<Board>>,
    /// Ends that one side has made and the other has not fetched.
    ends: Mutex<HashMap<(u32, Edge), PipeLink>>,
    unparkers: Mutex<Vec<Option<Unparker>>>,
    /// What each rank said when it closed.
    goodbyes: Mutex<Vec<Option<CallHistory>>>,
    agreements: Mutex<Agreements>,
}

/// What each rank has said in each agreement.
type Agreements = HashMap<(Question, u64), Vec<Option<Ballot>>>;

/// A rank's flag, and how many calls it has finished.
#[derive(Clone, Copy)]
struct Ballot {
    flag: bool,
    finished_calls: u64,
}

impl Switchboard {
    fn room(&self, key: RoomKey) -> Arc<Room> {
        let mut rooms = lock(&self.rooms);
        if let Some(waiting) = rooms.get_mut(&key) {
            waiting.members_to_come -= 1;
            let room = waiting.room.clone();
            if waiting.members_to_come == 0 {
                rooms.remove(&key);
            }
            return room;
        }
        let (number, ranks) = (self.made.fetch_add(1, Ordering::Relaxed), key.members.len());
        let room = Arc::new(Room {
            number,
            boards: (0..ranks as u32).map(|rank| Arc::new(Board::new(rank, ranks as u32))).collect(),
            ends: Mutex::default(),
            unparkers: Mutex::new(vec![None; ranks]),
            goodbyes: Mutex::new(vec![None; ranks]),
            agreements: Mutex::default(),
        });
        if ranks > 1 {
            rooms.insert(key, Waiting { room: room.clone(), members_to_come: ranks - 1 });
        }
        room
    }
}

impl Room {
    fn communicator<L: Links + 'static>(
        self: &Arc<Room>,
        switchboard: &Arc<Switchboard>,
        group: Group,
        options: &EngineOptions,
        wrap: impl FnOnce(InProcessLinks) -> L,
    ) -> Arc<EngineCommunicator<L>> {
        let rank = group.rank();
        let parker = Parker::new();
        lock(&self.unparkers)[rank as usize] = Some(parker.unparker().clone());
        let links = InProcessLinks { rank, room: self.clone(), parker, open: HashMap::new() };
        let control = InProcessControl {
            room: self.clone(),
            switchboard: switchboard.clone(),
            group: group.clone(),
            options: options.clone(),
        };
        EngineCommunicator::new(Parts {
            group,
            links: wrap(links),
            control: Arc::new(control),
            board: self.boards[rank as usize].clone(),
            options: options.clone(),
            backend: "in_process",
        })
    }

    fn waker(self: &Arc<Room>, rank: u32) -> Waker {
        // A pipe outlives its communicator, so it must not keep the room.
        let room: Weak<Room> = Arc::downgrade(self);
        Arc::new(move || {
            if let Some(room) = room.upgrade()
                && let Some(unparker) = &lock(&room.unparkers)[rank as usize]
            {
                unparker.unpark();
            }
        })
    }
}

/// The pipes of one rank.
pub struct InProcessLinks {
    rank: u32,
    room: Arc<Room>,
    parker: Parker,
    open: HashMap<Edge, PipeLink>,
}

impl InProcessLinks {
    /// Takes the end that the peer has made, or makes both if asked to.
    fn fetch(&mut self, edge: Edge, make: bool) -> bool {
        if self.open.contains_key(&edge) {
            return true;
        }
        let mut ends = lock(&self.room.ends);
        if let Some(end) = ends.remove(&(self.rank, edge)) {
            self.open.insert(edge, end);
            return true;
        }
        if make {
            let (ours, theirs) = pipe::pair(self.room.waker(self.rank), self.room.waker(edge.peer));
            ends.insert((edge.peer, Edge { peer: self.rank, lane: edge.lane }), theirs);
            self.open.insert(edge, ours);
        }
        make
    }
}

impl Links for InProcessLinks {
    type L = PipeLink;

    fn open(&mut self, edges: &[Edge]) -> Poll<Result<()>> {
        for &edge in edges {
            self.fetch(edge, true);
        }
        Poll::Ready(Ok(()))
    }

    fn is_open(&mut self, edge: Edge) -> bool {
        self.fetch(edge, false)
    }

    fn link(&mut self, edge: Edge) -> &mut PipeLink {
        // INVARIANT: the engine asks for edges that `open` or `is_open` has confirmed.
        self.open.get_mut(&edge).expect("an open edge")
    }

    fn wait(&mut self, _interest: &[Interest], until: Instant) -> Wake {
        // Whoever changes a pipe unparks its other side, so every wake may be ours.
        self.parker.park_deadline(until);
        if Instant::now() >= until { Wake::Expired } else { Wake::Ready }
    }

    fn waker(&self) -> Waker {
        let unparker = self.parker.unparker().clone();
        Arc::new(move || unparker.unpark())
    }

    fn close(&mut self) {
        self.open.clear();
    }
}

struct InProcessControl {
    room: Arc<Room>,
    switchboard: Arc<Switchboard>,
    group: Group,
    options: EngineOptions,
}

impl Control for InProcessControl {
    fn flood(&self, cause: Arc<Error>) {
        for board in &self.room.boards {
            board.revoke(self.group.rank(), cause.clone());
        }
    }

    fn ask(&self, awaited: u32, number: u64) {
        let ours = &self.room.boards[self.group.rank() as usize];
        let mut next = Some(awaited);
        while let Some(asked) = next {
            let answer = self.room.boards[asked as usize].status(number);
            if let Some(cause) = judge_answer(ours, asked, number, &answer).map(Arc::new)
                && ours.revoke(self.group.rank(), cause.clone())
            {
                self.flood(cause);
            }
            next = asked_next(ours, number, &answer);
        }
    }

    fn close(&self, ours: CallHistory, deadline: Instant) -> Result<()> {
        let own = self.group.rank() as usize;
        lock(&self.room.goodbyes)[own] = Some(ours);
        self.room.boards.iter().for_each(|board| board.note_closed(self.group.rank()));
        let until = deadline.min(Instant::now() + GOODBYE_MAX);
        loop {
            let goodbyes = lock(&self.room.goodbyes).clone();
            if let Some(error) = closing_error(&self.room.boards[own], ours, &goodbyes) {
                return Err(error);
            }
            if goodbyes.iter().all(Option::is_some) || Instant::now() >= until {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
    }

    /// Threads of one process do not die, so the survivors are all ranks.
    fn agree(&self, ask: &Ask) -> Result<Agreed> {
        let (own, ranks) = (self.group.rank() as usize, self.group.size());
        let started = Instant::now();
        loop {
            let ballots = {
                let mut all = lock(&self.room.agreements);
                // Somebody may still be in the one before.
                all.retain(|(question, number), _| *question != ask.question || number + 1 >= ask.number);
                let ballots = all.entry((ask.question, ask.number)).or_insert(vec![None; ranks as usize]);
                ballots[own] = Some(Ballot { flag: ask.flag, finished_calls: ask.finished_calls });
                ballots.clone()
            };
            let said: Vec<_> = ballots.iter().flatten().collect();
            if said.len() == ranks as usize {
                return Ok(Agreed {
                    flag: said.iter().all(|ballot| ballot.flag),
                    finished_calls: said.iter().map(|ballot| ballot.finished_calls).min().unwrap_or(0),
                    survivors: (0..ranks).collect(),
                });
            }
            if Instant::now() >= ask.deadline {
                let is_missing = |rank: &u32| ballots[*rank as usize].is_none();
                let awaited: Vec<u32> = (0..ranks).filter(is_missing).collect();
                return Err(not_agreed(ask, started.elapsed(), &awaited));
            }
            std::thread::sleep(POLL);
        }
    }

    fn succeed(&self, survivors: &[u32], number: u64) -> Result<Arc<dyn Communicator>> {
        let origin = Origin::Shrink(number);
        let made = self.make(survivors, origin, self.group.epoch() + 1);
        made.ok_or_else(|| Error::invalid("survivors", "this rank is not among them"))
    }

    fn derive(&self, ranks: &[u32], counter: u64) -> Result<Option<Arc<dyn Communicator>>> {
        Ok(self.make(ranks, Origin::Derive(counter), self.group.epoch()))
    }
}

impl InProcessControl {
    /// `None` when this rank is not in the list.
    fn make(&self, ranks: &[u32], origin: Origin, epoch: u32) -> Option<Arc<dyn Communicator>> {
        let group = self.group.subgroup(ranks, epoch)?;
        let key = RoomKey { parent: Some((self.room.number, origin)), members: ranks.to_vec() };
        let room = self.switchboard.room(key);
        Some(room.communicator(&self.switchboard, group, &self.options, |links| links))
    }
}
