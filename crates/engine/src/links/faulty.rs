//! Links that misbehave by plan: they deliver a few bytes at a time, pretend not to be ready, and break.

use std::io::{self, ErrorKind};

use crate::links::tapped::{Flow, Tap, Tapped};
use crate::links::{Edge, Links};

/// What goes wrong. The same plan does the same to the same sequence of calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultPlan {
    /// Start of the random sequence.
    pub seed: u64,
    /// Each call moves 1 to this many bytes.
    pub bytes_per_call_max: Option<usize>,
    /// How often a link pretends not to be ready.
    pub would_block_percent: u8,
    /// After so many bytes in both directions together, every link is broken.
    pub cut_after_bytes: Option<u64>,
}

/// The tap of [`Faulty`] links.
pub struct Faults {
    plan: FaultPlan,
    state: u64,
    moved_bytes: u64,
    has_hidden: bool,
}

/// Links that misbehave by plan.
pub type Faulty<K> = Tapped<K, Faults>;

impl<K: Links> Faulty<K> {
    /// Disturbs `links` according to `plan`.
    pub fn new(links: K, plan: FaultPlan) -> Faulty<K> {
        Tapped::with_tap(links, Faults { plan, state: plan.seed, moved_bytes: 0, has_hidden: false })
    }
}

impl Faults {
    /// The next number of the sequence (SplitMix64: Steele, Lea, Flood, OOPSLA 2014).
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Tap for Faults {
    fn before(&mut self, _edge: Edge, _flow: Flow, bytes: usize) -> io::Result<usize> {
        if self.plan.cut_after_bytes.is_some_and(|cut| self.moved_bytes >= cut) {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if self.random() % 100 < u64::from(self.plan.would_block_percent) {
            self.has_hidden = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(match self.plan.bytes_per_call_max {
            Some(max) => bytes.min(1 + (self.random() % max.max(1) as u64) as usize),
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
