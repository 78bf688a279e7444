//! When a thread comes to a function, for measurements of the way there: the time from a start to the first collective
//! that the thread enters, and how much of it was spent in functions of the double on the way.

use std::cell::Cell;
use std::time::Instant;

use crate::export;

#[derive(Clone, Copy)]
struct Running {
    started: Instant,
    /// In functions that have returned.
    inside_ns: u64,
    entered_ns: u64,
}

thread_local! {
    static CLOCK: Cell<Option<Running>> = const { Cell::new(None) };
}

/// What a thread that runs a clock is in.
pub(crate) struct Inside(Option<Instant>);

/// A function is entered.
pub(crate) fn enter(name: &str) -> Inside {
    let Some(clock) = CLOCK.get().filter(|clock| clock.entered_ns == 0) else { return Inside(None) };
    let now = Instant::now();
    if name == "ncclAllReduce" {
        let entered_ns = now.saturating_duration_since(clock.started).as_nanos() as u64;
        CLOCK.set(Some(Running { entered_ns, ..clock }));
        return Inside(None);
    }
    Inside(Some(now))
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let (Some(since), Some(clock)) = (self.0, CLOCK.get()) {
            let inside_ns = clock.inside_ns + since.elapsed().as_nanos() as u64;
            CLOCK.set(Some(Running { inside_ns, ..clock }));
        }
    }
}

export! {
    plain fn unisono_double_start_clock() -> u64 {
        CLOCK.set(Some(Running { started: Instant::now(), inside_ns: 0, entered_ns: 0 }));
        0
    }

    plain fn unisono_double_entered_ns() -> u64 {
        CLOCK.get().map_or(0, |clock| clock.entered_ns)
    }

    plain fn unisono_double_inside_ns() -> u64 {
        CLOCK.get().map_or(0, |clock| clock.inside_ns)
    }
}
