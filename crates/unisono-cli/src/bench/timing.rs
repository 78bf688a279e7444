//! How long a call takes: blocks of back-to-back calls, as many on every rank, each as long as its slowest rank.

use std::time::{Duration, Instant};

use unisono::{Collectives, Communicator, ReduceOp, Result};

/// Long enough that the clock and the barrier before a block do not count.
const BLOCK_SECONDS: f64 = 5e-3;
/// Bounds the calibration of a call that takes no time.
const CALLS_PER_BLOCK_MAX: u64 = 1 << 20;
/// Blocks of which the calibration believes the shortest, since a busy machine lengthens some.
const CALIBRATION_BLOCKS: usize = 3;
const BLOCKS_MIN: usize = 3;

/// Seconds per call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) median: f64,
    pub(crate) min: f64,
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Blocks, unless the time runs out before.
    pub(crate) blocks_max: usize,
    pub(crate) time: Duration,
}

impl Effort {
    /// That of a row in a bench of its own.
    pub(crate) const THOROUGH: Effort = Effort { blocks_max: 31, time: Duration::from_secs(1) };
}

/// Times `call`, whose argument counts the calls of a block from 0. It should have been called once before. Collective.
pub(crate) fn time(
    comm: &dyn Communicator,
    effort: Effort,
    mut call: impl FnMut(u64) -> Result<()>,
) -> Result<Timing> {
    let mut calls = 1;
    let block_seconds = loop {
        let seconds =
            blocks(comm, CALIBRATION_BLOCKS, calls, &mut call)?.into_iter().fold(f64::INFINITY, f64::min);
        let next = calls_for_block(calls, seconds);
        if next <= calls {
            break seconds;
        }
        calls = next;
    };
    let affordable = (effort.time.as_secs_f64() / block_seconds.max(BLOCK_SECONDS)) as usize;
    let count = affordable.clamp(BLOCKS_MIN, effort.blocks_max.max(BLOCKS_MIN));
    let mut seconds = blocks(comm, count, calls, &mut call)?;
    seconds.sort_by(f64::total_cmp);
    let per_call = |seconds: f64| seconds / calls as f64;
    Ok(Timing { median: per_call(seconds[seconds.len() / 2]), min: per_call(seconds[0]) })
}

/// How many calls to try next after `calls` took `seconds`; no more than `calls` when that is long enough. At most ten
/// times as many, since short blocks say little.
fn calls_for_block(calls: u64, seconds: f64) -> u64 {
    if seconds >= 0.8 * BLOCK_SECONDS {
        return calls;
    }
    let wanted = calls as f64 * BLOCK_SECONDS / seconds.max(1e-9);
    (wanted.ceil() as u64).min(calls * 10).min(CALLS_PER_BLOCK_MAX)
}

/// The seconds of `count` blocks of `calls` calls, those of the slowest rank: the same numbers on every rank, so all
/// draw the same conclusions.
fn blocks(
    comm: &dyn Communicator,
    count: usize,
    calls: u64,
    call: &mut impl FnMut(u64) -> Result<()>,
) -> Result<Vec<f64>> {
    let mut seconds = Vec::with_capacity(count);
    for _ in 0..count {
        comm.barrier()?;
        let start = Instant::now();
        for index in 0..calls {
            call(index)?;
        }
        seconds.push(start.elapsed().as_secs_f64());
    }
    comm.all_reduce(&mut seconds, ReduceOp::Max)?;
    Ok(seconds)
}

#[cfg(test)]
mod tests {
    use unisono::Solo;

    use super::*;

    #[test]
    fn calibration_grows_towards_a_block_and_stops() {
        assert_eq!(calls_for_block(1, 1e-6), 10);
        assert_eq!(calls_for_block(10, 2.5e-3), 20);
        assert_eq!(calls_for_block(20, 4.5e-3), 20);
        assert_eq!(calls_for_block(1, 3.0), 1);
        assert_eq!(calls_for_block(CALLS_PER_BLOCK_MAX, 0.0), CALLS_PER_BLOCK_MAX);
    }

    #[test]
    fn the_time_of_a_sleep_is_at_least_the_sleep() {
        let effort = Effort { blocks_max: 5, time: Duration::from_millis(50) };
        let nap = Duration::from_millis(1);
        let mut calls = 0;
        let timing = time(&Solo::new(), effort, |_| {
            calls += 1;
            std::thread::sleep(nap);
            Ok(())
        })
        .unwrap();
        assert!(timing.min >= nap.as_secs_f64() && timing.median >= timing.min, "{timing:?}");
        assert!(calls > 5, "{calls}");
    }
}
