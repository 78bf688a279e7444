//! The answers of other ranks about calls that make no progress, and from them the ranks that hold up the others.
//!
//! A rank that waits in a call of another communicator says so, and the questions go on there. So answers may lead
//! through communicators that this rank does not have, and back to this one.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use unisono_communicator::{Awaited, Group, GroupRank, JobRank};

use crate::lock;
use crate::status::CommunicatorKey;

/// The number of answers about calls of other communicators that are kept. A broken rank could lead on without end.
const ELSEWHERE_MAX: usize = 256;

/// The answers that one rank has received.
pub struct Answers {
    rank: GroupRank,
    /// The last answer of each rank in each communicator.
    notes: Mutex<BTreeMap<AnswerPlace, Note>>,
    /// The ranks that were asked last, and about which call.
    asked: Mutex<(u64, Vec<GroupRank>)>,
    /// The number of rounds of questions so far.
    rounds: AtomicU64,
    suspicion: Mutex<Option<Suspicion>>,
}

/// A rank in this communicator, or in another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AnswerPlace {
    Here(GroupRank),
    Elsewhere(JobRank, CommunicatorKey),
}

impl AnswerPlace {
    fn job_rank(self, group: &Group) -> JobRank {
        match self {
            AnswerPlace::Here(rank) => group.job_rank(rank),
            AnswerPlace::Elsewhere(rank, _) => rank,
        }
    }
}

/// The place to which an answer leads, and the collective about which that rank can be asked there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextPlace {
    pub(crate) place: AnswerPlace,
    pub(crate) number: u64,
    /// Whether a message is awaited, and not a part in that collective.
    pub(crate) is_message: bool,
}

/// The answer of a rank about a call.
#[derive(Clone, Debug)]
struct Note {
    number: u64,
    round: u64,
    status: String,
    next: Option<NextPlace>,
}

/// A mismatch that a header has shown. It waits for the header's sender to describe its call.
struct Suspicion {
    rank: GroupRank,
    number: u64,
    difference: String,
}

impl Answers {
    /// Rank `rank`, before any answer.
    pub(crate) fn new(rank: GroupRank) -> Answers {
        Answers {
            rank,
            notes: Mutex::default(),
            asked: Mutex::default(),
            rounds: AtomicU64::new(0),
            suspicion: Mutex::new(None),
        }
    }

    /// Begins a new round of questions about call `number`, which waits for these ranks.
    pub fn begin_round(&self, number: u64, awaited: &[GroupRank]) {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed);
        *lock(&self.asked) = (number, awaited.to_vec());
        // Answers of the last round stay until the answers of the new round have come.
        let is_recent = |place: &AnswerPlace, note: &mut Note| {
            matches!(place, AnswerPlace::Here(_)) || note.round == round
        };
        lock(&self.notes).retain(is_recent);
    }

    /// Records the answer of a rank about call `number`: its status in words, and where it leads.
    pub(crate) fn note(&self, place: AnswerPlace, number: u64, status: String, next: Option<NextPlace>) {
        let round = self.rounds.load(Ordering::Relaxed);
        let mut notes = lock(&self.notes);
        let is_full = || {
            let elsewhere = notes.keys().filter(|place| matches!(place, AnswerPlace::Elsewhere(..)));
            elsewhere.count() >= ELSEWHERE_MAX
        };
        if matches!(place, AnswerPlace::Here(_)) || !is_full() {
            notes.insert(place, Note { number, round, status, next });
        }
    }

    /// The question to a place of another communicator, if an answer leads to its call `number`.
    pub(crate) fn expects(&self, place: AnswerPlace, number: u64) -> Option<NextPlace> {
        let notes = lock(&self.notes);
        notes.values().filter_map(|note| note.next).find(|next| (next.place, next.number) == (place, number))
    }

    /// Whether an answer leads to that call of another communicator.
    pub fn lead_to(&self, rank: JobRank, communicator: CommunicatorKey, number: u64) -> bool {
        self.expects(AnswerPlace::Elsewhere(rank, communicator), number).is_some()
    }

    /// Whether a rank has answered about call `number` in this round of questions.
    pub(crate) fn is_asked(&self, place: AnswerPlace, number: u64) -> bool {
        let round = self.rounds.load(Ordering::Relaxed);
        let notes = lock(&self.notes);
        let note = notes.get(&place);
        place == AnswerPlace::Here(self.rank)
            || note.is_some_and(|note| (note.number, note.round) == (number, round))
    }

    /// The last answer of a rank about call `number`, in words.
    pub fn text(&self, rank: GroupRank, number: u64) -> String {
        self.text_at(AnswerPlace::Here(rank), number)
    }

    fn text_at(&self, place: AnswerPlace, number: u64) -> String {
        let notes = lock(&self.notes);
        let status = notes.get(&place).filter(|note| note.number == number).map(|note| note.status.clone());
        status.unwrap_or_else(|| "has not answered".to_owned())
    }

    /// The place to which the last answer of a rank about call `number` leads.
    fn next_of(&self, (place, number): (AnswerPlace, u64)) -> Option<(AnswerPlace, u64)> {
        let notes = lock(&self.notes);
        let next = notes.get(&place).filter(|note| note.number == number)?.next?;
        Some((next.place, next.number))
    }

    /// The places that hold up call `number` if it waits for `direct`: these ranks, and the places to which their
    /// answers lead. Ranks that wait for nobody come first, since they hold up the others.
    fn awaited_in_turn(&self, direct: &[GroupRank], number: u64) -> Vec<(AnswerPlace, u64)> {
        let mut places: Vec<(AnswerPlace, u64)> =
            direct.iter().map(|&rank| (AnswerPlace::Here(rank), number)).collect();
        let mut at = 0;
        while let Some(&place) = places.get(at) {
            let next = self.next_of(place);
            places
                .extend(next.filter(|next| next.0 != AnswerPlace::Here(self.rank) && !places.contains(next)));
            at += 1;
        }
        places.sort_by_cached_key(|place| self.next_of(*place).is_some());
        places
    }

    /// The ranks that hold up call `number` if it waits for `direct`, each once, with their status in words. Ranks that
    /// wait for nobody come first.
    pub fn held_up_by(&self, group: &Group, direct: &[GroupRank], number: u64) -> Vec<Awaited> {
        let mut list: Vec<Awaited> = Vec::new();
        for (place, number) in self.awaited_in_turn(direct, number) {
            let rank = place.job_rank(group);
            if rank != group.own_job_rank() && list.iter().all(|awaited| awaited.rank != rank) {
                list.push(Awaited { rank, status: self.text_at(place, number) });
            }
        }
        list
    }

    /// A circle of ranks that wait for each other, in its order. The search follows the answers, starting from
    /// `direct`.
    fn circle(&self, direct: &[GroupRank], number: u64) -> Option<Vec<AnswerPlace>> {
        let own = (AnswerPlace::Here(self.rank), number);
        direct.iter().find_map(|&first| {
            let (mut path, mut next) = (vec![own], Some((AnswerPlace::Here(first), number)));
            while let Some(at) = next {
                // This rank waits here in a call of that number, so it makes no later one.
                let is_own = at.0 == own.0 && at.1 >= number;
                let passed = if is_own { Some(0) } else { path.iter().position(|passed| *passed == at) };
                if let Some(start) = passed {
                    return Some(path.split_off(start).into_iter().map(|(place, _)| place).collect());
                }
                path.push(at);
                next = self.next_of(at);
            }
            None
        })
    }

    /// As [`Answers::circle`], unless a rank on the way waits for nobody: a rank may wait for several ranks and tells
    /// one of them, so a circle proves nothing beside a rank that holds up the others.
    fn proven_circle(&self, direct: &[GroupRank], number: u64) -> Option<Vec<AnswerPlace>> {
        let circle = self.circle(direct, number)?;
        let (places, notes) = (self.awaited_in_turn(direct, number), lock(&self.notes));
        let waits_for_nobody = |(place, number): &(AnswerPlace, u64)| {
            notes.get(place).is_some_and(|note| note.number == *number && note.next.is_none())
        };
        (!places.iter().any(waits_for_nobody)).then_some(circle)
    }

    /// The other communicators in which `own`, this rank of the job, is awaited in a circle with the call about which
    /// ranks were asked last.
    pub fn awaited_elsewhere(&self, own: JobRank) -> Vec<CommunicatorKey> {
        let (number, direct) = lock(&self.asked).clone();
        let circle = self.proven_circle(&direct, number).unwrap_or_default();
        let elsewhere = circle.into_iter().filter_map(|place| match place {
            AnswerPlace::Elsewhere(rank, key) if rank == own => Some(key),
            AnswerPlace::Elsewhere(..) | AnswerPlace::Here(_) => None,
        });
        elsewhere.collect()
    }

    /// [`Answers::held_up_by`] for the error of a deadline. The first entry also names a circle of ranks that wait for
    /// each other, if there is one.
    pub fn not_arrived(&self, group: &Group, direct: Vec<GroupRank>, number: u64) -> Vec<Awaited> {
        let circle = self.proven_circle(&direct, number);
        let mut list = self.held_up_by(group, &direct, number);
        if let (Some(first), Some(circle)) = (list.first_mut(), circle) {
            first.status += &circle_text(&circle, group);
        }
        list
    }

    /// Records a difference between our call `number` and the call of `rank`, which a header has shown.
    pub(crate) fn suspect(&self, rank: GroupRank, number: u64, difference: &str) {
        *lock(&self.suspicion) = Some(Suspicion { rank, number, difference: difference.to_owned() });
    }

    /// The recorded difference between our call `number` and the call of `rank`.
    pub(crate) fn suspicion(&self, rank: GroupRank, number: u64) -> Option<String> {
        let suspicion = lock(&self.suspicion);
        let is_it = |one: &&Suspicion| (one.rank, one.number) == (rank, number);
        suspicion.as_ref().filter(is_it).map(|one| one.difference.clone())
    }
}

/// "; ranks 0 -> 1 -> 0 wait for each other". This rank comes first if it is in the circle.
fn circle_text(circle: &[AnswerPlace], group: &Group) -> String {
    let mut ranks: Vec<JobRank> = circle.iter().map(|place| place.job_rank(group)).collect();
    // A rank that waits elsewhere than it is awaited is in the circle once for each.
    ranks.dedup();
    let own = ranks.iter().position(|rank| *rank == group.own_job_rank());
    ranks.rotate_left(own.unwrap_or_default());
    let ranks: Vec<String> = ranks.iter().chain(ranks.first()).map(JobRank::to_string).collect();
    let several = circle.iter().any(|place| matches!(place, AnswerPlace::Elsewhere(..)));
    let how = if several { ", in several communicators" } else { "" };
    format!("; ranks {} wait for each other{how}", ranks.join(" -> "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CommunicatorKey = CommunicatorKey { id: 9, epoch: 0 };

    fn group() -> Group {
        Group::new(GroupRank::new(0), [5, 6, 7, 8].map(JobRank::new).into(), [0; 4].into(), 0)
    }

    /// The answers that rank 5 of the job hears: its communicator has the ranks 5 to 8.
    struct HeardAnswers(Answers);

    impl HeardAnswers {
        fn new() -> HeardAnswers {
            HeardAnswers(Answers::new(GroupRank::new(0)))
        }

        /// Group rank `from` says about call 7 that it is in `status`, which waits for `next` in the same call.
        fn here(&self, from: u32, status: &str, next: Option<u32>) {
            let place = |rank| AnswerPlace::Here(GroupRank::new(rank));
            let next = next.map(|rank| NextPlace { place: place(rank), number: 7, is_message: false });
            self.0.note(place(from), 7, status.to_owned(), next);
        }

        /// The first of the ranks that call 7 waits for.
        fn first(&self, direct: &[u32]) -> String {
            let direct = direct.iter().copied().map(GroupRank::new).collect();
            self.0.not_arrived(&group(), direct, 7)[0].to_string()
        }

        fn named(&self, direct: [u32; 2], number: u64) -> Vec<u32> {
            let list = self.0.held_up_by(&group(), &direct.map(GroupRank::new), number);
            list.iter().map(|awaited| awaited.rank.get()).collect()
        }
    }

    #[test]
    fn the_rank_that_waits_for_nobody_is_named_before_its_victims() {
        let heard = HeardAnswers::new();
        heard.here(1, "waits for rank 5", Some(0));
        heard.here(2, "waits for rank 8", Some(3));
        assert_eq!(heard.named([1, 2], 7), [8, 6, 7]);
        heard.here(3, "has not called", None);
        assert_eq!(heard.named([2, 1], 7), [8, 7, 6]);
        assert_eq!(heard.named([2, 1], 8), [7, 6], "nothing is known about another call");
    }

    #[test]
    fn ranks_that_wait_in_a_circle_are_named() {
        let heard = HeardAnswers::new();
        assert_eq!(heard.first(&[1]), "rank 6 has not answered");
        heard.here(1, "is in send", Some(2));
        heard.here(2, "is in send too", Some(0));
        assert_eq!(heard.first(&[1]), "rank 6 is in send; ranks 5 -> 6 -> 7 -> 5 wait for each other");
        heard.here(2, "is in send too", Some(1));
        assert_eq!(heard.first(&[3, 1]), "rank 8 has not answered; ranks 6 -> 7 -> 6 wait for each other");
        heard.here(3, "has not called", None);
        assert_eq!(heard.first(&[3, 1]), "rank 8 has not called", "it holds up the others");
        heard.here(2, "has not called", None);
        assert_eq!(heard.first(&[1]), "rank 7 has not called");
    }

    /// Rank 6 waits in another communicator for this rank, or for a rank outside this communicator.
    #[test]
    fn a_circle_leads_through_other_communicators() {
        for others in [vec![5], vec![2, 5], vec![2, 3, 5]] {
            let heard = HeardAnswers::new();
            let (mut at, mut number) = (AnswerPlace::Here(GroupRank::new(1)), 7);
            for (rank, of_key) in others.iter().copied().zip(3..) {
                let place = AnswerPlace::Elsewhere(JobRank::new(rank), KEY);
                let next = NextPlace { place, number: of_key, is_message: false };
                heard.0.note(at, number, format!("waits for rank {rank}"), Some(next));
                assert_eq!(heard.0.expects(place, of_key), Some(next));
                assert_eq!(heard.0.expects(place, of_key + 1), None);
                (at, number) = (place, of_key);
            }
            assert!(!heard.first(&[1]).contains("each other"), "this rank has not said what it does there");
            let own = NextPlace { place: AnswerPlace::Here(GroupRank::new(1)), number: 7, is_message: false };
            heard.0.note(at, number, "is here".to_owned(), Some(own));
            let between: String = others.iter().map(|rank| format!(" -> {rank}")).collect();
            let circle = format!("; ranks 5 -> 6{between} wait for each other, in several communicators");
            assert!(heard.first(&[1]).ends_with(&circle), "{} and not {circle}", heard.first(&[1]));
            heard.0.begin_round(7, &[GroupRank::new(1)]);
            assert_eq!(heard.0.awaited_elsewhere(JobRank::new(5)), [KEY]);
            heard.0.note(at, number, "has not called".to_owned(), None);
            assert!(
                heard.0.awaited_elsewhere(JobRank::new(5)).is_empty()
                    && !heard.first(&[1]).contains("each other")
            );
        }
    }

    #[test]
    fn a_rank_that_leads_on_without_end_takes_bounded_memory() {
        let heard = HeardAnswers::new();
        for id in 0..10_000 {
            let place = AnswerPlace::Elsewhere(JobRank::new(1), CommunicatorKey { id, epoch: 0 });
            heard.0.note(place, 0, "leads on".to_owned(), None);
        }
        assert_eq!(lock(&heard.0.notes).len(), ELSEWHERE_MAX);
    }
}
