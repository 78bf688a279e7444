//! Links that misbehave by plan: they move few bytes at a time, pretend not to be ready, and break.

use std::io::{self, ErrorKind};

use unisono_schedule::SplitMix;

use crate::links::tapped::{Flow, Tap, Tapped};
use crate::links::{Edge, Links};

/// The faults of a rank's links. The same plan and the same sequence of calls give the same faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultPlan {
    /// The seed of the random numbers.
    pub seed: u64,
    /// The most bytes of one call; each call moves at least 1.
    pub bytes_per_call_max: Option<usize>,
    /// The percentage of calls in which a link pretends not to be ready.
    pub would_block_percent: u8,
    /// The number of bytes, over all links and both directions, after which every link breaks.
    pub cut_after_bytes: Option<u64>,
}

/// The tap of [`Faulty`] links.
pub struct Faults {
    plan: FaultPlan,
    random: SplitMix,
    moved_bytes: u64,
    has_hidden: bool,
}

/// Links that misbehave by plan.
pub type Faulty<K> = Tapped<K, Faults>;

impl<K: Links> Faulty<K> {
    /// Disturbs `links` according to `plan`.
    pub fn new(links: K, plan: FaultPlan) -> Faulty<K> {
        Tapped::with_tap(
            links,
            Faults { plan, random: SplitMix(plan.seed), moved_bytes: 0, has_hidden: false },
        )
    }
}

impl Tap for Faults {
    fn before(&mut self, _edge: Edge, _flow: Flow, bytes: usize) -> io::Result<usize> {
        if self.plan.cut_after_bytes.is_some_and(|cut| self.moved_bytes >= cut) {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if self.random.below(100) < usize::from(self.plan.would_block_percent) {
            self.has_hidden = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(match self.plan.bytes_per_call_max {
            Some(max) => bytes.min(1 + self.random.below(max.max(1))),
            None => bytes,
        })
    }

    fn after(&mut self, _edge: Edge, _flow: Flow, bytes: usize) {
        self.moved_bytes += bytes as u64;
    }

    fn forbids_sleep(&mut self) -> bool {
        std::mem::take(&mut self.has_hidden)
    }
}
