//! The progress thread: moves asynchronous calls while no other thread does. It starts at the first `submit`.
//!
//! It never takes the links from anybody: it only tries, and gives it up as soon as another thread wants it. It
//! holds the communicator while there is work and no longer, so that detached work goes on when the last handle is
//! dropped, and a communicator without work is gone at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use unisono_communicator::Error;

use crate::drive::Shared;
use crate::drive::pending::Pending;
use crate::links::Links;
use crate::lock;

/// A caller that waits for its work at once must not meet this thread: so long it leaves new work alone.
const HEAD_START: Duration = Duration::from_micros(200);

/// How long it stays out of the way when another thread is at work.
const STAND_ASIDE: Duration = Duration::from_millis(1);

/// What the thread is told.
enum Order<L: Links + 'static> {
    /// Nothing to do.
    Sleep,
    /// This communicator has work.
    Work(Arc<Shared<L>>),
    /// The communicator is gone.
    End,
}

/// State of a communicator's progress thread, which outlives neither the communicator nor its work.
pub(crate) struct Progress<L: Links + 'static> {
    is_started: AtomicBool,
    order: Mutex<Order<L>>,
    signal: Condvar,
}

impl<L: Links + 'static> Progress<L> {
    /// No thread yet.
    pub(crate) fn new() -> Arc<Progress<L>> {
        Arc::new(Progress {
            is_started: AtomicBool::new(false),
            order: Mutex::new(Order::Sleep),
            signal: Condvar::new(),
        })
    }

    /// Says that there is work, and starts the thread if there is none yet.
    ///
    /// # Errors
    /// When the system has no room for another thread.
    pub(crate) fn notify(shared: &Arc<Shared<L>>) -> Result<(), Error> {
        let progress = &shared.progress;
        progress.tell(Order::Work(shared.clone()));
        if progress.is_started.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let mine = progress.clone();
        let thread = std::thread::Builder::new().name("unisono-progress".to_owned());
        match thread.spawn(move || mine.run()) {
            Ok(_) => Ok(()),
            Err(error) => {
                progress.is_started.store(false, Ordering::SeqCst);
                progress.tell(Order::Sleep);
                Err(Error::system("cannot start the progress thread", &error))
            }
        }
    }

    /// Ends the thread: the communicator is being dropped.
    pub(crate) fn end(&self) {
        self.tell(Order::End);
    }

    fn tell(&self, order: Order<L>) {
        // What was there before is dropped after the lock: it may be the last handle of the communicator.
        let before = std::mem::replace(&mut *lock(&self.order), order);
        self.signal.notify_one();
        drop(before);
    }

    fn next(&self) -> Order<L> {
        let order = lock(&self.order);
        let sleeps = |order: &mut Order<L>| matches!(order, Order::Sleep);
        let mut order = self.signal.wait_while(order, sleeps).unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *order, Order::Sleep)
    }

    fn run(&self) {
        while let Order::Work(shared) = self.next() {
            std::thread::sleep(HEAD_START);
            while shared.has_pending() {
                match shared.try_lock_links() {
                    Some(mut guard) => {
                        let goal = || shared.is_wanted();
                        if let Err(error) = guard.drive(&mut Pending { shared: &shared, goal }) {
                            shared.gate.settle(&mut guard, error);
                        }
                    }
                    None => std::thread::sleep(STAND_ASIDE),
                }
            }
        }
    }
}
