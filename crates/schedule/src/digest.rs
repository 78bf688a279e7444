//! Digests of schedules, to compare the schedules of ranks by a number.

use std::collections::HashMap;

use crate::{Action, Schedule, Slot, SplitMix, StepIndex};

/// Hashes numbers to 64 bits. Against accidents, not against attackers.
///
/// ```
/// use unisono_schedule::{Digest, Shape, find_by_name};
/// let ring = find_by_name("all_reduce/ring").unwrap();
/// let digest = |rank| Digest::of(&ring.schedule(&Shape::new(4), rank)).value();
/// assert!(digest(0) == digest(0) && digest(0) != digest(1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(u64);

impl Digest {
    /// This digest with one more number.
    #[must_use]
    pub const fn number(self, number: u64) -> Self {
        Self(SplitMix(self.0 ^ number).next_u64())
    }

    /// This digest with one more text.
    #[must_use]
    pub fn text(self, text: &str) -> Self {
        text.bytes().fold(self.number(text.len() as u64), |digest, byte| digest.number(byte.into()))
    }

    /// The digest of a schedule.
    pub fn of(schedule: &Schedule) -> Self {
        Self::default().schedule(schedule)
    }

    /// The digest of a list of digests.
    pub fn of_all(digests: impl Iterator<Item = u64>) -> Self {
        digests.fold(Self::default(), Self::number)
    }

    /// A checksum that adds up to 0 over all ranks if every send has its receive. For each link, sends add a hash of
    /// the link and of its extents in order, and receives subtract that hash. Checksums that are added together need
    /// different `seed`s.
    pub fn balance(schedule: &Schedule, seed: u64) -> u64 {
        let mut links: HashMap<(u32, bool), Digest> = HashMap::new();
        for step in &schedule.steps {
            if let Some((peer, sends)) = step.action.link() {
                let (rank, peer) = (schedule.rank, u32::from(peer));
                let (from, to) = if sends { (rank, peer) } else { (peer, rank) };
                let new = || Digest::default().number(seed).number(from.into()).number(to.into());
                let link = links.entry((peer, sends)).or_insert_with(new);
                *link = link.number(step.extent.into());
            }
        }
        links.into_iter().fold(0, |sum: u64, ((_, sends), link)| match sends {
            true => sum.wrapping_add(link.value()),
            false => sum.wrapping_sub(link.value()),
        })
    }

    fn schedule(self, schedule: &Schedule) -> Self {
        let sizes = [schedule.rank, schedule.chunks, schedule.scratch_chunks];
        let sizes = sizes.into_iter().fold(self, |digest, size| digest.number(size.into()));
        let sizes = sizes.number(schedule.steps.len() as u64);
        schedule.indexed().fold(sizes, |digest, (index, step)| {
            let digest = digest.number(step.extent.into()).action(step.action);
            let earlier = schedule.dependencies(index);
            let digest = digest.number(earlier.len() as u64);
            earlier
                .iter()
                .fold(digest, |digest: Self, earlier: &StepIndex| digest.number(earlier.index() as u64))
        })
    }

    fn action(self, action: Action) -> Self {
        match action {
            Action::Send { peer, source } => self.number(1).number(peer.into()).slot(source),
            Action::Recv { peer, destination } => self.number(2).number(peer.into()).slot(destination),
            Action::RecvReduce { peer, operand, destination, operand_is_left, completes } => {
                let flags = u64::from(operand_is_left) | u64::from(completes) << 1;
                self.number(3).number(peer.into()).slot(operand).slot(destination).number(flags)
            }
            Action::Copy { source, destination } => self.number(4).slot(source).slot(destination),
        }
    }

    fn slot(self, slot: Slot) -> Self {
        match slot {
            Slot::Input => self.number(0),
            Slot::Output => self.number(1),
            Slot::Scratch(scratch) => self.number(2 + u64::from(scratch)),
        }
    }

    /// The digest as a number.
    pub const fn value(self) -> u64 {
        self.0
    }
}
