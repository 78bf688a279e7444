//! A schedule in rounds, for networks that send messages in groups and end each group before the next group begins. An
//! example is NCCL with its grouped sends and receives (`ncclGroupStart`).
//!
//! No piece overtakes another: a step runs whole, when all steps that it waits for are done. The rounds come from
//! playing the schedules of all ranks. A message goes in the first round in which both its ends may go. A round has the
//! same messages on both ends. So groups that are issued in the order of rounds never wait for each other in a circle.
//!
//! A value to be reduced is received *apart*, in memory of its own, and reduced after the group. So two ranks may
//! exchange values and add them: each overwrites the bytes that it sends only after the group. Every other receive
//! writes straight to its destination. There a circle of ranks, each receiving into bytes that it still has to send,
//! would be wrong, and the verifier refuses such algorithms.

use std::collections::{BTreeSet, VecDeque};

use crate::verify::{Case, Fault, Matching, StepNumber, schedules};
use crate::{Action, Algorithm, Counterexample, Refusal, Refused, Schedule, Shape, StepIndex};

/// One action of a rank. Moves between two groups happen in the order of the list, behind the group before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The messages up to the next [`Move::EndGroup`] go at the same time.
    BeginGroup,
    /// The send of this step.
    Send(StepIndex),
    /// The receive of this step, to where it belongs.
    Recv(StepIndex),
    /// The receive of this step, into the memory apart of this number; [`Move::Reduce`] follows behind the group.
    RecvApart(StepIndex, u32),
    /// All messages of the group are done.
    EndGroup,
    /// The value in the memory apart of this number is reduced, as the step says.
    Reduce(StepIndex, u32),
    /// The copy of this step.
    Copy(StepIndex),
}

/// The moves of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// In order; every step of the rank has its own.
    pub moves: Vec<Move>,
    /// How many memories apart there are. Each is as long as the longest extent that it receives.
    pub apart: u32,
}

/// The moves of `rank`, and its schedule, for a group of this shape. Builds the schedules of all ranks: it takes time
/// and memory linear in the number of all their steps, so callers keep the result.
///
/// # Errors
/// The errors of [`Algorithm::try_schedule`]; [`Refusal::TooLarge`] for more than `steps_max` steps of all ranks;
/// [`Refusal::Wrong`] for an unproved algorithm whose messages do not match or wait for each other.
///
/// ```
/// use unisono_schedule::{Move, Shape, find_by_name, rounds};
/// let exchange = find_by_name("all_reduce/recursive_doubling").unwrap();
/// let (schedule, rounds) = rounds(exchange, &Shape::new(4), 0, 1_000).unwrap();
/// assert_eq!(schedule.rank, 0);
/// assert_eq!(rounds.moves.iter().filter(|one| **one == Move::BeginGroup).count(), 2);
/// ```
pub fn rounds(
    algorithm: &Algorithm,
    shape: &Shape,
    rank: u32,
    steps_max: u64,
) -> Result<(Schedule, Rounds), Refused> {
    algorithm.guarded(shape, || {
        let mut all = schedules(algorithm, shape, steps_max)?;
        if rank >= shape.ranks {
            return Err(algorithm.refused(Refusal::NoSuchRank { rank, ranks: shape.ranks }));
        }
        let wrong =
            |fault| algorithm.refused(Refusal::Wrong(Counterexample::new(algorithm, shape, "", fault)));
        let case = Case::new(algorithm, shape, &all);
        let matching = Matching::of(&case).map_err(wrong)?;
        let rounds = Play::new(&case, &matching, rank).played().map_err(wrong)?;
        Ok((all.swap_remove(rank as usize), rounds))
    })
}

/// The progress of the messages and steps of all ranks, and the moves of one rank.
struct Play<'a> {
    case: &'a Case<'a>,
    matching: &'a Matching,
    steps: Vec<Waiting>,
    /// The steps that wait for each step.
    followers: Followers,
    /// Sends that may go, whose receives perhaps may not yet.
    open: BTreeSet<StepNumber>,
    /// Steps that no longer wait for another step.
    free: VecDeque<StepNumber>,
    done: usize,
    rank: u32,
    rounds: Rounds,
    /// Which reductions of `rank` have received, and into which memory apart.
    apart: Vec<(StepNumber, u32)>,
    /// Free memories apart of `rank`.
    empty: Vec<u32>,
}

/// How many steps a step still waits for.
#[derive(Clone, Copy, Default)]
struct Waiting {
    sends: u32,
    others: u32,
    /// The value that it reduces is there.
    has_received: bool,
}

impl Waiting {
    fn is_free(&self) -> bool {
        self.sends == 0 && self.others == 0
    }
}

/// For each step, its dependent steps, one list after the other.
struct Followers {
    starts: Vec<u32>,
    steps: Vec<StepNumber>,
}

impl Followers {
    fn new(case: &Case<'_>) -> Followers {
        let mut starts = vec![0_u32; case.steps_len() + 1];
        for step in case.steps() {
            case.dependencies(step).for_each(|earlier| starts[earlier.as_usize() + 1] += 1);
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut steps = vec![StepNumber::FIRST; starts.last().map_or(0, |all| *all as usize)];
        for step in case.steps() {
            for earlier in case.dependencies(step) {
                let at = &mut next[earlier.as_usize()];
                steps[*at as usize] = step;
                *at += 1;
            }
        }
        Followers { starts, steps }
    }

    fn of(&self, step: StepNumber) -> std::ops::Range<usize> {
        self.starts[step.as_usize()] as usize..self.starts[step.as_usize() + 1] as usize
    }
}

impl<'a> Play<'a> {
    fn new(case: &'a Case<'a>, matching: &'a Matching, rank: u32) -> Play<'a> {
        let mut steps = vec![Waiting::default(); case.steps_len()];
        for step in case.steps() {
            let waiting = &mut steps[step.as_usize()];
            for earlier in case.dependencies(step) {
                let is_send = matches!(case.step(earlier).action, Action::Send { .. });
                *(if is_send { &mut waiting.sends } else { &mut waiting.others }) += 1;
            }
        }
        Play {
            followers: Followers::new(case),
            free: case.steps().filter(|step| steps[step.as_usize()].is_free()).collect(),
            open: BTreeSet::new(),
            case,
            matching,
            steps,
            done: 0,
            rank,
            rounds: Rounds { moves: Vec::new(), apart: 0 },
            apart: Vec::new(),
            empty: Vec::new(),
        }
    }

    fn played(mut self) -> Result<Rounds, Fault> {
        self.go_on();
        while self.done < self.steps.len() {
            let going: Vec<StepNumber> =
                self.open.iter().copied().filter(|send| self.may_go(*send)).collect();
            if going.is_empty() {
                let stuck = self.case.steps().filter(|step| !self.steps[step.as_usize()].is_free());
                let cycle = stuck.take(STUCK_NAMED_MAX).map(|step| self.case.place(step)).collect();
                return Err(Fault::Deadlock { cycle });
            }
            self.round(&going);
        }
        Ok(self.rounds)
    }

    fn receive_of(&self, send: StepNumber) -> StepNumber {
        // INVARIANT: every send has its receive, as `Matching::of` has found.
        self.matching.partner(send).expect("a matched send")
    }

    fn is_reduction(&self, step: StepNumber) -> bool {
        matches!(self.case.step(step).action, Action::RecvReduce { .. })
    }

    /// Whether the other end of a send that may go may go too.
    fn may_go(&self, send: StepNumber) -> bool {
        let receive = self.receive_of(send);
        let waiting = &self.steps[receive.as_usize()];
        waiting.others == 0 && (waiting.sends == 0 || self.is_reduction(receive))
    }

    /// Plays one round, in which these sends go.
    fn round(&mut self, going: &[StepNumber]) {
        let is_own = |step: &StepNumber| self.case.rank_of(*step) == self.rank;
        let messages = going.iter().flat_map(|&send| [send, self.receive_of(send)]);
        let own: Vec<StepNumber> = messages.filter(is_own).collect();
        if !own.is_empty() {
            self.rounds.moves.push(Move::BeginGroup);
            own.iter().for_each(|step| self.message(*step));
            self.rounds.moves.push(Move::EndGroup);
        }
        for &send in going {
            self.open.remove(&send);
            self.is_done(send);
            let receive = self.receive_of(send);
            if !self.is_reduction(receive) {
                self.is_done(receive);
                continue;
            }
            let waiting = &mut self.steps[receive.as_usize()];
            waiting.has_received = true;
            if waiting.is_free() {
                self.free.push_back(receive);
            }
        }
        self.go_on();
    }

    /// A message of this rank.
    fn message(&mut self, step: StepNumber) {
        let index = self.case.index_of(step);
        let message = match self.case.step(step).action {
            Action::Send { .. } => Move::Send(index),
            Action::RecvReduce { .. } => {
                let memory = self.empty.pop().unwrap_or(self.rounds.apart);
                self.rounds.apart = self.rounds.apart.max(memory + 1);
                self.apart.push((step, memory));
                Move::RecvApart(index, memory)
            }
            Action::Recv { .. } | Action::Copy { .. } => Move::Recv(index),
        };
        self.rounds.moves.push(message);
    }

    /// Does the steps that need no further message.
    fn go_on(&mut self) {
        while let Some(step) = self.free.pop_front() {
            let (index, is_own) = (self.case.index_of(step), self.case.rank_of(step) == self.rank);
            match self.case.step(step).action {
                Action::Send { .. } => drop(self.open.insert(step)),
                // It goes with its send.
                Action::Recv { .. } => {}
                Action::Copy { .. } => {
                    if is_own {
                        self.rounds.moves.push(Move::Copy(index));
                    }
                    self.is_done(step);
                }
                Action::RecvReduce { .. } => {
                    if !std::mem::take(&mut self.steps[step.as_usize()].has_received) {
                        continue;
                    }
                    if let Some(at) = self.apart.iter().position(|(whose, _)| *whose == step) {
                        let (_, memory) = self.apart.swap_remove(at);
                        self.rounds.moves.push(Move::Reduce(index, memory));
                        self.empty.push(memory);
                    }
                    self.is_done(step);
                }
            }
        }
    }

    /// `step` is over; others may go.
    fn is_done(&mut self, step: StepNumber) {
        let is_send = matches!(self.case.step(step).action, Action::Send { .. });
        self.done += 1;
        for at in self.followers.of(step) {
            let follower = self.followers.steps[at];
            let waiting = &mut self.steps[follower.as_usize()];
            *(if is_send { &mut waiting.sends } else { &mut waiting.others }) -= 1;
            if waiting.is_free() {
                self.free.push_back(follower);
            }
        }
    }
}

/// The steps that a deadlock names.
const STUCK_NAMED_MAX: usize = 8;
