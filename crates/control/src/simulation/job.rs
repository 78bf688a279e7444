//! A whole job with its engines: every rank's program runs in a thread of its own, but only one of them at a time,
//! until it has to wait. Which rank goes on is drawn at random among the ready ones; when none is ready, time passes.
//!
//! Inside are the whole engine (`EngineCommunicator` with its planner, runs, questions, deadlines and `shrink`) and the
//! whole control plane (`ControlPlane`: floods, detector, agreement, dials, verdicts). Not inside are sockets, bytes of
//! handshakes, the records of checksums, the progress thread, and sends and receives.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use unisono_backend::Waker;
use unisono_engine::EngineOptions;

use super::driver::Command;
use super::pipe::Pipe;
use super::{Cut, MS, Simulation};
use crate::slots::Slot;
use crate::wire::{CommunicatorKey, ConnectionRole};

/// Later than every deadline, in the time of the simulation.
const TIME_MAX: Duration = Duration::from_secs(120);

/// More turns and uses of links than any job needs.
const ACTS_MAX: u64 = 5_000_000;

/// Of so many uses of links, a rank is interrupted in one.
const INTERRUPTION: u64 = 24;

/// The events outside of the control planes.
pub(in super::super) enum Outside {
    /// The engine's thread has sent a command to the control thread.
    Command(Command),
    /// The control plane of a rank has this connection, which the engine gets.
    Use { slot: Slot, connection: usize },
    /// The other side has closed this connection before it was in use there.
    Closed { connection: usize },
    /// Bytes arrive.
    Arrived { pipe: usize, bytes: usize },
    /// The end of a stream arrives.
    Ended { pipe: usize, is_reset: bool },
    /// A rank dies.
    Crash,
    /// A rank does nothing for a while.
    Stop(Duration),
    /// These ranks are cut off from the others for a while.
    Cut { side: BTreeSet<u32>, span: Duration, cut: Cut },
    /// A rank leaves its world, without some of its connections at that time.
    Leave { by: Instant },
    /// One of the control connections ends on its way.
    Break { number: u64 },
}

impl Outside {
    pub(super) fn needs_its_rank(&self) -> bool {
        matches!(self, Outside::Command(_) | Outside::Use { .. } | Outside::Leave { .. })
    }
}

/// The connection of a rank to another one, for one role in a communicator.
pub(super) type Connection = (u32, CommunicatorKey, u32, ConnectionRole);

/// The event that a rank's thread waits for.
pub(super) enum Wait {
    /// Nothing: it goes on at that time.
    Nap(Instant),
    /// These pipes to become readable or writable, or its waker, until that time.
    Links(Vec<(usize, bool)>, Instant),
    /// An answer of the control plane, until that time.
    Answer(Box<dyn Fn() -> bool + Send>, Instant),
}

impl Wait {
    fn until(&self) -> Instant {
        match self {
            Wait::Nap(until) | Wait::Links(_, until) | Wait::Answer(_, until) => *until,
        }
    }
}

/// A rank's program.
pub(super) struct Seat {
    thread: Option<Thread>,
    wait: Option<Wait>,
    pub(super) woken: Arc<AtomicBool>,
    is_over: bool,
    /// Whether the thread is to unwind: its rank has died.
    is_gone: bool,
    /// After how many more uses of its links the rank dies.
    uses_left: Option<u64>,
    /// When a byte of its calls last moved.
    moved_at: Instant,
}

/// Everything that the ranks share.
pub(in super::super) struct Job {
    pub(in super::super) simulation: Simulation,
    pub(super) pipes: Vec<Pipe>,
    /// The outward pipe and the inward one.
    pub(super) connections: BTreeMap<Connection, (usize, usize)>,
    /// By connection of the simulation: the first of the two pipes that lie next to each other.
    pub(super) streams: BTreeMap<usize, usize>,
    pub(super) seats: Vec<Seat>,
    current: Option<u32>,
    limit: Instant,
    acts: u64,
    /// The ranks that still waited at the end of time.
    pub(in super::super) hung: Vec<u32>,
    /// A data stream of the first communicator that loses everything after so many bytes, and whether it then ends.
    pub(in super::super) cut_link: Option<CutLink>,
}

/// One stream that fails while both its ranks live.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct CutLink {
    pub(in super::super) from: u32,
    pub(in super::super) to: u32,
    pub(in super::super) after_bytes: u64,
    pub(in super::super) ends: bool,
}

/// The handle of a job that its ranks share.
pub(in super::super) struct SimulatedJob {
    job: Mutex<Job>,
    pub(in super::super) options: EngineOptions,
}

impl SimulatedJob {
    /// A job whose rank r lies on host `hosts[r]`, in which no rank runs yet.
    pub(in super::super) fn new(hosts: &[u32], seed: u64, options: EngineOptions) -> Arc<SimulatedJob> {
        let simulation = Simulation::skewed(hosts, 20_000, seed);
        let size = simulation.size();
        let seat = |_| Seat {
            thread: None,
            wait: Some(Wait::Nap(simulation.now)),
            woken: Arc::default(),
            is_over: false,
            is_gone: false,
            uses_left: None,
            moved_at: simulation.now,
        };
        let job = Job {
            seats: (0..size).map(seat).collect(),
            limit: simulation.now + TIME_MAX,
            simulation,
            pipes: vec![],
            connections: BTreeMap::new(),
            streams: BTreeMap::new(),
            current: None,
            acts: 0,
            hung: vec![],
            cut_link: None,
        };
        Arc::new(SimulatedJob { job: Mutex::new(job), options })
    }

    /// The job. Never held while a thread waits.
    pub(in super::super) fn job(&self) -> MutexGuard<'_, Job> {
        self.job.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs every rank's program, in threads that take turns, until all are over.
    pub(in super::super) fn run<R: Send>(&self, program: impl Fn(u32) -> R + Sync) -> Vec<Option<R>> {
        let size = self.job().simulation.size();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..size)
                .map(|rank| {
                    let program = &program;
                    scope.spawn(move || {
                        let run = std::panic::AssertUnwindSafe(|| {
                            self.take_turn(rank);
                            program(rank)
                        });
                        let result = std::panic::catch_unwind(run);
                        self.finish(rank);
                        result
                    })
                })
                .collect();
            for (rank, thread) in threads.iter().enumerate() {
                self.job().seats[rank].thread = Some(thread.thread().clone());
            }
            let mut job = self.job();
            job.pass_on();
            job.wake_current();
            drop(job);
            let ends: Vec<_> = threads.into_iter().map(|thread| thread.join().and_then(|end| end)).collect();
            ends.into_iter()
                .map(|end| match end {
                    Ok(result) => Some(result),
                    Err(payload) if payload.is::<Gone>() => None,
                    Err(payload) => resume_unwind(payload),
                })
                .collect()
        })
    }

    /// Waits. Other ranks go on meanwhile.
    pub(super) fn pause(&self, rank: u32, wait: Wait) {
        let mut job = self.job();
        job.seats[rank as usize].wait = Some(wait);
        job.pass_on();
        let is_ours = job.current == Some(rank);
        if !is_ours {
            job.wake_current();
        }
        drop(job);
        self.take_turn(rank);
    }

    /// Returns when it is this rank's turn; unwinds when it has died.
    fn take_turn(&self, rank: u32) {
        loop {
            let job = self.job();
            if job.current == Some(rank) {
                let is_gone = job.seats[rank as usize].is_gone;
                drop(job);
                if is_gone {
                    resume_unwind(Box::new(Gone));
                }
                return;
            }
            drop(job);
            std::thread::park();
        }
    }

    fn finish(&self, rank: u32) {
        let mut job = self.job();
        job.seats[rank as usize].is_over = true;
        job.pass_on();
        job.wake_current();
    }

    /// A rank does something outside of the communicator for a while.
    pub(in super::super) fn nap(&self, rank: u32, longest: Duration) {
        let mut job = self.job();
        let span = job.simulation.random.below(1 + longest.as_micros() as u64);
        let until = job.simulation.now + Duration::from_micros(span);
        drop(job);
        self.pause(rank, Wait::Nap(until));
    }

    /// A rank does something outside of the communicator for so long.
    pub(in super::super) fn sleep(&self, rank: u32, span: Duration) {
        let until = self.job().simulation.now + span;
        self.pause(rank, Wait::Nap(until));
    }

    /// A rank leaves its world, and has said goodbye when this returns.
    pub(super) fn leave(&self, rank: u32) {
        self.job().command(rank, Command::Leave);
        while self.job().simulation.is_alive(rank) {
            self.sleep(rank, MS);
        }
    }

    /// Before a rank uses a link: other ranks may get their turn, and the rank may die here.
    pub(super) fn before_use(&self, rank: u32) {
        let mut job = self.job();
        job.count_act();
        let is_interrupted = job.simulation.random.below(INTERRUPTION) == 0;
        if job.seats[rank as usize].uses_left == Some(0) {
            job.crash(rank);
        }
        let seat = &mut job.seats[rank as usize];
        seat.uses_left = seat.uses_left.map(|left| left.saturating_sub(1));
        if seat.is_gone {
            drop(job);
            resume_unwind(Box::new(Gone));
        }
        drop(job);
        if is_interrupted {
            self.nap(rank, Duration::from_micros(400));
        }
    }

    /// The time that has passed since the start.
    pub(super) fn elapsed(&self) -> Duration {
        let job = self.job();
        job.simulation.now - job.simulation.start
    }

    /// The time for which no byte of a rank's calls has moved.
    pub(super) fn still_for(&self, rank: u32) -> Duration {
        let job = self.job();
        job.simulation.now - job.seats[rank as usize].moved_at
    }

    /// The time on a rank's clock.
    pub(super) fn now(&self, rank: u32) -> Instant {
        let job = self.job();
        job.simulation.clock(rank).shows(job.simulation.now)
    }
}

/// The payload with which the thread of a dead rank unwinds.
struct Gone;

impl Job {
    /// Plans the death of a rank in the middle of its program: after `uses` uses of its links.
    pub(in super::super) fn die_after(&mut self, rank: u32, uses: u64) {
        self.seats[rank as usize].uses_left = Some(uses);
    }

    /// Ends the sleep of a rank's thread.
    pub(super) fn waker(&self, rank: u32) -> Waker {
        let woken = self.seats[rank as usize].woken.clone();
        Arc::new(move || woken.store(true, Ordering::Relaxed))
    }

    fn wake_current(&self) {
        let thread = self.current.and_then(|rank| self.seats[rank as usize].thread.as_ref());
        thread.into_iter().for_each(Thread::unpark);
    }

    /// Decides which rank goes on, and lets time pass until one can.
    fn pass_on(&mut self) {
        self.current = None;
        self.count_act();
        while self.seats.iter().any(|seat| !seat.is_over) {
            let ready: Vec<u32> = (0..self.simulation.size()).filter(|&rank| self.is_ready(rank)).collect();
            if !ready.is_empty() {
                let next = ready[self.simulation.random.below(ready.len() as u64) as usize];
                self.current = Some(next);
                return;
            }
            if self.simulation.now >= self.limit {
                self.give_up();
                continue;
            }
            let due = (0..self.simulation.size()).filter_map(|rank| self.due(rank)).min();
            let end = due.unwrap_or(self.limit).min(self.limit);
            match self.simulation.step(end) {
                Some(Some((rank, outside))) => self.on_outside(rank, outside),
                Some(None) => {}
                None => self.simulation.now = end,
            }
        }
    }

    /// A rank that has not come to its end hangs.
    fn give_up(&mut self) {
        let waits = |rank: &u32| !self.seats[*rank as usize].is_over;
        self.hung = (0..self.simulation.size()).filter(waits).collect();
        self.seats.iter_mut().for_each(|seat| seat.is_gone = true);
    }

    /// Counts the acts of ranks, so that an endless loop is found too.
    fn count_act(&mut self) {
        self.acts += 1;
        if self.acts == ACTS_MAX {
            self.give_up();
        }
    }

    /// When a rank goes on at the latest.
    fn due(&self, rank: u32) -> Option<Instant> {
        let seat = &self.seats[rank as usize];
        let until = seat.wait.as_ref().filter(|_| !seat.is_over)?.until();
        Some(until.max(self.simulation.stopped_until(rank).unwrap_or(until)))
    }

    fn is_ready(&self, rank: u32) -> bool {
        let seat = &self.seats[rank as usize];
        if seat.is_over || seat.is_gone {
            return !seat.is_over;
        }
        if self.simulation.stopped_until(rank).is_some() {
            return false;
        }
        let Some(wait) = &seat.wait else { return true };
        let has_come = match wait {
            Wait::Nap(_) => false,
            Wait::Links(pipes, _) => {
                let can_move = |&(pipe, reads): &(usize, bool)| {
                    let pipe = &self.pipes[pipe];
                    if reads { pipe.is_readable() } else { pipe.is_writable() }
                };
                seat.woken.load(Ordering::Relaxed) || pipes.iter().any(can_move)
            }
            Wait::Answer(is_there, _) => is_there(),
        };
        has_come || self.simulation.now >= wait.until()
    }

    /// Takes note that a rank's waker was called; whether it was.
    pub(super) fn silence(&self, rank: u32) -> bool {
        self.seats[rank as usize].woken.swap(false, Ordering::Relaxed)
    }

    /// The engine sends its control thread a command, which arrives a little later.
    pub(super) fn command(&mut self, rank: u32, command: Command) {
        self.simulation.schedule(rank, Duration::from_micros(20), Outside::Command(command));
    }

    fn on_outside(&mut self, rank: u32, outside: Outside) {
        match outside {
            Outside::Command(command) => self.on_command(rank, command),
            Outside::Use { slot, connection } => self.use_connection(rank, slot, connection),
            Outside::Leave { by } => self.leave(rank, by),
            Outside::Closed { connection } => self.end_stream(connection),
            Outside::Arrived { pipe, bytes } => self.pipes[pipe].arrive(bytes),
            Outside::Ended { pipe, is_reset } => {
                let pipe = &mut self.pipes[pipe];
                (pipe.has_ended, pipe.is_reset) = (true, pipe.is_reset || is_reset);
            }
            Outside::Crash => self.crash(rank),
            Outside::Stop(span) => self.simulation.stop(rank, span),
            Outside::Cut { side, span, cut } => self.cut_off(side, span, cut),
            Outside::Break { number } => self.simulation.break_one(number),
        }
    }

    /// The network separates these ranks from the others for a while.
    fn cut_off(&mut self, side: BTreeSet<u32>, span: Duration, cut: Cut) {
        self.simulation.cut_off(side.clone(), span, cut);
        for index in 0..self.pipes.len() {
            let (from, to) = (self.pipes[index].from, self.pipes[index].to);
            let crosses = side.contains(&from) != side.contains(&to);
            if cut == Cut::Resets && crosses && !self.pipes[index].has_ended {
                self.pipes[index].lose_tail(&mut self.simulation.random);
                self.pipes[index].is_refused = true;
                // Noticed when one of its sides next sends something, or checks it.
                let delay = Duration::from_micros(self.simulation.random.below(2000));
                self.simulation.schedule(to, delay, Outside::Ended { pipe: index, is_reset: true });
            }
        }
    }

    /// Bytes of a rank's calls have moved.
    pub(super) fn note_moved(&mut self, rank: u32) {
        self.seats[rank as usize].moved_at = self.simulation.now;
    }

    /// Some bytes have been accepted: when they arrive, and whether the stream ends there.
    pub(super) fn sent(&mut self, index: usize, taken: usize, kept: usize) {
        let now = self.simulation.now;
        let pipe = &mut self.pipes[index];
        let (from, to) = (pipe.from, pipe.to);
        let arrival = pipe.arrival(now, &mut self.simulation.random).max(self.simulation.passes_at(from, to));
        if kept > 0 {
            self.simulation.schedule(to, arrival - now, Outside::Arrived { pipe: index, bytes: kept });
        }
        if kept < taken && self.cut_link.is_some_and(|cut| cut.ends) {
            // Both directions of the connection are next to each other.
            let back = index ^ 1;
            self.simulation.schedule(to, arrival - now, Outside::Ended { pipe: index, is_reset: false });
            self.simulation.schedule(from, arrival - now, Outside::Ended { pipe: back, is_reset: true });
            self.pipes[index].is_refused = true;
            self.pipes[back].is_refused = true;
        }
    }

    /// One side closes a connection: its last bytes arrive, and then the end.
    pub(super) fn hang_up(&mut self, (outward, inward): (usize, usize)) {
        self.pipes[inward].is_refused = true;
        self.end(outward);
    }

    /// One side will write no more: its last bytes arrive, and then the end.
    pub(super) fn end(&mut self, outward: usize) {
        let now = self.simulation.now;
        let pipe = &mut self.pipes[outward];
        let (from, to) = (pipe.from, pipe.to);
        let arrival = pipe.arrival(now, &mut self.simulation.random).max(self.simulation.passes_at(from, to));
        // A pipe that loses bytes loses its end too.
        if self.pipes[outward].lost_after.is_none() {
            self.simulation.schedule(to, arrival - now, Outside::Ended { pipe: outward, is_reset: false });
        }
    }

    /// A rank dies in the middle of any act: a random part of its latest bytes arrives.
    fn crash(&mut self, rank: u32) {
        if !self.simulation.is_alive(rank) {
            return;
        }
        self.simulation.crash(rank);
        self.seats[rank as usize].is_gone = true;
        let now = self.simulation.now;
        for index in 0..self.pipes.len() {
            let pipe = &mut self.pipes[index];
            if pipe.to == rank {
                pipe.is_refused = true;
            }
            if pipe.from == rank && !pipe.has_ended {
                pipe.lose_tail(&mut self.simulation.random);
                let is_reset = self.simulation.random.below(2) == 0;
                let to = pipe.to;
                let arrival =
                    pipe.arrival(now, &mut self.simulation.random).max(self.simulation.passes_at(rank, to));
                self.simulation.schedule(to, arrival - now, Outside::Ended { pipe: index, is_reset });
            }
        }
    }
}
