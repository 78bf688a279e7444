//! Knows the boards of all communicators of a world, and writes the flight record when one of them is revoked.
//!
//! The files are written by a thread of their own: the folder may be on a disk that is slow or gone, and neither calls
//! nor heartbeats may wait for that.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use unisono_backend::{Board, Revocation};
use unisono_communicator::{Error, Group, Result, Severity, log};
use unisono_control::handshake::JobId;
use unisono_control::wire::CommunicatorKey;

use super::{FlightRecord, UnixClock};

/// Name of the thread.
const THREAD_NAME: &str = "unisono-flight";

/// The number of revoked communicators that are kept after their users have dropped them: the last. Each has a ring of
/// calls and a descriptor.
pub(super) const REVOKED_KEPT: usize = 16;

/// One communicator.
struct Recorded {
    /// Its number among the communicators of this rank.
    pg_id: u32,
    key: CommunicatorKey,
    group: Group,
    board: Weak<Board>,
    /// Held while it is one of the last that were revoked: its user may drop it before it is written.
    revoked: Option<Arc<Board>>,
    /// Why it is revoked, as far as this knows.
    cause: Option<NotedCause>,
    /// The cause in the last record.
    written: Option<NotedCause>,
}

/// Why a communicator is revoked. A rank may be told several times that it is evicted, which is no news.
#[derive(Clone)]
struct NotedCause {
    revocation: Revocation,
    is_evicted: bool,
}

impl NotedCause {
    fn of(board: &Board) -> Option<NotedCause> {
        let is_evicted = board.first_cause().eviction().is_some();
        board.first_cause().revocation().map(|revocation| NotedCause { revocation, is_evicted })
    }
}

impl PartialEq for NotedCause {
    fn eq(&self, other: &NotedCause) -> bool {
        let is_same_cause = Arc::ptr_eq(&self.revocation.cause, &other.revocation.cause);
        is_same_cause && self.is_evicted == other.is_evicted
    }
}

impl Recorded {
    fn board(&self) -> Option<Arc<Board>> {
        self.revoked.clone().or_else(|| self.board.upgrade())
    }
}

#[derive(Default)]
struct RecorderState {
    /// The number of communicators that there have been.
    registered: u32,
    groups: Vec<Recorded>,
    /// The communicators whose boards are held, by number, in the order in which they were revoked.
    revoked: VecDeque<u32>,
    /// Whether a record is being written.
    is_writing: bool,
    is_ending: bool,
}

impl RecorderState {
    /// Whether something was revoked that the last record does not say.
    fn is_due(&self) -> bool {
        self.groups.iter().any(|one| one.revoked.is_some() && one.cause != one.written)
    }
}

struct RecorderShared {
    rank: u32,
    job: JobId,
    state: Mutex<RecorderState>,
    signal: Condvar,
}

/// The recorder of a world. Dropping it waits until the last record is written.
pub(crate) struct Recorder {
    shared: Arc<RecorderShared>,
    /// There when records are to be written without being asked for.
    thread: Option<JoinHandle<()>>,
    /// The process that it runs in: a forked child has no such thread.
    pid: u32,
}

impl Recorder {
    /// The recorder of a rank; with a `directory` it writes by itself.
    pub(crate) fn start(rank: u32, job: JobId, directory: Option<PathBuf>) -> Result<Recorder> {
        let shared = RecorderShared { rank, job, state: Mutex::default(), signal: Condvar::new() };
        let shared = Arc::new(shared);
        let spawn = |directory: PathBuf| {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name(THREAD_NAME.to_owned());
            thread.spawn(move || shared.write_when_due(&directory))
        };
        let thread = directory.map(spawn).transpose();
        let thread = thread.map_err(|error| Error::system("cannot start the thread of records", &error))?;
        Ok(Recorder { shared, thread, pid: std::process::id() })
    }

    /// A communicator is there from now on.
    pub(crate) fn register(&self, key: CommunicatorKey, group: Group, board: &Arc<Board>) {
        let pg_id = {
            let mut state = self.shared.lock();
            let pg_id = state.registered;
            state.registered += 1;
            state.groups.retain(|one| one.revoked.is_some() || one.board.strong_count() > 0);
            let board = Arc::downgrade(board);
            let recorded = Recorded { pg_id, key, group, board, revoked: None, cause: None, written: None };
            state.groups.push(recorded);
            pg_id
        };
        if self.thread.is_some() {
            // Weak: the board holds this, and may be held by us.
            let (shared, this) = (Arc::downgrade(&self.shared), Arc::downgrade(board));
            board.first_cause().on_revoke(Arc::new(move || {
                if let (Some(shared), Some(board)) = (shared.upgrade(), this.upgrade()) {
                    shared.on_revoked(pg_id, board);
                }
            }));
        }
    }

    /// The groups of the communicators that somebody holds.
    pub(crate) fn groups(&self) -> Vec<Group> {
        let state = self.shared.lock();
        let held =
            state.groups.iter().filter(|one| one.board.strong_count() > usize::from(one.revoked.is_some()));
        held.map(|one| one.group.clone()).collect()
    }

    /// This rank's record at this moment.
    pub(crate) fn record(&self) -> FlightRecord {
        self.shared.record().0
    }

    /// Waits until the records that are due are written, at most for `wait`: the process ends next, and would leave a
    /// file half-written.
    pub(crate) fn finish(&self, wait: Duration) {
        if self.thread.is_some() && std::process::id() == self.pid {
            let writes = |state: &mut RecorderState| state.is_writing || state.is_due();
            let done = self.shared.signal.wait_timeout_while(self.shared.lock(), wait, writes);
            drop(done.unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if std::process::id() != self.pid {
            return;
        }
        self.shared.lock().is_ending = true;
        self.shared.signal.notify_all();
        // A panic of that thread has been reported by its own hook; there is nothing to add here.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl RecorderShared {
    fn lock(&self) -> MutexGuard<'_, RecorderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread that revokes calls this, so it only leaves a note.
    fn on_revoked(&self, pg_id: u32, board: Arc<Board>) {
        let mut state = self.lock();
        let Some(one) = state.groups.iter_mut().find(|one| one.pg_id == pg_id) else { return };
        // Under the lock, so that an older cause replaces no later one.
        one.cause = NotedCause::of(&board);
        let before = one.revoked.replace(board);
        // An eviction revokes once more.
        state.revoked.retain(|other| *other != pg_id);
        state.revoked.push_back(pg_id);
        let oldest = if state.revoked.len() > REVOKED_KEPT { state.revoked.pop_front() } else { None };
        let oldest = oldest.and_then(|oldest| state.groups.iter_mut().find(|one| one.pg_id == oldest));
        let forgotten = oldest.and_then(|oldest| oldest.revoked.take());
        drop(state);
        drop((before, forgotten));
        self.signal.notify_all();
    }

    /// This rank's record at this moment, and the causes that it gives, by the numbers of communicators.
    fn record(&self) -> (FlightRecord, BTreeMap<u32, Option<NotedCause>>) {
        let groups: Vec<_> = {
            let state = self.lock();
            let there = state.groups.iter().filter_map(|one| Some((one.board()?, one)));
            there.map(|(board, one)| (one.pg_id, one.key, one.group.clone(), board)).collect()
        };
        let causes = || {
            groups
                .iter()
                .map(|(pg_id, _, _, board)| (*pg_id, NotedCause::of(board)))
                .collect::<BTreeMap<_, _>>()
        };
        loop {
            let before = causes();
            let mut record = FlightRecord::new(self.job.to_string(), self.rank);
            let clock = UnixClock::now();
            for (pg_id, key, group, board) in &groups {
                record.add(*pg_id, (*key, group), board, clock);
            }
            // A cause changes at most twice.
            if causes() == before {
                return (record, before);
            }
        }
    }

    /// A cause that comes while a record is being written is in the next record, unless it is in this one already.
    fn write_when_due(&self, directory: &Path) {
        loop {
            let sleeps = |state: &mut RecorderState| !state.is_due() && !state.is_ending;
            let state = self.signal.wait_while(self.lock(), sleeps);
            let state = state.unwrap_or_else(PoisonError::into_inner);
            if !state.is_due() {
                return;
            }
            let mut state = state;
            state.is_writing = true;
            drop(state);
            let (record, mut causes) = self.record();
            for one in &mut self.lock().groups {
                one.written = causes.remove(&one.pg_id).unwrap_or(one.written.take());
            }
            let rank = Some(self.rank);
            match record.write(directory) {
                Ok(path) => {
                    log(
                        Severity::Info,
                        rank,
                        format_args!("has written its flight record to {}", path.display()),
                    );
                }
                Err(error) => log(Severity::Warn, rank, format_args!("{error}")),
            }
            self.lock().is_writing = false;
            self.signal.notify_all();
        }
    }
}
