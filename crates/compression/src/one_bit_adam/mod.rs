//! 1-bit Adam: Adam whose steps exchange one bit for each parameter.
//!
//! Adam cannot take compressed gradients: it divides by the root of their squares, and error feedback, which makes
//! compression harmless, needs an update that is linear in the compressed values (Tang et al., "1-bit Adam", ICML
//! 2021). So the variance is measured for some steps with exact gradients and then frozen; from then on each rank adds
//! its gradient to the common momentum, and the ranks average the results with
//! [`crate::CompressedCollectives::compressed_all_reduce`].
//!
//! The paper compresses the momentum itself. One bit cannot say zero: a parameter whose gradient was always zero then
//! gets a momentum of the size of its neighbours', and is divided by the root of its variance, which is zero. The
//! training ends in NaN unless somebody knows these parameters and masks them. Here the ranks compress by default the
//! vector that Adam will use, the momentum divided by the root of the frozen variance ([`Exchanged::Preconditioned`]).
//! It is linear in the gradients too, so that error feedback works as before; its elements are all of the same size, so
//! that one scale fits them; and a parameter without variance stands still, without a mask.
//!
//! Where the idea ends: a parameter whose gradients were zero for all of the warm-up never moves. Take a warm-up that
//! has seen the whole data.

mod adam;
mod checkpoint;

use std::iter::zip;

use unisono_collectives::{Collectives, skips};
use unisono_communicator::{
    CallInfo, CallOptions, Collective, Communicator, DType, Descriptor, Error, ParentCall, Place, ReduceOp,
    Result, Scope, Shrunk, zeroed,
};

pub use adam::{Adam, AdamOptions};
use adam::{bias_correction, first_unusable};

use crate::rebind::own_calls;
use crate::{CompressedCollectives, CompressionState, Rebound};

/// The name of an exact step in error messages.
const WARMUP_NAME: &str = "one_bit_adam/warmup";
/// No element that must not be.
const NONE: u64 = u64::MAX;

/// The vector that the ranks exchange after the warm-up.
#[derive(Clone, Debug, PartialEq)]
pub enum Exchanged {
    /// The momentum divided by the root of the frozen variance.
    Preconditioned,
    /// The momentum itself, as in the paper and in DeepSpeed.
    Momentum {
        /// Whether each parameter has a momentum, the same on all ranks; other momenta are set to zero after each
        /// exchange. `None`: all parameters whose frozen variance is not zero have one.
        mask: Option<Vec<bool>>,
    },
}

/// The options of [`OneBitAdam`]. They must be equal on all ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct OneBitAdamOptions {
    /// The constants of Adam.
    pub adam: AdamOptions,
    /// The number of steps that exchange exact gradients; at least 1. The variance is frozen after them. 15 to 25 % of
    /// a training are usual.
    pub freeze_step: u64,
    /// The vector that the other steps exchange.
    pub exchanged: Exchanged,
}

impl OneBitAdamOptions {
    /// The constants of Adam's paper, the preconditioned momentum, and a warm-up of so many steps.
    pub fn new(freeze_step: u64) -> OneBitAdamOptions {
        OneBitAdamOptions { adam: AdamOptions::default(), freeze_step, exchanged: Exchanged::Preconditioned }
    }

    fn check(&self, parameters: usize) -> Result<()> {
        self.adam.check()?;
        if self.freeze_step == 0 {
            return Err(Error::invalid(
                "freeze_step",
                "0: without a warm-up there is no variance to divide by",
            ));
        }
        match &self.exchanged {
            Exchanged::Momentum { mask: Some(mask) } if mask.len() != parameters => Err(Error::invalid(
                "mask",
                format!("has {} elements for {parameters} parameters", mask.len()),
            )),
            Exchanged::Momentum { .. } | Exchanged::Preconditioned => Ok(()),
        }
    }
}

/// 1-bit Adam for one flat vector of parameters, the same on all ranks; see the [module](self).
///
/// All ranks keep the same bits: of the parameters, if they began with the same, and of everything in here but the
/// residuals. Any codec can be used, with error feedback if it needs that.
///
/// The step before the last is kept too ([`OneBitAdam::rebind`]). Memory for each parameter: 16 bytes, and the memory
/// of the [`CompressionState`].
///
/// ```
/// # mod unisono { pub use {unisono_collectives::*, unisono_communicator::*, unisono_compression as compression}; }
/// use unisono::{Communicator, Solo};
/// use unisono::compression::{CompressionState, SignL1};
/// use unisono::compression::one_bit_adam::{OneBitAdam, OneBitAdamOptions};
///
/// let comm = Solo::new();
/// let mut parameters = vec![5.0f32, -3.0];
/// let state = CompressionState::new::<f32>(&comm, SignL1::default(), parameters.len())?;
/// let mut optimizer = OneBitAdam::new(state, OneBitAdamOptions::new(20))?;
/// for step in 0..200 {
///     // The slope of the sum of the squares, on the data of this rank.
///     let mut gradient: Vec<f32> = parameters.iter().map(|parameter| 2.0 * parameter).collect();
///     let learning_rate = 0.2 * (1.0 - step as f32 / 200.0);
///     optimizer.step(&comm, &mut parameters, &mut gradient, learning_rate)?;
/// }
/// assert!(parameters.iter().all(|parameter| parameter.abs() < 0.1), "{parameters:?}");
/// # Ok::<(), unisono_communicator::Error>(())
/// ```
#[derive(Debug)]
pub struct OneBitAdam {
    options: OneBitAdamOptions,
    /// In the warm-up its momentum is Adam's; later, the vector that the ranks exchange.
    adam: Adam,
    /// One over the root of the frozen variance; 0 where that is 0. Empty until the first compressed step.
    preconditioner: Vec<f32>,
    state: CompressionState,
}

/// The state of a training after a shrink.
#[derive(Clone, Debug, PartialEq)]
pub struct Resumed {
    /// The number of steps that the survivors have in common. All of them go on from there.
    pub steps: u64,
    /// Whether this rank had done one more. Then the optimizer has taken it back, and the caller must do the same with
    /// the parameters.
    pub undone: bool,
    /// The fate of the residuals.
    pub residuals: Rebound,
}

impl OneBitAdam {
    /// Before the first step, for as many parameters as `state` has elements. The state belongs to the communicator of
    /// the steps.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an option that cannot be, or a state that is not for an all-reduce of f32.
    /// [`Error::System`] when there is no memory.
    pub fn new(state: CompressionState, options: OneBitAdamOptions) -> Result<OneBitAdam> {
        if state.dtype != DType::F32 {
            return Err(Error::invalid("state", format!("is for {}, the optimizer has f32", state.dtype)));
        }
        let collective = state.shape.collective();
        if collective != Collective::AllReduce {
            return Err(Error::invalid(
                "state",
                format!("is for {collective}, the optimizer makes all_reduce"),
            ));
        }
        options.check(state.elements())?;
        let adam = Adam::new(state.elements(), options.adam)?;
        Ok(OneBitAdam { options, adam, preconditioner: Vec::new(), state })
    }

    /// The number of steps so far.
    pub fn steps(&self) -> u64 {
        self.adam.steps
    }

    /// Whether the next step exchanges exact gradients.
    pub fn is_warming_up(&self) -> bool {
        self.adam.steps < self.options.freeze_step
    }

    /// The residuals.
    pub fn state(&self) -> &CompressionState {
        &self.state
    }

    /// The common vector of all ranks besides the parameters: the momentum, after the warm-up in the form that is
    /// exchanged.
    pub fn momentum(&self) -> &[f32] {
        &self.adam.momentum
    }

    /// Adam's variance, which does not change any more after the warm-up.
    pub fn variance(&self) -> &[f32] {
        &self.adam.variance
    }

    /// One step on all ranks: `gradient` is the mean over the data of this rank. Both slices have one element for each
    /// parameter. The gradient is used as memory; it is undefined afterwards.
    ///
    /// # Errors
    /// [`Error::NonFinite`] on all ranks when some rank's gradient has a NaN or an infinity, or is so large that a
    /// moment would have one. Then nothing has changed but the gradient: the caller goes on with the next batch.
    /// [`Error::InvalidArgument`] before anything is sent. Errors of the communicator; then nothing has changed either,
    /// but other ranks may have done the step ([`OneBitAdam::rebind`]).
    pub fn step(
        &mut self,
        comm: &(impl Communicator + ?Sized),
        parameters: &mut [f32],
        gradient: &mut [f32],
        learning_rate: f32,
    ) -> Result<()> {
        self.adam.check(parameters.len(), gradient.len(), learning_rate)?;
        if self.is_warming_up() {
            average_exactly(comm, gradient)?;
            self.adam.descend(parameters, gradient, learning_rate);
            return Ok(());
        }
        // Again at each attempt: after a failure the last step of the warm-up may have been done anew.
        if self.adam.steps == self.options.freeze_step {
            self.preconditioner = self.precondition()?;
        }
        self.add_momentum(gradient);
        comm.compressed_all_reduce(gradient, ReduceOp::Avg, &mut self.state)?;
        self.mask(gradient);
        self.descend(parameters, gradient, learning_rate);
        Ok(())
    }

    /// One over the root of the variance as it is at the end of the warm-up.
    fn precondition(&self) -> Result<Vec<f32>> {
        let AdamOptions { beta2, epsilon, .. } = self.options.adam;
        let by_correction = 1.0 / bias_correction(beta2, self.options.freeze_step);
        let mut preconditioner = zeroed(self.adam.variance.len())?;
        for (factor, &variance) in zip(&mut preconditioner, &self.adam.variance) {
            if variance > 0.0 {
                *factor = 1.0 / ((variance * by_correction).sqrt() + epsilon);
            }
        }
        Ok(preconditioner)
    }

    /// Makes of this rank's gradient its part of the new momentum. A NaN and an infinity stay, also where the variance
    /// is 0, so that the exchange finds them.
    fn add_momentum(&self, gradient: &mut [f32]) {
        let beta1 = self.options.adam.beta1;
        let moments = zip(&self.adam.momentum, &self.preconditioner);
        match self.options.exchanged {
            // The last momentum of the warm-up is Adam's.
            Exchanged::Preconditioned if self.adam.steps == self.options.freeze_step => {
                for (gradient, (momentum, factor)) in zip(gradient, moments) {
                    *gradient = (beta1 * momentum + (1.0 - beta1) * *gradient) * factor;
                }
            }
            Exchanged::Preconditioned => {
                for (gradient, (momentum, factor)) in zip(gradient, moments) {
                    *gradient = beta1 * momentum + (1.0 - beta1) * (*gradient * factor);
                }
            }
            Exchanged::Momentum { .. } => {
                for (gradient, (momentum, _)) in zip(gradient, moments) {
                    *gradient = beta1 * momentum + (1.0 - beta1) * *gradient;
                }
            }
        }
    }

    /// One bit does not say zero: puts the zeros back.
    fn mask(&self, momentum: &mut [f32]) {
        let zero_unless = |momentum: &mut f32, keep: bool| {
            if !keep {
                *momentum = 0.0;
            }
        };
        match &self.options.exchanged {
            Exchanged::Momentum { mask: Some(mask) } => {
                zip(momentum, mask).for_each(|(momentum, &keep)| zero_unless(momentum, keep));
            }
            Exchanged::Preconditioned | Exchanged::Momentum { mask: None } => {
                zip(momentum, &self.preconditioner)
                    .for_each(|(momentum, &by)| zero_unless(momentum, by > 0.0));
            }
        }
    }

    /// Takes over the momentum that all ranks have agreed on, and moves the parameters.
    fn descend(&mut self, parameters: &mut [f32], momentum: &[f32], learning_rate: f32) {
        let AdamOptions { beta1, epsilon, weight_decay, .. } = self.options.adam;
        let adam = &mut self.adam;
        adam.steps += 1;
        std::mem::swap(&mut adam.momentum, &mut adam.previous.momentum);
        adam.momentum.copy_from_slice(momentum);
        adam.previous.is_there = true;
        // From here on no rank can go back to a step of the warm-up.
        adam.previous.variance = Vec::new();
        let length = learning_rate / bias_correction(beta1, adam.steps);
        let kept = 1.0 - learning_rate * weight_decay;
        match self.options.exchanged {
            Exchanged::Preconditioned => {
                for (parameter, momentum) in zip(parameters, momentum) {
                    *parameter = kept * *parameter - length * momentum;
                }
            }
            Exchanged::Momentum { .. } => {
                for (parameter, (momentum, &by)) in zip(parameters, zip(momentum, &self.preconditioner)) {
                    // A parameter of the caller's mask may have no variance: it is divided by epsilon, as in DeepSpeed.
                    let by = if by > 0.0 { by } else { 1.0 / epsilon };
                    *parameter = kept * *parameter - length * (momentum * by);
                }
            }
        }
    }

    /// Takes the optimizer along to the communicator of the survivors, with the residuals, so that the training goes on
    /// where it was: from the last step that all survivors have done. Some may have done one more; they take it back,
    /// and must do the same with their parameters ([`Resumed::undone`]). Collective over the survivors.
    ///
    /// ```no_run
    /// # use unisono_collectives::Solo;
    /// # use unisono_communicator::{Communicator, Error};
    /// # use unisono_compression::one_bit_adam::OneBitAdam;
    /// # fn go_on(comm: &Solo, mut optimizer: OneBitAdam, mut parameters: Vec<f32>) -> Result<(), Error> {
    /// # let (mut gradient, before) = (parameters.clone(), parameters.clone());
    /// let failed = optimizer.step(comm, &mut parameters, &mut gradient, 0.1);
    /// if matches!(failed, Err(Error::PeerLost { .. })) {
    ///     let shrunk = comm.shrink()?;
    ///     if optimizer.rebind(&shrunk)?.undone {
    ///         parameters.copy_from_slice(&before);
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The errors of [`CompressionState::rebind`] and of one all-reduce; the optimizer is then as before.
    pub fn rebind(&mut self, shrunk: &Shrunk) -> Result<Resumed> {
        // Signed: not every library reduces unsigned integers.
        let mut common = [self.adam.steps.cast_signed()];
        shrunk.communicator.with(own_calls()).all_reduce(&mut common, ReduceOp::Min)?;
        let steps = common[0].cast_unsigned();
        let undone = self.adam.steps > steps;
        let residuals = self.state.rebind(shrunk)?;
        if undone {
            self.adam.undo()?;
        }
        Ok(Resumed { steps, undone, residuals })
    }
}

/// The mean of all ranks' gradients, in full precision; refused on all ranks when a moment could not hold it.
fn average_exactly(comm: &(impl Communicator + ?Sized), gradient: &mut [f32]) -> Result<()> {
    let all_reduce = Descriptor {
        op: Some(ReduceOp::Avg),
        place: Place::InPlace,
        ..Descriptor::new(Collective::AllReduce, DType::F32, gradient.len() as u64)
    };
    if skips(comm, all_reduce.operation)? {
        return Ok(());
    }
    let options = CallOptions::new().host_by_companion();
    let scope = comm.scope(ParentCall::new(WARMUP_NAME, all_reduce), &options)?;
    let own = first_unusable(gradient);
    scope.all_reduce(gradient, ReduceOp::Avg)?;
    // All ranks have the same bits, and find the same.
    match first_unusable(gradient) {
        None => Ok(()),
        Some(at) => Err(blame(&scope, own, at, all_reduce)?),
    }
}

/// The error that names the rank whose gradient is to blame for element `at` of the sum, which cannot be used.
fn blame(scope: &Scope, own: Option<usize>, at: usize, call: Descriptor) -> Result<Error> {
    let number = scope.numbers().start;
    let mut firsts = vec![NONE; scope.group().size() as usize];
    scope.all_gather(&[own.map_or(NONE, |at| at as u64)], &mut firsts)?;
    let worst = zip(scope.group().job_ranks(), &firsts).find(|(_, first)| **first != NONE);
    // All gradients can be finite and their sum infinite; then every rank has it.
    let (rank, block) =
        worst.map_or((scope.group().job_ranks()[0], at as u64), |(rank, first)| (*rank, *first));
    Ok(Error::NonFinite { rank, block, block_elements: 1, call: Box::new(CallInfo::new(number, call)) })
}
