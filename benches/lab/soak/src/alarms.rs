//! A job beside busy loops: nobody may be taken for dead because the machine is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use unisono::{Collectives, ReduceOp};

use crate::Problem;
use crate::job::{Job, LONG};

const RANKS: u32 = 4;

/// Threads that compute without end, at the priority of the ranks.
const BUSY_LOOPS: usize = 4;

/// What a rank does between its calls: most of a job's time passes outside.
const PAUSE: Duration = Duration::from_millis(20);

/// One rank: calls, pauses, and says how many calls it made.
pub(crate) fn rank(seconds: u64) -> Result<(), Problem> {
    let communicator = unisono::init()?;
    let (started, mut calls) = (Instant::now(), 0u64);
    let mut is_over = [0u8];
    // Rank 0 says when it is over, so that all make as many calls.
    while is_over == [0] {
        let mut values = [1u32; 1000];
        communicator.all_reduce(&mut values, ReduceOp::Sum)?;
        assert_eq!(values, [RANKS; 1000]);
        std::thread::sleep(PAUSE);
        is_over = [u8::from(started.elapsed() >= Duration::from_secs(seconds))];
        communicator.broadcast(&mut is_over, 0)?;
        calls += 2;
    }
    communicator.close()?;
    println!("calm {calls}");
    Ok(())
}

/// Runs the job for so long; how many calls a rank made. Any failure of a rank is a false alarm.
pub(crate) fn measure(seconds: u64) -> Result<u64, Problem> {
    let is_over = Arc::new(AtomicBool::new(false));
    for _ in 0..BUSY_LOOPS {
        let is_over = is_over.clone();
        std::thread::spawn(move || while !is_over.load(Ordering::Relaxed) {});
    }
    let name = format!("soak-{}-alarms", std::process::id());
    let outcome = Job::start(RANKS, &name, &["alarms", &seconds.to_string()]).and_then(|mut job| {
        let mut calls = 0;
        for rank in &job.ranks {
            calls = rank.hear_within("calm", LONG)?.parse().unwrap_or(0);
        }
        job.ranks.iter_mut().try_for_each(|rank| rank.end())?;
        Ok(calls)
    });
    is_over.store(true, Ordering::Relaxed);
    outcome
}
