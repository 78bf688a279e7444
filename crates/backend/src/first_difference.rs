//! Finds the first call in which ranks that have closed a communicator differ.
//!
//! Every rank reports its history when it closes: the number of its calls and a digest. Histories show that ranks
//! differ, but not in which call. So the lowest rank picks one rank for each other history, and asks these ranks about
//! call after call until it finds a difference. It reports the two calls to all ranks, which name them in their errors.

use std::time::Duration;

use unisono_communicator::{CallInfo, Error, GroupRank};

use crate::board::CALLS_REMEMBERED;
use crate::control::{RankHistory, history_difference};
use crate::peers::Peers;
use crate::status::{CallHistory, CallStatus};

/// The longest wait of ranks that have closed after different calls for the result of the search.
pub const SEARCH_MAX: Duration = Duration::from_secs(1);

/// The most ranks that the search asks. If there are more histories, it may miss an earlier difference.
const ASKED_MAX: usize = 8;

#[derive(Debug)]
/// The search of one rank.
pub struct FirstDifference {
    ours: CallHistory,
    /// The call that the search asks about now.
    number: u64,
    /// One rank of every other history, in rank order, and the last call that it has told.
    others: Vec<(GroupRank, CallHistory, Option<CallInfo>)>,
    /// Ranks that have not answered yet.
    awaited: Vec<GroupRank>,
}

/// The next step of a search.
#[derive(Debug)]
pub enum SearchStep {
    /// Ask these ranks about this call.
    Ask(Vec<GroupRank>, u64),
    /// Answers are on their way.
    Wait,
    /// The search has found the difference.
    Found(Box<Error>),
}

/// Whether ranks have closed after different calls.
pub fn closed_differently(closed: &[Option<CallHistory>]) -> bool {
    let mut said = closed.iter().flatten();
    said.next().is_some_and(|first| said.any(|other| other != first))
}

impl FirstDifference {
    /// The search of rank `own` after the ranks have closed with these histories. `None` when all made the same calls,
    /// and on all ranks but the lowest.
    pub fn begin(own: GroupRank, closed: &[Option<CallHistory>]) -> Option<FirstDifference> {
        let ranks = GroupRank::all(closed.len() as u32);
        let mut said = ranks.zip(closed).filter_map(|(rank, history)| Some((rank, (*history)?)));
        let (_, ours) = said.next().filter(|(lowest, _)| *lowest == own)?;
        let mut others: Vec<(GroupRank, CallHistory, Option<CallInfo>)> = Vec::new();
        for (rank, history) in said.filter(|(_, history)| *history != ours) {
            if others.len() < ASKED_MAX && others.iter().all(|(_, other, _)| *other != history) {
                others.push((rank, history, None));
            }
        }
        let longest = others.iter().map(|(_, history, _)| history.calls).max()?.max(ours.calls);
        let number = longest.saturating_sub(CALLS_REMEMBERED as u64);
        Some(FirstDifference { ours, number, others, awaited: Vec::new() })
    }

    /// The first questions.
    pub fn start(&mut self, peers: &Peers) -> SearchStep {
        self.next(peers)
    }

    /// Takes the answer of `rank` about call `number`, in which the caller has found no difference.
    pub fn answered(
        &mut self,
        peers: &Peers,
        rank: GroupRank,
        number: u64,
        answer: &CallStatus,
    ) -> SearchStep {
        let Some(position) = self.awaited.iter().position(|awaited| *awaited == rank) else {
            return SearchStep::Wait;
        };
        if number != self.number {
            return SearchStep::Wait;
        }
        self.awaited.swap_remove(position);
        if let CallStatus::Running { call, .. } | CallStatus::Done { call, .. } = answer
            && let Some((.., last)) = self.others.iter_mut().find(|(other, ..)| *other == rank)
        {
            *last = Some(call.clone());
        }
        if !self.awaited.is_empty() {
            return SearchStep::Wait;
        }
        self.found(peers).unwrap_or_else(|| {
            self.number += 1;
            self.next(peers)
        })
    }

    /// Asks the ranks that made the call; the other ranks ended before it.
    fn next(&mut self, peers: &Peers) -> SearchStep {
        let made = self.others.iter().filter(|(_, history, _)| history.calls > self.number);
        self.awaited = made.map(|(rank, ..)| *rank).collect();
        if self.awaited.is_empty() {
            // All other ranks ended before this call, so this rank differs from the first of them.
            return self.found(peers).unwrap_or(SearchStep::Wait);
        }
        SearchStep::Ask(self.awaited.clone(), self.number)
    }

    /// The difference from a rank with which no later call can differ, since that rank or this rank ended before this
    /// call.
    fn found(&self, peers: &Peers) -> Option<SearchStep> {
        let is_last = |theirs: &CallHistory| self.number >= theirs.calls.min(self.ours.calls);
        let (rank, theirs, last) = self.others.iter().find(|(_, theirs, _)| is_last(theirs))?;
        // A rank that ended before this call has told nothing about it.
        let last = last.as_ref().filter(|_| theirs.calls >= self.ours.calls);
        let rank = peers.group().job_rank(*rank);
        let other = RankHistory { rank, history: *theirs, last };
        let error = history_difference(peers, self.ours, &other, "close")?;
        Some(SearchStep::Found(Box::new(error)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use unisono_communicator::{Collective, DType, Descriptor, Group, JobRank, Site};

    use super::*;
    use crate::board::Board;
    use crate::control::judge_answer;

    /// The boards of ranks that have made broadcasts from these roots, and their histories at close.
    fn closed(roots: &[&[u32]]) -> (Vec<Arc<Board>>, Vec<Option<CallHistory>>) {
        let boards = GroupRank::all(roots.len() as u32).zip(roots).map(|(rank, roots)| {
            let board = Board::new(rank, 4);
            for root in *roots {
                let broadcast = Descriptor::new(Collective::Broadcast, DType::F32, 1);
                let call = Descriptor { root: Some(*root), ..broadcast };
                let number = board.calls().enter(&call, None, None, Site::caller(), None);
                board.progress().leave(number);
            }
            Arc::new(board)
        });
        let digest = |calls: &&[u32]| calls.iter().fold(1, |digest, root| digest * 31 + u64::from(*root));
        let history = |calls: &&[u32]| CallHistory { calls: calls.len() as u64, digest: digest(calls) };
        (boards.collect(), roots.iter().map(|calls| Some(history(calls))).collect())
    }

    /// The finding of rank `own`, and the number of its questions.
    fn search(own: u32, roots: &[&[u32]]) -> Option<(String, usize)> {
        let (boards, said) = closed(roots);
        let ranks = JobRank::all(roots.len() as u32).collect();
        let hosts = vec![0; roots.len()].into();
        let own = GroupRank::new(own);
        let peers = Peers::new(Group::new(own, ranks, hosts, 0), boards[own.index()].clone());
        let mut search = FirstDifference::begin(own, &said)?;
        let (mut step, mut asked) = (search.start(&peers), 0);
        loop {
            match step {
                SearchStep::Found(error) => return Some((error.to_string(), asked)),
                SearchStep::Wait => panic!("nobody is asked: {search:?}"),
                SearchStep::Ask(ranks, number) => {
                    step = SearchStep::Wait;
                    asked += ranks.len();
                    for rank in ranks {
                        let answer = boards[rank.index()].status(number);
                        if let Some(error) = judge_answer(&peers, rank, number, &answer) {
                            return Some((error.to_string(), asked));
                        }
                        step = search.answered(&peers, rank, number, &answer);
                    }
                }
            }
        }
    }

    #[test]
    fn the_lowest_rank_finds_the_first_call_that_differs() {
        // Rank 2 differs in call 1; ranks 1 and 3 differ alike in call 2.
        let roots: &[&[u32]] = &[&[0, 0, 0, 0], &[0, 0, 1, 0], &[0, 2, 0, 0], &[0, 0, 1, 0]];
        let (text, asked) = search(0, roots).unwrap();
        assert!(text.starts_with("mismatch: rank 0 called call 1 broadcast(1 x f32, root 0)"), "{text}");
        assert!(text.contains("; rank 2 called call 1 broadcast(1 x f32, root 2)"), "{text}");
        assert!(asked <= 4, "one of equal histories is asked, and no later call: {asked}");
        assert!((1..4).all(|other| search(other, roots).is_none()), "one rank looks");
    }

    #[test]
    fn a_rank_that_has_made_fewer_calls_differs_in_the_first_that_it_has_not_made() {
        for (roots, lower, higher) in [
            (
                [&[0u32, 0][..], &[0, 0, 5]],
                "call 2 barrier(0 x u8) by close",
                "call 2 broadcast(1 x f32, root 5)",
            ),
            (
                [&[0, 0, 5][..], &[0, 0]],
                "call 2 broadcast(1 x f32, root 5)",
                "call 2 barrier(0 x u8) by close",
            ),
        ] {
            let (text, _) = search(0, &roots).unwrap();
            assert!(text.contains(&format!("rank 0 called {lower}")), "{text}");
            assert!(text.contains(&format!("rank 1 called {higher}")), "{text}");
        }
    }

    #[test]
    fn a_difference_that_no_call_shows_is_told_as_such() {
        let (boards, mut said) = closed(&[&[0, 0], &[0, 0]]);
        said[1] = Some(CallHistory { calls: 2, digest: 7 });
        assert!(closed_differently(&said));
        let group = Group::new(GroupRank::new(0), JobRank::all(2).collect(), vec![0; 2].into(), 0);
        let peers = Peers::new(group, boards[0].clone());
        let mut search = FirstDifference::begin(GroupRank::new(0), &said).unwrap();
        let mut step = search.start(&peers);
        while let SearchStep::Ask(_, number) = step {
            let other = GroupRank::new(1);
            step = search.answered(&peers, other, number, &boards[1].status(number));
        }
        let SearchStep::Found(error) = step else { panic!("{step:?}") };
        assert!(error.to_string().contains("(earlier calls differ)"), "{error}");
    }

    #[test]
    fn equal_histories_and_answers_that_nobody_awaits_end_in_nothing() {
        let (boards, said) = closed(&[&[0, 0], &[0, 0]]);
        assert!(!closed_differently(&said) && !closed_differently(&[None, said[1]]));
        assert!(FirstDifference::begin(GroupRank::new(0), &said).is_none());
        let group = Group::new(GroupRank::new(0), JobRank::all(2).collect(), vec![0; 2].into(), 0);
        let peers = Peers::new(group, boards[0].clone());
        let other = Some(CallHistory { calls: 3, digest: 7 });
        let mut search = FirstDifference::begin(GroupRank::new(0), &[said[0], other]).unwrap();
        assert!(matches!(search.start(&peers), SearchStep::Ask(_, 0)));
        for (rank, number) in [(0, 0), (1, 5)] {
            let answer = CallStatus::Forgotten;
            let step = search.answered(&peers, GroupRank::new(rank), number, &answer);
            assert!(matches!(step, SearchStep::Wait), "{step:?}");
        }
    }
}
