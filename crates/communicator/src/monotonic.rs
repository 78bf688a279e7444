//! Times of `CLOCK_MONOTONIC` as numbers, which processes of one host can compare. [`Instant`] reads the same clock and
//! keeps its number to itself.

use std::sync::OnceLock;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

/// An instant of this process and its number.
static BASE: OnceLock<(Instant, u64)> = OnceLock::new();

/// The reading of `CLOCK_MONOTONIC` in nanoseconds at `instant`; never 0. Exact to the time between two readings of the
/// clock, some 50 ns, always by the same amount in one process.
///
/// ```
/// use std::time::{Duration, Instant};
/// use unisono_communicator::monotonic_ns;
/// let now = Instant::now();
/// assert_eq!(monotonic_ns(now + Duration::from_micros(3)) - monotonic_ns(now), 3000);
/// ```
pub fn monotonic_ns(instant: Instant) -> u64 {
    let (base, base_ns) = *BASE.get_or_init(read_both);
    let ns = match instant.checked_duration_since(base) {
        Some(later) => base_ns.saturating_add(later.as_nanos() as u64),
        None => base_ns.saturating_sub((base - instant).as_nanos() as u64),
    };
    ns.max(1)
}

/// Both readings at nearly one time. The first reading of a process takes 10 us, and any may be interrupted, so the
/// quickest of several counts.
fn read_both() -> (Instant, u64) {
    let read = || {
        let (before, ns) = (Instant::now(), clock_ns());
        (before.elapsed(), before, ns)
    };
    let (_, instant, ns) = std::iter::repeat_with(read).take(8).min().unwrap_or_else(read);
    (instant, ns)
}

fn clock_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
