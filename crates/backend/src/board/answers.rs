//! The answers of other ranks about calls that make no progress, and from them the ranks that hold up the others.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use unisono_communicator::{Awaited, Group, GroupRank};

use crate::lock;

/// The answers that one rank has received.
pub struct Answers {
    rank: GroupRank,
    /// The last answer of each rank.
    notes: Mutex<Vec<Option<Note>>>,
    /// The number of rounds of questions so far.
    rounds: AtomicU64,
    suspicion: Mutex<Option<Suspicion>>,
}

/// The answer of a rank about a call.
#[derive(Clone, Debug)]
struct Note {
    number: u64,
    round: u64,
    status: String,
    awaited: Option<GroupRank>,
}

/// A mismatch that a header has shown. It waits for the header's sender to describe its call.
struct Suspicion {
    rank: GroupRank,
    number: u64,
    difference: String,
}

impl Answers {
    /// Rank `rank`, in a communicator of `ranks` ranks, before any answer.
    pub(crate) fn new(rank: GroupRank, ranks: u32) -> Answers {
        Answers {
            rank,
            notes: Mutex::new(vec![None; ranks as usize]),
            rounds: AtomicU64::new(0),
            suspicion: Mutex::new(None),
        }
    }

    /// Begins a new round of questions.
    pub fn begin_round(&self) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the answer of a rank about call `number`: its status in words, and the rank that it waits for.
    pub(crate) fn note(&self, rank: GroupRank, number: u64, status: String, awaited: Option<GroupRank>) {
        let round = self.rounds.load(Ordering::Relaxed);
        if let Some(note) = lock(&self.notes).get_mut(rank.index()) {
            *note = Some(Note { number, round, status, awaited });
        }
    }

    /// Whether `rank` has answered about call `number` in this round of questions.
    pub(crate) fn is_asked(&self, rank: GroupRank, number: u64) -> bool {
        let round = self.rounds.load(Ordering::Relaxed);
        let notes = lock(&self.notes);
        let note = notes.get(rank.index()).and_then(Option::as_ref);
        rank == self.rank || note.is_some_and(|note| (note.number, note.round) == (number, round))
    }

    /// The last answer of a rank about call `number`, in words.
    pub fn text(&self, rank: GroupRank, number: u64) -> String {
        let notes = lock(&self.notes);
        let note = notes.get(rank.index()).and_then(Option::as_ref);
        let status = note.filter(|note| note.number == number).map(|note| note.status.clone());
        status.unwrap_or_else(|| "has not answered".to_owned())
    }

    /// The rank for which a rank waits, by its last answer about call `number`.
    fn awaited_by(&self, rank: GroupRank, number: u64) -> Option<GroupRank> {
        let notes = lock(&self.notes);
        let note = notes.get(rank.index()).and_then(Option::as_ref);
        note.filter(|note| note.number == number).and_then(|note| note.awaited)
    }

    /// The ranks that hold up call `number` if it waits for `direct`: these ranks, and the ranks for which they wait in
    /// turn by their answers. Ranks that wait for nobody come first, since they hold up the others.
    pub fn awaited_in_turn(&self, direct: Vec<GroupRank>, number: u64) -> Vec<GroupRank> {
        let (mut ranks, mut next) = (direct, 0);
        while let Some(&rank) = ranks.get(next) {
            let awaited = self.awaited_by(rank, number);
            ranks.extend(awaited.filter(|awaited| *awaited != self.rank && !ranks.contains(awaited)));
            next += 1;
        }
        ranks.sort_by_cached_key(|rank| self.awaited_by(*rank, number).is_some());
        ranks
    }

    /// A circle of ranks that wait for each other, in its order. The search follows the answers, starting from
    /// `direct`.
    fn circle(&self, direct: &[GroupRank], number: u64) -> Option<Vec<GroupRank>> {
        direct.iter().find_map(|&first| {
            let (mut path, mut next) = (vec![self.rank], Some(first));
            while let Some(rank) = next {
                if let Some(start) = path.iter().position(|passed| *passed == rank) {
                    return Some(path.split_off(start));
                }
                path.push(rank);
                next = self.awaited_by(rank, number);
            }
            None
        })
    }

    /// Whether a rank has answered about call `number` that it waits for nobody.
    fn waits_for_nobody(&self, rank: GroupRank, number: u64) -> bool {
        let notes = lock(&self.notes);
        let note = notes.get(rank.index()).and_then(Option::as_ref);
        note.is_some_and(|note| note.number == number && note.awaited.is_none())
    }

    /// The ranks of [`Answers::awaited_in_turn`] for the error of a deadline. The first entry also names a circle of
    /// ranks that wait for each other, if there is one and no rank waits for nobody: a rank may wait for several ranks
    /// and tells one of them, so a circle proves nothing beside a rank that holds up the others.
    pub fn not_arrived(&self, group: &Group, direct: Vec<GroupRank>, number: u64) -> Vec<Awaited> {
        let circle = self.circle(&direct, number);
        let ranks = self.awaited_in_turn(direct, number);
        let circle = circle.filter(|_| !ranks.iter().any(|rank| self.waits_for_nobody(*rank, number)));
        let status = |rank| Awaited { rank: group.job_rank(rank), status: self.text(rank, number) };
        let mut list: Vec<Awaited> = ranks.into_iter().map(status).collect();
        if let (Some(first), Some(circle)) = (list.first_mut(), circle) {
            first.status += &circle_text(&circle, group);
        }
        list
    }

    /// Records a difference between our call `number` and that of `rank`, which a header has shown.
    pub(crate) fn suspect(&self, rank: GroupRank, number: u64, difference: &str) {
        *lock(&self.suspicion) = Some(Suspicion { rank, number, difference: difference.to_owned() });
    }

    /// The recorded difference between our call `number` and that of `rank`.
    pub(crate) fn suspicion(&self, rank: GroupRank, number: u64) -> Option<String> {
        let suspicion = lock(&self.suspicion);
        let is_it = |one: &&Suspicion| (one.rank, one.number) == (rank, number);
        suspicion.as_ref().filter(is_it).map(|one| one.difference.clone())
    }
}

/// "; ranks 0 -> 1 -> 0 wait for each other".
fn circle_text(circle: &[GroupRank], group: &Group) -> String {
    let ranks = circle.iter().chain(circle.first()).map(|rank| group.job_rank(*rank).to_string());
    format!("; ranks {} wait for each other", ranks.collect::<Vec<_>>().join(" -> "))
}

#[cfg(test)]
mod tests {
    use unisono_communicator::JobRank;

    use super::*;

    #[test]
    fn the_rank_that_waits_for_nobody_is_named_before_its_victims() {
        let [own, one, two, three] = [0, 1, 2, 3].map(GroupRank::new);
        let answers = Answers::new(own, 4);
        answers.note(one, 7, "waits for rank 0".into(), Some(own));
        answers.note(two, 7, "waits for rank 3".into(), Some(three));
        assert_eq!(answers.awaited_in_turn(vec![one, two], 7), [three, one, two]);
        answers.note(three, 7, "has not called".into(), None);
        assert_eq!(answers.awaited_in_turn(vec![two, one], 7), [three, two, one]);
        assert_eq!(
            answers.awaited_in_turn(vec![two, one], 8),
            [two, one],
            "nothing is known about another call"
        );
    }

    #[test]
    fn ranks_that_wait_in_a_circle_are_named() {
        let [own, one, two, three] = [0, 1, 2, 3].map(GroupRank::new);
        let group = Group::new(own, [5, 6, 7, 8].map(JobRank::new).into(), [0; 4].into(), 0);
        let answers = Answers::new(own, 4);
        let first = |direct: &[GroupRank]| answers.not_arrived(&group, direct.to_vec(), 7)[0].status.clone();
        assert_eq!(first(&[one]), "has not answered");
        answers.note(one, 7, "is in send".into(), Some(two));
        answers.note(two, 7, "is in send too".into(), Some(own));
        assert_eq!(first(&[one]), "is in send; ranks 5 -> 6 -> 7 -> 5 wait for each other");
        answers.note(two, 7, "is in send too".into(), Some(one));
        assert_eq!(first(&[three, one]), "has not answered; ranks 6 -> 7 -> 6 wait for each other");
        answers.note(three, 7, "has not called".into(), None);
        assert_eq!(first(&[three, one]), "has not called", "it holds up the others");
        answers.note(two, 7, "has not called".into(), None);
        assert_eq!(first(&[one]), "has not called");
    }
}
