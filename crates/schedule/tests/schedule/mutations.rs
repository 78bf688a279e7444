//! The verifier is tested by breaking schedules in every way we can think of: it must refuse each of them.
//!
//! Some mutants are as good as the original. These rules exclude them, and they do not depend on the verifier:
//! * Two steps are swapped only if they are next to each other on one link and direction, and differ.
//! * Operands are flipped only where the algorithm promises an order.
//! * All tokens of a barrier are alike, so its sends are not changed to read another slot.
//! * A dependency is not dropped if others still lead to the same step over steps of the same chunk.
//! * A dependency of a barrier is dropped only if p is a power of two. Otherwise a rank may hear of another twice.

use std::collections::BTreeMap;

use unisono_schedule::{
    Action, Algorithm, Collective, Schedule, Shape, Slot, Step, StepIndex, algorithms, verify_schedules,
};

/// The steps and dependencies of one rank, to be changed.
#[derive(Clone)]
struct Draft {
    rank: u32,
    chunks: u32,
    scratch_chunks: u32,
    steps: Vec<Step>,
    dependencies: Vec<Vec<StepIndex>>,
}

impl Draft {
    fn of(schedule: &Schedule) -> Self {
        Self {
            rank: schedule.rank,
            chunks: schedule.chunks,
            scratch_chunks: schedule.scratch_chunks,
            steps: schedule.steps.clone(),
            dependencies: schedule
                .indexed()
                .map(|(index, _)| schedule.dependencies(index).to_vec())
                .collect(),
        }
    }

    fn schedule(self) -> Schedule {
        Schedule::new(self.rank, self.chunks, self.scratch_chunks, self.steps, &self.dependencies)
    }

    /// The same with step `index` replaced.
    fn with(&self, index: usize, step: Step) -> Self {
        let mut changed = self.clone();
        changed.steps[index] = step;
        changed
    }

    fn without_step(&self, index: usize) -> Self {
        let mut changed = self.clone();
        changed.steps.remove(index);
        changed.dependencies.remove(index);
        for list in &mut changed.dependencies {
            list.retain(|earlier| earlier.index() != index);
            for earlier in list.iter_mut().filter(|earlier| earlier.index() > index) {
                *earlier = StepIndex::new(earlier.index() - 1);
            }
        }
        changed
    }

    fn swapped(&self, one: usize, other: usize) -> Self {
        let mut changed = self.clone();
        changed.steps.swap(one, other);
        changed.dependencies.swap(one, other);
        for earlier in changed.dependencies.iter_mut().flatten() {
            match earlier.index() {
                index if index == one => *earlier = StepIndex::new(other),
                index if index == other => *earlier = StepIndex::new(one),
                _ => {}
            }
        }
        changed
    }

    /// Whether dependencies lead from `later` to `earlier` over steps with the extent of one of the two.
    fn leads(&self, later: StepIndex, earlier: StepIndex) -> bool {
        let extent = |index: StepIndex| self.steps[index.index()].extent;
        let fits = |index: StepIndex| extent(index) == extent(later) || extent(index) == extent(earlier);
        self.dependencies[later.index()]
            .iter()
            .any(|next| *next == earlier || (*next > earlier && fits(*next) && self.leads(*next, earlier)))
    }
}

/// All mutants of one rank's schedule, with the kind of the mutation.
fn mutants(algorithm: &Algorithm, shape: &Shape, draft: &Draft) -> Vec<(&'static str, Draft)> {
    let mut made = Vec::new();
    for (index, step) in draft.steps.iter().copied().enumerate() {
        made.push(("drop step", draft.without_step(index)));
        made.push((
            "shift extent",
            draft.with(index, Step { extent: (step.extent + 1) % draft.chunks.max(2), ..step }),
        ));
        if let Some((peer, _)) = step.action.link() {
            let peer = (peer + 1) % shape.ranks as u16;
            made.push((
                "shift peer",
                draft.with(index, Step { action: with_peer(step.action, peer), ..step }),
            ));
            let next = (index + 1..draft.steps.len())
                .find(|next| draft.steps[*next].action.link() == step.action.link());
            if let Some(next) = next.filter(|next| draft.steps[*next] != step) {
                made.push(("swap on link", draft.swapped(index, next)));
            }
        }
        let actions = retyped(step.action).into_iter().map(|action| ("retype", action));
        let token = algorithm.collective == Collective::Barrier && step.action.reads().is_some();
        let others = if token { Vec::new() } else { elsewhere(step.action) };
        let actions = actions.chain(others.into_iter().map(|action| ("other slot", action)));
        let ordered = algorithm.canonical || !algorithm.requires.commutative;
        let actions =
            actions.chain(flipped(step.action).into_iter().filter(|(kind, _)| ordered || *kind != "flip"));
        made.extend(actions.map(|(kind, action)| (kind, draft.with(index, Step { action, ..step }))));
        made.extend(without_dependency(algorithm, shape, draft, index));
    }
    if draft.scratch_chunks > 1 {
        let mut shared = draft.clone();
        for step in &mut shared.steps {
            step.action = in_one_scratch(step.action);
        }
        made.push(("share scratch", shared));
    }
    made
}

fn without_dependency(
    algorithm: &Algorithm,
    shape: &Shape,
    draft: &Draft,
    index: usize,
) -> Vec<(&'static str, Draft)> {
    let mut made = Vec::new();
    for (nth, earlier) in draft.dependencies[index].iter().enumerate() {
        let mut changed = draft.clone();
        changed.dependencies[index].remove(nth);
        let exempt = match algorithm.collective {
            Collective::Barrier => !shape.ranks.is_power_of_two(),
            _ => changed.leads(StepIndex::new(index), *earlier),
        };
        if !exempt {
            made.push(("drop dependency", changed));
        }
    }
    made
}

fn with_peer(action: Action, to: u16) -> Action {
    let mut action = action;
    match &mut action {
        Action::Send { peer, .. } | Action::Recv { peer, .. } | Action::RecvReduce { peer, .. } => *peer = to,
        Action::Copy { .. } => {}
    }
    action
}

/// The action as another type of action, such as a receive that becomes a receive that reduces.
fn retyped(action: Action) -> Vec<Action> {
    match action {
        Action::RecvReduce { peer, destination, .. } => vec![Action::Recv { peer, destination }],
        Action::Recv { peer, destination } => [Slot::Input, destination]
            .map(|operand| Action::RecvReduce {
                peer,
                operand,
                destination,
                operand_is_left: true,
                completes: true,
            })
            .to_vec(),
        Action::Send { peer, source } => vec![Action::Recv { peer, destination: source }],
        Action::Copy { source, destination } => {
            vec![Action::Copy { source: destination, destination: source }]
        }
    }
}

/// The same action on other slots.
fn elsewhere(action: Action) -> Vec<Action> {
    let slots = [Slot::Input, Slot::Output, Slot::Scratch(0)];
    let mut made = Vec::new();
    for slot in slots {
        let mut reading = action;
        match &mut reading {
            Action::Send { source, .. } | Action::Copy { source, .. } => *source = slot,
            Action::RecvReduce { operand, .. } => *operand = slot,
            Action::Recv { .. } => {}
        }
        let mut writing = action;
        match &mut writing {
            Action::Recv { destination, .. }
            | Action::RecvReduce { destination, .. }
            | Action::Copy { destination, .. } => *destination = slot,
            Action::Send { .. } => {}
        }
        made.extend([reading, writing].into_iter().filter(|changed| *changed != action));
    }
    made
}

fn flipped(action: Action) -> Vec<(&'static str, Action)> {
    let Action::RecvReduce { peer, operand, destination, operand_is_left, completes } = action else {
        return Vec::new();
    };
    let with = |operand_is_left, completes| Action::RecvReduce {
        peer,
        operand,
        destination,
        operand_is_left,
        completes,
    };
    vec![("flip", with(!operand_is_left, completes)), ("complete", with(operand_is_left, !completes))]
}

fn in_one_scratch(action: Action) -> Action {
    let mut action = action;
    let one = |slot: &mut Slot| {
        if let Slot::Scratch(scratch) = slot {
            *scratch = 0;
        }
    };
    match &mut action {
        Action::Send { source, .. } => one(source),
        Action::Recv { destination, .. } => one(destination),
        Action::RecvReduce { operand: source, destination, .. } | Action::Copy { source, destination } => {
            one(source);
            one(destination);
        }
    }
    action
}

type Judge = dyn Fn(&Algorithm, &Shape, &[Schedule]) -> bool;

/// The number of mutants of each kind, and the mutants that `accepts` accepts.
fn survivors(accepts: &Judge) -> (BTreeMap<&'static str, usize>, Vec<String>) {
    let (mut counts, mut accepted) = (BTreeMap::new(), Vec::new());
    for algorithm in algorithms() {
        let roots: &[u32] = if algorithm.collective.is_rooted() { &[0, 1] } else { &[0] };
        let shapes = [2, 3, 4, 5, 6, 8]
            .map(|ranks| roots.iter().map(move |root| Shape::new(ranks).with_root(*root).with_leaders(3)));
        for shape in shapes.into_iter().flatten() {
            let schedules: Vec<Schedule> =
                (0..shape.ranks).map(|rank| algorithm.schedule(&shape, rank)).collect();
            assert!(accepts(algorithm, &shape, &schedules), "{} is refused", algorithm.qualified_name());
            for rank in (0..shape.ranks as usize).filter(|rank| shape.ranks < 8 || rank % 3 == 0) {
                let mut changed = schedules.clone();
                for (kind, draft) in mutants(algorithm, &shape, &Draft::of(&schedules[rank])) {
                    *counts.entry(kind).or_insert(0) += 1;
                    changed[rank] = draft.schedule();
                    if accepts(algorithm, &shape, &changed) {
                        let name = algorithm.qualified_name();
                        accepted
                            .push(format!("{kind}: {name} {shape:?}\n{}{}", schedules[rank], changed[rank]));
                    }
                }
            }
        }
    }
    (counts, accepted)
}

#[test]
fn every_mutant_is_refused() {
    let verified = |algorithm: &Algorithm, shape: &Shape, schedules: &[Schedule]| {
        verify_schedules(algorithm, shape, schedules).is_ok()
    };
    let (counts, accepted) = survivors(&verified);
    let total: usize = counts.values().sum();
    assert!(accepted.is_empty(), "{} of {total} mutants survive, such as\n{}", accepted.len(), accepted[0]);
    assert!(total > 10_000 && counts.len() == 10, "{counts:?}");
    assert!(counts.values().all(|count| *count > 50), "too few of a kind: {counts:?}");
}

/// The test above can fail: if the judge overlooks one kind of fault, there are survivors.
#[test]
fn a_blind_judge_is_caught() {
    let (counts, accepted) = survivors(&|_, _, _| true);
    assert_eq!(counts.values().sum::<usize>(), accepted.len());
    // This judge sees all faults but races, like a tool that only runs schedules.
    let blind_to_races = |algorithm: &Algorithm, shape: &Shape, schedules: &[Schedule]| match verify_schedules(
        algorithm, shape, schedules,
    ) {
        Ok(_) => true,
        Err(wrong) => matches!(*wrong.fault, unisono_schedule::Fault::Race { .. }),
    };
    let (_, accepted) = survivors(&blind_to_races);
    assert!(accepted.iter().any(|text| text.starts_with("drop dependency")));
    assert!(accepted.iter().any(|text| text.starts_with("share scratch")));
}
