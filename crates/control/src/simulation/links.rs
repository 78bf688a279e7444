//! An engine's side of a simulated job: its links, and its control plane.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, TryRecvError, bounded, unbounded};
use unisono_backend::{Agreed, Ask, Board, CallHistory, Companion, Control, HANDOVER_MAX, Waker};
use unisono_communicator::{Error, Group, GroupOptions, GroupRank, JobRank, Result};
use unisono_engine::{Edge, EngineCommunicator, Interest, Lane, Link, Links, Parts, Wake};

use super::EngineSide;
use super::driver::Command;
use super::job::{SimulatedJob, Wait};
use crate::Request;
use crate::derived_key::{Origin, derived_key};
use crate::local_communicator::LocalCommunicator;
use crate::wire::CommunicatorKey;

/// The time that a goodbye waits for the goodbyes of the others, as over sockets.
pub(in super::super) const GOODBYE_WAIT: Duration = Duration::from_millis(100);

/// The time that an answer of the control plane may take beyond its deadline.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// Makes one rank's part of a communicator, as `communicator::create` does.
pub(in super::super) fn create(
    simulated_job: &Arc<SimulatedJob>,
    key: CommunicatorKey,
    group: Group,
) -> Companion {
    let (rank, ranks) = (group.own_job_rank().get(), group.size());
    let board = Arc::new(Board::new(group.own_rank(), ranks));
    let (not_connected, inbox) = unbounded();
    let mut job = simulated_job.job();
    let waker = job.waker(rank);
    job.simulation.engines.insert((rank, key), EngineSide { not_connected, waker: waker.clone() });
    let communicator = LocalCommunicator::new(key, group.clone(), board.clone());
    job.command(rank, Command::Request(Request::Register(Box::new(communicator))));
    drop(job);
    let links = SimulatedLinks {
        simulated_job: simulated_job.clone(),
        rank,
        key,
        group: group.clone(),
        inbox,
        waker,
        asked: vec![false; ranks as usize * Lane::ALL.len()],
        links: (0..ranks as usize * Lane::ALL.len()).map(|_| None).collect(),
        failed: None,
    };
    let control = SimulatedControl {
        simulated_job: simulated_job.clone(),
        rank,
        key,
        group: group.clone(),
        board: board.clone(),
    };
    let options = simulated_job.options.clone();
    let control = Arc::new(control);
    EngineCommunicator::new(Parts { group, links, control, board, options, backend: "simulated" })
        .as_companion()
}

/// All streams of one communicator on one rank.
struct SimulatedLinks {
    simulated_job: Arc<SimulatedJob>,
    /// In the job.
    rank: u32,
    key: CommunicatorKey,
    group: Group,
    inbox: Receiver<Error>,
    waker: Waker,
    asked: Vec<bool>,
    links: Vec<Option<SimulatedLink>>,
    failed: Option<Error>,
}

/// One stream.
struct SimulatedLink {
    simulated_job: Arc<SimulatedJob>,
    rank: u32,
    outward: usize,
    inward: usize,
}

impl Link for SimulatedLink {
    fn try_send(&mut self, slices: &[IoSlice<'_>], _copied_bytes: usize) -> io::Result<usize> {
        self.simulated_job.before_use(self.rank);
        let job = &mut *self.simulated_job.job();
        let (taken, kept) = job.pipes[self.outward].send(slices, &mut job.simulation.random)?;
        job.sent(self.outward, taken, kept);
        job.note_moved(self.rank);
        Ok(taken)
    }

    fn unreleased_bytes(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    fn try_recv(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.simulated_job.before_use(self.rank);
        let job = &mut *self.simulated_job.job();
        let given = job.pipes[self.inward].receive(into, &mut job.simulation.random)?;
        if given > 0 {
            job.note_moved(self.rank);
        }
        Ok(given)
    }

    fn is_delivered(&mut self) -> bool {
        true
    }
}

impl SimulatedLinks {
    /// Takes over the connections that exist by now.
    fn fetch(&mut self, edge: Edge) -> bool {
        let place = edge.index();
        if self.links[place].is_none() && self.failed.is_none() {
            let peer = self.group.job_rank(edge.peer).get();
            let connection = self.simulated_job.job().connection(self.rank, self.key, peer, edge.lane);
            self.links[place] = connection.map(|(outward, inward)| SimulatedLink {
                simulated_job: self.simulated_job.clone(),
                rank: self.rank,
                outward,
                inward,
            });
        }
        self.links[place].is_some()
    }
}

impl Links for SimulatedLinks {
    type L = SimulatedLink;

    fn open(&mut self, edges: &[Edge]) -> Poll<Result<()>> {
        let mut is_missing = false;
        for &edge in edges {
            is_missing |= !self.fetch(edge);
        }
        if !is_missing {
            return Poll::Ready(Ok(()));
        }
        while let Ok(error) = self.inbox.try_recv() {
            self.failed.get_or_insert(error);
        }
        if let Some(error) = &self.failed {
            return Poll::Ready(Err(error.clone()));
        }
        for &edge in edges {
            let place = edge.index();
            if self.links[place].is_none() && !std::mem::replace(&mut self.asked[place], true) {
                let peer = self.group.job_rank(edge.peer).get();
                self.simulated_job.job().dial(self.rank, self.key, peer, edge.lane);
            }
        }
        Poll::Pending
    }

    fn is_open(&mut self, edge: Edge) -> bool {
        self.fetch(edge)
    }

    fn link(&mut self, edge: Edge) -> &mut SimulatedLink {
        // The engine asks only for a link that `open` has confirmed.
        self.links[edge.index()].as_mut().expect("the edge is open")
    }

    fn wait(&mut self, interest: &[Interest], until: Instant) -> Wake {
        let mut pipes = Vec::new();
        for one in interest {
            if let Some(link) = &self.links[one.edge.index()] {
                pipes.extend(one.readable.then_some((link.inward, true)));
                pipes.extend(one.writable.then_some((link.outward, false)));
            }
        }
        let until = self.simulated_job.job().simulation.clock(self.rank).when(until);
        self.simulated_job.pause(self.rank, Wait::Links(pipes, until));
        let job = self.simulated_job.job();
        let is_woken = job.silence(self.rank);
        if is_woken || job.simulation.now < until { Wake::Ready } else { Wake::Expired }
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn shut_down(&mut self) {
        let mut job = self.simulated_job.job();
        self.links.iter().flatten().for_each(|link| job.end(link.outward));
    }

    fn close(&mut self) {
        let mut job = self.simulated_job.job();
        for link in self.links.iter_mut().filter_map(Option::take) {
            job.hang_up((link.outward, link.inward));
        }
        self.failed.get_or_insert(Error::closed());
    }

    fn now(&self) -> Instant {
        self.simulated_job.now(self.rank)
    }
}

impl Drop for SimulatedLinks {
    fn drop(&mut self) {
        self.close();
    }
}

/// The control plane of one communicator on one rank.
struct SimulatedControl {
    simulated_job: Arc<SimulatedJob>,
    rank: u32,
    key: CommunicatorKey,
    group: Group,
    board: Arc<Board>,
}

impl SimulatedControl {
    fn send(&self, request: Request) {
        self.simulated_job.job().command(self.rank, Command::Request(request));
    }

    fn await_answer<T: Send + 'static>(&self, answered: Receiver<Result<T>>, deadline: Instant) -> Result<T> {
        let answered = Arc::new(answered);
        for extra in [Duration::ZERO, ANSWER_WAIT] {
            let until = self.simulated_job.now(self.rank).max(deadline) + extra;
            let until = self.simulated_job.job().simulation.clock(self.rank).when(until);
            let coming = answered.clone();
            self.simulated_job.pause(self.rank, Wait::Answer(Box::new(move || !coming.is_empty()), until));
        }
        let no_answer =
            |_| Error::System { what: "no answer from the control plane".into(), text: "in time".into() };
        answered.try_recv().map_err(no_answer)?
    }

    fn make(&self, ranks: &[GroupRank], options: &GroupOptions, origin: Origin) -> Option<Companion> {
        let job_ranks: Vec<JobRank> = ranks.iter().map(|&rank| self.group.job_rank(rank)).collect();
        let key = derived_key(self.key, origin, (&job_ranks, options));
        let group = self.group.subgroup(ranks, key.epoch)?.with_options(*options).with_id(key.id);
        Some(create(&self.simulated_job, key, group))
    }
}

impl Control for SimulatedControl {
    fn flood(&self, cause: Arc<Error>) {
        let (handed_over, waiting) = bounded(0);
        let members = self.group.job_ranks().iter().copied().collect();
        let request = Request::Revoke { key: self.key, members, cause };
        self.simulated_job.job().command(self.rank, Command::Revoke(request, handed_over));
        // The thread of a rank that has died waits for nothing.
        if !std::thread::panicking() {
            let until = self.simulated_job.job().simulation.now + HANDOVER_MAX;
            let is_handed_over = move || matches!(waiting.try_recv(), Err(TryRecvError::Disconnected));
            self.simulated_job.pause(self.rank, Wait::Answer(Box::new(is_handed_over), until));
        }
    }

    fn stream_ended(&self, peer: GroupRank) {
        self.send(Request::StreamEnded { key: self.key, peer });
    }

    fn ask(&self, awaited: GroupRank, number: u64) {
        self.send(Request::Ask { key: self.key, awaited, number });
    }

    fn close(&self, ours: CallHistory, deadline: Instant) -> Result<()> {
        let deadline = deadline.min(self.simulated_job.now(self.rank) + GOODBYE_WAIT);
        let (caller, answered) = self.simulated_job.job().simulation.closing();
        self.send(Request::Close { key: self.key, ours, deadline, caller });
        self.await_answer(answered, deadline)
    }

    fn agree(&self, ask: &Ask) -> Result<Agreed> {
        let (caller, answered) = self.simulated_job.job().simulation.agreeing();
        self.send(Request::Agree { key: self.key, ask: *ask, caller });
        self.await_answer(answered, ask.deadline)
    }

    fn succeed(&self, survivors: &[GroupRank], number: u64) -> Result<Companion> {
        let made = self.make(survivors, self.group.options(), Origin::Shrink(number));
        made.ok_or_else(|| Error::invalid("survivors", "this rank is not among them"))
    }

    fn derive(&self, ranks: &[GroupRank], options: &GroupOptions, counter: u64) -> Result<Option<Companion>> {
        Ok(self.make(ranks, &options.or(self.group.options()), Origin::Derive(counter)))
    }

    fn abandon(&self) {
        self.send(Request::Abandon { key: self.key });
    }
}

impl Drop for SimulatedControl {
    fn drop(&mut self) {
        self.send(Request::Unregister { key: self.key, ours: self.board.calls().history() });
    }
}
