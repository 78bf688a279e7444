//! A schedule in rounds, for networks that send messages in groups, one group after the other, such as NCCL's grouped
//! sends and receives (`ncclGroupStart`).
//!
//! Steps run whole, not in pieces: a step runs when all steps that it waits for are done. Playing the schedules of all
//! ranks gives the rounds: a message goes in the first round in which both its ends can go. So both ranks have the
//! message in the same round, and groups that are issued in the order of rounds never deadlock.
//!
//! A value to be reduced is received *apart*, into separate memory, and reduced after the group. So two ranks may
//! exchange values and add them, although each overwrites the bytes that it sends. Other receives write to their
//! destination directly. Ranks in a circle that receive into bytes which they still have to send would be wrong there;
//! the verifier refuses such algorithms.

use std::collections::{BTreeSet, VecDeque};

use crate::verify::{Case, Fault, Matching, StepNumber, schedules};
use crate::{Action, Algorithm, Counterexample, Refusal, Refused, Schedule, Shape, StepIndex};

/// One action of a rank. Actions between two groups run in list order, after the first of the groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Begins a group: the messages up to [`Move::EndGroup`] go at the same time.
    BeginGroup,
    /// The send of this step.
    Send(StepIndex),
    /// The receive of this step, into its destination.
    Recv(StepIndex),
    /// The receive of this step, into the separate memory of this number. [`Move::Reduce`] follows after the group.
    RecvApart(StepIndex, u32),
    /// All messages of the group are done.
    EndGroup,
    /// Reduces the value in the separate memory of this number, as the step says.
    Reduce(StepIndex, u32),
    /// The copy of this step.
    Copy(StepIndex),
}

/// The actions of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// The actions in order; each step of the rank has one.
    pub moves: Vec<Move>,
    /// The number of separate memories. Each is as long as the longest extent that it receives.
    pub apart: u32,
}

/// The rounds of `rank`, and its schedule, for a group of this shape. Cost: time and memory linear in the steps of all
/// ranks, so callers keep the result.
///
/// # Errors
/// The errors of [`Algorithm::try_schedule`]; [`Refusal::TooLarge`] for more than `steps_max` steps of all ranks;
/// [`Refusal::Wrong`] for an unproved algorithm whose messages do not match or deadlock.
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

/// The progress of all ranks' steps, and the actions of one rank.
struct Play<'a> {
    case: &'a Case<'a>,
    matching: &'a Matching,
    steps: Vec<Waiting>,
    /// The steps that wait for each step.
    followers: Followers,
    /// Sends that are ready. Their receives may not be.
    open: BTreeSet<StepNumber>,
    /// Steps that wait for no other step any more.
    free: VecDeque<StepNumber>,
    done: usize,
    rank: u32,
    rounds: Rounds,
    /// The received, not yet reduced values of `rank`, and their separate memory.
    apart: Vec<(StepNumber, u32)>,
    /// Free separate memories of `rank`.
    empty: Vec<u32>,
}

/// The number of steps that a step still waits for.
#[derive(Clone, Copy, Default)]
struct Waiting {
    sends: u32,
    others: u32,
    /// Whether the value to reduce is there.
    has_received: bool,
}

impl Waiting {
    fn is_free(&self) -> bool {
        self.sends == 0 && self.others == 0
    }
}

/// For each step, the steps that depend on it (compressed sparse rows).
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
        #[expect(clippy::expect_used, reason = "every send has its receive, as `Matching::of` has found")]
        self.matching.partner(send).expect("a matched send")
    }

    fn is_reduction(&self, step: StepNumber) -> bool {
        matches!(self.case.step(step).action, Action::RecvReduce { .. })
    }

    /// Whether the receive of a ready send is ready too.
    fn may_go(&self, send: StepNumber) -> bool {
        let receive = self.receive_of(send);
        let waiting = &self.steps[receive.as_usize()];
        waiting.others == 0 && (waiting.sends == 0 || self.is_reduction(receive))
    }

    /// Plays one round with these sends.
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

    /// Adds the action for a message of this rank.
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

    /// Runs the steps that need no further message.
    fn go_on(&mut self) {
        while let Some(step) = self.free.pop_front() {
            let (index, is_own) = (self.case.index_of(step), self.case.rank_of(step) == self.rank);
            match self.case.step(step).action {
                Action::Send { .. } => drop(self.open.insert(step)),
                // It is done with its send.
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

    /// Marks `step` as done, which may make other steps ready.
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
