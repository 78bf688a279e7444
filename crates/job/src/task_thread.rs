//! A thread that runs asynchronous tasks: the tasks of a job, or of a store that a launcher hosts.

use std::convert::Infallible;

use crossbeam_channel::{Receiver, TryRecvError};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use unisono_communicator::{Error, Holding, Result};

/// The thread, which runs as long as somebody holds this.
#[derive(Clone, Debug)]
pub(crate) struct TaskThread {
    tasks: Handle,
    _runs: mpsc::Sender<Infallible>,
    ended: Ended,
}

/// Tells when the thread has ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended(Receiver<Infallible>);

impl TaskThread {
    /// Starts it.
    ///
    /// # Errors
    /// [`Error::System`] when no thread or descriptor is left.
    pub(crate) fn start(name: &str) -> Result<TaskThread> {
        let system = |error| Error::system(format!("cannot start the thread {name}"), &error);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_io().enable_time().build().map_err(system)?;
        let tasks = runtime.handle().clone();
        let (runs, mut held) = mpsc::channel(1);
        let (alive, ended) = crossbeam_channel::bounded(0);
        let run = move || {
            let _alive: crossbeam_channel::Sender<Infallible> = alive;
            // A call that a subscriber makes would wait for this thread.
            let _holding = Holding::begin();
            runtime.block_on(held.recv());
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(system)?;
        Ok(TaskThread { tasks, _runs: runs, ended: Ended(ended) })
    }

    /// Runs a task there, to its end.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let held = self.clone();
        self.tasks.spawn(async move {
            let _held = held;
            task.await;
        });
    }

    /// Runs a future on the thread that calls this, which may be within another runtime; this thread looks after its
    /// sockets and timers.
    pub(crate) fn wait_for<T>(&self, future: impl Future<Output = T>) -> T {
        let _inside = self.tasks.enter();
        // Within a task of another tokio runtime its budget would end, and nothing here would be ready any more.
        pollster::block_on(tokio::task::unconstrained(future))
    }

    /// Does something that makes sockets for its tasks.
    pub(crate) fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        let _inside = self.tasks.enter();
        work()
    }

    pub(crate) fn ended(&self) -> Ended {
        self.ended.clone()
    }
}

impl Ended {
    /// Waits until nobody holds the thread and all its sockets are closed.
    pub(crate) fn wait(&self) {
        // A panic of that thread has been reported by its own hook, and ends it too.
        let _ = self.0.recv();
    }

    /// Whether that is so.
    pub(crate) fn has_come(&self) -> bool {
        matches!(self.0.try_recv(), Err(TryRecvError::Disconnected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_within_another_runtime_may_take_any_number_of_steps() {
        const STEPS: u32 = 10_000;
        let (done, ended) = crossbeam_channel::bounded(1);
        std::thread::spawn(move || {
            let outer = tokio::runtime::Builder::new_current_thread().build().unwrap();
            outer.block_on(async {
                let (sender, mut receiver) = mpsc::unbounded_channel();
                (0..STEPS).for_each(|step| sender.send(step).unwrap());
                let thread = TaskThread::start("test").unwrap();
                thread.wait_for(async {
                    for step in 0..STEPS {
                        assert_eq!(receiver.recv().await, Some(step));
                    }
                });
            });
            done.send(()).unwrap();
        });
        ended.recv_timeout(std::time::Duration::from_secs(30)).expect("it ends");
    }
}
