//! Upper bounds of deadlines: a wait with a deadline beside a sleep of the same length.

use std::time::{Duration, Instant};

/// The longest that a wait may take, in sleeps of the same length. The rest of a deadline is the search for the ranks
/// that have not come.
const RATIO_MAX: f64 = 2.0;

/// The times of waits as multiples of a sleep that begins with each. A busy machine lengthens both, but not always
/// alike; a deadline that is not kept lengthens all of the waits.
#[derive(Debug, Default)]
pub struct Waits(Vec<f64>);

impl Waits {
    /// Makes a call that ends by this deadline.
    pub fn time<R>(&mut self, deadline: Duration, call: impl FnOnce() -> R) -> R {
        let timed_sleep = || {
            let began = Instant::now();
            std::thread::sleep(deadline);
            began.elapsed()
        };
        std::thread::scope(|scope| {
            let sleep = scope.spawn(timed_sleep);
            let began = Instant::now();
            let result = call();
            let waited = began.elapsed();
            assert!(waited >= deadline, "the call ended after {waited:?} of {deadline:?}");
            self.0.push(waited.as_secs_f64() / sleep.join().unwrap().as_secs_f64());
            result
        })
    }

    /// Judges all waits.
    ///
    /// # Panics
    /// When no call has ended in time.
    #[track_caller]
    pub fn are_in_time(&self) {
        assert!(self.0.iter().any(|ratio| *ratio <= RATIO_MAX), "waits, in sleeps: {:.2?}", self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "waits, in sleeps")]
    fn a_wait_of_three_deadlines_is_found() {
        let deadline = Duration::from_millis(20);
        let mut waits = Waits::default();
        (0..2).for_each(|_| waits.time(deadline, || std::thread::sleep(4 * deadline)));
        waits.are_in_time();
    }
}
