//! The question that a thread asks now and then while it waits in a call: whether the call must end. A binding of a
//! language whose signal handlers run between two of its own instructions answers it, so that Ctrl-C ends a wait.

use std::cell::Cell;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// The pause between two questions.
const PAUSE: Duration = Duration::from_millis(50);

type MustEnd = fn() -> bool;

#[derive(Clone, Copy)]
struct Check {
    must_end: MustEnd,
    next: Option<Instant>,
}

thread_local! {
    static CHECK: Cell<Option<Check>> = const { Cell::new(None) };
}

/// While it lives, a thread that waits in a call asks a function about every 50 ms whether the call must end. If so,
/// the call fails with [`crate::Error::Aborted`], as after [`crate::Communicator::abort`], and so do the calls of the
/// other ranks. A thread that waits to join a job, for an agreement or for a key of a store gives up, and ends no call
/// of others. A call inside a vendor's library asks nothing.
///
/// A call that does not wait asks nothing. Within the function, calls on the communicator are refused.
///
/// ```
/// use unisono_communicator::InterruptCheck;
/// let _check = InterruptCheck::begin(|| false);
/// // Calls of this thread go on, since the function says so.
/// ```
#[must_use]
pub struct InterruptCheck {
    before: Option<Check>,
    /// It belongs to its thread.
    _of_thread: PhantomData<*const ()>,
}

impl InterruptCheck {
    /// Asks `must_end` in the waits of this thread.
    pub fn begin(must_end: fn() -> bool) -> InterruptCheck {
        let before = CHECK.replace(Some(Check { must_end, next: None }));
        InterruptCheck { before, _of_thread: PhantomData }
    }
}

impl Drop for InterruptCheck {
    fn drop(&mut self) {
        CHECK.set(self.before);
    }
}

/// The function to ask at `now`, if this thread has one and it is time; for waits that look around every 100 ms at
/// least.
#[inline]
pub fn interrupt_check(now: Instant) -> Option<fn() -> bool> {
    CHECK.get().and_then(|check| due(check, now))
}

/// Whether this thread has a function to ask; without one a wait needs no looks around.
#[inline]
pub fn has_interrupt_check() -> bool {
    CHECK.get().is_some()
}

fn due(check: Check, now: Instant) -> Option<MustEnd> {
    if check.next.is_some_and(|next| now < next) {
        return None;
    }
    CHECK.set(Some(Check { next: Some(now + PAUSE), ..check }));
    check.next.map(|_| check.must_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_asks_after_a_pause_and_only_while_there_is_a_check() {
        let now = Instant::now();
        assert!(interrupt_check(now).is_none() && !has_interrupt_check());
        {
            let _outer = InterruptCheck::begin(|| true);
            assert!(interrupt_check(now).is_none(), "the wait begins");
            assert!(interrupt_check(now + PAUSE / 2).is_none());
            assert!(interrupt_check(now + PAUSE).is_some_and(|must_end| must_end()));
            assert!(interrupt_check(now + PAUSE).is_none(), "it has just asked");
            {
                let _inner = InterruptCheck::begin(|| false);
                assert!(interrupt_check(now).is_none());
                assert!(interrupt_check(now + PAUSE).is_some_and(|must_end| !must_end()));
            }
            assert!(interrupt_check(now + 2 * PAUSE).is_some_and(|must_end| must_end()));
        }
        assert!(interrupt_check(now + 9 * PAUSE).is_none());
    }
}
