//! `SignRms::deepspeed` against DeepSpeed's `compressed_allreduce`, as `deepspeed.py` has it: the bytes of the signs,
//! scales, results and residuals, over several rounds.

use std::process::Command;

use crate::skip::skip;
use unisono_communicator::{Buffer, BufferMut, ReduceOp};
use unisono_compression::{
    Codec, CompressedCollectives, CompressionState, EncodeContext, Feedback, HostKernels, SignRms,
};
use unisono_engine::in_process;
use unisono_kernels::Kernels;

/// Below this, a sign may be either: it depends on the last bit of a scale.
const TINY: f32 = 1e-6;

/// The numbers of `deepspeed.py`, one after the other.
struct Golden(Vec<f32>);

impl Golden {
    fn of(bytes: &[u8]) -> Golden {
        Golden(bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect())
    }

    fn take(&mut self, count: usize) -> Vec<f32> {
        self.0.drain(..count).collect()
    }
}

/// One encoder, of a rank's vector or of an owner's sum.
struct Encoded {
    values: Vec<f32>,
    scale: f32,
    bytes: Vec<u8>,
    left: Vec<f32>,
}

impl Encoded {
    fn take(golden: &mut Golden, elements: usize) -> Encoded {
        let values = golden.take(elements);
        let scale = golden.take(1)[0];
        let bytes = golden.take(elements / 8).into_iter().map(|byte| byte as u8).collect();
        Encoded { values, scale, bytes, left: golden.take(elements) }
    }

    /// Whether these bytes have the same signs, but for elements near zero.
    fn has_signs(&self, bytes: &[u8]) -> bool {
        let is_set = |bytes: &[u8], index: usize| bytes[index / 8] >> (7 - index % 8) & 1;
        (0..self.values.len()).all(|index| {
            self.values[index].abs() <= TINY || is_set(bytes, index) == is_set(&self.bytes, index)
        })
    }
}

struct Round {
    inputs: Vec<Vec<f32>>,
    workers: Vec<Encoded>,
    servers: Vec<Encoded>,
    output: Vec<f32>,
}

struct Job {
    ranks: usize,
    elements: usize,
    padded: usize,
    rounds: Vec<Round>,
}

fn jobs(bytes: &[u8]) -> Vec<Job> {
    let mut golden = Golden::of(bytes);
    let mut jobs = Vec::new();
    while !golden.0.is_empty() {
        let [ranks, elements, padded, rounds] = golden.take(4)[..] else { panic!("four numbers") };
        let [ranks, elements, padded] = [ranks, elements, padded].map(|number| number as usize);
        let round = |golden: &mut Golden| {
            let mut round =
                Round { inputs: Vec::new(), workers: Vec::new(), servers: Vec::new(), output: Vec::new() };
            for _ in 0..ranks {
                round.inputs.push(golden.take(elements));
                round.workers.push(Encoded::take(golden, padded));
            }
            round.servers = (0..ranks).map(|_| Encoded::take(golden, padded / ranks)).collect();
            round.output = golden.take(elements);
            round
        };
        let rounds = (0..rounds as usize).map(|_| round(&mut golden)).collect();
        jobs.push(Job { ranks, elements, padded, rounds });
    }
    jobs
}

fn near(ours: &[f32], theirs: &[f32], most: f32, what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert!((ours - theirs).abs() <= most, "{what}, element {index}: {ours} and {theirs}");
    }
}

/// The scale and the bytes that a rank sends, all shares together.
fn sent(state: &CompressionState, input: &[f32], ranks: usize) -> (f32, Vec<u8>) {
    let (codec, kernels) = (SignRms::deepspeed(), HostKernels(Kernels::best()));
    let padded = state.residual().len();
    let mut vector = input.to_vec();
    vector.resize(padded, 0.0);
    let mut sums = vec![0.0f32; padded];
    let owed = state.residual();
    let (old, new) = (Buffer::of(&owed), BufferMut::of(&mut sums));
    let squares = codec.measure(&kernels, Buffer::of(&vector), Feedback { old, new }).unwrap();
    let scale = codec.scale(squares, padded);
    let share = padded / ranks;
    let mut bytes = Vec::new();
    for (number, values) in sums.chunks_mut(share).enumerate() {
        let mut part = vec![0u32; codec.encoded_words(share)];
        let context = EncodeContext { key: 0, first: number * share, scale };
        let feedback = Feedback { old: Buffer::of(&vector[..share]), new: BufferMut::of(values) };
        let out = BufferMut::of(&mut part);
        let bad = codec.encode(&kernels, Buffer::of(&vector[..share]), Some(feedback), context, out);
        assert_eq!(bad.unwrap(), None);
        codec.seal(&mut part);
        assert_eq!(f32::from_bits(part[0]), scale, "each part begins with the scale");
        let words = part[1..].iter().flat_map(|word| word.to_le_bytes());
        bytes.extend(words.take(share / 8));
    }
    (scale, bytes)
}

fn check(bytes: &[u8]) {
    let jobs = jobs(bytes);
    assert_eq!(jobs.iter().map(|job| job.ranks).collect::<Vec<_>>(), [1, 2, 3, 4, 8]);
    for job in &jobs {
        assert_eq!(SignRms::deepspeed().padded(job.elements, job.ranks), job.padded);
        in_process::run(job.ranks as u32, |comm| {
            let rank = comm.group().rank() as usize;
            let mut state = CompressionState::new::<f32>(&*comm, SignRms::deepspeed(), job.elements).unwrap();
            for (number, round) in job.rounds.iter().enumerate() {
                let what = format!("{} ranks, round {number}, rank {rank}", job.ranks);
                let (worker, server) = (&round.workers[rank], &round.servers[rank]);
                let mut vector = round.inputs[rank].clone();
                let (scale, bytes) = sent(&state, &vector, job.ranks);
                assert!((scale - worker.scale).abs() <= 1e-6 * worker.scale, "{what}: scale {scale}");
                assert!(worker.has_signs(&bytes), "{what}: {bytes:?} and {:?}", worker.bytes);

                comm.compressed_all_reduce(&mut vector, ReduceOp::Avg, &mut state).unwrap();
                near(&vector, &round.output, 2e-6, &what);
                near(&state.residual(), &worker.left, 1e-5, &what);
                // Ours is of the sum.
                let of_mean: Vec<f32> =
                    state.owner_residual().iter().map(|value| value / job.ranks as f32).collect();
                near(&of_mean, &server.left, 1e-5, &what);
                let share = job.padded / job.ranks;
                assert_eq!(state.owned(), rank * share..(rank + 1) * share);
                if let Some(first) = vector.get(rank * share) {
                    assert!((first.abs() - server.scale).abs() <= 1e-6 * server.scale, "{what}: {first}");
                }
            }
        });
    }
}

/// Rows: G1, G2, G3, G4
#[test]
fn several_rounds_are_as_deepspeed_has_them() {
    check(include_bytes!("deepspeed.bin"));
}

/// The script still gives the bytes that are kept beside it, or as good.
#[test]
fn the_script_gives_the_same() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compression/deepspeed.py");
    match Command::new("python3").arg(script).output() {
        Ok(output) if output.status.success() => {
            assert_eq!(output.stdout.len(), include_bytes!("deepspeed.bin").len());
            check(&output.stdout);
        }
        Ok(output) if output.status.code() == Some(3) => {
            skip("numpy", "python3 has none");
        }
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => skip("python3", &error.to_string()),
    }
}
