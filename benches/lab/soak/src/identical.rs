//! Survivors that go on, beside a fresh job of as many ranks that starts from the same checkpoint with the same data:
//! with sums in a fixed order, both come to the same bits.

use std::io::Read;
use std::path::Path;

use rustix::process::Signal;
use unisono::{CallOptions, Collectives, Communicator, Determinism, Error, JobRank, ReduceOp, Result};
use unisono_tests::sample::mix;

use crate::Problem;
use crate::faults::Random;
use crate::job::Job;

/// Elements of the state; more than one piece would change nothing, the order of sums is by element.
const ELEMENTS: usize = 3000;

/// Steps after the failure.
const STEPS_AFTER: u64 = 20;

/// The victim dies somewhere before this step.
const STEPS_BEFORE: u64 = 60;

/// What all ranks compute, one all-reduce per step.
struct Model {
    state: Vec<f32>,
    /// Whose data this rank has: its first rank in the job.
    owner: u32,
    seed: u64,
}

impl Model {
    fn new(owner: u32, seed: u64) -> Model {
        let state = (0..ELEMENTS as u64).map(|index| small(mix(seed ^ index))).collect();
        Model { state, owner, seed }
    }

    /// The sum of what follows from the state and every rank's own data, in the one order that is promised.
    fn step(&mut self, communicator: &dyn Communicator, step: u64) -> Result<()> {
        let fixed = communicator.with(CallOptions::new().determinism(Determinism::Fixed));
        let data = mix(self.seed.wrapping_add(mix(u64::from(self.owner) + 1)) ^ step);
        let mine = |(index, value): (usize, &f32)| (value + 0.1) * small(mix(data ^ index as u64));
        let mut sums: Vec<f32> = self.state.iter().enumerate().map(mine).collect();
        fixed.all_reduce(&mut sums, ReduceOp::Sum)?;
        self.state.iter_mut().zip(sums).for_each(|(value, sum)| *value = *value * 0.75 + sum * 0.125);
        Ok(())
    }

    fn hash(&self) -> u64 {
        self.state.iter().fold(0, |hash, value| mix(hash ^ u64::from(value.to_bits())))
    }
}

/// Between -1 and 1, with all bits of the fraction in use.
fn small(random: u64) -> f32 {
    (random >> 32) as i32 as f32 / 2f32.powi(31)
}

/// One rank that lives through the failure: says the step it went on from, who was left, and the hash at the end. The
/// first survivor leaves the checkpoint in `checkpoint`.
pub(crate) fn rank(seed: u64, checkpoint: &Path) -> std::result::Result<(), Problem> {
    let communicator = unisono::init()?;
    let mut model = Model::new(communicator.rank(), seed);
    // The state before every step.
    let mut checkpoints: Vec<Vec<f32>> = Vec::new();
    communicator.barrier()?;
    println!("ready");
    let error = loop {
        checkpoints.push(model.state.clone());
        let step = checkpoints.len() as u64 - 1;
        println!("step {step}");
        if let Err(error) = model.step(&*communicator, step) {
            break error;
        }
    };
    if !matches!(error.root_cause(), Error::PeerLost { .. }) {
        return Err(error.into());
    }
    let shrunk = communicator.shrink()?;
    // The first call was the barrier.
    let common = shrunk.last_common_call - 1;
    let survivors = shrunk.communicator;
    model.state = checkpoints.swap_remove(common as usize);
    if survivors.rank() == 0 {
        let bytes: Vec<u8> = model.state.iter().flat_map(|value| value.to_le_bytes()).collect();
        std::fs::write(checkpoint, bytes)?;
    }
    (common..common + STEPS_AFTER).try_for_each(|step| model.step(&*survivors, step))?;
    let owners: Vec<String> = survivors.group().job_ranks().iter().map(JobRank::to_string).collect();
    println!("end {common} {} {:016x}", owners.join(","), model.hash());
    let _ = std::io::stdin().read(&mut [0]);
    Ok(())
}

/// One rank of the fresh job: takes the checkpoint, the data of the survivor in its place, and the same steps.
pub(crate) fn fresh(
    seed: u64,
    checkpoint: &Path,
    common: u64,
    owners: &[u32],
) -> std::result::Result<(), Problem> {
    let communicator = unisono::init()?;
    let owner = owners.get(communicator.rank() as usize).copied();
    let owner = owner.ok_or_else(|| Problem::Broken("a fresh rank without data".to_owned()))?;
    let bytes = std::fs::read(checkpoint)?;
    let values =
        bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    let mut model = Model { state: values.collect(), ..Model::new(owner, seed) };
    (common..common + STEPS_AFTER).try_for_each(|step| model.step(&*communicator, step))?;
    println!("end {:016x}", model.hash());
    communicator.close()?;
    Ok(())
}

/// Makes so many pairs of jobs; an error names the first pair that differs.
pub(crate) fn measure(runs: u32, first_seed: u64) -> std::result::Result<u32, Problem> {
    let checkpoint = std::env::temp_dir().join(format!("unisono-soak-{}-checkpoint", std::process::id()));
    let outcome = (first_seed..).take(runs as usize).try_for_each(|seed| {
        one(seed, &checkpoint).map_err(|problem| Problem::Broken(format!("seed {seed}: {problem}")))
    });
    // Without a survivor there is none.
    let _ = std::fs::remove_file(&checkpoint);
    outcome.map(|()| runs)
}

fn one(seed: u64, checkpoint: &Path) -> std::result::Result<(), Problem> {
    let mut random = Random::new(seed);
    let ranks = 3 + random.below(4) as u32;
    let victim = random.below(u64::from(ranks)) as usize;
    let name = |kind| format!("soak-{}-{kind}-{seed}", std::process::id());
    let path = checkpoint.display().to_string();
    let mut job = Job::start(ranks, &name("survivors"), &["identical", &seed.to_string(), &path])?;
    for rank in &job.ranks {
        rank.hear("ready")?;
    }
    let last = random.below(STEPS_BEFORE);
    while job.ranks[victim].hear("step")?.parse::<u64>().unwrap_or(0) < last {}
    job.ranks[victim].signal(Signal::KILL)?;
    let mut ends = Vec::new();
    for (rank, process) in job.ranks.iter().enumerate().filter(|(rank, _)| *rank != victim) {
        ends.push(process.hear_after("step", "end").map_err(|problem| {
            Problem::Broken(format!("rank {rank} of {ranks} without {victim}: {problem}"))
        })?);
    }
    for (_, process) in job.ranks.iter_mut().enumerate().filter(|(rank, _)| *rank != victim) {
        process.end()?;
    }
    let [common, owners, hash] = ends[0].split(' ').collect::<Vec<_>>()[..] else {
        return Err(Problem::Broken(format!("not an end: {}", ends[0])));
    };
    let words = ["fresh", &seed.to_string(), &path, common, owners];
    let mut job = Job::start(ranks - 1, &name("fresh"), &words)?;
    let mut fresh = Vec::new();
    for rank in &mut job.ranks {
        fresh.push(rank.hear("end")?);
        rank.end()?;
    }
    if ends.iter().any(|end| *end != ends[0]) || fresh.iter().any(|end| end != hash) {
        return Err(Problem::Broken(format!("the survivors come to {ends:?}, a fresh run to {fresh:?}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Or equal bits would say nothing.
    #[test]
    fn the_order_of_sums_shows() {
        let value = |rank: u64, index: u64| small(mix(rank << 32 ^ index));
        let differs = |index: &u64| {
            let [a, b, c] = [0, 1, 2].map(|rank| value(rank, *index));
            (a + b + c).to_bits() != (a + (b + c)).to_bits()
        };
        assert!((0..ELEMENTS as u64).filter(differs).count() > ELEMENTS / 10);
    }
}
