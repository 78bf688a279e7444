//! The use of the gradients of a step in a training: they travel, and they move the parameters.

use std::sync::Arc;

use unisono::compression::one_bit_adam::{Adam, AdamOptions, OneBitAdam, OneBitAdamOptions};
use unisono::compression::{
    Codec, CompressedCollectives, CompressionState, SignL1, codec_by_name, wire_bytes,
};
use unisono::{Collective, Collectives, Communicator, DType, Group, ReduceOp, Result, Shrunk};
use unisono_schedule::{Action, Admit, Choice};

use super::method::Method;
use crate::combine::combine;
use crate::forecast::Forecast;

const MOMENTUM: f32 = 0.9;
/// The share of a training's steps in which 1-bit Adam measures the variance: one in so many.
const WARMUP_STEPS_IN: u64 = 5;

/// The optimizer of one training, on one rank.
pub(crate) enum Optimiser {
    /// Gradient descent with momentum, exact gradients.
    Momentum(Momentum),
    /// Adam, exact gradients.
    Adam(Adam),
    /// Adam, compressed gradients.
    CompressedAdam(Adam, CompressionState),
    OneBitAdam(OneBitAdam),
}

/// The velocity of every parameter, and its value before the last step.
pub(crate) struct Momentum {
    velocity: Vec<f32>,
    previous: Vec<f32>,
}

/// The bytes of one step's gradients that all ranks together send, without headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) exact_bytes: u64,
    /// Of a step that compresses; the same as the exact ones if none does.
    pub(crate) compressed_bytes: u64,
}

impl Optimiser {
    /// The optimiser of the plain demonstration (`None`), or of a method.
    pub(crate) fn new(
        comm: &dyn Communicator,
        method: Option<Method>,
        parameters: usize,
        steps: u64,
    ) -> Result<Optimiser> {
        let Some(method) = method else {
            let zeros = vec![0.0; parameters];
            return Ok(Optimiser::Momentum(Momentum { velocity: zeros.clone(), previous: zeros }));
        };
        let state = |codec| CompressionState::with_codec(comm, codec, DType::F32, parameters);
        let adam = || Adam::new(parameters, AdamOptions::default());
        let one_bit = |codec: SignL1| {
            let options = OneBitAdamOptions::new((steps / WARMUP_STEPS_IN).max(1));
            OneBitAdam::new(state(Arc::new(codec))?, options).map(Optimiser::OneBitAdam)
        };
        match method {
            Method::None => Ok(Optimiser::Adam(adam()?)),
            Method::Sign => one_bit(SignL1::default()),
            Method::SignNoFeedback => one_bit(SignL1::default().without_feedback()),
            Method::SignGradient => Ok(Optimiser::CompressedAdam(adam()?, state(codec_by_name("sign")?)?)),
            Method::Int8 | Method::Int4 | Method::Bf16 => {
                Ok(Optimiser::CompressedAdam(adam()?, state(codec_by_name(method.name())?)?))
            }
        }
    }

    /// Averages the ranks' gradients and moves the parameters. The gradient is used as memory. After a failure nothing
    /// else has changed.
    pub(crate) fn step(
        &mut self,
        comm: &dyn Communicator,
        parameters: &mut [f32],
        gradient: &mut [f32],
        learning_rate: f32,
    ) -> Result<()> {
        match self {
            Optimiser::Momentum(momentum) => {
                comm.all_reduce(gradient, ReduceOp::Avg)?;
                momentum.step(parameters, gradient, learning_rate);
                Ok(())
            }
            Optimiser::Adam(adam) => {
                comm.all_reduce(gradient, ReduceOp::Avg)?;
                adam.step(parameters, gradient, learning_rate)
            }
            Optimiser::CompressedAdam(adam, state) => {
                comm.compressed_all_reduce(gradient, ReduceOp::Avg, state)?;
                adam.step(parameters, gradient, learning_rate)
            }
            Optimiser::OneBitAdam(adam) => adam.step(comm, parameters, gradient, learning_rate),
        }
    }

    /// Whether the next step exchanges exact gradients before others are compressed.
    pub(crate) fn is_warming_up(&self) -> bool {
        matches!(self, Optimiser::OneBitAdam(adam) if adam.is_warming_up())
    }

    /// Goes over to the communicator of the survivors, of which some may have done one step more than the others.
    /// Whether this rank had; then its last step is taken back. Collective.
    pub(crate) fn rebind(&mut self, shrunk: &Shrunk, steps_done: u64) -> Result<bool> {
        let comm = &*shrunk.communicator;
        if let Optimiser::OneBitAdam(adam) = self {
            return Ok(adam.rebind(shrunk)?.undone);
        }
        let mut common = [steps_done];
        combine(comm, &mut common, ReduceOp::Min)?;
        let is_ahead = common[0] < steps_done;
        match self {
            Optimiser::Momentum(momentum) if is_ahead => momentum.undo(),
            Optimiser::Adam(adam) if is_ahead => adam.undo()?,
            Optimiser::CompressedAdam(adam, state) => {
                state.rebind(shrunk)?;
                if is_ahead {
                    adam.undo()?;
                }
            }
            Optimiser::Momentum(_) | Optimiser::Adam(_) | Optimiser::OneBitAdam(_) => {}
        }
        Ok(is_ahead)
    }

    /// The bytes that a step of this group sends.
    pub(crate) fn traffic(&self, group: &Group, parameters: usize) -> Traffic {
        let exact_bytes = exact_bytes(group, parameters as u64);
        let compressed = |codec: &dyn Codec| wire_bytes(codec, parameters, group.size() as usize);
        let compressed_bytes = match self {
            Optimiser::Momentum(_) | Optimiser::Adam(_) => exact_bytes,
            Optimiser::CompressedAdam(_, state) => compressed(state.codec()),
            Optimiser::OneBitAdam(adam) => compressed(adam.state().codec()),
        };
        Traffic { exact_bytes, compressed_bytes }
    }
}

impl Momentum {
    fn step(&mut self, parameters: &mut [f32], gradient: &[f32], learning_rate: f32) {
        self.previous.copy_from_slice(&self.velocity);
        for ((parameter, velocity), gradient) in parameters.iter_mut().zip(&mut self.velocity).zip(gradient) {
            *velocity = MOMENTUM * *velocity - learning_rate * gradient;
            *parameter += *velocity;
        }
    }

    fn undo(&mut self) {
        self.velocity.copy_from_slice(&self.previous);
    }
}

/// The bytes that all ranks send in one exact all-reduce of `elements` f32. On one rank no schedule runs and nothing is
/// sent.
fn exact_bytes(group: &Group, elements: u64) -> u64 {
    let in_place = Admit { in_place: true, ..Admit::ANY };
    let pick = |forecast: Forecast| {
        forecast.pick(Collective::AllReduce, elements * size_of::<f32>() as u64, &in_place)
    };
    unisono::algorithms::forecast_of_group(group)
        .ok()
        .and_then(pick)
        .map_or(0, |choice| bytes_sent(&choice, elements))
}

/// The sum over the sends of an all-reduce's schedule.
fn bytes_sent(choice: &Choice, elements: u64) -> u64 {
    let Choice { algorithm, shape } = choice;
    let sent_by = |rank| {
        let schedule = algorithm.schedule(shape, rank);
        let offset = |chunk: u32| elements * u64::from(chunk) / u64::from(schedule.chunks);
        let sends = schedule.steps.iter().filter(|step| matches!(step.action, Action::Send { .. }));
        sends.map(|step| offset(step.extent + 1) - offset(step.extent)).sum::<u64>()
    };
    (0..shape.ranks).map(sent_by).sum::<u64>() * size_of::<f32>() as u64
}

#[cfg(test)]
mod tests {
    use unisono_schedule::{Registry, Shape};

    use super::*;

    #[test]
    fn a_ring_sends_twice_its_vector_but_for_one_share() {
        let ring = |ranks| {
            Choice::named(&Registry::built_in(), Collective::AllReduce, "ring", &Shape::new(ranks)).unwrap()
        };
        assert_eq!(bytes_sent(&ring(4), 1000), 4 * 2 * 750 * 4);
        assert_eq!(bytes_sent(&ring(3), 1001), 2 * 2 * 1001 * 4);
    }
}
