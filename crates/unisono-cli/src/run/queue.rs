//! The output of one stream that waits to be written: a reader of the job's output may pause, as `less` does.
//!
//! While ranks run the queue is bounded, and they wait when it is full, as they would at a pipe. When all have ended it
//! takes all that is left in their pipes.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::output::pieces;

/// The bytes that the queue holds while ranks run.
const QUEUED_BYTES_MAX: usize = 1 << 20;

/// Some whole pieces of one rank, or a text of the launcher.
pub(super) struct Chunk {
    /// `None` for the launcher.
    pub(super) rank: Option<u32>,
    pub(super) bytes: Vec<u8>,
}

#[derive(Default)]
struct State {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    /// The pieces in it, and the pieces that are being written.
    waiting: u64,
    /// Ranks whose pieces nobody wants any more.
    refused: BTreeSet<u32>,
    is_unbounded: bool,
    is_closed: bool,
    lost: u64,
    /// Why the first of these was lost.
    why: Option<String>,
}

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    pub(super) fn new() -> Arc<Queue> {
        Arc::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds pieces of a rank; waits while the queue is full. Gives whether somebody still wants such pieces.
    #[must_use]
    pub(super) fn push(&self, rank: u32, bytes: Vec<u8>) -> bool {
        let is_full = |state: &mut State| {
            state.bytes >= QUEUED_BYTES_MAX && !state.is_unbounded && !state.refused.contains(&rank)
        };
        let state = self.changed.wait_while(self.state(), is_full);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if state.refused.contains(&rank) {
            return false;
        }
        state.waiting += pieces(&bytes).count() as u64;
        self.add(state, Chunk { rank: Some(rank), bytes });
        true
    }

    /// Nobody wants the pieces of this rank any more.
    pub(super) fn refuse(&self, rank: u32) {
        if self.state().refused.insert(rank) {
            self.changed.notify_all();
        }
    }

    /// Whether nobody wants the pieces of this rank.
    pub(super) fn has_refused(&self, rank: u32) -> bool {
        self.state().refused.contains(&rank)
    }

    /// Adds a text of the launcher, which never waits.
    pub(super) fn tell(&self, text: String) {
        self.add(self.state(), Chunk { rank: None, bytes: text.into_bytes() });
    }

    fn add(&self, mut state: MutexGuard<'_, State>, chunk: Chunk) {
        state.bytes += chunk.bytes.len();
        state.chunks.push_back(chunk);
        self.changed.notify_all();
    }

    /// From now on nobody waits because it is full.
    pub(super) fn unbound(&self) {
        self.state().is_unbounded = true;
        self.changed.notify_all();
    }

    /// Nothing more will come.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    /// The next chunk; `None` when none will come.
    pub(super) fn next(&self) -> Option<Chunk> {
        let is_idle = |state: &mut State| state.chunks.is_empty() && !state.is_closed;
        let state = self.changed.wait_while(self.state(), is_idle);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let chunk = state.chunks.pop_front()?;
        state.bytes -= chunk.bytes.len();
        self.changed.notify_all();
        Some(chunk)
    }

    /// Takes the outcome of a piece.
    pub(super) fn written(&self, done: io::Result<()>) {
        let mut state = self.state();
        state.waiting -= 1;
        if let Err(error) = done {
            state.lost += 1;
            state.why.get_or_insert_with(|| error.to_string());
        }
    }

    /// The pieces that have not reached their place, which is called `name`, in words; `None` if all have.
    pub(super) fn lost(&self, name: &str) -> Option<String> {
        let state = self.state();
        let nobody = || "nobody has read them".to_owned();
        let why = state.why.clone().unwrap_or_else(nobody);
        lost_text(state.lost + state.waiting, name, &why)
    }
}

/// That so many lines have not reached a place.
pub(super) fn lost_text(lines: u64, place: &str, why: &str) -> Option<String> {
    let noun = if lines == 1 { "line" } else { "lines" };
    (lines > 0).then(|| format!("{lines} {noun} for {place} ({why})"))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn full() -> Arc<Queue> {
        let queue = Queue::new();
        assert!(queue.push(0, vec![b'x'; QUEUED_BYTES_MAX]));
        queue
    }

    #[test]
    fn a_full_queue_waits_until_something_is_taken_or_refused_or_the_ranks_have_ended() {
        type Release = fn(&Queue);
        let releases: [(Release, bool); 3] =
            [(|queue| drop(queue.next()), true), (Queue::unbound, true), (|queue| queue.refuse(1), false)];
        for (release, is_wanted) in releases {
            let queue = full();
            let pusher = thread::spawn({
                let queue = queue.clone();
                move || queue.push(1, b"late\n".to_vec())
            });
            queue.tell("not held".to_owned());
            assert!(!pusher.is_finished());
            release(&queue);
            assert_eq!(pusher.join().unwrap(), is_wanted);
        }
    }

    #[test]
    fn what_nobody_takes_and_what_fails_is_counted() {
        let queue = Queue::new();
        assert_eq!(queue.lost("standard output"), None);
        assert!(queue.push(0, b"one\ntwo\nthree".to_vec()));
        assert_eq!(queue.lost("here").as_deref(), Some("3 lines for here (nobody has read them)"));
        queue.close();
        assert!(queue.next().is_some() && queue.next().is_none());
        queue.written(Ok(()));
        queue.written(Err(io::Error::other("full")));
        queue.written(Ok(()));
        assert_eq!(queue.lost("here").as_deref(), Some("1 line for here (full)"));
    }
}
