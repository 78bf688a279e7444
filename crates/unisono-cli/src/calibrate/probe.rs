//! The calls that a calibration times between two ranks, and what each of them measures.
//!
//! All of them are collectives: point-to-point messages take another path through the library than schedules do.

use std::time::Duration;

use unisono::{Collectives, Communicator, ReduceOp, Result};

use crate::bench::timing::{Effort, Timing, time};

/// The smallest message.
const SMALL: usize = 1;
/// Elements of a bulk message: 4 MiB of f32, more than a core's own caches hold.
const BULK: usize = 1 << 20;
/// Blocks of 5 ms of each probe, in turns.
const EFFORT: Effort = Effort { blocks_max: 31, time: Duration::from_secs(1) };

/// What is timed.
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
    /// A long message one way, summed by its receiver.
    Summed,
}

impl Probe {
    pub(crate) const ALL: [Probe; 5] =
        [Probe::Turns, Probe::Stream, Probe::OneWay, Probe::BothWays, Probe::Summed];

    /// The probes that are also useful on one core.
    pub(crate) const ON_ONE_CORE: [Probe; 2] = [Probe::Turns, Probe::Stream];

    fn call(self, pair: &dyn Communicator, index: u64, memory: &mut [f32]) -> Result<()> {
        match self {
            Probe::Turns => pair.broadcast(&mut memory[..SMALL], (index % 2) as u32),
            Probe::Stream => pair.broadcast(&mut memory[..SMALL], 0),
            Probe::OneWay => pair.broadcast(&mut memory[..BULK], 0),
            Probe::BothWays => pair.all_gather_in_place(memory),
            Probe::Summed => pair.reduce_in_place(&mut memory[..BULK], ReduceOp::Sum, 1),
        }
    }

    /// Bytes that one rank sends in a call.
    pub(crate) fn bytes(self) -> f64 {
        let elements = match self {
            Probe::Turns | Probe::Stream => SMALL,
            Probe::OneWay | Probe::BothWays | Probe::Summed => BULK,
        };
        (elements * size_of::<f32>()) as f64
    }
}

/// Times all probes between the two ranks of `pair`, in turns. Collective.
pub(crate) fn measure(pair: &dyn Communicator) -> Result<Vec<Timing>> {
    let mut memory = vec![0.0; 2 * BULK];
    for probe in Probe::ALL {
        probe.call(pair, 0, &mut memory)?;
    }
    time(pair, EFFORT, Probe::ALL.len(), |way, index| Probe::ALL[way].call(pair, index, &mut memory))
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
