//! Data-parallel training: every rank computes the gradient of its slice of each batch, one all-reduce adds them up,
//! and every rank takes the same step. All ranks therefore keep bit-identical weights.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::{Kill, Note};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use unisono::call::{BufferMut, Buffers, Call, Descriptor, Place};
use unisono::{Collective, Collectives, Communicator, DType, Error, Group, Outcome, ReduceOp};
use unisono_schedule::{Action, Choice};

use super::digits::{Digit, Digits, TRAINING_IMAGES};
use super::network::{Network, PARAMETERS};
use crate::forecast::Forecast;
use crate::problem::{Problem, Result};
use crate::random::Random;

const SEED: u64 = 20_261_121;
pub(crate) const EPOCHS: u32 = 30;
const BATCH_IMAGES: usize = 64;
const STEPS_PER_EPOCH: u64 = TRAINING_IMAGES.div_ceil(BATCH_IMAGES) as u64;
/// Steps of the whole training.
pub(crate) const STEPS: u64 = EPOCHS as u64 * STEPS_PER_EPOCH;
const LEARNING_RATE: f32 = 0.1;
const MOMENTUM: f32 = 0.9;
const HASH_BYTES: usize = 32;

/// The result of the training; the same on every rank, except for the time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trained {
    pub(crate) test_accuracy: f64,
    pub(crate) epochs: u32,
    pub(crate) seconds: f64,
    /// Gradient bytes that all ranks together sent; see [`bytes_sent`].
    pub(crate) bytes_on_wire: u64,
    /// SHA-256 of the weights of every rank of the job up to the last survivor, in hexadecimal; `None` for the dead.
    pub(crate) weights_hash: Vec<Option<String>>,
}

/// How the survivors went on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recovery {
    /// The ranks of the job that are gone.
    pub(crate) lost: Vec<u32>,
    /// Those that go on.
    pub(crate) survivors: Vec<u32>,
    /// How many steps all of them had done.
    pub(crate) step: u64,
    /// Time from the failure of the call to the end of the next step.
    pub(crate) milliseconds: f64,
}

/// Elements of the buffer that each step reduces: the gradient, and the loss for the progress line.
pub(crate) const REDUCED_ELEMENTS: usize = PARAMETERS + 1;

/// The share of `length` items that `rank` of `ranks` takes; shares differ by at most one item and may be empty.
fn share(length: usize, rank: u32, ranks: u32) -> Range<usize> {
    let at = |rank: u32| length * rank as usize / ranks as usize;
    at(rank)..at(rank + 1)
}

/// The state after the steps so far.
#[derive(Clone)]
struct State {
    network: Network,
    velocity: Vec<f32>,
    /// The sum over the images of this epoch so far.
    loss: f32,
}

/// One training, from the first step to the last, with the ranks that are left.
struct Training<'a> {
    digits: &'a Digits,
    /// The order of the images in every epoch.
    orders: Vec<Vec<usize>>,
    state: State,
    /// The state before the last step: survivors differ by at most one step.
    previous: State,
    steps_done: u64,
    bytes_on_wire: u64,
}

/// The steps that one group of ranks makes.
struct Lap {
    comm: Arc<dyn Communicator>,
    /// How many steps were done before its first one.
    first_step: u64,
    steps: u64,
    algorithm: &'static str,
}

/// Trains, after a failure with the survivors, and reports what happens. Returns the communicator of the ranks that
/// have finished. Collective.
pub(crate) fn train(
    comm: &dyn Communicator,
    kill: Option<Kill>,
    mut tell: impl FnMut(&Group, Note) -> Result<()>,
) -> Result<Arc<dyn Communicator>> {
    let start = Instant::now();
    let digits = Digits::load();
    let mut training = Training::new(&digits);
    // A communicator of its own: the number of its calls is the number of steps.
    let mut lap = Lap { comm: comm.duplicate()?, first_step: 0, steps: 0, algorithm: "" };
    let mut recovering: Option<(Instant, Recovery)> = None;
    while training.steps_done < STEPS {
        if let Some(kill) = kill {
            kill.strike(lap.comm.group(), training.steps_done);
        }
        match training.step(&mut lap) {
            Ok(()) => {
                if let Some((since, recovery)) = recovering.take() {
                    let milliseconds = since.elapsed().as_secs_f64() * 1e3;
                    tell(lap.comm.group(), Note::Recovered(Recovery { milliseconds, ..recovery }))?;
                }
                if let Some((epoch, loss)) = training.finished_epoch() {
                    tell(lap.comm.group(), Note::Epoch(epoch, loss))?;
                }
            }
            Err(error) if matches!(error.root_cause(), Error::PeerLost { .. }) => {
                let since = Instant::now();
                let recovery = training.recover(&mut lap)?;
                recovering = Some((since, recovery));
            }
            Err(error) => return Err(error.into()),
        }
    }
    training.end_lap(&lap);
    let comm = lap.comm;
    let test_accuracy = accuracy(&*comm, &training.state.network, &digits.test)?;
    let trained = Trained {
        test_accuracy,
        epochs: EPOCHS,
        seconds: start.elapsed().as_secs_f64(),
        bytes_on_wire: training.bytes_on_wire,
        weights_hash: hashes(&*comm, &training.state.network.parameters)?,
    };
    tell(comm.group(), Note::Trained(trained))?;
    Ok(comm)
}

impl Training<'_> {
    fn new(digits: &Digits) -> Training<'_> {
        let mut order: Vec<usize> = (0..digits.training.len()).collect();
        let mut shuffling = Random::new(SEED ^ 1);
        let mut shuffled = || {
            shuffling.shuffle(&mut order);
            order.clone()
        };
        let orders = (0..EPOCHS).map(|_| shuffled()).collect();
        let state = State { network: Network::new(SEED), velocity: vec![0.0; PARAMETERS], loss: 0.0 };
        Training { digits, orders, previous: state.clone(), state, steps_done: 0, bytes_on_wire: 0 }
    }

    /// One batch. After a failure the state is as before.
    fn step(&mut self, lap: &mut Lap) -> unisono::Result<()> {
        let (epoch, batch) = (self.steps_done / STEPS_PER_EPOCH, self.steps_done % STEPS_PER_EPOCH);
        let order = &self.orders[epoch as usize];
        let first = batch as usize * BATCH_IMAGES;
        let images = &order[first..order.len().min(first + BATCH_IMAGES)];
        let mut reduced = gradient(lap.comm.group(), &self.state.network, &self.digits.training, images);
        lap.algorithm = sum_over_ranks(&*lap.comm, &mut reduced)?.algorithm;
        self.previous.clone_from(&self.state);
        let State { network, velocity, loss } = &mut self.state;
        if batch == 0 {
            *loss = 0.0;
        }
        descend(&mut network.parameters, velocity, &reduced[..PARAMETERS]);
        *loss += reduced[PARAMETERS] * images.len() as f32;
        self.steps_done += 1;
        lap.steps += 1;
        Ok(())
    }

    /// The epoch whose last step was the last one, and its mean loss.
    fn finished_epoch(&self) -> Option<(u32, f32)> {
        let epoch = (self.steps_done / STEPS_PER_EPOCH) as u32;
        let loss = self.state.loss / self.digits.training.len() as f32;
        self.steps_done.is_multiple_of(STEPS_PER_EPOCH).then_some((epoch, loss))
    }

    /// Goes on with the survivors from the last step that all of them have done.
    fn recover(&mut self, lap: &mut Lap) -> Result<Recovery> {
        let shrunk = lap.comm.shrink()?;
        let common = lap.first_step + shrunk.last_common_call;
        self.end_lap(lap);
        match self.steps_done - common {
            0 => {}
            1 => self.state.clone_from(&self.previous),
            steps => return Err(Problem::failed("going on", format!("{steps} steps ahead of the others"))),
        }
        self.steps_done = common;
        let old = lap.comm.group().job_ranks();
        let gone = old.iter().zip(&shrunk.new_ranks).filter(|(_, new)| new.is_none());
        let lost = gone.map(|(rank, _)| rank.get()).collect();
        let survivors = shrunk.communicator.group().job_ranks().iter().map(|rank| rank.get()).collect();
        *lap = Lap { comm: shrunk.communicator, first_step: common, steps: 0, algorithm: "" };
        Ok(Recovery { lost, survivors, step: common, milliseconds: 0.0 })
    }

    fn end_lap(&mut self, lap: &Lap) {
        // On one rank no schedule runs and nothing is sent.
        let forecast = Forecast::of_group(lap.comm.group()).ok();
        let ran = forecast.and_then(|forecast| forecast.ran(Collective::AllReduce, None, lap.algorithm));
        self.bytes_on_wire += ran.map_or(0, |ran| lap.steps * bytes_sent(&ran, REDUCED_ELEMENTS as u64));
    }
}

/// This rank's part of the mean gradient over the batch, followed by its part of the mean loss. All images have the
/// same weight, also when the batch divides unevenly among the ranks.
fn gradient(group: &Group, network: &Network, images: &[Digit], batch: &[usize]) -> Vec<f32> {
    let mut reduced = vec![0.0f32; REDUCED_ELEMENTS];
    let (gradient, loss) = reduced.split_at_mut(PARAMETERS);
    let weight = 1.0 / batch.len() as f32;
    for &image in &batch[share(batch.len(), group.rank(), group.size())] {
        loss[0] += network.add_gradient(&images[image], weight, gradient);
    }
    reduced
}

/// `all_reduce` as a call made by hand, whose outcome names the algorithm.
fn sum_over_ranks(comm: &dyn Communicator, buffer: &mut [f32]) -> unisono::Result<Outcome> {
    let descriptor = Descriptor {
        op: Some(ReduceOp::Sum),
        place: Place::InPlace,
        ..Descriptor::new(Collective::AllReduce, DType::F32, buffer.len() as u64)
    };
    comm.issue(Call::new(descriptor, Buffers::InOut(BufferMut::of(buffer))))
}

/// The bytes that all ranks send in one all-reduce of `elements` f32: the sum over the sends of its schedule, without
/// headers.
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

fn descend(parameters: &mut [f32], velocity: &mut [f32], gradient: &[f32]) {
    for ((parameter, velocity), gradient) in parameters.iter_mut().zip(velocity).zip(gradient) {
        *velocity = MOMENTUM * *velocity - LEARNING_RATE * gradient;
        *parameter += *velocity;
    }
}

/// The fraction of `images` that are recognised; every rank tests its share.
fn accuracy(comm: &dyn Communicator, network: &Network, images: &[Digit]) -> Result<f64> {
    let own = &images[share(images.len(), comm.group().rank(), comm.group().size())];
    let mut right =
        [own.iter().filter(|digit| network.classify(&digit.pixels) == digit.label).count() as u64];
    comm.all_reduce(&mut right, ReduceOp::Sum)?;
    Ok(right[0] as f64 / images.len() as f64)
}

/// One entry for each rank of the job; `None` for ranks that are gone.
fn hashes(comm: &dyn Communicator, parameters: &[f32]) -> Result<Vec<Option<String>>> {
    let mut hasher = Sha256::new();
    parameters.iter().for_each(|parameter| hasher.update(parameter.to_bits().to_le_bytes()));
    let own: [u8; HASH_BYTES] = hasher.finalize().into();
    let mut all = vec![0u8; HASH_BYTES * comm.group().size() as usize];
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
    use unisono_schedule::{Registry, Shape};

    use super::*;

    #[test]
    fn one_rank_learns_to_read_and_twice_the_same() {
        let comm = Solo::new();
        let mut losses = Vec::new();
        let mut learn = || {
            let mut trained = None;
            let listen = |_: &Group, note| {
                match note {
                    Note::Epoch(epoch, loss) => losses.push((epoch, loss)),
                    Note::Trained(result) => trained = Some(result),
                    Note::Row(..) | Note::Recovered(_) => panic!("{note:?}"),
                }
                Ok(())
            };
            train(&comm, None, listen).unwrap();
            trained.unwrap()
        };
        let (first, second) = (learn(), learn());
        assert!(first.test_accuracy >= 0.95, "{}", first.test_accuracy);
        assert_eq!((first.test_accuracy, first.weights_hash), (second.test_accuracy, second.weights_hash));
        assert_eq!(losses.len(), 2 * EPOCHS as usize);
        assert!(losses[0].1 > 5.0 * losses[losses.len() - 1].1, "{losses:?}");
    }

    #[test]
    fn a_ring_sends_twice_its_vector_but_for_one_share() {
        let ring = |ranks| {
            Choice::named(&Registry::built_in(), Collective::AllReduce, "ring", &Shape::new(ranks)).unwrap()
        };
        assert_eq!(bytes_sent(&ring(4), 1000), 4 * 2 * 750 * 4);
        assert_eq!(bytes_sent(&ring(3), 1001), 2 * 2 * 1001 * 4);
    }

    #[test]
    fn the_shares_of_any_number_of_ranks_make_up_the_batch() {
        for ranks in 1..=80 {
            let all: Vec<usize> = (0..ranks).flat_map(|rank| share(29, rank, ranks)).collect();
            assert_eq!(all, (0..29).collect::<Vec<_>>());
        }
    }

    #[test]
    fn slices_weighted_by_the_batch_add_up_to_the_whole_gradient() {
        let digits = Digits::load();
        let network = Network::new(1);
        let gradient = |range: Range<usize>| {
            let mut gradient = vec![0.0; PARAMETERS];
            for image in range {
                network.add_gradient(&digits.training[image], 1.0 / 29.0, &mut gradient);
            }
            gradient
        };
        let whole = gradient(0..29);
        let mut sum = vec![0.0f32; PARAMETERS];
        for rank in 0..4 {
            sum.iter_mut().zip(gradient(share(29, rank, 4))).for_each(|(sum, part)| *sum += part);
        }
        assert!(whole.iter().zip(&sum).all(|(a, b)| (a - b).abs() < 1e-6));
    }
}
