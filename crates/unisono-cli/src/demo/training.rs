//! Data-parallel training: every rank computes the gradient of its slice of each batch, one all-reduce adds them up,
//! and every rank takes the same step. All ranks therefore keep bit-identical weights.

use std::ops::Range;
use std::panic::Location;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use unisono::{
    BufferMut, Buffers, Call, CallOptions, Collective, Collectives, Communicator, Counts, DType, Descriptor,
    Group, Outcome, Place, ReduceOp, Result, check,
};
use unisono_schedule::{Action, Choice};

use super::digits::{Digit, Digits};
use super::network::{Network, PARAMETERS};
use crate::forecast::Forecast;
use crate::random::Random;

const SEED: u64 = 20_261_121;
pub(crate) const EPOCHS: u32 = 30;
const BATCH_IMAGES: usize = 64;
const LEARNING_RATE: f32 = 0.1;
const MOMENTUM: f32 = 0.9;
const HASH_BYTES: usize = 32;

/// What came of it, the same on every rank but for the time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trained {
    pub(crate) test_accuracy: f64,
    pub(crate) epochs: u32,
    pub(crate) seconds: f64,
    /// Gradient bytes that all ranks together sent; see [`bytes_sent`].
    pub(crate) bytes_on_wire: u64,
    /// SHA-256 of every rank's weights, in hexadecimal.
    pub(crate) weights_hash: Vec<String>,
}

/// Elements of the buffer that each step reduces: the gradient, and the loss for the progress line.
pub(crate) const REDUCED_ELEMENTS: usize = PARAMETERS + 1;

/// The share of `length` items that `rank` of `ranks` takes; shares differ by at most one item and may be empty.
fn share(length: usize, rank: u32, ranks: u32) -> Range<usize> {
    let at = |rank: u32| length * rank as usize / ranks as usize;
    at(rank)..at(rank + 1)
}

/// Trains, and reports (epochs done, mean loss of the last one) after every epoch. Collective.
pub(crate) fn train(comm: &dyn Communicator, mut progress: impl FnMut(u32, f32)) -> Result<Trained> {
    let start = Instant::now();
    let digits = Digits::load();
    let mut network = Network::new(SEED);
    let mut velocity = vec![0.0f32; PARAMETERS];
    let mut order: Vec<usize> = (0..digits.training.len()).collect();
    let mut shuffling = Random::new(SEED ^ 1);
    let (mut steps, mut algorithm) = (0, "");
    for epoch in 1..=EPOCHS {
        shuffling.shuffle(&mut order);
        let mut loss = 0.0;
        for batch in order.chunks(BATCH_IMAGES) {
            let mut reduced = gradient(comm.group(), &network, &digits.training, batch);
            algorithm = sum_over_ranks(comm, &mut reduced)?.algorithm;
            step(&mut network.parameters, &mut velocity, &reduced[..PARAMETERS]);
            loss += reduced[PARAMETERS] * batch.len() as f32;
            steps += 1;
        }
        progress(epoch, loss / order.len() as f32);
    }
    let test_accuracy = accuracy(comm, &network, &digits.test)?;
    let weights_hash = hashes(comm, &network.parameters)?;
    let seconds = start.elapsed().as_secs_f64();
    // Alone, nothing runs and nothing is sent.
    let all_reduce = unisono_schedule::Collective::AllReduce;
    let ran =
        Forecast::of_group(comm.group()).ok().and_then(|forecast| forecast.ran(all_reduce, None, algorithm));
    let bytes_on_wire = ran.map_or(0, |ran| steps * bytes_sent(&ran, REDUCED_ELEMENTS as u64));
    Ok(Trained { test_accuracy, epochs: EPOCHS, seconds, bytes_on_wire, weights_hash })
}

/// This rank's part of the mean gradient over the batch, and behind it that of the mean loss. Each image weighs the
/// same however unevenly the batch divides among the ranks.
fn gradient(group: &Group, network: &Network, images: &[Digit], batch: &[usize]) -> Vec<f32> {
    let mut reduced = vec![0.0f32; REDUCED_ELEMENTS];
    let (gradient, loss) = reduced.split_at_mut(PARAMETERS);
    let weight = 1.0 / batch.len() as f32;
    for &image in &batch[share(batch.len(), group.rank(), group.size())] {
        loss[0] += network.add_gradient(&images[image], weight, gradient);
    }
    reduced
}

/// `all_reduce`, spelled out for its outcome, which names the algorithm.
fn sum_over_ranks(comm: &dyn Communicator, buffer: &mut [f32]) -> Result<Outcome> {
    let descriptor = Descriptor {
        op: Some(ReduceOp::Sum),
        place: Place::InPlace,
        ..Descriptor::new(Collective::AllReduce, DType::F32, buffer.len() as u64)
    };
    let call = Call {
        descriptor,
        buffers: Buffers::InOut(BufferMut::of(buffer)),
        counts: Counts::Even,
        options: CallOptions::default(),
        user_function: None,
        site: Location::caller(),
    };
    check(&call, comm.group())?;
    comm.execute(call)
}

/// The payload that all ranks of one all-reduce of `elements` f32 send: what the sends of its schedule add up to. The
/// frames around it are not counted.
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

fn step(parameters: &mut [f32], velocity: &mut [f32], gradient: &[f32]) {
    for ((parameter, velocity), gradient) in parameters.iter_mut().zip(velocity).zip(gradient) {
        *velocity = MOMENTUM * *velocity - LEARNING_RATE * gradient;
        *parameter += *velocity;
    }
}

/// The fraction of `images` recognised; every rank judges its share.
fn accuracy(comm: &dyn Communicator, network: &Network, images: &[Digit]) -> Result<f64> {
    let own = &images[share(images.len(), comm.group().rank(), comm.group().size())];
    let mut right =
        [own.iter().filter(|digit| network.classify(&digit.pixels) == digit.label).count() as u64];
    comm.all_reduce(&mut right, ReduceOp::Sum)?;
    Ok(right[0] as f64 / images.len() as f64)
}

fn hashes(comm: &dyn Communicator, parameters: &[f32]) -> Result<Vec<String>> {
    let mut hasher = Sha256::new();
    parameters.iter().for_each(|parameter| hasher.update(parameter.to_bits().to_le_bytes()));
    let own: [u8; HASH_BYTES] = hasher.finalize().into();
    let mut all = vec![0u8; HASH_BYTES * comm.group().size() as usize];
    comm.all_gather(&own, &mut all)?;
    Ok(all.chunks(HASH_BYTES).map(|hash| hash.iter().map(|byte| format!("{byte:02x}")).collect()).collect())
}

#[cfg(test)]
mod tests {
    use unisono::Solo;

    use super::*;

    #[test]
    fn one_rank_learns_to_read_and_twice_the_same() {
        let comm = Solo::new();
        let mut losses = Vec::new();
        let first = train(&comm, |epoch, loss| losses.push((epoch, loss))).unwrap();
        assert!(first.test_accuracy >= 0.95, "{}", first.test_accuracy);
        assert_eq!(losses.len(), EPOCHS as usize);
        assert!(losses[0].1 > 5.0 * losses[losses.len() - 1].1, "{losses:?}");
        let second = train(&comm, |_, _| {}).unwrap();
        assert_eq!((first.test_accuracy, first.weights_hash), (second.test_accuracy, second.weights_hash));
    }

    #[test]
    fn a_ring_sends_twice_its_vector_but_for_one_share() {
        let ring = |ranks| {
            let all_reduce = unisono_schedule::Collective::AllReduce;
            Choice::named(all_reduce, "ring", &unisono_schedule::Shape::new(ranks)).unwrap()
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
