//! Threads that are kept for the next task: a new one for each question would cost more than many a call.

use std::collections::HashMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Errand = Box<dyn FnOnce() + Send>;

/// What a thread gets: a task, and the way to it, for the list of the idle; `None` if it belongs to an asker.
struct Work {
    task: Errand,
    way: Option<Sender<Work>>,
}

#[derive(Default)]
struct Threads {
    idle: Vec<Sender<Work>>,
    by_asker: HashMap<u64, Sender<Work>>,
}

/// Threads that wait for something to do, as many as there were tasks at once, and one for each asker. They end with
/// the last owner of this.
#[derive(Clone, Default)]
pub(super) struct Workers(Arc<Mutex<Threads>>);

fn lock(kept: &Mutex<Threads>) -> MutexGuard<'_, Threads> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Workers {
    /// Runs a task now, whatever the others are doing. The tasks of one asker, one at a time, are all run by one
    /// thread, which runs no others'.
    pub(super) fn run(&self, asker: Option<u64>, task: impl FnOnce() + Send + 'static) {
        let task: Errand = Box::new(task);
        let mut kept = lock(&self.0);
        let own = asker.and_then(|asker| kept.by_asker.get(&asker).cloned());
        let way = own.or_else(|| kept.idle.pop()).unwrap_or_else(|| self.start());
        if let Some(asker) = asker {
            kept.by_asker.insert(asker, way.clone());
        }
        drop(kept);
        let idle = asker.is_none().then(|| way.clone());
        way.send(Work { task, way: idle }).unwrap();
    }

    /// The threads of all askers are free for others.
    pub(super) fn forget_askers(&self) {
        let mut kept = lock(&self.0);
        let Threads { idle, by_asker } = &mut *kept;
        idle.extend(by_asker.drain().map(|(_, way)| way));
    }

    fn start(&self) -> Sender<Work> {
        let (way, tasks) = channel::<Work>();
        let kept = Arc::downgrade(&self.0);
        let work = move || {
            // The thread itself keeps no way to it: when the list is gone, nobody can send it anything.
            while let Ok(Work { task, way }) = tasks.recv() {
                task();
                let Some(kept) = kept.upgrade() else { return };
                lock(&kept).idle.extend(way);
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
            workers.run(None, move || tell_second.send(told.recv().unwrap()).unwrap());
            workers.run(None, move || first.0.send(5).unwrap());
            assert_eq!(second.1.recv(), Ok(5));
            while lock(&workers.0).idle.len() < 2 {
                std::thread::yield_now();
            }
        }
        assert_eq!(lock(&workers.0).idle.len(), 2);
    }

    #[test]
    fn an_asker_has_a_thread_of_its_own() {
        let workers = Workers::default();
        let thread_of = |asker| {
            let (tell, told) = channel();
            workers.run(Some(asker), move || tell.send(std::thread::current().id()).unwrap());
            told.recv().unwrap()
        };
        let [first, second] = [1, 2].map(thread_of);
        assert_ne!(first, second);
        assert_eq!([1, 2, 1, 2].map(thread_of), [first, second, first, second]);
        workers.forget_askers();
        assert!([first, second].contains(&thread_of(3)));
    }
}
