//! Work that may wait for others, for threads that must not: a subscriber, a standard error or a launcher's pipe that
//! nobody reads.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// A piece of work.
type Piece = Box<dyn FnOnce() + Send>;

/// A thread of this process that does work of one kind, piece by piece. It starts with the first piece.
pub struct Aside {
    name: &'static str,
    /// More pieces do not wait there, so that a piece that hangs costs no memory without bound.
    waiting_max: usize,
    waiting: AtomicUsize,
    /// The sender to the thread, and the process of that thread. `None` when the thread could not be started.
    thread: OnceLock<Option<(Sender<Piece>, u32)>>,
}

/// Why the thread has not taken a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// As many pieces wait as may.
    Full,
    /// There is no thread: it could not be started, or this process is a forked child.
    NoThread,
}

impl Aside {
    /// The thread has this name. At most `waiting_max` pieces wait for it.
    pub const fn new(name: &'static str, waiting_max: usize) -> Aside {
        Aside { name, waiting_max, waiting: AtomicUsize::new(0), thread: OnceLock::new() }
    }

    /// Has the thread do `work` after all earlier pieces. Never waits.
    ///
    /// # Errors
    /// [`NotTaken`] says why the thread will not do it.
    pub fn hand_over(&'static self, work: impl FnOnce() + Send + 'static) -> Result<(), NotTaken> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.waiting_max {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(NotTaken::Full);
        }
        self.send(Box::new(|| {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            work();
        }))
    }

    /// Waits until all pieces so far are done, at most for `longest`. For the end of the process.
    pub fn flush(&'static self, longest: Duration) {
        let (done, all_done) = channel::<()>();
        if self.thread.get().is_some() && self.send(Box::new(|| drop(done))).is_ok() {
            // Nothing is sent; the receiver only waits until the sender is dropped.
            let _ = all_done.recv_timeout(longest);
        }
    }

    fn send(&self, work: Piece) -> Result<(), NotTaken> {
        let thread = self.thread.get_or_init(|| {
            let (sender, work) = channel();
            let thread = std::thread::Builder::new().name(self.name.to_owned());
            thread.spawn(move || do_all(work)).ok().map(|_| (sender, std::process::id()))
        });
        match thread {
            Some((sender, pid)) if *pid == std::process::id() => {
                sender.send(work).map_err(|_| NotTaken::NoThread)
            }
            Some(_) | None => Err(NotTaken::NoThread),
        }
    }
}

impl fmt::Debug for Aside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aside").field("name", &self.name).finish_non_exhaustive()
    }
}

fn do_all(work: Receiver<Piece>) {
    for piece in work {
        // A panic has been reported by its hook, and ends this piece only.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(piece));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No wait is longer, however busy the machine is.
    const WAIT_MAX: Duration = Duration::from_secs(60);

    #[test]
    fn work_that_hangs_holds_nobody_and_costs_bounded_memory() {
        static HANGING: Aside = Aside::new("hanging", 3);
        let (go_on, gate) = channel::<()>();
        let (begins, begun) = channel();
        let hang = move || {
            begins.send(()).unwrap();
            gate.recv().unwrap();
        };
        assert_eq!(HANGING.hand_over(hang), Ok(()));
        begun.recv_timeout(WAIT_MAX).unwrap();
        let (said, heard) = channel();
        for piece in 0..3 {
            let said = said.clone();
            assert_eq!(HANGING.hand_over(move || said.send(piece).unwrap()), Ok(()));
        }
        assert_eq!(HANGING.hand_over(|| ()), Err(NotTaken::Full));
        HANGING.flush(Duration::ZERO);
        go_on.send(()).unwrap();
        HANGING.flush(WAIT_MAX);
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn a_panic_ends_one_piece() {
        static PANICKING: Aside = Aside::new("panicking", 8);
        PANICKING.hand_over(|| panic!("meant")).unwrap();
        let (said, heard) = channel();
        PANICKING.hand_over(move || said.send(()).unwrap()).unwrap();
        heard.recv_timeout(WAIT_MAX).unwrap();
    }
}
