//! The time of a call. It is measured in blocks of back-to-back calls, equally many on every rank; the slowest rank
//! gives the time of a block. Single calls are timed besides, for their quantiles: the slowest rank gives the time of
//! each.

use std::time::{Duration, Instant};

use unisono::{Collectives, Communicator, ReduceOp, Result};

use crate::combine::combine;

/// Long enough that the clock and the barrier before a block do not count.
const BLOCK_SECONDS: f64 = 5e-3;
/// Bounds the calibration of a call that takes no time.
const CALLS_PER_BLOCK_MAX: u64 = 1 << 20;
/// Blocks per calibration. The shortest one counts, since other work on the machine lengthens some.
const CALIBRATION_BLOCKS: usize = 3;
const BLOCKS_MIN: usize = 3;
/// The number of single calls, within a quarter of the time of the blocks. With fewer than 100, the 99th percentile is
/// the longest call.
const SINGLE_CALLS_MIN: usize = 5;
const SINGLE_CALLS_MAX: usize = 1000;

/// Seconds per call on the slowest rank.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    /// One number for each block.
    ascending: Vec<f64>,
    /// One number for each single call; the numbers of the blocks in a timing that was computed.
    calls_ascending: Vec<f64>,
}

impl Timing {
    /// The timing of these blocks, in any order; at least one.
    pub(crate) fn new(mut seconds: Vec<f64>) -> Timing {
        seconds.sort_by(f64::total_cmp);
        Timing { calls_ascending: seconds.clone(), ascending: seconds }
    }

    /// The block that is longer than `percent` of all.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        percentile(&self.ascending, percent)
    }

    /// The single call that is longer than `percent` of all.
    pub(crate) fn call_percentile(&self, percent: usize) -> f64 {
        percentile(&self.calls_ascending, percent)
    }

    pub(crate) fn median(&self) -> f64 {
        self.percentile(50)
    }

    /// The standard error of the median, if the middle of the blocks is distributed normally.
    pub(crate) fn median_error(&self) -> f64 {
        // Of a normal distribution 2.563 standard deviations lie between these percentiles, and the median of n values
        // has 1.253 times the standard error of their mean.
        let deviation = (self.percentile(90) - self.percentile(10)) / 2.563;
        1.253 * deviation / (self.ascending.len() as f64).sqrt()
    }

    /// All blocks, ascending.
    pub(crate) fn into_seconds(self) -> Vec<f64> {
        self.ascending
    }

    pub(crate) fn min(&self) -> f64 {
        self.ascending[0]
    }
}

/// The duration of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// The most blocks; fewer when the time is over before.
    pub(crate) blocks_max: usize,
    pub(crate) time: Duration,
}

impl Effort {
    /// For a row that is measured alone.
    pub(crate) const THOROUGH: Effort = Effort { blocks_max: 31, time: Duration::from_secs(1) };
    /// For each algorithm, codec or part when several are measured.
    pub(crate) const COMPARING: Effort = Effort { blocks_max: 15, time: Duration::from_millis(400) };
}

/// Times `ways` kinds of calls in turns. `call(way, index)` makes one call; `index` counts the calls of a block from 0.
/// Each kind should have been called once before. The blocks of all kinds take turns, in alternating order, so that a
/// slow moment of the machine affects all of them. Collective.
pub(crate) fn time(
    comm: &dyn Communicator,
    effort: Effort,
    ways: usize,
    mut call: impl FnMut(usize, u64) -> Result<()>,
) -> Result<Vec<Timing>> {
    let mut calls = Vec::with_capacity(ways);
    let mut turn_seconds = 0.0;
    for way in 0..ways {
        let (of_way, block_seconds) = calibrate(comm, |index| call(way, index))?;
        calls.push(of_way);
        turn_seconds += block_seconds.max(BLOCK_SECONDS);
    }
    let affordable = (effort.time.as_secs_f64() * ways as f64 / turn_seconds) as usize;
    let turns = affordable.clamp(BLOCKS_MIN, effort.blocks_max.max(BLOCKS_MIN));
    let mut seconds = vec![Vec::with_capacity(turns); ways];
    for turn in 0..turns {
        for place in 0..ways {
            let way = if turn % 2 == 0 { place } else { ways - 1 - place };
            seconds[way].push(block(comm, calls[way], &mut |index| call(way, index))?);
        }
    }
    let timing = |(mut seconds, calls): (Vec<f64>, u64)| {
        combine(comm, &mut seconds, ReduceOp::Max)?;
        Ok(Timing::new(seconds.into_iter().map(|seconds| seconds / calls as f64).collect()))
    };
    let mut timings: Vec<Timing> = seconds.into_iter().zip(calls).map(timing).collect::<Result<_>>()?;
    for (way, timing) in timings.iter_mut().enumerate() {
        // All ranks have the same median, so all make as many calls.
        let affordable = effort.time.as_secs_f64() / 4.0 / timing.median().max(1e-9);
        let count = (affordable as usize).clamp(SINGLE_CALLS_MIN, SINGLE_CALLS_MAX);
        timing.calls_ascending = singly(comm, count, |index| call(way, index))?;
    }
    Ok(timings)
}

/// The seconds of single calls on the slowest rank, ascending.
fn singly(
    comm: &dyn Communicator,
    count: usize,
    mut call: impl FnMut(u64) -> Result<()>,
) -> Result<Vec<f64>> {
    let mut seconds = Vec::with_capacity(count);
    comm.barrier()?;
    for index in 0..count as u64 {
        let start = Instant::now();
        call(index)?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    combine(comm, &mut seconds, ReduceOp::Max)?;
    seconds.sort_by(f64::total_cmp);
    Ok(seconds)
}

fn percentile(ascending: &[f64], percent: usize) -> f64 {
    ascending[(ascending.len() * percent / 100).min(ascending.len() - 1)]
}

/// The number of calls of a block, and its time.
fn calibrate(comm: &dyn Communicator, mut call: impl FnMut(u64) -> Result<()>) -> Result<(u64, f64)> {
    let mut calls = 1;
    loop {
        let mut seconds = Vec::with_capacity(CALIBRATION_BLOCKS);
        for _ in 0..CALIBRATION_BLOCKS {
            seconds.push(block(comm, calls, &mut call)?);
        }
        // All ranks have the same numbers, so all decide the same.
        combine(comm, &mut seconds, ReduceOp::Max)?;
        let shortest = seconds.into_iter().fold(f64::INFINITY, f64::min);
        let next = calls_for_block(calls, shortest);
        if next <= calls {
            return Ok((calls, shortest));
        }
        calls = next;
    }
}

/// The number of calls to try next after `calls` took `seconds`; not more than `calls` when that is long enough. At
/// most ten times as many, since the time of a short block is not exact.
fn calls_for_block(calls: u64, seconds: f64) -> u64 {
    if seconds >= 0.8 * BLOCK_SECONDS {
        return calls;
    }
    let wanted = calls as f64 * BLOCK_SECONDS / seconds.max(1e-9);
    (wanted.ceil() as u64).min(calls * 10).min(CALLS_PER_BLOCK_MAX)
}

/// The seconds of a block of `calls` calls on this rank.
fn block(comm: &dyn Communicator, calls: u64, call: &mut impl FnMut(u64) -> Result<()>) -> Result<f64> {
    comm.barrier()?;
    let start = Instant::now();
    for index in 0..calls {
        call(index)?;
    }
    Ok(start.elapsed().as_secs_f64())
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
    fn percentiles_are_blocks() {
        let timing = Timing::new((0..31).rev().map(f64::from).collect());
        assert_eq!(
            [0, 10, 50, 90, 100].map(|percent| timing.percentile(percent)),
            [0.0, 3.0, 15.0, 27.0, 30.0]
        );
        assert_eq!((timing.min(), timing.median()), (0.0, 15.0));
        assert!((timing.median_error() - 1.253 * 24.0 / 2.563 / 31f64.sqrt()).abs() < 1e-12);
        assert_eq!(Timing::new(vec![1.0; 9]).median_error(), 0.0);
    }

    #[test]
    fn the_time_of_a_sleep_is_at_least_the_sleep() {
        let effort = Effort { blocks_max: 5, time: Duration::from_millis(50) };
        let nap = Duration::from_millis(1);
        let mut calls = [0; 2];
        let timings = time(&Solo::new(), effort, 2, |way, _| {
            calls[way] += 1;
            std::thread::sleep(nap * (1 + way as u32));
            Ok(())
        })
        .unwrap();
        assert_eq!(timings.len(), 2);
        for (way, timing) in timings.iter().enumerate() {
            assert!(
                timing.min() >= (nap * (1 + way as u32)).as_secs_f64() && timing.median() >= timing.min()
            );
            let [shortest, p50, p99] = [0, 50, 99].map(|percent| timing.call_percentile(percent));
            assert!(shortest >= (nap * (1 + way as u32)).as_secs_f64() && p99 >= p50 && p50 >= shortest);
        }
        assert!(calls.iter().all(|&calls| calls > 5), "{calls:?}");
    }
}
