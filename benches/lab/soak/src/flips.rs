//! Bits that change on the way, again and again: every rank gets the same error, nobody a wrong result, and all go on.

use std::io::BufRead;
use std::sync::Arc;

use unisono::{Collectives, Communicator, Error, ReduceOp};

use crate::Problem;
use crate::faults::{Random, Wanted, introduce, join};
use crate::job::Job;

const RANKS: u32 = 3;

/// Flips in one job; each one makes a new epoch.
const FLIPS_PER_JOB: u32 = 100;

/// A flip is somewhere in this many bytes of some stream.
const RANGE_BYTES: u64 = 200_000;

/// Calls after which every stream that carries data has carried more than that.
const ROUNDS_MAX: u64 = 200;

/// One rank: on every line of its input it calls until a call fails, and goes on with the others.
pub(crate) fn rank() -> Result<(), Problem> {
    let mut input = std::io::stdin().lock();
    let world = join(&mut input, true)?;
    let mut communicator = world.communicator()?;
    communicator.barrier()?;
    println!("ready");
    for _ in input.lines().map_while(Result::ok) {
        communicator = until_flip(&communicator)?;
    }
    Ok(())
}

fn until_flip(communicator: &Arc<dyn Communicator>) -> Result<Arc<dyn Communicator>, Problem> {
    for round in 0..ROUNDS_MAX {
        let mut values: Vec<u64> = (0..1 + round * 700).map(|index| index ^ round).collect();
        let outcome = communicator.all_reduce(&mut values, ReduceOp::Sum);
        match outcome.as_ref().map_err(Error::root_cause) {
            Ok(()) => {
                let expected = (0..1 + round * 700).map(|index| u64::from(RANKS) * (index ^ round));
                if !values.into_iter().eq(expected) {
                    return Err(Problem::Broken(format!("a wrong result in round {round}")));
                }
            }
            Err(Error::Corrupted { from, to, .. }) => {
                let shrunk = communicator.shrink()?;
                println!("corrupted {from} to {to}, {} left", shrunk.communicator.size());
                return Ok(shrunk.communicator);
            }
            Err(other) => return Err(Problem::Broken(other.to_string())),
        }
    }
    Err(Problem::Broken("no bit has changed, or nobody saw it".to_owned()))
}

/// Changes so many bits; an error says which one came to something else than [`Error::Corrupted`] on every rank.
pub(crate) fn measure(flips: u32, seed: u64) -> Result<u32, Problem> {
    let mut random = Random::new(seed);
    let mut done = 0;
    while done < flips {
        let some = FLIPS_PER_JOB.min(flips - done);
        job(some, done, &mut random)?;
        done += some;
    }
    Ok(done)
}

fn job(flips: u32, first: u32, random: &mut Random) -> Result<(), Problem> {
    let name = format!("soak-{}-flips-{first}", std::process::id());
    let mut job = Job::start(RANKS, &name, &["flips"])?;
    let Some(proxies) = introduce(&mut job, &name, true)? else { return Ok(()) };
    for rank in &job.ranks {
        rank.hear("ready")?;
    }
    for number in 1..=flips {
        let after = random.below(RANGE_BYTES);
        proxies.flip(Wanted::Epoch(number - 1), after, random);
        job.ranks.iter_mut().try_for_each(|rank| rank.tell("go"))?;
        let mut links = Vec::new();
        for rank in &job.ranks {
            links.push(rank.hear("corrupted")?);
        }
        let is_one =
            links.iter().all(|link| *link == links[0]) && links[0].ends_with(&format!("{RANKS} left"));
        if !is_one || proxies.flips() != u64::from(number) {
            let what = format!("flip {} after {after} bytes: {links:?}", first + number);
            return Err(Problem::Broken(what));
        }
    }
    job.ranks.iter_mut().try_for_each(|rank| rank.end())
}
