//! The store's host: a task that serves one roster until it is dropped.

use std::any::Any;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use tokio::io::AsyncReadExt;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use unisono_communicator::{Error, Result};
use unisono_control::RANKS_MAX;
use unisono_control::handshake::{Expected, JobId, Purpose, RANK_STORE};
use unisono_control::roster::message::{ARRIVAL_BYTES_MAX, Answer, Arrival, QUESTION, TAKEN};
use unisono_control::roster::{Arrived, CONFLICT_MEMORY, ConnectionId, Newcomer, Roster};
use unisono_control::secret::Secret;

use super::room::Room;
use super::stream::{read_message, watch_peer, write_message};
use crate::connecting::{Acceptor, Authenticated, Stream};
use crate::descriptors::share;
use crate::sockets::{listen_again, unacknowledged_bytes};
use crate::task_thread::TaskThread;

/// Name of the thread of a launcher's store.
const THREAD_NAME: &str = "unisono-store";

/// The number of unauthenticated connections that may be in their handshake at once, beside the connections of all
/// ranks.
const UNAUTHENTICATED_MAX: usize = 256;

/// The least time that a rank has to read its answer, and the time for any other message. The answer of a round has as
/// long as rank 0 has wanted to wait: one host may have thousands of answers to send.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The time that a host that goes away waits for the confirmation of an answer that the other side's kernel has: this
/// answer is not lost with the host, and its rank may be a stopped process.
const SILENT_MAX: Duration = Duration::from_secs(10);

/// The time after the end of an unconfirmed connection for which a host that goes away waits for this rank to come
/// again. A rank pauses up to [`super::join::RETRY_MAX`] before it does.
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// The time that a rank that hosted the meeting waits for the others to have their answers, before it goes on and the
/// store stays behind.
const LINGER: Duration = Duration::from_secs(2);

/// The pause between two looks of a host that goes away whether it still has to wait; for one rank it looks less and
/// less often.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The settings of a store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The address to listen at; port 0 takes any.
    pub listen: SocketAddr,
    /// The number of ranks that meet.
    pub world_size: u32,
    /// The job's secret.
    pub secret: Secret,
    /// The id of the job that the ranks use before they have met; see [`super::store_job`] for the store of a launcher.
    pub job: JobId,
    /// Deadline of one handshake.
    pub handshake_timeout: Duration,
}

/// The most that the end of a wait may be later than its timeout; a quarter of a short timeout. A rank gives the store
/// this time to say which ranks are missing.
const GRACE_MAX: Duration = Duration::from_secs(5);
const GRACE_PART: u32 = 4;

/// The time by which the end of a wait may be later than its timeout.
pub(super) fn grace(timeout: Duration) -> Duration {
    GRACE_MAX.min(timeout / GRACE_PART)
}

/// A value that a store holds until its end.
type Kept = Box<dyn Any + Send>;

/// A running store. Ranks of one job meet there, as often as they like; it is needed for nothing else.
///
/// It costs per rank one connection and two messages, with two small ones each 30 s that the rank
/// waits. Dropping it ends it, and waits until all ranks of the last round have confirmed their answers: at most as
/// long as rank 0 wanted to wait for the others, or a quarter of that where they have not met.
#[derive(Debug)]
pub struct StoreHost {
    address: SocketAddr,
    store: Shared,
    stop: Option<oneshot::Sender<Kept>>,
    /// Disconnected when it has ended.
    ended: Receiver<Infallible>,
}

impl StoreHost {
    /// Starts a store.
    ///
    /// # Errors
    /// [`Error::System`] when it cannot listen at the address or cannot start a thread; [`Error::InvalidArgument`] for
    /// a world that is empty or too large.
    pub fn start(config: StoreConfig) -> Result<StoreHost> {
        StoreHost::start_on(&TaskThread::start(THREAD_NAME)?, config, None)
    }

    /// As [`StoreHost::start`], as a task of `thread`, for the ranks of one run of a launcher: others are refused.
    pub(super) fn start_on(
        thread: &TaskThread,
        config: StoreConfig,
        run: Option<String>,
    ) -> Result<StoreHost> {
        if config.world_size == 0 || config.world_size > RANKS_MAX {
            return Err(Error::invalid(
                "world_size",
                format!("{} is not within 1..={RANKS_MAX}", config.world_size),
            ));
        }
        let mut room = Room::new();
        let lack = room.make(config.world_size).err();
        let system = |error| Error::system(format!("listen for the ranks on {}", config.listen), &error);
        let listener = listen_again(config.listen).map_err(system)?;
        let address = listener.local_addr().map_err(system)?;
        let listener = thread.within(|| tokio::net::TcpListener::from_std(listener)).map_err(system)?;
        let (stop, stopped) = oneshot::channel();
        let (serves, ended) = crossbeam_channel::bounded(0);
        let roster = Roster::new(config.world_size).of_run(run);
        let store = Store {
            roster,
            round: watch::Sender::new(None),
            is_stopped: false,
            patience: ANSWER_TIMEOUT,
            last_end: None,
            until: None,
            told: None,
        };
        let store = Arc::new(Mutex::new(store));
        if let Some(problem) = lack {
            lock(&store).fail(problem, None);
        }
        let shared = store.clone();
        thread.spawn(async move {
            let _serves: crossbeam_channel::Sender<Infallible> = serves;
            // Dropped only now, when nobody listens any more.
            let _kept = serve((listener, room), config, shared, stopped).await;
        });
        Ok(StoreHost { address, store, stop: Some(stop), ended })
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Says that the process of a rank has ended and that no other will take its place; `how` goes on after "it":
    /// "exited with status 0".
    ///
    /// If the ranks have not met yet, the wait of all others ends in [`Error::Rendezvous`] at once, also the wait of
    /// ranks that come later. A rank that is there all the same, by a process that the ended one left behind, is waited
    /// with until its connection ends. Ranks that have met notice nothing.
    pub fn rank_ended(&self, rank: u32, how: &str) {
        let mut store = lock(&self.store);
        let answer = store.roster.rank_ended(rank, how);
        store.end_round_if(answer);
    }
}

impl Drop for StoreHost {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic of its task has been printed, and ends it too; the ranks have seen closed connections.
        let _ = self.ended.recv();
    }
}

/// A store that a rank hosts, and the announcement by which the others find it.
///
/// Dropping it ends both, without a wait for slow ranks: the store stays behind as a task, with the announcement.
#[derive(Debug)]
pub(super) struct Hosted {
    store: StoreHost,
    announcement: Option<Kept>,
}

impl Hosted {
    /// Starts a store as a task of `thread`. The ranks know its address already, or are told by an announcement.
    pub(super) fn start(thread: &TaskThread, config: StoreConfig, run: Option<String>) -> Result<Hosted> {
        Ok(Hosted { store: StoreHost::start_on(thread, config, run)?, announcement: None })
    }

    /// The address at which it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.store.address()
    }

    /// Keeps the announcement as long as the store is there: a rank that has lost its answer finds the store by it.
    pub(super) fn announced_by(mut self, announcement: impl Any + Send) -> Hosted {
        self.announcement = Some(Box::new(announcement));
        self
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        if let Some(stop) = self.store.stop.take() {
            // Where its task has ended, the announcement is dropped here.
            let _ = stop.send(self.announcement.take().unwrap_or_else(|| Box::new(())));
        }
        let _ = self.store.ended.recv_timeout(LINGER);
        // The drop of the store has nothing to wait for.
        self.store.ended = crossbeam_channel::bounded(0).1;
    }
}

/// An answer as all ranks of a round get it.
type Encoded = Option<Arc<[u8]>>;

#[derive(Debug)]
struct Store {
    roster: Roster,
    /// The ranks of the current round wait here for its answer.
    round: watch::Sender<Encoded>,
    /// No round begins any more.
    is_stopped: bool,
    /// The time that rank 0 wanted to wait for the others.
    patience: Duration,
    /// When a connection ended last without a confirmation, or a round.
    last_end: Option<Instant>,
    /// Until when the ranks of the last round may fetch its answer.
    until: Option<Instant>,
    /// The ranks that this host has told that not all ranks can meet.
    told: Option<BTreeSet<u32>>,
}

impl Store {
    fn end_round(&mut self, answer: &Answer) {
        // Ranks that have not met are to hear of it soon, rank 0 among them.
        let patience = match answer {
            Answer::Welcome { .. } => {
                self.told = None;
                self.patience
            }
            _ => grace(self.patience),
        };
        self.last_end = Some(Instant::now());
        self.until = self.last_end.and_then(|now| now.checked_add(patience));
        self.next_round().send_replace(Some(answer.encode().into()));
    }

    fn end_round_if(&mut self, answer: Option<Answer>) {
        answer.iter().for_each(|answer| self.end_round(answer));
    }

    /// This host cannot let the ranks meet: all that are there are told, and all that come before `until`, or for ever.
    fn fail(&mut self, problem: String, until: Option<Instant>) {
        self.told = Some(BTreeSet::new());
        let answer = self.roster.fail(problem, until);
        self.end_round_if(answer);
    }

    /// Whether no rank of the last round may come again for its answer.
    fn may_end(&self) -> bool {
        if let Some(told) = &self.told {
            return told.len() >= self.roster.world_size();
        }
        self.roster.all_have_taken() || self.last_end.is_none_or(|at| at.elapsed() > AGAIN_MAX)
    }

    /// Until when an answer may be on its way.
    fn until(&self) -> Instant {
        let least = Instant::now() + ANSWER_TIMEOUT;
        self.until.map_or(least, |until| until.max(least))
    }

    /// No round begins any more. Returns until when this host stays at most.
    fn stop(&mut self) -> Instant {
        self.is_stopped = true;
        drop(self.next_round());
        let soon = Instant::now() + grace(self.patience);
        match &self.told {
            Some(_) => soon,
            None => self.until.unwrap_or(soon),
        }
    }

    /// Begins the next round and returns the sender of the round before. Dropping it without an answer disconnects the
    /// ranks of that round.
    fn next_round(&mut self) -> watch::Sender<Encoded> {
        std::mem::replace(&mut self.round, watch::Sender::new(None))
    }
}

type Shared = Arc<Mutex<Store>>;

fn lock(store: &Shared) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(
    (listener, mut room): (tokio::net::TcpListener, Room),
    config: StoreConfig,
    store: Shared,
    mut stopped: oneshot::Receiver<Kept>,
) -> Option<Kept> {
    let StoreConfig { world_size, secret, job, handshake_timeout, .. } = config;
    // The roster compares the world sizes, so that all ranks are told.
    let (purposes, lost) = (&[Purpose::Store], Arc::default());
    let expected = Expected { purposes, job, world_size: None, rank: RANK_STORE, lost };
    let pending_max = share(world_size as usize + UNAUTHENTICATED_MAX);
    let mut acceptor = Acceptor::new(listener, handshake_timeout, pending_max);
    acceptor.begin(secret, expected);
    let mut guests = JoinSet::new();
    let mut connection: ConnectionId = 0;
    let kept = loop {
        tokio::select! {
            next = acceptor.next_or_shortage() => match next {
                Ok(authenticated) => {
                    connection += 1;
                    guests.spawn(attend(authenticated, connection, store.clone(), handshake_timeout));
                }
                Err(error) => on_shortage(&error, &mut acceptor, &mut room, &store),
            },
            Some(_) = guests.join_next() => {}
            kept = &mut stopped => break kept.ok(),
        }
    };
    let until = lock(&store).stop();
    let gone = async {
        while !(guests.is_empty() && lock(&store).may_end()) {
            tokio::select! {
                authenticated = acceptor.next() => {
                    connection += 1;
                    guests.spawn(attend(authenticated, connection, store.clone(), handshake_timeout));
                }
                Some(_) = guests.join_next() => {}
                () = tokio::time::sleep(LOOK_PAUSE) => {}
            }
        }
    };
    // A rank that is slower than this gets no answer: the host ends.
    let _ = tokio::time::timeout_at(until.into(), gone).await;
    kept
}

/// Reacts to a rank that could not be accepted. Where there can be no more room, a connection in its handshake goes
/// first: it may be a stranger's, and a rank comes again.
fn on_shortage(error: &io::Error, acceptor: &mut Acceptor, room: &mut Room, store: &Shared) {
    let mut store = lock(store);
    let present = store.roster.progress().present;
    // The connections of a round that is over end soon, and leave room.
    if store.told.is_none() && (present > 0 || store.roster.all_have_taken()) {
        let missing = (store.roster.world_size() as u32).saturating_sub(present);
        if let Some(problem) = room.after(error, missing)
            && !acceptor.close_oldest()
        {
            store.fail(problem, Some(Instant::now() + CONFLICT_MEMORY));
        }
    }
}

/// Serves one rank from its arrival to its answer.
async fn attend(authenticated: Authenticated, connection: ConnectionId, store: Shared, timeout: Duration) {
    let Authenticated { mut stream, hello } = authenticated;
    let Ok(address) = stream.peer_address() else { return };
    let reading = read_message(&mut stream, ARRIVAL_BYTES_MAX);
    let Ok(Ok(message)) = tokio::time::timeout(timeout, reading).await else { return };
    watch_peer(&stream);
    let (rank, world_size) = (hello.from, hello.world_size);
    let arrival = Arrival::decode(&message).map_err(|malformed| malformed.to_string());
    let arrival =
        arrival.and_then(|arrival| Ok((arrival, JobId::random().map_err(|error| error.to_string())?)));
    let (arrival, job) = match arrival {
        Ok(arrived) => arrived,
        Err(reason) => {
            let until = Instant::now() + ANSWER_TIMEOUT;
            deliver(stream, &Answer::Refused { reason }.encode(), until).await;
            return;
        }
    };
    let wait_number = arrival.wait;
    let (arrived, answer) = {
        let mut store = lock(&store);
        if rank == 0 {
            store.patience = Duration::from_millis(arrival.wait_ms);
        }
        let answer = store.round.subscribe();
        let newcomer = Newcomer { rank, world_size, connection, from: address, arrival };
        let arrived = store.roster.arrive(newcomer, Instant::now(), job);
        if let Arrived::Ends(answer) = &arrived {
            store.end_round(answer);
        }
        if store.is_stopped && matches!(arrived, Arrived::Waits(_)) {
            return;
        }
        (arrived, answer)
    };
    let until = || lock(&store).until();
    let is_taken = match arrived {
        Arrived::Late(answer) | Arrived::Ends(answer) => deliver(stream, &answer.encode(), until()).await,
        Arrived::Waits(patience) => match wait(&mut stream, answer, patience, &store).await {
            Some(answer) => deliver(stream, &answer, until()).await,
            None => {
                let mut store = lock(&store);
                let answer = store.roster.leave(rank, connection);
                store.end_round_if(answer);
                false
            }
        },
    };
    let mut store = lock(&store);
    match is_taken {
        true => {
            store.roster.has_taken(rank, wait_number);
            store.told.as_mut().map(|told| told.insert(rank));
        }
        false => store.last_end = Some(Instant::now()),
    }
}

/// Waits for the round's answer; `None` when the rank or the round is gone.
async fn wait(
    stream: &mut Stream,
    mut answer: watch::Receiver<Encoded>,
    until: Instant,
    store: &Shared,
) -> Encoded {
    let mut patient = true;
    loop {
        let byte = tokio::select! {
            found = answer.wait_for(Option::is_some) => return found.ok()?.clone(),
            byte = stream.read_u8() => byte,
            () = tokio::time::sleep_until(until.into()), if patient => {
                patient = false;
                let mut store = lock(store);
                let answer = store.roster.on_time(Instant::now());
                store.end_round_if(answer);
                continue;
            }
        };
        // Anything but a question ends the wait of this rank, like the end of the stream.
        byte.ok().filter(|byte| *byte == QUESTION)?;
        let progress = Answer::Waiting(lock(store).roster.progress()).encode();
        let sent = tokio::time::timeout(ANSWER_TIMEOUT, write_message(stream, &progress)).await;
        sent.ok()?.ok()?;
    }
}

/// Sends an answer and waits until the rank has confirmed it, or has closed. True if it has confirmed the answer.
async fn deliver(mut stream: Stream, answer: &[u8], until: Instant) -> bool {
    let sent = async {
        write_message(&mut stream, answer).await?;
        let (mut pause, mut arrived) = (LOOK_PAUSE, None::<Instant>);
        loop {
            let byte = tokio::select! {
                byte = stream.read_u8() => byte?,
                () = tokio::time::sleep(pause) => {
                    pause = (pause * 2).min(LOOK_PAUSE_MAX);
                    match unacknowledged_bytes(&stream) {
                        Some(0) if arrived.get_or_insert_with(Instant::now).elapsed() > SILENT_MAX => {
                            return Ok(false);
                        }
                        _ => continue,
                    }
                }
            };
            // A question that has crossed the answer needs no other one.
            if byte != QUESTION {
                return io::Result::Ok(byte == TAKEN);
            }
        }
    };
    // A rank that does not fetch its answer reports that itself.
    matches!(tokio::time::timeout_at(until.into(), sent).await, Ok(Ok(true)))
}
