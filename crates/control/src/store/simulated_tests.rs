//! Stores in simulated jobs: connections that end or change bits on their way, ranks that stop, die and leave.

use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use unisono_communicator::{Error, JobRank, Result};

use super::{StoreCall, StoreKey, StoreOperation, StoreReply};
use crate::control_plane::ControlPlane;
use crate::simulation::{MS, Simulation, WORLD};

const RANKS: u32 = 5;

/// The number of jobs of each kind.
const SEEDS: u64 = 100;

/// The number of additions of each rank.
const ADDITIONS: usize = 12;

/// Longer than any call takes, and shorter than its deadline.
const SPAN: Duration = Duration::from_secs(20);

type ComingReply = Receiver<Result<StoreReply>>;

fn call(simulation: &mut Simulation, rank: u32, key: &str, operation: StoreOperation) -> ComingReply {
    call_until(simulation, rank, key, operation, simulation_end(simulation))
}

fn simulation_end(simulation: &Simulation) -> Instant {
    simulation.now + 100 * SPAN
}

fn call_until(
    simulation: &mut Simulation,
    rank: u32,
    key: &str,
    operation: StoreOperation,
    deadline: Instant,
) -> ComingReply {
    let key = StoreKey { store: WORLD, key: key.into() };
    simulation.call_store(rank, StoreCall { holder: JobRank::new(0), key, operation, deadline })
}

/// The errors of ranks that a holder has left, one way or the other.
fn assert_lost(answers: &[ComingReply], evidence: &str, seed: u64) {
    for answer in answers {
        let error = answer.try_recv().expect("it has ended").unwrap_err();
        assert_eq!(error.lost_ranks(), [JobRank::new(0)], "seed {seed}: {error}");
        assert!(error.to_string().contains(evidence), "seed {seed}: {error}");
    }
}

#[test]
fn additions_count_once_whatever_the_connections_do() {
    let mut broken = 0;
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(RANKS, seed);
        for number in 0..40 {
            let bit = simulation.random.below(1 << 20);
            simulation.change_message(200 + 61 * number, bit);
        }
        let mut sums = Vec::new();
        let mut open: Vec<(u32, usize, ComingReply)> = (0..RANKS)
            .map(|rank| (rank, 1, call(&mut simulation, rank, "n", StoreOperation::Add(1))))
            .collect();
        let end = simulation.now + 2 * SPAN;
        while !open.is_empty() {
            assert!(simulation.now < end, "seed {seed}: {} calls have no end", open.len());
            let span = MS * simulation.random.below(3) as u32;
            simulation.run(span);
            if simulation.random.below(4) == 0 {
                let peer = 1 + simulation.random.below(u64::from(RANKS) - 1) as u32;
                simulation.break_link((0, peer));
                broken += 1;
            }
            if simulation.random.below(50) == 0 {
                let rank = simulation.random.below(u64::from(RANKS)) as u32;
                simulation.stop(rank, 100 * MS);
            }
            for (rank, made, answer) in std::mem::take(&mut open) {
                match answer.try_recv() {
                    Err(_) => open.push((rank, made, answer)),
                    Ok(reply) => {
                        let Ok(StoreReply::Number(sum)) = reply else { panic!("seed {seed}: {reply:?}") };
                        sums.push(sum);
                        if made < ADDITIONS {
                            let next = call(&mut simulation, rank, "n", StoreOperation::Add(1));
                            open.push((rank, made + 1, next));
                        }
                    }
                }
            }
        }
        sums.sort_unstable();
        let all = i64::from(RANKS) * ADDITIONS as i64;
        assert!(sums.iter().copied().eq(1..=all), "seed {seed}: {sums:?}");
    }
    assert!(broken > 1000, "{broken} connections have ended");
}

#[test]
fn the_death_of_the_holder_ends_all_calls_and_later_ones() {
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(RANKS, seed);
        simulation.run(50 * MS);
        let waits: Vec<ComingReply> =
            (1..RANKS).map(|rank| call(&mut simulation, rank, "never", StoreOperation::Get)).collect();
        let span = MS * simulation.random.below(5) as u32;
        simulation.run(span);
        simulation.crash(0);
        simulation.run(SPAN);
        assert_lost(&waits, "lost rank 0", seed);
        let later = call(&mut simulation, 2, "n", StoreOperation::Add(1));
        assert_lost(&[later], "lost rank 0", seed);
    }
}

/// The goodbye may come by another way than the answer, and before it.
#[test]
fn the_last_answers_of_a_holder_that_leaves_count() {
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(RANKS, seed);
        simulation.run(50 * MS);
        let ends: Vec<ComingReply> =
            (1..RANKS).map(|rank| call(&mut simulation, rank, "end", StoreOperation::Get)).collect();
        let waits: Vec<ComingReply> =
            (1..RANKS).map(|rank| call(&mut simulation, rank, "never", StoreOperation::Wait)).collect();
        simulation.run(100 * MS);
        let set = call(&mut simulation, 0, "end", StoreOperation::Set((*b"now").into()));
        assert_eq!(set.try_recv().unwrap().unwrap(), StoreReply::Done);
        simulation.with_control(0, ControlPlane::leave);
        let span = MS * simulation.random.below(3) as u32;
        simulation.run(span);
        simulation.kill(0);
        simulation.run(SPAN);
        for answer in ends {
            let reply = answer.try_recv().unwrap();
            assert_eq!(reply.unwrap(), StoreReply::Value((*b"now").into()), "seed {seed}");
        }
        assert_lost(&waits, "it has left the job", seed);
        let later = call(&mut simulation, 1, "n", StoreOperation::Add(1));
        assert_lost(&[later], "it has left the job", seed);
    }
}

#[test]
fn a_rank_that_dies_while_it_waits_harms_nobody() {
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(RANKS, seed);
        let waits: Vec<ComingReply> =
            (1..RANKS).map(|rank| call(&mut simulation, rank, "go", StoreOperation::Get)).collect();
        let span = MS * simulation.random.below(60) as u32;
        simulation.run(span);
        simulation.crash(3);
        simulation.run(SPAN);
        let set = call(&mut simulation, 1, "go", StoreOperation::Set((*b"x").into()));
        simulation.run(SPAN);
        assert_eq!(set.try_recv().unwrap().unwrap(), StoreReply::Done, "seed {seed}");
        for index in [0, 1, 3] {
            let reply = waits[index].try_recv().unwrap().unwrap();
            assert_eq!(reply, StoreReply::Value((*b"x").into()), "seed {seed}");
        }
    }
}

#[test]
fn a_call_ends_at_its_deadline_and_names_the_key_and_a_late_answer_is_nobodys() {
    let mut simulation = Simulation::new(RANKS, 1);
    let deadline = simulation.now + Duration::from_secs(1);
    let early = call_until(&mut simulation, 1, "epoch", StoreOperation::Get, deadline);
    simulation.run(Duration::from_secs(2));
    let error = early.try_recv().unwrap().unwrap_err();
    let Error::StoreTimeout { key, .. } = &error else { panic!("{error}") };
    assert_eq!(&**key, "epoch");
    assert!(
        error.to_string().contains("store.get(\"epoch\") timed out") && error.is_before_start(),
        "{error}"
    );
    // The next call has the same slot, whose wait is over for the holder too.
    let next = call(&mut simulation, 1, "other", StoreOperation::Get);
    simulation.run(MS * 100);
    let [set, other] = ["epoch", "other"].map(|key| {
        let set = call(&mut simulation, 2, key, StoreOperation::Set((*b"x").into()));
        simulation.run(MS * 100);
        set.try_recv().unwrap().unwrap()
    });
    assert_eq!((set, other), (StoreReply::Done, StoreReply::Done));
    assert_eq!(next.try_recv().unwrap().unwrap(), StoreReply::Value((*b"x").into()));
}

#[test]
fn a_rank_that_counts_as_lost_is_told_so() {
    let mut simulation = Simulation::on_hosts(&[0, 1, 1, 1, 1], 3);
    simulation.run(50 * MS);
    let wait = call(&mut simulation, 4, "never", StoreOperation::Get);
    simulation.stop(4, Duration::from_secs(4));
    simulation.run(SPAN);
    let error = wait.try_recv().unwrap().unwrap_err();
    assert!(matches!(error, Error::Evicted { .. }), "{error}");
    let later = call(&mut simulation, 4, "n", StoreOperation::Add(1));
    assert!(matches!(later.try_recv().unwrap(), Err(Error::Evicted { .. })));
}

#[test]
fn more_calls_than_slots_are_refused() {
    let mut simulation = Simulation::new(2, 1);
    let waits: Vec<ComingReply> =
        (0..super::CALLS_MAX).map(|_| call(&mut simulation, 1, "never", StoreOperation::Get)).collect();
    simulation.run(MS * 500);
    assert!(waits.iter().all(Receiver::is_empty));
    let one_more = call(&mut simulation, 1, "n", StoreOperation::Add(1)).try_recv().unwrap();
    let Err(Error::StoreFull { problem, .. }) = &one_more else { panic!("{one_more:?}") };
    assert!(problem.contains("256"), "{problem}");
}
