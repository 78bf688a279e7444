//! Data-parallel training: every rank computes the gradient of its slice of each batch, the ranks average them, exactly
//! or compressed, and every rank takes the same step. All ranks therefore keep bit-identical weights.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use unisono::{Collectives, Communicator, Error, Group, ReduceOp};

use super::Note;
use super::images::{DataSet, Images};
use super::kill::Kill;
use super::network::{Activations, Layers, Network};
use super::optimiser::{Optimiser, Traffic};
use super::recipe::{Recipe, Task};
use crate::combine::combine;
use crate::problem::Result;
use crate::random::Random;

const HASH_BYTES: usize = 32;
/// The number of points of the curve of the losses, if there are as many steps.
const CURVE_POINTS: u64 = 60;

/// The data and the network of a training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) data: String,
    /// Whether it is the data set of the plain demonstration.
    pub(crate) is_digits: bool,
    pub(crate) inputs: usize,
    pub(crate) hidden: usize,
    pub(crate) training_images: usize,
    pub(crate) test_images: usize,
}

/// The result of the training; the same on every rank, except for the time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trained {
    pub(crate) about: About,
    pub(crate) test_accuracy: f64,
    pub(crate) epochs: u32,
    pub(crate) seconds: f64,
    /// The number of steps before the first compressed step.
    pub(crate) warmup_steps: u64,
    /// And from there on; all of them if no step compresses.
    pub(crate) steps: u64,
    /// Gradient bytes that all ranks together sent before they began to compress.
    pub(crate) warmup_bytes: u64,
    /// And after that; all of them if no step compresses.
    pub(crate) bytes_on_wire: u64,
    /// SHA-256 of the weights of every rank of the job up to the last survivor, in hexadecimal; `None` for the dead.
    pub(crate) weights_hash: Vec<Option<String>>,
    /// The loss in equal parts of the training.
    pub(crate) curve: Vec<CurvePoint>,
}

/// A part of the training.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CurvePoint {
    /// Steps done at its end.
    pub(crate) step: u64,
    /// Gradient bytes that all ranks together had sent by then.
    pub(crate) bytes: u64,
    /// The mean over its images, each before its step.
    pub(crate) loss: f64,
}

/// The survivors' continuation after a failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recovery {
    /// The ranks of the job that are gone.
    pub(crate) lost: Vec<u32>,
    /// The ranks that go on.
    pub(crate) survivors: Vec<u32>,
    /// The number of steps that all of them had done.
    pub(crate) step: u64,
    /// Time from the failure of the call to the end of the next step.
    pub(crate) milliseconds: f64,
}

/// The share of `length` items that `rank` of `ranks` takes; shares differ by at most one item and may be empty.
fn share(length: usize, rank: u32, ranks: u32) -> Range<usize> {
    let at = |rank: u32| length * rank as usize / ranks as usize;
    at(rank)..at(rank + 1)
}

/// The result of one step.
#[derive(Clone, Copy)]
struct StepRecord {
    /// The sum over this rank's images.
    loss: f64,
    images: usize,
    /// The bytes that all ranks sent.
    bytes: u64,
    /// Whether its gradients travelled exactly before others were compressed.
    is_warmup: bool,
}

/// One training, from the first step to the last, with the ranks that are left.
struct Training<'a> {
    data: &'a DataSet,
    task: &'a Task,
    recipe: Recipe,
    /// The order of the images in every epoch.
    orders: Vec<Vec<usize>>,
    network: Network,
    /// The parameters before the last step: survivors differ by at most one step.
    previous: Vec<f32>,
    optimiser: Optimiser,
    traffic: Traffic,
    /// One for each step that is done.
    records: Vec<StepRecord>,
}

/// Trains, after a failure with the survivors, and reports its progress. Returns the communicator of the ranks that
/// have finished. Collective.
pub(crate) fn train(
    comm: &dyn Communicator,
    task: &Task,
    kill: Option<Kill>,
    mut tell: impl FnMut(&Group, Note) -> Result<()>,
) -> Result<Arc<dyn Communicator>> {
    let (data, recipe) = task.load()?;
    let start = Instant::now();
    let mut comm = comm.duplicate()?;
    let mut training = Training::new(&comm, &data, task, recipe)?;
    let mut recovering: Option<(Instant, Recovery)> = None;
    while training.steps_done() < training.steps() {
        if let Some(kill) = kill {
            kill.strike(comm.group(), training.steps_done());
        }
        match training.step(&comm) {
            Ok(()) => {
                if let Some((since, recovery)) = recovering.take() {
                    let milliseconds = since.elapsed().as_secs_f64() * 1e3;
                    tell(comm.group(), Note::Recovered(Recovery { milliseconds, ..recovery }))?;
                }
                if let Some((epoch, loss)) = training.finished_epoch() {
                    tell(comm.group(), Note::Epoch { epoch, epochs: recipe.epochs, loss })?;
                }
            }
            Err(error) if matches!(error.root_cause(), Error::PeerLost { .. }) => {
                let since = Instant::now();
                let recovery = training.recover(&mut comm)?;
                recovering = Some((since, recovery));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let trained = training.end(&comm, start)?;
    tell(comm.group(), Note::Trained(trained))?;
    Ok(comm)
}

impl<'a> Training<'a> {
    fn new(
        comm: &dyn Communicator,
        data: &'a DataSet,
        task: &'a Task,
        recipe: Recipe,
    ) -> Result<Training<'a>> {
        let images = data.training.len();
        let mut order: Vec<usize> = (0..images).collect();
        let mut shuffling = Random::new(task.seed() ^ 1);
        let mut shuffled = || {
            shuffling.shuffle(&mut order);
            order.clone()
        };
        let orders = (0..recipe.epochs).map(|_| shuffled()).collect();
        let layers = Layers { inputs: data.training.inputs(), hidden: recipe.hidden };
        let network = Network::new(layers, task.seed());
        let parameters = layers.parameters();
        let optimiser = Optimiser::new(comm, task.method, parameters, recipe.steps(images))?;
        let traffic = optimiser.traffic(comm.group(), parameters);
        let previous = network.parameters.clone();
        Ok(Training {
            data,
            task,
            recipe,
            orders,
            network,
            previous,
            optimiser,
            traffic,
            records: Vec::new(),
        })
    }

    fn steps_done(&self) -> u64 {
        self.records.len() as u64
    }

    fn steps(&self) -> u64 {
        self.recipe.steps(self.data.training.len())
    }

    fn steps_per_epoch(&self) -> u64 {
        self.recipe.steps_per_epoch(self.data.training.len())
    }

    /// One batch. After a failure the state is as before.
    fn step(&mut self, comm: &dyn Communicator) -> unisono::Result<()> {
        let done = self.steps_done();
        let (epoch, batch) = (done / self.steps_per_epoch(), done % self.steps_per_epoch());
        let order = &self.orders[epoch as usize];
        let first = batch as usize * self.recipe.batch_images;
        let images = &order[first..order.len().min(first + self.recipe.batch_images)];
        let own = &images[share(images.len(), comm.rank(), comm.size())];
        // All images have the same weight in the mean over the ranks, also when the batch divides unevenly.
        let weight = comm.size() as f32 / images.len() as f32;
        let (mut gradient, loss) = gradient(&self.network, &self.data.training, own, weight);
        let before = self.network.parameters.clone();
        let is_warmup = self.optimiser.is_warming_up();
        let learning_rate = self.recipe.learning_rate(self.task.method, done, self.steps());
        self.optimiser.step(comm, &mut self.network.parameters, &mut gradient, learning_rate)?;
        self.previous = before;
        let bytes = if is_warmup { self.traffic.exact_bytes } else { self.traffic.compressed_bytes };
        self.records.push(StepRecord { loss, images: own.len(), bytes, is_warmup });
        Ok(())
    }

    /// The epoch whose last step was the last one, and the mean loss of this rank's images in it.
    fn finished_epoch(&self) -> Option<(u32, f64)> {
        let steps = self.steps_per_epoch();
        let epoch = &self.records[self.records.len() - steps.min(self.steps_done()) as usize..];
        let (loss, images) = total(epoch);
        self.steps_done().is_multiple_of(steps).then_some(((self.steps_done() / steps) as u32, loss / images))
    }

    /// Goes on with the survivors from the last step that all of them have done.
    fn recover(&mut self, comm: &mut Arc<dyn Communicator>) -> Result<Recovery> {
        let shrunk = comm.shrink()?;
        if self.optimiser.rebind(&shrunk, self.steps_done())? {
            self.network.parameters.copy_from_slice(&self.previous);
            self.records.pop();
        }
        let old = comm.group().job_ranks();
        let gone = old.iter().zip(&shrunk.new_ranks).filter(|(_, new)| new.is_none());
        let lost = gone.map(|(rank, _)| rank.get()).collect();
        *comm = shrunk.communicator;
        let survivors = comm.group().job_ranks().iter().map(|rank| rank.get()).collect();
        self.traffic = self.optimiser.traffic(comm.group(), self.network.parameters.len());
        Ok(Recovery { lost, survivors, step: self.steps_done(), milliseconds: 0.0 })
    }

    /// The result. Collective.
    fn end(self, comm: &dyn Communicator, start: Instant) -> Result<Trained> {
        let test_accuracy = accuracy(comm, &self.network, &self.data.test)?;
        let seconds = start.elapsed().as_secs_f64();
        // The steps of the warm-up come first.
        let warmup_steps = self.records.partition_point(|record| record.is_warmup);
        let (warmup, compressed) = self.records.split_at(warmup_steps);
        let bytes = |records: &[StepRecord]| records.iter().map(|record| record.bytes).sum();
        let about = About {
            data: self.data.name.clone(),
            is_digits: self.task.data.is_none(),
            inputs: self.data.training.inputs(),
            hidden: self.recipe.hidden,
            training_images: self.data.training.len(),
            test_images: self.data.test.len(),
        };
        Ok(Trained {
            about,
            test_accuracy,
            epochs: self.recipe.epochs,
            seconds,
            warmup_steps: warmup.len() as u64,
            steps: compressed.len() as u64,
            warmup_bytes: bytes(warmup),
            bytes_on_wire: bytes(compressed),
            weights_hash: hashes(comm, &self.network.parameters)?,
            curve: curve(comm, &self.records)?,
        })
    }
}

/// The losses of these steps on this rank, added up, and how many images they are of.
fn total(records: &[StepRecord]) -> (f64, f64) {
    let sum =
        |(loss, images): (f64, f64), record: &StepRecord| (loss + record.loss, images + record.images as f64);
    records.iter().fold((0.0, 0.0), sum)
}

/// The mean losses over the images of all ranks that are left, in equal parts of the training.
fn curve(comm: &dyn Communicator, records: &[StepRecord]) -> Result<Vec<CurvePoint>> {
    let steps = records.len() as u64;
    let points = steps.min(CURVE_POINTS);
    let end = |point: u64| (steps * point / points) as usize;
    let part = |point: u64| &records[end(point)..end(point + 1)];
    let mut totals: Vec<f64> = (0..points).map(part).flat_map(|part| <[f64; 2]>::from(total(part))).collect();
    combine(comm, &mut totals, ReduceOp::Sum)?;
    let mut bytes = 0;
    let point = |(point, total): (u64, &[f64; 2])| {
        bytes += part(point).iter().map(|record| record.bytes).sum::<u64>();
        CurvePoint { step: end(point + 1) as u64, bytes, loss: total[0] / total[1] }
    };
    Ok((0..).zip(totals.as_chunks().0).map(point).collect())
}

/// `weight` times the sum of the gradients of some images, and the sum of their losses.
fn gradient(network: &Network, images: &Images, chosen: &[usize], weight: f32) -> (Vec<f32>, f64) {
    let mut gradient = vec![0.0f32; network.parameters.len()];
    let mut activations = Activations::new(network.layers);
    let mut pixels = vec![0.0f32; images.inputs()];
    let mut loss = 0.0;
    for &image in chosen {
        images.read(image, &mut pixels);
        let label = images.label(image);
        loss += f64::from(network.add_gradient(&pixels, label, weight, &mut activations, &mut gradient));
    }
    (gradient, loss)
}

/// The fraction of `images` that are recognised; every rank tests its share.
fn accuracy(comm: &dyn Communicator, network: &Network, images: &Images) -> Result<f64> {
    let mut activations = Activations::new(network.layers);
    let mut pixels = vec![0.0f32; images.inputs()];
    let own = share(images.len(), comm.rank(), comm.size());
    let is_right = |image: &usize| {
        images.read(*image, &mut pixels);
        network.classify(&pixels, &mut activations) == images.label(*image)
    };
    let mut right = [own.filter(is_right).count() as u64];
    combine(comm, &mut right, ReduceOp::Sum)?;
    Ok(right[0] as f64 / images.len() as f64)
}

/// One entry for each rank of the job; `None` for ranks that are gone.
fn hashes(comm: &dyn Communicator, parameters: &[f32]) -> Result<Vec<Option<String>>> {
    let mut hasher = Sha256::new();
    parameters.iter().for_each(|parameter| hasher.update(parameter.to_bits().to_le_bytes()));
    let own: [u8; HASH_BYTES] = hasher.finalize().into();
    let mut all = vec![0u8; HASH_BYTES * comm.size() as usize];
    comm.all_gather(&own, &mut all)?;
    let ranks = comm.group().job_ranks();
    let mut by_rank = vec![None; ranks.iter().max().map_or(0, |last| last.index() + 1)];
    for (rank, hash) in ranks.iter().zip(all.chunks(HASH_BYTES)) {
        by_rank[rank.index()] = Some(hash.iter().map(|byte| format!("{byte:02x}")).collect());
    }
    Ok(by_rank)
}

#[cfg(test)]
mod tests {
    use unisono::Solo;

    use super::*;
    use crate::demo::digits;
    use crate::demo::method::Method;

    /// The result of one rank alone on the digits, and the mean loss of each epoch.
    fn learn(task: &Task) -> (Trained, Vec<f64>) {
        let (mut trained, mut losses) = (None, Vec::new());
        let listen = |_: &Group, note| {
            match note {
                Note::Epoch { epoch, epochs, loss } => {
                    losses.push(loss);
                    assert_eq!((epoch as usize, epochs), (losses.len(), 30));
                }
                Note::Trained(result) => trained = Some(result),
                Note::Row(..) | Note::Recovered(_) => panic!("{note:?}"),
            }
            Ok(())
        };
        train(&Solo::new(), task, None, listen).unwrap();
        (trained.unwrap(), losses)
    }

    #[test]
    fn one_rank_learns_to_read_and_twice_the_same() {
        for method in [None, Some(Method::None), Some(Method::Sign)] {
            let task = Task { method, ..Task::default() };
            let ((first, losses), (second, _)) = (learn(&task), learn(&task));
            assert!(first.test_accuracy >= 0.95, "{method:?}: {}", first.test_accuracy);
            assert_eq!(
                (first.test_accuracy, first.weights_hash, &first.curve),
                (second.test_accuracy, second.weights_hash, &second.curve)
            );
            assert!(losses.len() == 30 && losses[0] > 5.0 * losses[29], "{method:?}: {losses:?}");
            assert_eq!((first.curve.len(), first.curve[59].step), (60, 690));
            assert!(first.curve[0].loss > 5.0 * first.curve[59].loss, "{method:?}: {:?}", first.curve);
        }
    }

    #[test]
    fn another_seed_is_another_training() {
        let hash = |seed| learn(&Task { seed, ..Task::default() }).0.weights_hash;
        assert_ne!(hash(Some(1)), hash(Some(2)));
    }

    #[test]
    fn the_shares_of_any_number_of_ranks_make_up_the_batch() {
        for ranks in 1..=80 {
            let all: Vec<usize> = (0..ranks).flat_map(|rank| share(29, rank, ranks)).collect();
            assert_eq!(all, (0..29).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_mean_of_the_ranks_gradients_is_that_of_the_whole_batch() {
        let digits = digits::load();
        let network = Network::new(Layers { inputs: 64, hidden: 64 }, 1);
        let images: Vec<usize> = (0..29).collect();
        let (whole, loss) = gradient(&network, &digits.training, &images, 1.0 / 29.0);
        let mut mean = vec![0.0f32; whole.len()];
        let mut losses = 0.0;
        for rank in 0..4 {
            let own = &images[share(29, rank, 4)];
            let (part, loss) = gradient(&network, &digits.training, own, 4.0 / 29.0);
            mean.iter_mut().zip(part).for_each(|(mean, part)| *mean += part / 4.0);
            losses += loss;
        }
        assert!((loss - losses).abs() < 1e-6);
        assert!(whole.iter().zip(&mean).all(|(a, b)| (a - b).abs() < 1e-6));
    }
}
