//! Adam on one rank: no communication, and one step back.

use unisono_communicator::{Error, Result, zeroed};

/// The constants of Adam, in the names of its authors (Kingma and Ba, "Adam: A Method for Stochastic Optimization",
/// ICLR 2015).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamOptions {
    /// The part of the momentum that stays in each step, 0 to below 1.
    pub beta1: f32,
    /// The part of the variance that stays in each step, 0 to below 1.
    pub beta2: f32,
    /// Added to the root of the variance; above 0.
    pub epsilon: f32,
    /// The share of every parameter that a step takes away, times the learning rate (AdamW); 0 for none.
    pub weight_decay: f32,
}

impl Default for AdamOptions {
    /// The options of the paper: 0.9, 0.999, 1e-8, and no weight decay.
    fn default() -> AdamOptions {
        AdamOptions { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 }
    }
}

impl AdamOptions {
    /// # Errors
    /// [`Error::InvalidArgument`] for a constant outside of its range.
    pub(super) fn check(&self) -> Result<()> {
        let AdamOptions { beta1, beta2, epsilon, weight_decay } = *self;
        let is_positive = |value: f32| value > 0.0 && value.is_finite();
        let rules = [
            ("beta1", beta1, (0.0..1.0).contains(&beta1), "0 to below 1"),
            ("beta2", beta2, (0.0..1.0).contains(&beta2), "0 to below 1"),
            ("epsilon", epsilon, is_positive(epsilon), "above 0"),
            ("weight_decay", weight_decay, weight_decay == 0.0 || is_positive(weight_decay), "0 or above"),
        ];
        match rules.iter().find(|(_, _, is_valid, _)| !is_valid) {
            None => Ok(()),
            Some((name, value, _, allowed)) => {
                Err(Error::invalid(name, format!("{value}, allowed is {allowed}")))
            }
        }
    }
}

/// Adam for one flat vector of parameters, with bias correction and decoupled weight decay.
///
/// It keeps the moments of the step before too, because after a failure some ranks have done one step more than others
/// ([`Adam::undo`]). Memory: 16 bytes for each parameter.
///
/// The same gradients give the same bits on every machine.
///
/// ```
/// # mod unisono { pub use unisono_compression as compression; }
/// use unisono::compression::one_bit_adam::{Adam, AdamOptions};
/// let mut adam = Adam::new(2, AdamOptions::default())?;
/// let mut parameters = [1.0f32, 1.0];
/// adam.step(&mut parameters, &[0.3, 0.0], 0.1)?;
/// // The first step has the length of the learning rate for every gradient but 0.
/// assert!((parameters[0] - 0.9).abs() < 1e-6 && parameters[1] == 1.0);
/// # Ok::<(), unisono_communicator::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Adam {
    pub(super) options: AdamOptions,
    pub(super) steps: u64,
    pub(super) momentum: Vec<f32>,
    pub(super) variance: Vec<f32>,
    pub(super) previous: Previous,
}

/// The moments before the last step.
#[derive(Clone, Debug)]
pub(super) struct Previous {
    pub(super) momentum: Vec<f32>,
    /// Empty once the variance does not change any more.
    pub(super) variance: Vec<f32>,
    /// Whether the vectors hold something: a step was done, and not taken back.
    pub(super) is_there: bool,
}

impl Adam {
    /// For so many parameters, before the first step.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a constant outside of its range; [`Error::System`] when there is no memory.
    pub fn new(parameters: usize, options: AdamOptions) -> Result<Adam> {
        options.check()?;
        let previous =
            Previous { momentum: zeroed(parameters)?, variance: zeroed(parameters)?, is_there: false };
        Ok(Adam { options, steps: 0, momentum: zeroed(parameters)?, variance: zeroed(parameters)?, previous })
    }

    /// The number of steps so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// One step: `gradient` is the mean over all ranks. Both slices have one element for each parameter.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another length, for a learning rate that is negative or not finite, and for a
    /// gradient with a NaN, an infinity, or an element whose square is not finite. Then nothing has changed.
    pub fn step(&mut self, parameters: &mut [f32], gradient: &[f32], learning_rate: f32) -> Result<()> {
        self.check(parameters.len(), gradient.len(), learning_rate)?;
        if let Some(at) = first_unusable(gradient) {
            let value = gradient[at];
            return Err(Error::invalid(
                "gradient",
                format!("element {at} is {value}; its square must be finite"),
            ));
        }
        self.descend(parameters, gradient, learning_rate);
        Ok(())
    }

    /// # Errors
    /// [`Error::InvalidArgument`] for arguments that no step can have.
    pub(super) fn check(&self, parameters: usize, gradient: usize, learning_rate: f32) -> Result<()> {
        for (argument, length) in [("parameters", parameters), ("gradient", gradient)] {
            if length != self.momentum.len() {
                let expected = self.momentum.len();
                return Err(Error::invalid(
                    argument,
                    format!("has {length} elements, the optimizer {expected}"),
                ));
            }
        }
        if learning_rate >= 0.0 && learning_rate.is_finite() {
            return Ok(());
        }
        Err(Error::invalid("learning_rate", format!("{learning_rate}, allowed is 0 or above")))
    }

    /// A step whose arguments have been checked.
    pub(super) fn descend(&mut self, parameters: &mut [f32], gradient: &[f32], learning_rate: f32) {
        let AdamOptions { beta1, beta2, epsilon, weight_decay } = self.options;
        self.steps += 1;
        std::mem::swap(&mut self.momentum, &mut self.previous.momentum);
        std::mem::swap(&mut self.variance, &mut self.previous.variance);
        self.previous.is_there = true;
        let length = learning_rate / bias_correction(beta1, self.steps);
        let by_correction = 1.0 / bias_correction(beta2, self.steps);
        let kept = 1.0 - learning_rate * weight_decay;
        let before = self.previous.momentum.iter().zip(&self.previous.variance);
        let moments = self.momentum.iter_mut().zip(&mut self.variance).zip(before);
        for ((parameter, &gradient), ((momentum, variance), (momentum_before, variance_before))) in
            parameters.iter_mut().zip(gradient).zip(moments)
        {
            *momentum = beta1 * momentum_before + (1.0 - beta1) * gradient;
            *variance = beta2 * variance_before + (1.0 - beta2) * (gradient * gradient);
            let root = (*variance * by_correction).sqrt() + epsilon;
            *parameter = kept * *parameter - length * *momentum / root;
        }
    }

    /// Takes the last step back: the next one gives the same as it would have given before. Parameters are the
    /// caller's.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when no step was done since the last one was taken back.
    pub fn undo(&mut self) -> Result<()> {
        if !self.previous.is_there {
            return Err(Error::invalid("optimizer", "has no step that could be taken back: it keeps one"));
        }
        std::mem::swap(&mut self.momentum, &mut self.previous.momentum);
        // After the freeze there is one variance for both steps.
        if !self.previous.variance.is_empty() {
            std::mem::swap(&mut self.variance, &mut self.previous.variance);
        }
        self.previous.is_there = false;
        self.steps -= 1;
        Ok(())
    }
}

/// The moving average after `steps` values of 1, when it began at zero: 1 - beta^steps.
///
/// Products only: `powf` may give other bits on another machine, and ranks would drift apart.
pub(super) fn bias_correction(beta: f32, steps: u64) -> f32 {
    let (mut power, mut square, mut left) = (1.0f64, f64::from(beta), steps);
    while left > 0 {
        if left & 1 == 1 {
            power *= square;
        }
        square *= square;
        left >>= 1;
    }
    (1.0 - power) as f32
}

/// The first element that would leave a NaN or an infinity in a moment.
pub(super) fn first_unusable(gradient: &[f32]) -> Option<usize> {
    gradient.iter().position(|value| !(value * value).is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_steps_are_those_of_the_definition() {
        let options = AdamOptions { beta1: 0.8, beta2: 0.99, epsilon: 1e-3, weight_decay: 0.1 };
        let mut adam = Adam::new(1, options).unwrap();
        let mut parameters = [2.0f32];
        let (mut m, mut v, mut p) = (0.0f64, 0.0f64, 2.0f64);
        for (step, (gradient, rate)) in [(0.5f32, 0.1f32), (-2.0, 0.05), (0.0, 0.01)].into_iter().enumerate()
        {
            adam.step(&mut parameters, &[gradient], rate).unwrap();
            let (g, lr, t) = (f64::from(gradient), f64::from(rate), step as i32 + 1);
            m = 0.8 * m + 0.2 * g;
            v = 0.99 * v + 0.01 * g * g;
            let update = m / (1.0 - 0.8f64.powi(t)) / ((v / (1.0 - 0.99f64.powi(t))).sqrt() + 1e-3);
            p = p - lr * 0.1 * p - lr * update;
            assert!((f64::from(parameters[0]) - p).abs() < 1e-5, "step {t}: {} {p}", parameters[0]);
        }
        assert_eq!(adam.steps(), 3);
    }

    #[test]
    fn a_step_that_was_taken_back_leaves_no_trace() {
        let mut adam = Adam::new(2, AdamOptions::default()).unwrap();
        assert!(adam.undo().is_err(), "there is none");
        let mut parameters = [1.0f32, -1.0];
        adam.step(&mut parameters, &[0.25, 3.0], 0.1).unwrap();
        let expected = {
            let (mut adam, mut parameters) = (adam.clone(), parameters);
            adam.step(&mut parameters, &[-1.0, 0.5], 0.1).unwrap();
            parameters
        };
        adam.step(&mut parameters.clone(), &[7.0, 7.0], 0.1).unwrap();
        adam.undo().unwrap();
        assert!(adam.undo().is_err(), "one step is kept");
        adam.step(&mut parameters, &[-1.0, 0.5], 0.1).unwrap();
        assert_eq!(parameters, expected);
    }

    #[test]
    fn what_no_step_can_have_is_refused_and_changes_nothing() {
        let mut adam = Adam::new(1, AdamOptions::default()).unwrap();
        for gradient in [f32::NAN, f32::INFINITY, -1e30] {
            let mut parameters = [1.0f32];
            assert!(adam.step(&mut parameters, &[gradient], 0.1).is_err(), "{gradient}");
            assert_eq!((parameters, adam.steps(), adam.momentum[0]), ([1.0], 0, 0.0));
        }
        for rate in [-0.1, f32::NAN, f32::INFINITY] {
            assert!(adam.step(&mut [1.0], &[1.0], rate).is_err(), "{rate}");
        }
        assert!(adam.step(&mut [1.0, 1.0], &[1.0], 0.1).is_err());
        assert!(adam.step(&mut [1.0], &[], 0.1).is_err());
        let ok = AdamOptions::default();
        for wrong in [
            AdamOptions { beta1: 1.0, ..ok },
            AdamOptions { beta2: -0.1, ..ok },
            AdamOptions { epsilon: 0.0, ..ok },
            AdamOptions { weight_decay: f32::NAN, ..ok },
        ] {
            assert!(Adam::new(1, wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_correction_of_the_bias_is_one_minus_a_power() {
        for (beta, steps) in [(0.9f32, 1), (0.9, 17), (0.999, 1000), (0.0, 3), (0.999, 1 << 40)] {
            let expected = 1.0 - f64::from(beta).powf(steps as f64);
            assert!((f64::from(bias_correction(beta, steps)) - expected).abs() < 1e-7, "{beta} {steps}");
        }
    }
}
