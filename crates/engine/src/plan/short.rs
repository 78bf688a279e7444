//! The steps of a short call: a plan in which each step has one piece, and each direction of a link at most one step.
//! `run::short` runs them.

use unisono_schedule::StepIndex;

use crate::links::{Edge, WHOLE_BYTES_MAX};
use crate::memory::{ReduceOrder, Span};
use crate::plan::{BoundStep, Located, Plan, PlanLink, Work};

/// The most steps: the bits of a word.
const STEPS_MAX: usize = u64::BITS as usize;

/// The steps of a short plan.
#[derive(Debug)]
pub(crate) struct ShortSteps {
    pub(crate) steps: Box<[ShortStep]>,
    /// The steps with work, by number. A copy of a chunk onto itself has none.
    pub(crate) all: u64,
}

/// One step, with all that a poll needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortStep {
    /// The steps that must be done before.
    pub(crate) needs: u64,
    pub(crate) bytes: usize,
    /// The link, for a send or a receive.
    pub(crate) link: usize,
    pub(crate) work: ShortWork,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ShortWork {
    Send { to: Edge, plan_hash: u64, source: Span },
    Recv { from: Edge, plan_hash: u64, into: Received },
    Copy { source: Span, destination: Span },
}

/// The use of received bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Received {
    Stored { destination: Span },
    Reduced { operand: Span, destination: Span, order: ReduceOrder },
}

impl ShortSteps {
    /// The steps of a short plan; `None` for any other plan.
    pub(crate) fn of(plan: &Plan) -> Option<ShortSteps> {
        let is_short = |step: &BoundStep| step.pieces == 1 && step.bytes <= WHOLE_BYTES_MAX as u64;
        let has_one = |steps: &[StepIndex]| steps.len() <= 1;
        if plan.steps.len() > STEPS_MAX
            || !plan.steps.iter().all(is_short)
            || !plan.links.iter().all(|link| has_one(&link.send.steps) && has_one(&link.recv.steps))
        {
            return None;
        }
        let indices = plan.schedule.indexed().map(|(index, _)| index);
        let mut steps =
            indices.map(|index| ShortStep::of(plan, index)).collect::<Option<Box<[ShortStep]>>>()?;
        let has_work = |step: &ShortStep| match step.work {
            ShortWork::Send { .. } | ShortWork::Recv { .. } => true,
            ShortWork::Copy { source, destination } => source != destination,
        };
        let with_work = steps.iter().enumerate().filter(|(_, step)| has_work(step));
        let all = with_work.fold(0, |all, (number, _)| all | 1 << number);
        // A dependency without work is done from the start.
        steps.iter_mut().for_each(|step| step.needs &= all);
        Some(ShortSteps { steps, all })
    }
}

impl ShortStep {
    /// A step of a short plan.
    fn of(plan: &Plan, index: StepIndex) -> Option<ShortStep> {
        let bound = plan.step(index);
        let at = |place: Located| place.at(0, plan.piece_bytes);
        let recv = |into| {
            let link = plan.links.iter().position(|link| link.recv.steps.contains(&index))?;
            let PlanLink { edge, recv, .. } = &plan.links[link];
            Some((link, ShortWork::Recv { from: *edge, plan_hash: recv.plan_hash, into }))
        };
        let (link, work) = match bound.work {
            Work::Send { source } => {
                let link = plan.links.iter().position(|link| link.send.steps.contains(&index))?;
                let PlanLink { edge, send, .. } = &plan.links[link];
                (link, ShortWork::Send { to: *edge, plan_hash: send.plan_hash, source: at(source) })
            }
            Work::Recv { destination } => recv(Received::Stored { destination: at(destination) })?,
            Work::RecvReduce { operand, destination, order } => {
                let (operand, destination) = (at(operand), at(destination));
                recv(Received::Reduced { operand, destination, order })?
            }
            Work::Copy { source, destination } => {
                let (source, destination) = (at(source), at(destination));
                (0, ShortWork::Copy { source, destination })
            }
        };
        let needs = plan.schedule.dependencies(index).iter().fold(0, |needs, on| needs | 1 << on.index());
        Some(ShortStep { needs, bytes: bound.bytes as usize, link, work })
    }
}
