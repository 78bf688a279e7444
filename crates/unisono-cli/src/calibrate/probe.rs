//! The calls that a calibration times between two ranks, and the measurement of each.
//!
//! All of them are collectives: point-to-point messages take another path through the library than schedules do.

use std::ops::RangeInclusive;
use std::time::Duration;

use unisono::{Collectives, Communicator, ReduceOp, Result};

use super::cache::last_level_bytes;
use crate::bench::timing::{Effort, Timing, time};

/// The smallest message.
const SMALL: usize = 1;
/// Elements of a bulk message: 4 MiB of f32, more than a core's own caches hold.
const BULK: usize = 1 << 20;
/// Blocks of 5 ms of each probe, in turns.
const EFFORT: Effort = Effort { blocks_max: 31, time: Duration::from_secs(1) };
/// For the probes of vectors that no cache holds; one call of these may take longer than a block.
const FAR_EFFORT: Effort = Effort { blocks_max: 31, time: Duration::from_millis(300) };
/// The bytes of these vectors: twice the last-level cache, within limits that leave room and time on any machine.
const FAR_BYTES: RangeInclusive<u64> = (16 << 20)..=(256 << 20);
/// The size of the last-level cache if nobody says it.
const CACHE_BYTES_DEFAULT: u64 = 32 << 20;

/// A measurement between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// A small message there and back; a call is one way. Both ranks wait for each other.
    Turns,
    /// Small messages one way, one after the other; no rank waits for an answer.
    Stream,
    /// A long message one way.
    OneWay,
    /// A long message both ways at once.
    BothWays,
    /// A vector one way that no cache holds.
    Stored,
    /// The same, summed by its receiver.
    Summed,
}

impl Probe {
    pub(crate) const ALL: [Probe; 6] =
        [Probe::Turns, Probe::Stream, Probe::OneWay, Probe::BothWays, Probe::Stored, Probe::Summed];

    /// The probes whose vectors are longer than any cache. Within a cache a sum may hide behind the transfer, and then
    /// costs nothing. Their times count for each byte.
    const FAR: [Probe; 2] = [Probe::Stored, Probe::Summed];

    /// The probes that are also useful on one core.
    pub(crate) const ON_ONE_CORE: [Probe; 2] = [Probe::Turns, Probe::Stream];

    fn call(self, pair: &dyn Communicator, index: u64, memory: &mut [f32]) -> Result<()> {
        match self {
            Probe::Turns => pair.broadcast(&mut memory[..SMALL], (index % 2) as u32),
            Probe::Stream => pair.broadcast(&mut memory[..SMALL], 0),
            Probe::OneWay => pair.broadcast(&mut memory[..BULK], 0),
            Probe::BothWays => pair.all_gather_in_place(memory),
            Probe::Stored => pair.broadcast(memory, 0),
            Probe::Summed => pair.reduce_in_place(memory, ReduceOp::Sum, 1),
        }
    }

    /// Bytes that one rank sends in the time that is given.
    pub(crate) fn bytes(self) -> f64 {
        match self {
            Probe::Turns | Probe::Stream => (SMALL * size_of::<f32>()) as f64,
            Probe::OneWay | Probe::BothWays => (BULK * size_of::<f32>()) as f64,
            Probe::Stored | Probe::Summed => 1.0,
        }
    }
}

/// Times all probes between the two ranks of `pair`, in turns. Collective.
pub(crate) fn measure(pair: &dyn Communicator) -> Result<Vec<Timing>> {
    let far = Probe::FAR.len();
    let near = &Probe::ALL[..Probe::ALL.len() - far];
    let mut timings = timed(pair, EFFORT, near, 2 * BULK)?;
    let elements = far_elements(pair)?;
    let bytes = (elements * size_of::<f32>()) as f64;
    let of_byte =
        |timing: Timing| Timing::new(timing.into_seconds().iter().map(|call| call / bytes).collect());
    timings.extend(timed(pair, FAR_EFFORT, &Probe::FAR, elements)?.into_iter().map(of_byte));
    Ok(timings)
}

/// Times these probes with this many elements of memory. Collective.
fn timed(pair: &dyn Communicator, effort: Effort, probes: &[Probe], elements: usize) -> Result<Vec<Timing>> {
    // Not 0: pages that nobody has written are all one page, which every cache holds.
    let mut memory = vec![1.0; elements];
    for probe in probes {
        probe.call(pair, 0, &mut memory)?;
    }
    time(pair, effort, probes.len(), |way, index| probes[way].call(pair, index, &mut memory))
}

/// The elements of a vector that no cache of either rank holds. Collective.
fn far_elements(pair: &dyn Communicator) -> Result<usize> {
    let mut bytes = [last_level_bytes().unwrap_or(CACHE_BYTES_DEFAULT).saturating_mul(2)];
    pair.all_reduce(&mut bytes, ReduceOp::Max)?;
    let bytes = bytes[0].clamp(*FAR_BYTES.start(), *FAR_BYTES.end());
    Ok(bytes as usize / size_of::<f32>())
}

/// Times the probes of small messages between two ranks that share one core; `None` where a thread cannot be bound to
/// a core. Collective.
pub(crate) fn measure_on_one_core(pair: &dyn Communicator) -> Result<Option<Vec<Timing>>> {
    let pinned = one_core::Pinned::here();
    let mut all_pinned = [u8::from(pinned.is_some())];
    pair.all_reduce(&mut all_pinned, ReduceOp::Min)?;
    if all_pinned[0] == 0 {
        return Ok(None);
    }
    let mut memory = [0.0; SMALL];
    let probes = Probe::ON_ONE_CORE;
    time(pair, EFFORT, probes.len(), |way, index| probes[way].call(pair, index, &mut memory)).map(Some)
}

mod one_core {
    #[cfg(target_os = "linux")]
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    /// This thread runs on the first of its cores only, until this is dropped.
    pub(super) struct Pinned {
        #[cfg(target_os = "linux")]
        before: CpuSet,
    }

    impl Pinned {
        #[cfg(target_os = "linux")]
        pub(super) fn here() -> Option<Pinned> {
            let before = sched_getaffinity(None).ok()?;
            let first = (0..CpuSet::MAX_CPU).find(|&core| before.is_set(core))?;
            let mut one = CpuSet::new();
            one.set(first);
            sched_setaffinity(None, &one).ok()?;
            Some(Pinned { before })
        }

        #[cfg(not(target_os = "linux"))]
        pub(super) fn here() -> Option<Pinned> {
            None
        }
    }

    #[cfg(target_os = "linux")]
    impl Drop for Pinned {
        fn drop(&mut self) {
            // A failure does no harm: the process ends soon after.
            let _ = sched_setaffinity(None, &self.before);
        }
    }
}
