//! Agreements in simulated jobs whose ranks die, stop and are cut off while they agree.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use unisono_backend::{Agreed, Ask, CallHistory, Question};
use unisono_communicator::{Error, GroupRank, Result};

use super::Request;
use super::simulation::{Cut, MS, Random, Simulation, WORLD};

/// Runs of each kind of fault.
const RUNS: u64 = 3334;

/// The time that everything may take in the simulation, far beyond the detector's patience.
const SPAN: Duration = Duration::from_secs(30);

/// The faults of a job while it agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Faults {
    /// Ranks die, and part of their messages is lost.
    Crashes,
    /// Ranks die, and others stop for a while.
    CrashesAndStops,
    /// Nothing passes between two hosts for a while, and ranks die.
    CrashesAndCut,
    /// Two hosts get resets in the place of each other's answers for a while, and ranks die.
    CrashesAndResets,
}

/// The part of one rank.
struct Asker {
    rank: u32,
    flag: bool,
    finished_calls: u64,
    answer: Receiver<Result<Agreed>>,
}

impl Asker {
    /// Nothing when the rank has died.
    fn ask(simulation: &mut Simulation, rank: u32, number: u64) -> Option<Asker> {
        let flag = simulation.random.below(8) > 0;
        let finished_calls = 5 + simulation.random.below(2);
        let deadline = simulation.now + 10 * SPAN;
        let ask =
            Ask { question: Question::Survivors, number, flag, finished_calls, deadline, heeds_cause: false };
        let is_alive = simulation.is_alive(rank);
        is_alive.then(|| Asker { rank, flag, finished_calls, answer: simulation.agree(rank, ask) })
    }
}

/// The acts of a test.
enum Act {
    Ask(u32),
    Crash(u32),
    Stop(u32, Duration),
    Cut(BTreeSet<u32>, Duration, Cut),
}

fn random_faults(faults: Faults, hosts: &[u32], random: &mut Random) -> Vec<Act> {
    let size = hosts.len() as u32;
    let mut acts: Vec<Act> = (0..size).map(Act::Ask).collect();
    // At least one rank is left.
    for _ in 0..random.below(u64::from(size)) {
        acts.push(Act::Crash(random.below(u64::from(size) - 1) as u32));
    }
    match faults {
        Faults::Crashes => {}
        Faults::CrashesAndStops => {
            for _ in 0..1 + random.below(2) {
                let span = MS * (200 + random.below(4000)) as u32;
                acts.push(Act::Stop(random.below(u64::from(size)) as u32, span));
            }
        }
        Faults::CrashesAndCut | Faults::CrashesAndResets => {
            let side = (0..size).filter(|&rank| hosts[rank as usize] == 0).collect();
            let is_silent = faults == Faults::CrashesAndCut;
            let cut = if is_silent { Cut::Silence } else { Cut::Resets };
            acts.push(Act::Cut(side, MS * (200 + random.below(6000)) as u32, cut));
        }
    }
    // In any order, so that requests and faults meet in every way.
    for index in (1..acts.len()).rev() {
        acts.swap(index, random.below(index as u64 + 1) as usize);
    }
    acts
}

/// Two agreements: one under faults, one after all of them.
fn agree_twice(simulation: &mut Simulation, faults: Faults, hosts: &[u32], what: &str) {
    let acts = random_faults(faults, hosts, &mut simulation.random);
    let mut askers = Vec::new();
    for act in acts {
        match act {
            Act::Ask(rank) => askers.extend(Asker::ask(simulation, rank, 0)),
            Act::Crash(rank) => simulation.crash(rank),
            Act::Stop(rank, span) => simulation.stop(rank, span),
            Act::Cut(side, span, cut) => simulation.cut_off(side, span, cut),
        }
        let pause = MS * simulation.random.below(4) as u32;
        simulation.run(pause);
    }
    simulation.run(SPAN);
    let again: Vec<Asker> =
        (0..simulation.size()).filter_map(|rank| Asker::ask(simulation, rank, 1)).collect();
    simulation.run(SPAN);
    let answers = |askers: &[Asker]| -> BTreeMap<u32, Result<Agreed>> {
        let living = askers.iter().filter(|asker| simulation.is_alive(asker.rank));
        let answer = |asker: &Asker| asker.answer.try_recv().ok().map(|answer| (asker.rank, answer));
        living.map(|asker| answer(asker).unwrap_or_else(|| panic!("{what}: {} waits", asker.rank))).collect()
    };
    let (first, second) = (answers(&askers), answers(&again));
    let going_on: BTreeSet<u32> =
        second.iter().filter(|(_, answer)| answer.is_ok()).map(|(rank, _)| *rank).collect();
    check(&first, &askers, &going_on, what);
    check(&second, &again, &going_on, what);
    for (rank, answer) in &second {
        let is_told = matches!(answer, Err(Error::Evicted { .. } | Error::NoQuorum { .. }));
        let may_be_told = faults != Faults::Crashes;
        assert!(answer.is_ok() || is_told && may_be_told, "{what}: rank {rank} lives but {answer:?}");
    }
}

/// The ranks that can go on have decided the same, with all of them in it. A rank that counts as lost, or is cut off,
/// may have decided from earlier ballots, and finds out by its next call.
fn check(answers: &BTreeMap<u32, Result<Agreed>>, askers: &[Asker], going_on: &BTreeSet<u32>, what: &str) {
    let mut decided: Option<&Agreed> = None;
    for rank in going_on {
        let Ok(agreed) = &answers[rank] else { panic!("{what}: rank {rank}: {:?}", answers[rank]) };
        assert_eq!(*decided.get_or_insert(agreed), agreed, "{what}: on rank {rank}");
        assert!(
            agreed.survivors.contains(&GroupRank::new(*rank)),
            "{what}: rank {rank} is none of {agreed:?}"
        );
    }
    let Some(decided) = decided else { return };
    let (mut flag, mut finished_calls) = (true, u64::MAX);
    for voter in askers.iter().filter(|asker| decided.survivors.contains(&GroupRank::new(asker.rank))) {
        flag &= voter.flag;
        finished_calls = finished_calls.min(voter.finished_calls);
    }
    assert_eq!((decided.flag, decided.finished_calls), (flag, finished_calls), "{what}");
}

/// One agreement under crashes, in which some ranks leave the communicator as soon as they have the answer. Returns how
/// often they did while others had none.
fn agree_and_leave(seed: u64) -> usize {
    let mut random = Random::new(seed);
    let hosts = vec![0; 3 + random.below(7) as usize];
    let (mut simulation, mut left_early) = (Simulation::on_hosts(&hosts, seed), 0);
    simulation.run(MS * 250);
    let (mut askers, mut answers) = (Vec::new(), BTreeMap::new());
    let mut acts = random_faults(Faults::Crashes, &hosts, &mut random).into_iter();
    for _ in 0..100 {
        match acts.next() {
            Some(Act::Ask(rank)) => askers.extend(Asker::ask(&mut simulation, rank, 0)),
            Some(Act::Crash(rank)) => simulation.crash(rank),
            Some(Act::Stop(..) | Act::Cut(..)) | None => {}
        }
        let pause = MS * random.below(3) as u32;
        simulation.run(pause);
        for asker in &askers {
            let Ok(answer) = asker.answer.try_recv() else { continue };
            answers.insert(asker.rank, answer);
            if random.below(2) == 0 {
                left_early += usize::from(answers.len() < askers.len());
                let ours = CallHistory::UNUSED;
                simulation.request(asker.rank, Request::Unregister { key: WORLD, ours });
            }
        }
    }
    simulation.run(SPAN);
    askers
        .iter()
        .for_each(|asker| answers.extend(asker.answer.try_recv().map(|answer| (asker.rank, answer))));
    let living: BTreeSet<u32> = (0..simulation.size()).filter(|rank| simulation.is_alive(*rank)).collect();
    check(&answers, &askers, &living, &format!("seed {seed}, {} ranks", hosts.len()));
    left_early
}

#[test]
fn who_leaves_with_its_decision_does_not_take_it_away() {
    let left_early: usize = (0..RUNS).map(agree_and_leave).sum();
    assert!(left_early > 100, "too few leave early: {left_early}");
}

/// Agreements under crashes, one after the other: a rank begins the next one as soon as it has the answer to the last
/// one, while others may still be in that.
fn agree_without_pause(seed: u64) {
    const AGREEMENTS: u64 = 4;
    let mut random = Random::new(seed);
    let hosts = vec![0; 3 + random.below(7) as usize];
    let mut simulation = Simulation::on_hosts(&hosts, seed);
    simulation.run(MS * 250);
    let mut waiting: Vec<(u64, Asker)> = Vec::new();
    let mut acts = random_faults(Faults::Crashes, &hosts, &mut random).into_iter();
    for round in 0..100 + AGREEMENTS {
        match acts.next() {
            Some(Act::Ask(rank)) => {
                waiting.extend(Asker::ask(&mut simulation, rank, 0).map(|asker| (0, asker)))
            }
            Some(Act::Crash(rank)) => simulation.crash(rank),
            Some(Act::Stop(..) | Act::Cut(..)) | None => {}
        }
        let pause = MS * random.below(3) as u32;
        simulation.run(if round < 100 { pause } else { MS * 3000 });
        let (answered, others): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(_, asker)| !asker.answer.is_empty());
        waiting = others;
        for (number, Asker { rank, .. }) in answered.into_iter().filter(|(last, _)| last + 1 < AGREEMENTS) {
            waiting.extend(Asker::ask(&mut simulation, rank, number + 1).map(|asker| (number + 1, asker)));
        }
    }
    for (number, Asker { rank, .. }) in waiting {
        assert!(
            !simulation.is_alive(rank),
            "seed {seed}, {} ranks: {rank} waits in agreement {number}",
            hosts.len()
        );
    }
}

#[test]
fn who_is_in_the_next_agreement_leaves_nobody_behind() {
    (0..RUNS / 4).for_each(agree_without_pause);
}

fn runs(faults: Faults) {
    (0..RUNS).for_each(|seed| run(faults, seed));
}

fn run(faults: Faults, seed: u64) {
    let mut random = Random::new(seed);
    let size = 2 + random.below(8) as u32;
    let hosts: Vec<u32> = match faults {
        Faults::Crashes | Faults::CrashesAndStops => vec![0; size as usize],
        Faults::CrashesAndCut | Faults::CrashesAndResets => {
            (0..size).map(|_| random.below(2) as u32).collect()
        }
    };
    let mut simulation = Simulation::on_hosts(&hosts, seed);
    simulation.run(MS * 250);
    agree_twice(&mut simulation, faults, &hosts, &format!("{faults:?}, seed {seed}, {size} ranks"));
}

#[test]
fn survivors_of_crashes_agree() {
    runs(Faults::Crashes);
}

#[test]
fn survivors_of_stops_agree_and_the_stopped_are_told() {
    runs(Faults::CrashesAndStops);
}

#[test]
fn one_side_of_a_cut_goes_on() {
    runs(Faults::CrashesAndCut);
}

#[test]
fn one_side_of_a_cut_that_answers_with_resets_goes_on() {
    runs(Faults::CrashesAndResets);
}

/// A rank learned from the other side that it counts as lost, and sent no ballots from then on. The ranks on its own
/// side no longer accepted news from the other side, and waited for it.
#[test]
fn who_is_taken_for_dead_by_one_side_is_awaited_by_none() {
    run(Faults::CrashesAndCut, 1108);
}

#[test]
fn who_never_asks_is_named_by_those_who_wait() {
    let mut simulation = Simulation::new(3, 1);
    simulation.run(MS * 250);
    let deadline: Instant = simulation.now + MS * 500;
    let ask = Ask {
        question: Question::Flag,
        number: 0,
        flag: true,
        finished_calls: 0,
        deadline,
        heeds_cause: false,
    };
    let answers = [0, 2].map(|rank| simulation.agree(rank, ask));
    simulation.run(MS * 700);
    for answer in answers {
        let Ok(Err(Error::Timeout { not_arrived, .. })) = answer.try_recv() else { panic!("not in time") };
        assert_eq!(not_arrived.iter().map(|awaited| awaited.rank.get()).collect::<Vec<_>>(), [1]);
    }
    // Nothing is lost: the next attempt continues the same agreement.
    let later = Ask { deadline: simulation.now + SPAN, ..ask };
    let again = [0, 1, 2].map(|rank| simulation.agree(rank, Ask { flag: rank != 1, ..later }));
    simulation.run(MS * 50);
    for answer in again {
        let Ok(Ok(agreed)) = answer.try_recv() else { panic!("no agreement") };
        assert_eq!((agreed.flag, agreed.survivors), (false, GroupRank::all(3).collect()));
    }
}
