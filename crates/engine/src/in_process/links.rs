//! The pipes of one rank, and its place to sleep. Dropping them is how the rank leaves the communicator.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Instant;

use crossbeam_utils::sync::Parker;
use unisono_backend::Waker;
use unisono_communicator::{GroupRank, Result};

use super::pipe::PipeLink;
use super::room::Room;
use super::world::{THREAD_PANICKED, World};
use crate::links::{Edge, Interest, Lane, Links, Wake};

/// The pipes of one rank.
pub struct InProcessLinks {
    rank: GroupRank,
    world: Arc<World>,
    room: Arc<Room>,
    parker: Parker,
    /// Whether a thread has called the waker since the last sleep.
    is_woken: Arc<AtomicBool>,
    open: HashMap<Edge, PipeLink>,
}

impl InProcessLinks {
    /// The pipes of a rank that has entered `room`.
    pub(super) fn new(rank: GroupRank, world: Arc<World>, room: Arc<Room>) -> InProcessLinks {
        let (parker, is_woken) = (Parker::new(), Arc::default());
        let links = InProcessLinks { rank, world, room, parker, is_woken, open: HashMap::new() };
        links.room.set_waker(rank, links.waker());
        links
    }

    fn fetch(&mut self, edge: Edge, make: bool) -> bool {
        if self.open.contains_key(&edge) {
            return true;
        }
        match self.room.fetch(self.rank, edge, make) {
            Some(end) => {
                if edge.lane == Lane::PointToPoint {
                    self.room.note_message_stream(self.rank, edge.peer);
                }
                self.open.insert(edge, end).is_none()
            }
            None => false,
        }
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
        #[expect(clippy::expect_used, reason = "`open` or `is_open` has confirmed the engine's edge")]
        self.open.get_mut(&edge).expect("an open edge")
    }

    fn wait(&mut self, _interest: &[Interest], until: Instant) -> Wake {
        // A thread that changes a pipe wakes the other side, so any pipe may be the cause of a wake.
        if !self.is_woken.load(Ordering::SeqCst) {
            self.parker.park_deadline(until);
        }
        if self.is_woken.swap(false, Ordering::SeqCst) { Wake::Ready } else { Wake::Expired }
    }

    fn waker(&self) -> Waker {
        let (unparker, is_woken) = (self.parker.unparker().clone(), self.is_woken.clone());
        Arc::new(move || {
            is_woken.store(true, Ordering::SeqCst);
            unparker.unpark();
        })
    }

    fn shut_down(&mut self) {
        self.open.values_mut().for_each(PipeLink::shut_down);
    }

    fn close(&mut self) {
        self.shut_down();
        self.open.clear();
    }
}

impl Drop for InProcessLinks {
    fn drop(&mut self) {
        let death = std::thread::panicking().then_some(THREAD_PANICKED);
        self.world.leave(&self.room, self.rank, death);
    }
}
