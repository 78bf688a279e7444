//! The data and the network of a training, and its length.

use std::path::PathBuf;

use super::digits;
use super::idx;
use super::images::DataSet;
use super::method::Method;
use crate::problem::{Problem, Result};

const SEED: u64 = 20_261_121;

/// The choice of a training: everything that all ranks must agree on before they begin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Task {
    /// `None` for the plain demonstration.
    pub(crate) method: Option<Method>,
    /// Decides the first weights and the order of the images; the demonstration has its own.
    pub(crate) seed: Option<u64>,
    /// A folder with a data set in IDX format; without it, the digits.
    pub(crate) data: Option<PathBuf>,
}

/// The sizes and lengths of a training.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    pub(crate) hidden: usize,
    pub(crate) epochs: u32,
    /// Images of one step, of all ranks together.
    pub(crate) batch_images: usize,
    /// Of the first step with Adam; it falls evenly to 0.
    adam_learning_rate: f32,
}

/// For the digits in the program.
const DIGITS: Recipe = Recipe { hidden: 64, epochs: 30, batch_images: 64, adam_learning_rate: 3e-3 };
/// For a folder, made for Fashion-MNIST.
const FOLDER: Recipe = Recipe { hidden: 128, epochs: 4, batch_images: 256, adam_learning_rate: 1e-3 };
/// Of gradient descent with momentum.
const MOMENTUM_LEARNING_RATE: f32 = 0.1;

impl Recipe {
    pub(crate) const fn steps_per_epoch(self, images: usize) -> u64 {
        images.div_ceil(self.batch_images) as u64
    }

    pub(crate) const fn steps(self, images: usize) -> u64 {
        self.epochs as u64 * self.steps_per_epoch(images)
    }

    /// Of the step after `done` of `steps`.
    pub(crate) fn learning_rate(self, method: Option<Method>, done: u64, steps: u64) -> f32 {
        let left = (steps - done) as f32 / steps as f32;
        method.map_or(MOMENTUM_LEARNING_RATE, |_| self.adam_learning_rate * left)
    }
}

impl Task {
    pub(crate) fn load(&self) -> Result<(DataSet, Recipe)> {
        match &self.data {
            None => Ok((digits::load(), DIGITS)),
            Some(folder) => {
                let data = idx::load(folder).map_err(|error| Problem::failed("--data", error))?;
                Ok((data, FOLDER))
            }
        }
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or(SEED)
    }
}
