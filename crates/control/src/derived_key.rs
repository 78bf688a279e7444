//! The key of a communicator that was made from another one. Every rank computes it, so no message is needed.

use unisono_communicator::{GroupOptions, JobRank};

use super::hash::hash;
use super::local_communicators::ID_LIST_BITS;
use super::wire::CommunicatorKey;

/// The way in which a communicator was made from another one, and its number among communicators of that kind, from 0.
#[derive(Clone, Copy)]
pub enum Origin {
    /// A subgroup or a duplicate.
    Derive(u64),
    /// The survivors, in the next epoch.
    Shrink(u64),
    /// A group that only its members have made.
    Named {
        /// The hash of its name.
        name: u64,
        /// The number of earlier uses of the name.
        uses: u64,
    },
}

/// The key of a communicator that every rank computes for itself. The low bits depend on the ranks, the others on
/// how it came about, so that two sides that called with different lists meet and notice.
pub fn derived_key(
    parent: CommunicatorKey,
    origin: Origin,
    (ranks, options): (&[JobRank], &GroupOptions),
) -> CommunicatorKey {
    let (kind, name, counter, epoch) = match origin {
        Origin::Derive(counter) => (0, 0, counter, parent.epoch),
        Origin::Shrink(number) => (1, 0, number, parent.epoch + 1),
        Origin::Named { name, uses } => (2, name, uses, parent.epoch),
    };
    // Ranks that disagree about the parent meet in its children, too: the first call may be there.
    let low = (1 << ID_LIST_BITS) - 1;
    let origin = hash([parent.id & !low, parent.epoch.into(), kind, name, counter].into_iter());
    // Each text with its end, so that a text cannot go over into the next.
    let options = options
        .texts()
        .into_iter()
        .flat_map(|text| text.into_bytes().into_iter().map(u64::from).chain([256]).collect::<Vec<_>>());
    let list = hash(ranks.iter().map(|rank| rank.get().into()).chain(options));
    CommunicatorKey { id: origin & !low | list & low, epoch }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_origin_and_list_apart() {
        let world = CommunicatorKey { id: 0, epoch: 0 };
        let list = |ranks: [u32; 2]| ranks.map(JobRank::new);
        let key = |counter, ranks| {
            derived_key(world, Origin::Derive(counter), (&list(ranks), &GroupOptions::new()))
        };
        let origin = |key: CommunicatorKey| key.id >> ID_LIST_BITS;
        assert_eq!(key(0, [0, 1]), key(0, [0, 1]));
        assert_eq!(origin(key(0, [0, 1])), origin(key(0, [1, 0])));
        assert_ne!(key(0, [0, 1]), key(0, [1, 0]));
        let labelled = (&list([0, 1])[..], &GroupOptions::new().label("x"));
        let labelled = derived_key(world, Origin::Derive(0), labelled);
        assert!(origin(labelled) == origin(key(0, [0, 1])) && labelled != key(0, [0, 1]), "as another list");
        let shrunk = derived_key(world, Origin::Shrink(0), (&list([0, 1]), &GroupOptions::new()));
        assert!(shrunk.epoch == 1 && origin(shrunk) != origin(key(0, [0, 1])));
        let named = |name, uses| {
            derived_key(world, Origin::Named { name, uses }, (&list([0, 1]), &GroupOptions::new()))
        };
        assert_eq!(named(5, 0), named(5, 0));
        assert!(origin(named(5, 0)) != origin(named(5, 1)) && origin(named(5, 0)) != origin(named(6, 0)));
        let mut origins: Vec<_> = (0..10_000).map(|counter| origin(key(counter, [0, 1]))).collect();
        origins.sort_unstable();
        origins.dedup();
        assert_eq!(origins.len(), 10_000);
    }
}
