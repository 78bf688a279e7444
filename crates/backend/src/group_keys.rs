//! Groups that only their members make: the list of ranks behind a key, and the number of uses of the key.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;

use unisono_communicator::{Error, Group, GroupOptions, GroupRank, JobRank, Result};

use crate::lock;

/// The keys that this rank has used in a job. Members count the uses of a key as long as the job lives, also after its
/// groups have ended: a member that began to count again would not meet the others. So a key costs 24 bytes, however
/// long it and its list are: hashes stand for both.
#[derive(Default)]
pub struct GroupKeys {
    used: Mutex<HashMap<u64, UsedKey>>,
    hasher: RandomState,
}

struct UsedKey {
    /// The hash of its list of ranks.
    ranks: u64,
    uses: u64,
}

impl GroupKeys {
    /// Notes that this rank of `job` makes a group of `ranks` under `key`. Gives the members, and the number of groups
    /// that this rank made under the key before. All members get the same number, since a key stands for one list.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a rank outside the job, a rank twice, a list without this rank, and a list that
    /// differs from the key's. A refused use is not noted.
    pub fn note_use(&self, key: &str, ranks: &[u32], job: &Group) -> Result<(Vec<GroupRank>, u64)> {
        let members = members(ranks, job.size())?;
        if !members.contains(&job.own_rank()) {
            let problem =
                format!("{ranks:?}, but only members make a group, and this is rank {}", job.rank());
            return Err(Error::invalid("ranks", problem));
        }
        let (name, list) = (self.hasher.hash_one(key), self.hasher.hash_one(ranks));
        let mut used = lock(&self.used);
        let known = used.entry(name).or_insert(UsedKey { ranks: list, uses: 0 });
        if known.ranks != list {
            let problem = format!("{ranks:?}, but the key {key:?} stands for another list of ranks");
            return Err(Error::invalid("ranks", problem));
        }
        known.uses += 1;
        Ok((members, known.uses - 1))
    }
}

/// The ranks of a list, in a group of `size` ranks.
///
/// # Errors
/// [`Error::InvalidArgument`] for a rank that does not exist or comes twice.
pub(crate) fn members(ranks: &[u32], size: u32) -> Result<Vec<GroupRank>> {
    for (position, &rank) in ranks.iter().enumerate() {
        if rank >= size {
            let problem = format!("{rank}, but the group has ranks 0 to {}", size - 1);
            return Err(Error::invalid("ranks", problem));
        }
        if ranks[..position].contains(&rank) {
            return Err(Error::invalid("ranks", format!("{rank} twice")));
        }
    }
    Ok(ranks.iter().copied().map(GroupRank::new).collect())
}

/// The request of its members, which must be the same for all, as a person reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupText {
    /// The list of ranks.
    pub list: String,
    /// As [`GroupOptions::texts`].
    pub options: [String; 6],
}

impl GroupText {
    /// Of a group.
    pub fn of(group: &Group) -> GroupText {
        GroupText { list: list_text(group.job_ranks()), options: group.options().texts() }
    }

    /// The names of the options that differ.
    fn differing<'t>(&'t self, other: &'t GroupText) -> impl Iterator<Item = &'static str> + 't {
        let pairs = GroupOptions::NAMES.into_iter().zip(self.options.iter().zip(&other.options));
        pairs.filter(|(_, (own, other))| own != other).map(|(name, _)| name)
    }

    /// With the options of these names.
    fn with(&self, names: &[&'static str]) -> String {
        let set = GroupOptions::NAMES.into_iter().zip(&self.options).filter(|(name, _)| names.contains(name));
        let shown = set.map(|(name, text)| match text.as_str() {
            "" => format!(", no {name}"),
            text => format!(", {name} {text:?}"),
        });
        [self.list.clone()].into_iter().chain(shown).collect()
    }
}

/// The error of two ranks that have made one group from different lists, or with different options.
pub fn different_groups(
    (our_rank, ours): (impl Display, &GroupText),
    (their_rank, theirs): (impl Display, &GroupText),
) -> Error {
    let names: Vec<&str> = ours.differing(theirs).collect();
    let (ours, theirs) = (ours.with(&names), theirs.with(&names));
    let problem = format!(
        "the ranks asked for different groups: rank {our_rank} of the job for {ours}; rank {their_rank} for {theirs}"
    );
    Error::Refused { problem }
}

/// The most ranks that a text of a list shows.
const RANKS_SHOWN_MAX: usize = 24;

/// The text of a list for [`GroupText`].
pub fn list_text(ranks: &[JobRank]) -> String {
    let shown: Vec<String> = ranks.iter().take(RANKS_SHOWN_MAX).map(JobRank::to_string).collect();
    let more =
        if ranks.len() > RANKS_SHOWN_MAX { format!(", ... {} in all", ranks.len()) } else { String::new() };
    format!("[{}{more}]", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_key_stands_for_one_list_and_counts_its_uses() {
        let (keys, job) = (GroupKeys::default(), Group::world(1, 4));
        let note = |key: &str, ranks: &[u32]| keys.note_use(key, ranks, &job);
        for uses in 0..3 {
            assert_eq!(note("a", &[3, 1]).unwrap(), (vec![GroupRank::new(3), GroupRank::new(1)], uses));
        }
        assert_eq!(note("", &[1]).unwrap().1, 0, "an empty key is one like any other");
        let bad: [(&str, &[u32], &str); 5] = [
            ("b", &[0, 2], "this is rank 1"),
            ("b", &[1, 4], "ranks 0 to 3"),
            ("b", &[1, 1], "1 twice"),
            ("b", &[], "this is rank 1"),
            ("a", &[1, 3], "[1, 3], but the key \"a\" stands for another list"),
        ];
        for (key, ranks, text) in bad {
            let error = note(key, ranks).unwrap_err();
            assert!(error.is_before_start() && error.to_string().contains(text), "{error}");
        }
        assert_eq!(note("a", &[3, 1]).unwrap().1, 3, "a refused use does not count");
    }

    #[test]
    fn a_difference_names_the_option() {
        let text = |options: GroupOptions| GroupText::of(&Group::world(0, 2).with_options(options));
        let ours = text(GroupOptions::new().label("a, b").timeout(Duration::from_secs(5)));
        let theirs = text(GroupOptions::new().label("a, b").algorithm("ring"));
        let error = different_groups((3, &ours), (1, &theirs)).to_string();
        let expected = "rank 3 of the job for [0, 1], timeout \"5s\", no algorithm; \
                        rank 1 for [0, 1], no timeout, algorithm \"ring\"";
        assert!(error.ends_with(expected), "{error}");
    }
}
