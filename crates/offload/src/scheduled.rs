//! Collectives by a schedule: its messages are the library's grouped sends and receives, and the device
//! combines received elements. So an algorithm by name, also a user's own, and a fixed order of sums run on a
//! library that has neither.

use std::sync::Arc;

use unisono_backend::{BoundExtent, ScheduledCall};
use unisono_communicator::{
    Collective, Counts, Descriptor, Error, Group, Operation, Place, ReduceOp, Result,
};
use unisono_schedule::{Action, Move, Slot, StepIndex, intern};

use crate::compose::compose;
use crate::device::{Combination, Scale};
use crate::program::{Program, Region, Span, Step};
use crate::thread::VendorShared;
use crate::vendor::Vendor;

/// The means by which a call runs.
#[derive(Clone)]
pub(crate) enum Means {
    /// The library's own collectives.
    Library,
    /// A schedule over the library.
    Schedule {
        /// Of the two together.
        name: &'static str,
        /// The same for a call that runs without having met.
        name_inline: &'static str,
        call: Arc<ScheduledCall>,
    },
}

impl Means {
    /// By a schedule.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when the process can keep no further name.
    pub(crate) fn schedule<V: Vendor>(call: ScheduledCall) -> Result<Means> {
        let name = |library: &str| {
            let name = intern(&format!("{} over {library}", call.algorithm));
            name.map_err(|problem| Error::invalid("algorithm", problem.to_string()))
        };
        let (name, name_inline) = (name(V::BACKEND)?, name(V::BACKEND_INLINE)?);
        Ok(Means::Schedule { name, name_inline, call: Arc::new(call) })
    }

    /// The name in outcomes, and the hash of schedules that do not come with this library.
    pub(crate) fn named<V: Vendor>(&self) -> (&'static str, u32) {
        match self {
            Means::Library => (V::BACKEND, 0),
            Means::Schedule { name, call, .. } => (name, call.schedules),
        }
    }

    /// The same for a call that runs without having met.
    pub(crate) fn named_inline<V: Vendor>(&self) -> (&'static str, u32) {
        match self {
            Means::Library => (V::BACKEND_INLINE, 0),
            Means::Schedule { name_inline, call, .. } => (name_inline, call.schedules),
        }
    }
}

impl<V: Vendor> VendorShared<V> {
    /// The program of a collective on this rank.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a message.
    pub(crate) fn program(&self, descriptor: &Descriptor, counts: &Counts, means: &Means) -> Result<Program> {
        let Operation::Collective(collective) = descriptor.operation else {
            return Err(Error::invalid("operation", "a message is none of the library's"));
        };
        let group = self.companion.group();
        Ok(match means {
            Means::Library => compose(collective, descriptor, counts, group, &self.capabilities),
            Means::Schedule { call, .. } => Binder::new(collective, descriptor, group, call).program(),
        })
    }
}

/// Makes the program of a schedule.
struct Binder<'a> {
    descriptor: &'a Descriptor,
    ranks: u32,
    call: &'a ScheduledCall,
    program: Program,
    /// The place at which steps read the input: in the call's, or in a copy.
    input: Span,
    /// By scratch chunk.
    scratch: Vec<Span>,
    /// Received elements before they are reduced.
    apart: Vec<Span>,
}

impl<'a> Binder<'a> {
    fn new(
        collective: Collective,
        descriptor: &'a Descriptor,
        group: &Group,
        call: &'a ScheduledCall,
    ) -> Binder<'a> {
        let mut program = Program::default();
        let reads_input = |step: &&unisono_schedule::Step| step.action.reads() == Some(Slot::Input);
        let read = call.schedule.steps.iter().zip(&call.extents).filter(|(step, _)| reads_input(step));
        let bytes = read.map(|(_, extent)| extent.input_at + extent.bytes).max().unwrap_or(0);
        let is_in_place = descriptor.place == Place::InPlace;
        let region = if is_in_place { Region::Output } else { Region::Input };
        let mut input = Span::whole(region, bytes);
        if collective == Collective::Barrier {
            input = program.scratch(bytes);
        }
        if let Some(ReduceOp::PreMulSum(factor)) = descriptor.op {
            // An input that the result does not replace stays as it is.
            let has_result = collective != Collective::Reduce || descriptor.root == Some(group.rank());
            let scaled = if is_in_place && has_result { input } else { program.scratch(bytes) };
            program.copy(input, scaled);
            let (dtype, by) = (descriptor.dtype, Scale::Multiply(factor));
            program.push(Step::Scale { buffer: scaled, dtype, by });
            input = scaled;
        }
        let chunks = 0..call.schedule.scratch_chunks;
        let scratch = chunks.map(|chunk| program.scratch(longest(call, call.schedule.scratch_steps(chunk))));
        let scratch = scratch.collect();
        let apart = (0..call.rounds.apart).map(|memory| {
            let received = call.rounds.moves.iter().filter_map(|one| match *one {
                Move::RecvApart(step, into) if into == memory => Some(step),
                _ => None,
            });
            longest(call, &received.collect::<Vec<_>>())
        });
        let apart = apart.map(|bytes| program.scratch(bytes)).collect();
        Binder { descriptor, ranks: group.size(), call, program, input, scratch, apart }
    }

    fn program(mut self) -> Program {
        for one in &self.call.rounds.moves {
            self.add(*one);
        }
        self.program
    }

    fn add(&mut self, one: Move) {
        match one {
            Move::BeginGroup => self.program.push(Step::GroupStart),
            // Both ends know that an empty extent has nothing to send; a group may come to nothing.
            Move::EndGroup if self.program.steps.last() == Some(&Step::GroupStart) => {
                self.program.steps.pop();
            }
            Move::EndGroup => self.program.push(Step::GroupEnd),
            Move::Send(step) | Move::Recv(step) | Move::RecvApart(step, _) => {
                let (action, extent) = self.step(step);
                if extent.bytes > 0 {
                    let message = self.message(one, action, extent);
                    self.program.push(message);
                }
            }
            Move::Reduce(step, memory) => {
                let (action, extent) = self.step(step);
                let Action::RecvReduce { operand, destination, completes, .. } = action else { return };
                if extent.bytes > 0 {
                    let (left, to) = (self.span(operand, extent), self.span(destination, extent));
                    let right = self.apart[memory as usize].part(0, extent.bytes);
                    let (dtype, by) = (self.descriptor.dtype, self.combination(completes));
                    self.program.push(Step::Combine { left, right, to, dtype, by });
                }
            }
            Move::Copy(step) => {
                let (action, extent) = self.step(step);
                let Action::Copy { source, destination } = action else { return };
                let (from, to) = (self.span(source, extent), self.span(destination, extent));
                self.program.copy(from, to);
            }
        }
    }

    fn step(&self, step: StepIndex) -> (Action, BoundExtent) {
        (self.call.schedule.steps[step.index()].action, self.call.extent(step))
    }

    fn message(&self, one: Move, action: Action, extent: BoundExtent) -> Step {
        match (action, one) {
            (Action::Send { peer, source }, _) => {
                Step::Send { from: self.span(source, extent), peer: peer.into() }
            }
            (Action::RecvReduce { peer, .. }, Move::RecvApart(_, memory)) => {
                Step::Recv { to: self.apart[memory as usize].part(0, extent.bytes), peer: peer.into() }
            }
            (Action::Recv { peer, destination } | Action::RecvReduce { peer, destination, .. }, _) => {
                Step::Recv { to: self.span(destination, extent), peer: peer.into() }
            }
            (Action::Copy { source, destination }, _) => {
                Step::Copy { from: self.span(source, extent), to: self.span(destination, extent) }
            }
        }
    }

    fn span(&self, slot: Slot, extent: BoundExtent) -> Span {
        match slot {
            Slot::Input => self.input.part(extent.input_at, extent.bytes),
            Slot::Output => Span { region: Region::Output, offset: extent.output_at, bytes: extent.bytes },
            Slot::Scratch(chunk) => self.scratch[chunk as usize].part(0, extent.bytes),
        }
    }

    /// The operator's effect on two values; `completes` where the last contribution is added.
    fn combination(&self, completes: bool) -> Combination {
        match self.descriptor.op {
            Some(ReduceOp::Avg) if completes && self.ranks > 1 => Combination::Mean { ranks: self.ranks },
            Some(ReduceOp::Prod) => Combination::Prod,
            Some(ReduceOp::Min) => Combination::Min,
            Some(ReduceOp::Max) => Combination::Max,
            Some(ReduceOp::BitAnd) => Combination::BitAnd,
            Some(ReduceOp::BitOr) => Combination::BitOr,
            Some(ReduceOp::BitXor) => Combination::BitXor,
            // `Capabilities::check_scheduled` has refused a function of the user's.
            Some(ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum(_) | ReduceOp::User(_)) | None => {
                Combination::Sum
            }
        }
    }
}

/// The bytes of the longest extent of these steps.
fn longest(call: &ScheduledCall, steps: &[StepIndex]) -> usize {
    steps.iter().map(|step| call.extent(*step).bytes).max().unwrap_or(0)
}
