//! A small network in plain f32: one layer of rectified hidden units, softmax over the classes.
//!
//! All parameters lie in one flat vector, so that one all-reduce averages the whole gradient. Sums are taken in a fixed
//! order, so that the same data give the same bits. The weights of an input lie side by side, so that every inner loop
//! runs over neighbours, and a pixel of 0 costs nothing.

use super::images::CLASSES;
use crate::random::Random;

/// The number of units of each layer; there are [`CLASSES`] outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layers {
    pub(crate) inputs: usize,
    pub(crate) hidden: usize,
}

impl Layers {
    /// Weights and biases of both layers.
    pub(crate) fn parameters(self) -> usize {
        self.inputs * self.hidden + self.hidden + self.hidden * CLASSES + CLASSES
    }

    fn split(self, parameters: &[f32]) -> Weights<'_> {
        let (hidden, rest) = parameters.split_at(self.inputs * self.hidden);
        let (hidden_bias, rest) = rest.split_at(self.hidden);
        let (output, output_bias) = rest.split_at(self.hidden * CLASSES);
        Weights { hidden, hidden_bias, output: output.as_chunks().0, output_bias }
    }

    fn split_mut(self, parameters: &mut [f32]) -> WeightsMut<'_> {
        let (hidden, rest) = parameters.split_at_mut(self.inputs * self.hidden);
        let (hidden_bias, rest) = rest.split_at_mut(self.hidden);
        let (output, output_bias) = rest.split_at_mut(self.hidden * CLASSES);
        WeightsMut { hidden, hidden_bias, output: output.as_chunks_mut().0, output_bias }
    }
}

/// A parameter vector: for each input its weights to the hidden units, for each of these its weights to the classes.
struct Weights<'a> {
    hidden: &'a [f32],
    hidden_bias: &'a [f32],
    output: &'a [[f32; CLASSES]],
    output_bias: &'a [f32],
}

struct WeightsMut<'a> {
    hidden: &'a mut [f32],
    hidden_bias: &'a mut [f32],
    output: &'a mut [[f32; CLASSES]],
    output_bias: &'a mut [f32],
}

/// The parameters of a network.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) layers: Layers,
    pub(crate) parameters: Vec<f32>,
}

/// The values that the network computes for one image; kept from image to image for their memory.
pub(crate) struct Activations {
    hidden: Vec<f32>,
    by_hidden: Vec<f32>,
    probabilities: [f32; CLASSES],
}

impl Activations {
    pub(crate) fn new(layers: Layers) -> Activations {
        let zeros = vec![0.0; layers.hidden];
        Activations { hidden: zeros.clone(), by_hidden: zeros, probabilities: [0.0; CLASSES] }
    }
}

impl Network {
    /// Random weights (Glorot's range) from `seed`, biases 0.
    pub(crate) fn new(layers: Layers, seed: u64) -> Network {
        let mut parameters = vec![0.0; layers.parameters()];
        let mut random = Random::new(seed);
        let parts = layers.split_mut(&mut parameters);
        let hidden_range = (6.0 / (layers.inputs + layers.hidden) as f32).sqrt();
        let output_range = (6.0 / (layers.hidden + CLASSES) as f32).sqrt();
        parts.hidden.iter_mut().for_each(|w| *w = random.signed_unit() * hidden_range);
        parts.output.iter_mut().flatten().for_each(|w| *w = random.signed_unit() * output_range);
        Network { layers, parameters }
    }

    fn activate(&self, pixels: &[f32], activations: &mut Activations) {
        let parts = self.layers.split(&self.parameters);
        let Activations { hidden, probabilities: scores, .. } = activations;
        hidden.copy_from_slice(parts.hidden_bias);
        for (weights, &pixel) in parts.hidden.chunks_exact(self.layers.hidden).zip(pixels) {
            add_scaled(hidden, pixel, weights);
        }
        hidden.iter_mut().for_each(|unit| *unit = unit.max(0.0));
        scores.copy_from_slice(parts.output_bias);
        for (weights, &unit) in parts.output.iter().zip(&*hidden) {
            add_scaled(scores, unit, weights);
        }
        // The largest is subtracted, so that the exponential cannot overflow.
        let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        scores.iter_mut().for_each(|score| *score = (*score - largest).exp());
        let sum: f32 = scores.iter().sum();
        scores.iter_mut().for_each(|score| *score /= sum);
    }

    /// The class that the image most likely shows.
    pub(crate) fn classify(&self, pixels: &[f32], activations: &mut Activations) -> usize {
        self.activate(pixels, activations);
        let probabilities = &activations.probabilities;
        (1..CLASSES)
            .fold(0, |best, class| if probabilities[class] > probabilities[best] { class } else { best })
    }

    /// Adds `weight` times the gradient of an image's cross-entropy to `gradient`, and returns the cross-entropy.
    pub(crate) fn add_gradient(
        &self,
        pixels: &[f32],
        label: usize,
        weight: f32,
        activations: &mut Activations,
        gradient: &mut [f32],
    ) -> f32 {
        self.activate(pixels, activations);
        let Activations { hidden, by_hidden, probabilities } = activations;
        let parts = self.layers.split(&self.parameters);
        let into = self.layers.split_mut(gradient);
        let by_score: [f32; CLASSES] = std::array::from_fn(|class| {
            weight * (probabilities[class] - if class == label { 1.0 } else { 0.0 })
        });
        add_scaled(into.output_bias, 1.0, &by_score);
        for (unit, by_unit) in by_hidden.iter_mut().enumerate() {
            add_scaled(&mut into.output[unit], hidden[unit], &by_score);
            let slope = if hidden[unit] > 0.0 { 1.0 } else { 0.0 };
            *by_unit = slope * parts.output[unit].iter().zip(&by_score).map(|(a, b)| a * b).sum::<f32>();
        }
        add_scaled(into.hidden_bias, 1.0, by_hidden);
        for (into, &pixel) in into.hidden.chunks_exact_mut(self.layers.hidden).zip(pixels) {
            add_scaled(into, pixel, by_hidden);
        }
        -probabilities[label].max(f32::MIN_POSITIVE).ln()
    }
}

/// Adds `factor` times `vector` to `into`.
fn add_scaled(into: &mut [f32], factor: f32, vector: &[f32]) {
    if factor != 0.0 {
        into.iter_mut().zip(vector).for_each(|(into, value)| *into += factor * value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::digits;

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let digits = digits::load();
        for hidden in [64, 37] {
            let layers = Layers { inputs: 64, hidden };
            let mut network = Network::new(layers, 3);
            let mut pixels = [0.0; 64];
            digits.training.read(17, &mut pixels);
            let label = digits.training.label(17);
            let mut gradient = vec![0.0; layers.parameters()];
            let mut activations = Activations::new(layers);
            network.add_gradient(&pixels, label, 1.0, &mut activations, &mut gradient);
            let mut random = Random::new(5);
            let mut ignored = vec![0.0; layers.parameters()];
            let mut steep = 0;
            for _ in 0..300 {
                let at = random.below(layers.parameters() as u64) as usize;
                let before = network.parameters[at];
                let mut loss_at = |value: f32| {
                    network.parameters[at] = value;
                    network.add_gradient(&pixels, label, 1.0, &mut activations, &mut ignored)
                };
                let slope = (loss_at(before + 1e-3) - loss_at(before - 1e-3)) / 2e-3;
                loss_at(before);
                let difference = (slope - gradient[at]).abs();
                assert!(difference < 2e-3 + 0.02 * slope.abs(), "{at}: {slope} {}", gradient[at]);
                steep += u32::from(slope.abs() > 1e-2);
            }
            assert!(steep > 30, "{steep} of 300 slopes differ from 0");
        }
    }
}
