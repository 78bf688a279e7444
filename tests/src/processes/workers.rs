//! Threads that are kept for the next task: a new one for each question would cost more than many a call.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

type Errand = Box<dyn FnOnce() + Send>;

/// What a thread gets: a task, and the way to it, for the list of the idle.
struct Work {
    task: Errand,
    way: Sender<Work>,
}

/// Threads that wait for something to do, as many as there were tasks at once. They end with the last owner of this.
#[derive(Clone, Default)]
pub(super) struct Workers(Arc<Mutex<Vec<Sender<Work>>>>);

impl Workers {
    /// Runs a task now, whatever the others are doing.
    pub(super) fn run(&self, task: impl FnOnce() + Send + 'static) {
        let task: Errand = Box::new(task);
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let way = idle.unwrap_or_else(|| self.start());
        way.send(Work { task, way: way.clone() }).unwrap();
    }

    fn start(&self) -> Sender<Work> {
        let (way, tasks) = channel::<Work>();
        let idle = Arc::downgrade(&self.0);
        let work = move || {
            // The thread itself keeps no way to it: when the list is gone, nobody can send it anything.
            while let Ok(Work { task, way }) = tasks.recv() {
                task();
                let Some(idle) = idle.upgrade() else { return };
                idle.lock().unwrap_or_else(PoisonError::into_inner).push(way);
            }
        };
        drop(std::thread::Builder::new().name("worker".to_owned()).spawn(work).unwrap());
        way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_run_at_once_and_threads_are_used_again() {
        let workers = Workers::default();
        for _ in 0..3 {
            let (first, second) = (channel(), channel());
            let (tell_second, told) = (second.0, first.1);
            workers.run(move || tell_second.send(told.recv().unwrap()).unwrap());
            workers.run(move || first.0.send(5).unwrap());
            assert_eq!(second.1.recv(), Ok(5));
            while workers.0.lock().unwrap().len() < 2 {
                std::thread::yield_now();
            }
        }
        assert_eq!(workers.0.lock().unwrap().len(), 2);
    }
}
