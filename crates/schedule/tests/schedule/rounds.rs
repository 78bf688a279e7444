//! Rounds of every algorithm: groups that never wait for each other in a circle, and steps behind all that they wait
//! for. The verifier has proved that every such order gives the same result.

use std::collections::HashMap;

use unisono_schedule::{
    Algorithm, Collective, Move, Refusal, Rounds, Schedule, Shape, StepIndex, algorithms, find_by_name,
    roots, rounds,
};

/// The groups' sizes: small sizes, a power of two, and a size that is no power of two.
const RANKS: [u32; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16];

fn shapes() -> impl Iterator<Item = Shape> {
    let one_host = RANKS.map(Shape::new);
    let two_hosts = RANKS.map(|ranks| Shape { hosts: 2, leaders: ranks.div_ceil(4), ..Shape::new(ranks) });
    one_host.into_iter().chain(two_hosts)
}

/// Runs `check` on all algorithms in all groups.
fn everywhere(check: impl Fn(&Algorithm, &Shape, &[(Schedule, Rounds)])) {
    let mut checked = 0;
    for shape in shapes() {
        for algorithm in algorithms() {
            for shape in roots(algorithm, shape.ranks).into_iter().map(|root| shape.with_root(root)) {
                if algorithm.supports(&shape) {
                    let of = |rank| rounds(algorithm, &shape, rank, 1_000_000).unwrap();
                    check(algorithm, &shape, &(0..shape.ranks).map(of).collect::<Vec<_>>());
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 500, "{checked}");
}

/// The places in the moves at which each step begins to touch its memory, and at which it is over.
fn places(moves: &[Move]) -> HashMap<StepIndex, (usize, usize)> {
    let (mut places, mut group) = (HashMap::new(), 0);
    for (at, one) in moves.iter().enumerate() {
        let end = || moves.iter().skip(at).position(|one| *one == Move::EndGroup).unwrap() + at;
        let earlier = match *one {
            Move::BeginGroup => {
                group = at;
                None
            }
            Move::EndGroup | Move::RecvApart(..) => None,
            Move::Send(step) | Move::Recv(step) => places.insert(step, (group, end())),
            Move::Reduce(step, _) | Move::Copy(step) => places.insert(step, (at, at)),
        };
        assert!(earlier.is_none(), "{one:?} comes twice");
    }
    places
}

#[test]
fn every_step_comes_once_behind_all_that_it_waits_for() {
    everywhere(|algorithm, shape, all| {
        for (schedule, rounds) in all {
            let places = places(&rounds.moves);
            assert_eq!(places.len(), schedule.steps.len());
            for (step, _) in schedule.indexed() {
                for earlier in schedule.dependencies(step) {
                    let (begins, over) = (places[&step].0, places[earlier].1);
                    assert!(over < begins, "{algorithm:?} {shape:?}: {step} goes before {earlier} is over");
                }
            }
            let mut held = vec![None; rounds.apart as usize];
            for one in &rounds.moves {
                match *one {
                    Move::RecvApart(step, memory) => {
                        assert_eq!(held[memory as usize].replace(step), None);
                    }
                    Move::Reduce(step, memory) => assert_eq!(held[memory as usize].take(), Some(step)),
                    _ => {}
                }
            }
            assert!(held.iter().all(Option::is_none));
        }
    });
}

/// The messages of each group, as (peer, whether it is sent), in order.
fn groups(schedule: &Schedule, rounds: &Rounds) -> Vec<Vec<(u32, bool)>> {
    let mut groups = Vec::new();
    for one in &rounds.moves {
        match *one {
            Move::BeginGroup => groups.push(Vec::new()),
            Move::Send(step) | Move::Recv(step) | Move::RecvApart(step, _) => {
                let (peer, sends) = schedule.steps[step.index()].action.link().unwrap();
                groups.last_mut().unwrap().push((peer.into(), sends));
            }
            Move::EndGroup | Move::Reduce(..) | Move::Copy(_) => {}
        }
    }
    groups
}

#[test]
fn groups_never_wait_in_a_circle() {
    everywhere(|algorithm, shape, all| {
        let groups: Vec<_> = all.iter().map(|(schedule, rounds)| groups(schedule, rounds)).collect();
        // How many messages of (from, to) each end has started, and in which group each rank is.
        let mut started: HashMap<(u32, u32, bool), usize> = HashMap::new();
        let mut at = vec![0; groups.len()];
        let start = |rank: u32, group: &[(u32, bool)], started: &mut HashMap<_, usize>| {
            for &(peer, sends) in group {
                let (from, to) = if sends { (rank, peer) } else { (peer, rank) };
                *started.entry((from, to, sends)).or_default() += 1;
            }
        };
        for (rank, groups) in (0..).zip(&groups) {
            groups.first().into_iter().for_each(|group| start(rank, group, &mut started));
        }
        while at.iter().zip(&groups).any(|(at, groups)| *at < groups.len()) {
            let mut moved = false;
            for (rank, groups) in (0..).zip(&groups) {
                let Some(group) = groups.get(at[rank as usize]) else { continue };
                // All of a rank's own messages up to this group have been started: so many must the other end have.
                let is_met = group.iter().all(|&(peer, sends)| {
                    let (from, to) = if sends { (rank, peer) } else { (peer, rank) };
                    let of = |end: bool| started.get(&(from, to, end)).copied().unwrap_or(0);
                    of(!sends) >= of(sends)
                });
                if is_met {
                    at[rank as usize] += 1;
                    groups
                        .get(at[rank as usize])
                        .into_iter()
                        .for_each(|group| start(rank, group, &mut started));
                    moved = true;
                }
            }
            assert!(moved, "{algorithm:?} {shape:?}: groups wait for each other");
        }
    });
}

#[test]
fn both_ends_have_the_messages_in_one_order() {
    everywhere(|_, _, all| {
        // By (from, to, end).
        let mut extents: HashMap<(u32, u32, bool), Vec<u32>> = HashMap::new();
        for (rank, (schedule, rounds)) in (0..).zip(all) {
            for one in &rounds.moves {
                if let Move::Send(step) | Move::Recv(step) | Move::RecvApart(step, _) = *one {
                    let step = schedule.steps[step.index()];
                    let (peer, sends) = step.action.link().unwrap();
                    let (from, to) = if sends { (rank, peer.into()) } else { (peer.into(), rank) };
                    extents.entry((from, to, sends)).or_default().push(step.extent);
                }
            }
        }
        for ((from, to, sends), list) in &extents {
            assert_eq!(extents.get(&(*from, *to, !sends)), Some(list));
        }
    });
}

#[test]
fn a_ring_has_as_many_groups_as_hops() {
    let ring = find_by_name("all_reduce/ring").unwrap();
    let (_, rounds) = rounds(ring, &Shape::new(8), 3, 10_000).unwrap();
    assert_eq!(rounds.moves.iter().filter(|one| **one == Move::BeginGroup).count(), 14);
    assert_eq!(rounds.apart, 1);
}

#[test]
fn what_was_not_proved_is_refused_if_it_waits_in_a_circle() {
    let circle = Algorithm::new("circle", Collective::AllGather, |builder| {
        let received = builder.recv(builder.behind(1), builder.behind(1));
        let sent = builder.send(builder.ahead(1), builder.rank());
        builder.after(sent, received);
    });
    let refused = rounds(&circle, &Shape::new(3), 0, 1_000).unwrap_err();
    assert!(matches!(refused.reason, Refusal::Wrong(_)), "{refused}");
    let refused = rounds(find_by_name("all_reduce/ring").unwrap(), &Shape::new(8), 0, 100).unwrap_err();
    assert!(matches!(refused.reason, Refusal::TooLarge { .. }), "{refused}");
}
