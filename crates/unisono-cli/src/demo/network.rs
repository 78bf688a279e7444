//! A small network in plain f32: 64 inputs, 64 rectified hidden units, softmax over 10 classes.
//!
//! All parameters lie in one flat vector, so that one all-reduce averages the whole gradient. Sums are taken in a fixed
//! order, so that the same data give the same bits.

use super::digits::Digit;
use crate::random::Random;

pub(crate) const INPUTS: usize = 64;
pub(crate) const HIDDEN: usize = 64;
pub(crate) const CLASSES: usize = 10;
/// Two layers of weights and biases.
pub(crate) const PARAMETERS: usize = HIDDEN * INPUTS + HIDDEN + CLASSES * HIDDEN + CLASSES;

/// The parameters, or the gradient with respect to them: `hidden` and `output` rows of weights, each with its biases.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) parameters: Vec<f32>,
}

/// The four parts of a parameter vector.
struct Layers<'a> {
    hidden: &'a [[f32; INPUTS]],
    hidden_bias: &'a [f32],
    output: &'a [[f32; HIDDEN]],
    output_bias: &'a [f32],
}

struct LayersMut<'a> {
    hidden: &'a mut [[f32; INPUTS]],
    hidden_bias: &'a mut [f32],
    output: &'a mut [[f32; HIDDEN]],
    output_bias: &'a mut [f32],
}

fn layers(parameters: &[f32]) -> Layers<'_> {
    let (hidden, rest) = parameters.split_at(HIDDEN * INPUTS);
    let (hidden_bias, rest) = rest.split_at(HIDDEN);
    let (output, output_bias) = rest.split_at(CLASSES * HIDDEN);
    Layers { hidden: hidden.as_chunks().0, hidden_bias, output: output.as_chunks().0, output_bias }
}

fn layers_mut(parameters: &mut [f32]) -> LayersMut<'_> {
    let (hidden, rest) = parameters.split_at_mut(HIDDEN * INPUTS);
    let (hidden_bias, rest) = rest.split_at_mut(HIDDEN);
    let (output, output_bias) = rest.split_at_mut(CLASSES * HIDDEN);
    LayersMut { hidden: hidden.as_chunks_mut().0, hidden_bias, output: output.as_chunks_mut().0, output_bias }
}

/// What the network computes for one image.
struct Activations {
    hidden: [f32; HIDDEN],
    probabilities: [f32; CLASSES],
}

impl Network {
    /// Random weights (Glorot's range) from `seed`, biases 0.
    pub(crate) fn new(seed: u64) -> Network {
        let mut parameters = vec![0.0; PARAMETERS];
        let mut random = Random::new(seed);
        let parts = layers_mut(&mut parameters);
        let hidden_range = (6.0 / (INPUTS + HIDDEN) as f32).sqrt();
        let output_range = (6.0 / (HIDDEN + CLASSES) as f32).sqrt();
        parts.hidden.iter_mut().flatten().for_each(|w| *w = random.signed_unit() * hidden_range);
        parts.output.iter_mut().flatten().for_each(|w| *w = random.signed_unit() * output_range);
        Network { parameters }
    }

    fn activations(&self, pixels: &[f32; INPUTS]) -> Activations {
        let parts = layers(&self.parameters);
        let hidden =
            std::array::from_fn(|unit| (dot(&parts.hidden[unit], pixels) + parts.hidden_bias[unit]).max(0.0));
        let scores: [f32; CLASSES] =
            std::array::from_fn(|class| dot(&parts.output[class], &hidden) + parts.output_bias[class]);
        // The largest is subtracted, so that the exponential cannot overflow.
        let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exponentials = scores.map(|score| (score - largest).exp());
        let sum: f32 = exponentials.iter().sum();
        Activations { hidden, probabilities: exponentials.map(|exponential| exponential / sum) }
    }

    /// Which class the image most likely shows.
    pub(crate) fn classify(&self, pixels: &[f32; INPUTS]) -> usize {
        let probabilities = self.activations(pixels).probabilities;
        (1..CLASSES)
            .fold(0, |best, class| if probabilities[class] > probabilities[best] { class } else { best })
    }

    /// Adds `weight` times the gradient of the cross-entropy of `digit` to `gradient`, and returns `weight` times the
    /// cross-entropy.
    pub(crate) fn add_gradient(&self, digit: &Digit, weight: f32, gradient: &mut [f32]) -> f32 {
        let Activations { hidden, probabilities } = self.activations(&digit.pixels);
        let parts = layers(&self.parameters);
        let into = layers_mut(gradient);
        let mut by_hidden = [0.0f32; HIDDEN];
        for (class, probability) in probabilities.iter().enumerate() {
            let truth = if class == digit.label { 1.0 } else { 0.0 };
            let by_score = weight * (probability - truth);
            into.output_bias[class] += by_score;
            for unit in 0..HIDDEN {
                into.output[class][unit] += by_score * hidden[unit];
                by_hidden[unit] += by_score * parts.output[class][unit];
            }
        }
        for unit in (0..HIDDEN).filter(|&unit| hidden[unit] > 0.0) {
            into.hidden_bias[unit] += by_hidden[unit];
            for (into, pixel) in into.hidden[unit].iter_mut().zip(&digit.pixels) {
                *into += by_hidden[unit] * pixel;
            }
        }
        -weight * probabilities[digit.label].max(f32::MIN_POSITIVE).ln()
    }
}

fn dot<const N: usize>(a: &[f32; N], b: &[f32; N]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::digits::Digits;

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let digits = Digits::load();
        let mut network = Network::new(3);
        let digit = &digits.training[17];
        let mut gradient = vec![0.0; PARAMETERS];
        network.add_gradient(digit, 1.0, &mut gradient);
        let mut random = Random::new(5);
        let mut ignored = vec![0.0; PARAMETERS];
        let mut steep = 0;
        for _ in 0..300 {
            let at = random.below(PARAMETERS as u64) as usize;
            let before = network.parameters[at];
            let mut loss_at = |value: f32| {
                network.parameters[at] = value;
                network.add_gradient(digit, 1.0, &mut ignored)
            };
            let slope = (loss_at(before + 1e-3) - loss_at(before - 1e-3)) / 2e-3;
            loss_at(before);
            assert!(
                (slope - gradient[at]).abs() < 2e-3 + 0.02 * slope.abs(),
                "{at}: {slope} {}",
                gradient[at]
            );
            steep += u32::from(slope.abs() > 1e-2);
        }
        assert!(steep > 30, "{steep} of 300 slopes differ from 0");
    }
}
