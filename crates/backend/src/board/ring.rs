//! The ring of a communicator's last calls, and the digest of all its calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use unisono_communicator::{CallAlgorithm, CallInfo, Descriptor, ParentCall, Site, Sizes};

use super::last::LastCalls;
use crate::status::CallHistory;

#[derive(Clone, Debug)]
struct CallEntry {
    descriptor: Descriptor,
    /// The algorithm's name and the hash of its schedules; see [`CallAlgorithm`].
    algorithm: Option<(&'static str, u32)>,
    site: Site,
    /// Lengths besides the count.
    sizes: Option<Arc<Sizes>>,
    /// The parent call, if the call is in a scope.
    parent: Option<Arc<ParentCall>>,
}

/// The last entered collectives.
pub struct CallRing {
    entries: LastCalls<CallEntry>,
    entered: AtomicU64,
    /// The digest of all calls so far, over the fields that must be equal on all ranks.
    digest: AtomicU64,
}

impl CallRing {
    pub(super) fn new() -> CallRing {
        let entries = LastCalls::default();
        // A call allocates nothing.
        entries.allocate();
        CallRing { entries, entered: AtomicU64::new(0), digest: AtomicU64::new(0) }
    }

    /// Enters a collective and gives its number. Calls enter one at a time. `algorithm` is `None` if not known yet;
    /// `sizes` are lengths besides the count.
    #[inline]
    pub fn enter(
        &self,
        descriptor: &Descriptor,
        algorithm: Option<(&'static str, u32)>,
        sizes: Option<&Arc<Sizes>>,
        site: Site,
        parent: Option<&Arc<ParentCall>>,
    ) -> u64 {
        let number = self.entered.load(Ordering::Relaxed);
        let (sizes, parent) = (sizes.cloned(), parent.cloned());
        self.entries.set(number, CallEntry { descriptor: *descriptor, algorithm, site, sizes, parent });
        self.entered.store(number + 1, Ordering::Release);
        number
    }

    /// The number of entered collectives.
    pub fn entered(&self) -> u64 {
        self.entered.load(Ordering::Acquire)
    }

    /// Records the digest of all calls so far; see [`crate::mix_digest`].
    pub fn set_digest(&self, digest: u64) {
        self.digest.store(digest, Ordering::Release);
    }

    /// This rank's report when it closes.
    pub fn history(&self) -> CallHistory {
        CallHistory { calls: self.entered(), digest: self.digest.load(Ordering::Acquire) }
    }

    /// The call with this number, if the ring remembers it.
    pub fn info(&self, number: u64) -> Option<CallInfo> {
        let entry = self.entries.with(number, |entry| entry.clone())?;
        let CallEntry { descriptor, sizes, parent, .. } = entry;
        let named = |(name, schedules): (&'static str, u32)| CallAlgorithm { name: name.into(), schedules };
        let (algorithm, site) = (entry.algorithm.map(named), entry.site.text());
        Some(CallInfo { number, descriptor, algorithm, site, sizes, parent })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use unisono_communicator::{Collective, Counts, DType};

    use super::*;
    use crate::board::CALLS_REMEMBERED;

    #[test]
    fn the_sizes_of_a_call_are_remembered_with_it() {
        let ring = CallRing::new();
        let gather = Descriptor { uneven: true, ..Descriptor::new(Collective::AllGather, DType::U8, 3) };
        for call in 0..3 * CALLS_REMEMBERED as u64 {
            let counts = Counts::PerRank(vec![call, 3]);
            let sizes = Sizes::of(DType::U8, &counts, None).filter(|_| call % 2 == 0).map(Arc::new);
            let number = ring.enter(&gather, None, sizes.as_ref(), Site::caller(), None);
            assert_eq!(ring.info(number).unwrap().sizes, sizes);
            let oldest = (call + 1).saturating_sub(CALLS_REMEMBERED as u64);
            let has_sizes = ring.info(oldest).unwrap().sizes.is_some();
            assert_eq!(has_sizes, oldest % 2 == 0, "call {oldest} at {call}");
        }
    }

    #[test]
    fn a_part_of_a_scope_is_never_taken_for_a_plain_call() {
        let ring = CallRing::new();
        let barrier = Descriptor::new(Collective::Barrier, DType::U8, 0);
        let parent = Arc::new(ParentCall::new("whole", barrier));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for _ in 0..300 * CALLS_REMEMBERED {
                    ring.enter(&barrier, None, None, Site::caller(), Some(&parent));
                }
                is_over.store(true, Ordering::SeqCst);
            });
            while !is_over.load(Ordering::SeqCst) {
                let oldest = ring.entered().saturating_sub(CALLS_REMEMBERED as u64);
                let parents = (oldest..oldest + 4).filter_map(|number| Some(ring.info(number)?.parent));
                parents.for_each(|parent| assert!(parent.is_some()));
            }
        });
    }
}
