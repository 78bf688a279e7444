//! Hosts that go silently in simulated jobs: all their ranks are lost soon, and nobody else.

use std::collections::BTreeSet;
use std::time::Duration;

use unisono_backend::{Ask, Question};

use super::plane::Presence;
use super::simulation::{Cut, MS, Simulation, TWO_PATIENCES};

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// The placement of the ranks on the hosts.
#[derive(Clone, Copy, Debug)]
enum Placement {
    /// A host has neighbouring ranks.
    Blocks,
    /// Neighbouring ranks are on different hosts.
    Cyclic,
}

fn hosts(count: u32, ranks_each: u32, placement: Placement) -> Vec<u32> {
    let host = |rank: u32| match placement {
        Placement::Blocks => rank / ranks_each,
        Placement::Cyclic => rank % count,
    };
    (0..count * ranks_each).map(host).collect()
}

fn ranks_of(hosts: &[u32], gone: &[u32]) -> BTreeSet<u32> {
    (0..).zip(hosts).filter(|(_, host)| gone.contains(host)).map(|(rank, _)| rank).collect()
}

/// A job on these hosts in which some go silently. Returns after how long every other rank knows all ranks of these
/// hosts as lost, and has agreed on the survivors.
fn time_to_agree(hosts: &[u32], gone: &[u32], seed: u64) -> Duration {
    let mut simulation = Simulation::on_hosts(hosts, seed);
    simulation.run(MS * 450);
    let lost = ranks_of(hosts, gone);
    simulation.cut_off(lost.clone(), FOR_EVER, Cut::Silence);
    let start = simulation.now;
    let survivors: Vec<u32> = (0..simulation.size()).filter(|rank| !lost.contains(rank)).collect();
    let deadline = simulation.now + FOR_EVER;
    let (question, flag, heeds_cause) = (Question::Survivors, true, false);
    let ask = || Ask { question, number: 0, flag, finished_calls: 0, deadline, heeds_cause };
    let answers: Vec<_> = survivors.iter().map(|&rank| simulation.agree(rank, ask())).collect();
    while answers.iter().any(|answer| answer.is_empty()) && simulation.now - start < FOR_EVER / 30 {
        simulation.run(MS * 10);
    }
    let expected: Vec<u32> = lost.into_iter().collect();
    simulation.assert_lost(
        &expected,
        &expected,
        &format!("seed {seed}, {} ranks, hosts {gone:?}", hosts.len()),
    );
    for answer in answers {
        let agreed = answer.try_recv().unwrap().unwrap();
        let agreed: Vec<u32> = agreed.survivors.into_iter().map(|rank| rank.get()).collect();
        assert_eq!(agreed, survivors, "seed {seed}");
    }
    simulation.now - start
}

#[test]
fn a_host_that_goes_silently_is_lost_as_a_whole_within_two_patiences() {
    for (count, ranks_each) in [(3, 1), (4, 2), (3, 8), (5, 12)] {
        for (seed, placement) in (0..).zip([Placement::Blocks, Placement::Cyclic]) {
            for gone in 0..count {
                let took = time_to_agree(&hosts(count, ranks_each, placement), &[gone], seed);
                assert!(took < TWO_PATIENCES, "{count} x {ranks_each} {placement:?} host {gone}: {took:?}");
            }
        }
    }
    let took = time_to_agree(&hosts(3, 64, Placement::Blocks), &[1], 2);
    assert!(took < TWO_PATIENCES, "64 ranks each: {took:?}");
}

#[test]
fn two_hosts_that_go_together_are_lost_within_two_patiences() {
    for (seed, placement) in (0..).zip([Placement::Blocks, Placement::Cyclic]) {
        for gone in [[0, 1], [1, 2], [1, 3], [3, 4]] {
            let took = time_to_agree(&hosts(5, 8, placement), &gone, seed);
            assert!(took < TWO_PATIENCES, "{placement:?} hosts {gone:?}: {took:?}");
        }
    }
}

/// They are found one behind the other.
#[test]
fn more_neighbouring_hosts_take_a_patience_each() {
    for (seed, gone) in (0..).zip([vec![1, 2, 3], vec![0, 1, 6], vec![3, 4, 5, 6]]) {
        let took = time_to_agree(&hosts(9, 4, Placement::Blocks), &gone, seed);
        assert!(took < TWO_PATIENCES * gone.len() as u32 / 2, "hosts {gone:?}: {took:?}");
    }
}

/// Its neighbours are probed, and answer.
#[test]
fn a_stopped_rank_costs_nobody_else() {
    for (seed, placement) in (0..20).zip([Placement::Blocks, Placement::Cyclic].into_iter().cycle()) {
        let mut simulation = Simulation::on_hosts(&hosts(3, 8, placement), seed);
        simulation.run(MS * 450);
        simulation.stop(9, MS * 4000);
        simulation.run(MS * 1500);
        simulation.assert_lost(&[9], &[9], &format!("seed {seed}, stopped"));
        simulation.run(MS * 8000);
        simulation.assert_lost(&[9], &[], &format!("seed {seed}, awake"));
    }
}

/// Ranks of a host that cannot answer for less than the patience, one after the other, while a rank there is suspected.
#[test]
fn a_slow_host_loses_nobody_but_its_stopped_rank() {
    for seed in 0..50 {
        let mut simulation = Simulation::on_hosts(&hosts(3, 8, Placement::Blocks), seed);
        simulation.run(MS * 450);
        simulation.stop(15, MS * 4000);
        for _ in 0..40 {
            let slow = 8 + simulation.random.below(7) as u32;
            let span = MS * (100 + simulation.random.below(600)) as u32;
            if simulation.stopped_until(slow).is_none() {
                simulation.stop(slow, span);
            }
            simulation.run(MS * 100);
        }
        simulation.run(MS * 3000);
        simulation.assert_lost(&[15], &[], &format!("seed {seed}"));
    }
}

/// A host that comes back finds out that the others have gone on, and costs them nobody.
#[test]
fn a_host_that_comes_back_late_knows_that_it_is_lost() {
    for (seed, seconds) in (0..20).zip([3, 5, 30].into_iter().cycle()) {
        let hosts = hosts(3, 4, Placement::Blocks);
        let mut simulation = Simulation::on_hosts(&hosts, seed);
        simulation.run(MS * 450);
        let gone = ranks_of(&hosts, &[1]);
        let is_stopped = seed % 2 == 0;
        if is_stopped {
            gone.iter().for_each(|&rank| simulation.stop(rank, MS * 1000 * seconds));
        } else {
            simulation.cut_off(gone.clone(), MS * 1000 * seconds, Cut::Silence);
        }
        simulation.run(MS * 1000 * (seconds + 5));
        let expected: Vec<u32> = gone.iter().copied().collect();
        let what = format!("seed {seed}, gone for {seconds} s, stopped: {is_stopped}");
        simulation.assert_lost(&expected, &expected, &what);
        for &rank in &gone {
            // On its side of a cut it has lost the others before, and listens to nobody.
            let knows = simulation.presence(rank, rank) == Presence::Lost;
            let has_lost_others = (0..4).all(|other| simulation.presence(rank, other) == Presence::Lost);
            assert!(knows || has_lost_others, "{what}: rank {rank}");
        }
    }
}

/// It is silent for about the patience, again and again, so that it may lose ranks of the others in the moment in which
/// they lose its own. All ranks that go on come to the same result.
#[test]
fn a_host_that_comes_and_goes_splits_nothing() {
    for seed in 0..30 {
        let hosts = hosts(3, 4, Placement::Blocks);
        let mut simulation = Simulation::on_hosts(&hosts, seed);
        simulation.run(MS * 450);
        let flaps = ranks_of(&hosts, &[1]);
        for _ in 0..8 {
            let [gone_ms, there_ms] = [1200, 600].map(|below| 100 + simulation.random.below(below) as u32);
            simulation.cut_off(flaps.clone(), MS * gone_ms, Cut::Silence);
            simulation.run(MS * (gone_ms + there_ms));
        }
        simulation.run(TWO_PATIENCES * 2);
        let is_lost = |by, rank| simulation.presence(by, rank) == Presence::Lost;
        let went_on = |by: &u32| (0..12).filter(|rank| !is_lost(*by, *rank)).collect::<Vec<u32>>();
        let sides: BTreeSet<Vec<u32>> =
            (0..12).filter(|rank| !is_lost(*rank, *rank)).map(|rank| went_on(&rank)).collect();
        let ranks: usize = sides.iter().map(Vec::len).sum();
        let each_rank_is_in_one = sides.iter().flatten().collect::<BTreeSet<_>>().len() == ranks;
        assert!(each_rank_is_in_one && sides.len() <= 2, "seed {seed}: {sides:?}");
        let greatest = sides.iter().map(Vec::len).max();
        assert!(greatest.is_some_and(|ranks| ranks >= 6), "seed {seed}: {sides:?}");
    }
}
