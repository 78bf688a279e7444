//! The deadlines of receives that no thread waits for: a task that awaits one, or a function given to it, hears of its
//! timeout from a thread of the world, which is there as long as any receive is.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use unisono_communicator::Error;

use crate::solo::world::World;

impl World {
    /// Has a thread end all receives at their deadlines. Without a thread the world fails: nobody would be told.
    pub(crate) fn watch(self: &Arc<World>) {
        let mut state = self.lock();
        if state.is_watched || state.receives.is_empty() {
            return;
        }
        state.is_watched = true;
        drop(state);
        let world = self.clone();
        let thread = thread::Builder::new().name("unisono-late".to_owned());
        if let Err(error) = thread.spawn(move || world.end_late_receives()) {
            self.lock().is_watched = false;
            self.fail(Error::system("cannot start the thread of deadlines", &error));
        }
    }

    fn end_late_receives(self: &Arc<World>) {
        let mut state = self.lock();
        while let Some(first) = state.receives.iter().map(|receive| receive.deadline).min() {
            if Instant::now() < first {
                state = self.wait(state, first);
                continue;
            }
            let late = state.take_receive(|receive| receive.deadline == first);
            drop(state);
            late.iter().for_each(|late| self.end_late(late));
            state = self.lock();
        }
        state.is_watched = false;
    }
}
