//! Algorithms as somebody outside this crate writes them: right ones, and every way to be wrong.

use std::sync::Arc;

use unisono_schedule::{
    Action, Admit, Algorithm, Builder, Choice, Chooser, Collective, CostModel, FIRST_USE_STEPS_MAX, Fault,
    Own, Refusal, Registry, Requires, Schedule, Shape, Slot, Trust, find_by_name, prove, verify,
};

/// Each half of every share travels around the ring in a direction of its own.
fn both_ways(builder: &mut Builder) {
    let (next, previous) = (builder.ahead(1), builder.behind(1));
    for hop in 1..builder.ranks() {
        builder.send(next, 2 * builder.behind(hop - 1));
        builder.send(previous, 2 * builder.ahead(hop - 1) + 1);
        builder.recv(previous, 2 * builder.behind(hop));
        builder.recv(next, 2 * builder.ahead(hop) + 1);
    }
    builder.deliver(2 * builder.rank());
    builder.deliver(2 * builder.rank() + 1);
}

fn halves(collective: Collective, build: fn(&mut Builder)) -> Algorithm {
    Algorithm::new("halves", collective, build)
        .chunks(move |shape| 2 * unisono_schedule::Layout::unit(collective, shape))
}

#[test]
fn shares_can_be_cut_further() {
    let to_root: fn(&mut Builder) = |builder| {
        let (rank, root) = (builder.rank(), builder.root());
        for other in (0..builder.ranks()).filter(|other| *other != root) {
            if rank == root {
                builder.recv_all(other, [2 * other, 2 * other + 1]);
            } else if rank == other {
                builder.send_all(root, [2 * other, 2 * other + 1]);
            }
        }
        if rank == root {
            [2 * rank, 2 * rank + 1].into_iter().for_each(|extent| builder.deliver(extent));
        }
    };
    let from_root: fn(&mut Builder) = |builder| {
        let (rank, root) = (builder.rank(), builder.root());
        for other in (0..builder.ranks()).filter(|other| *other != root) {
            if rank == root {
                builder.send_all(other, [2 * other, 2 * other + 1]);
            } else if rank == other {
                builder.recv_all(root, [2 * other, 2 * other + 1]);
            }
        }
        [2 * rank, 2 * rank + 1].into_iter().for_each(|extent| builder.deliver(extent));
    };
    let reduce_shares: fn(&mut Builder) = |builder| {
        let (rank, ranks) = (builder.rank(), builder.ranks());
        for other in (0..ranks).filter(|other| *other != rank) {
            builder.send_all(other, [2 * other, 2 * other + 1]);
        }
        let peers = (0..rank).rev().map(|below| (below, Own::Right));
        let peers = peers.chain((rank + 1..ranks).map(|above| (above, Own::Left)));
        for (nth, (peer, own)) in (1..).zip(peers) {
            builder.recv_reduce(peer, 2 * rank, own, nth == ranks - 1);
            builder.recv_reduce(peer, 2 * rank + 1, own, nth == ranks - 1);
        }
        [2 * rank, 2 * rank + 1].into_iter().for_each(|extent| builder.deliver(extent));
    };
    let pairs: fn(&mut Builder) = |builder| {
        let (rank, ranks) = (builder.rank(), builder.ranks());
        let halves = |from: u32, to: u32| [2 * (from * ranks + to), 2 * (from * ranks + to) + 1];
        (1..ranks).for_each(|hop| {
            let to = builder.ahead(hop);
            builder.send_all(to, halves(rank, to));
        });
        (1..ranks).for_each(|hop| {
            let from = builder.behind(hop);
            builder.recv_all(from, halves(from, rank));
        });
        halves(rank, rank).into_iter().for_each(|extent| builder.deliver(extent));
    };
    let apart = Requires { out_of_place: true, ..Requires::NOTHING };
    let all = [
        halves(Collective::AllGather, both_ways),
        halves(Collective::Gather, to_root),
        halves(Collective::Scatter, from_root),
        halves(Collective::ReduceScatter, reduce_shares),
        halves(Collective::AllToAll, pairs).requires(apart),
    ];
    for algorithm in all {
        for ranks in 1..=7 {
            for root in if algorithm.collective.is_rooted() { 0..ranks } else { 0..1 } {
                verify(&algorithm, &Shape::new(ranks).with_root(root))
                    .unwrap_or_else(|wrong| panic!("{wrong}"));
            }
        }
    }
}

fn refusal(algorithm: &Algorithm, ranks: u32) -> Refusal {
    prove(algorithm, &Shape::new(ranks), FIRST_USE_STEPS_MAX).expect_err("it is wrong").reason
}

fn fault(algorithm: &Algorithm, ranks: u32) -> Fault {
    let Refusal::Wrong(counterexample) = refusal(algorithm, ranks) else { panic!("no counterexample") };
    *counterexample.fault
}

#[test]
fn what_is_wrong_with_it_is_an_error_and_no_panic() {
    let all_reduce = |build: fn(&mut Builder)| Algorithm::new("wrong", Collective::AllReduce, build);
    let panics = all_reduce(|builder| assert!(builder.rank() != 1, "no idea what rank 1 does"));
    let expected = Fault::Panicked { rank: Some(1), text: "no idea what rank 1 does".to_owned() };
    assert_eq!(fault(&panics, 2), expected);
    for peer in [7, 65_536, u32::MAX] {
        let to_nobody =
            Algorithm::new("wrong", Collective::AllReduce, move |builder| builder.send_all(peer, [0]));
        let Fault::Malformed { problem, .. } = fault(&to_nobody, 2) else { panic!("it is malformed") };
        assert_eq!(problem, "names a rank beyond the last, 1");
    }
    assert!(matches!(fault(&all_reduce(|_| {}).chunks(|_| 0), 2), Fault::ExtentCount { claimed: 0, .. }));
    let odd = Algorithm::new("wrong", Collective::AllGather, |_| {}).chunks(|shape| shape.ranks + 1);
    assert_eq!(fault(&odd, 3), Fault::ExtentCount { claimed: 4, unit: 3 });
    let no_chunks = all_reduce(|_| {}).chunks(|_| panic!("how many?"));
    assert!(matches!(fault(&no_chunks, 2), Fault::Panicked { .. }));
    let beyond = all_reduce(|builder| builder.send_all(1 - builder.rank(), [9]));
    assert!(matches!(fault(&beyond, 2), Fault::Malformed { .. }));
    let finer = all_reduce(|_| {}).chunks(|_| u32::MAX);
    assert_eq!(refusal(&finer, 2), Refusal::TooLarge { steps_max: FIRST_USE_STEPS_MAX });
    let for_twelve = all_reduce(|_| {}).fits(|shape| shape.ranks == 12);
    assert_eq!(refusal(&for_twelve, 2), Refusal::DoesNotFit { ranks: 2, root: 0 });
}

/// A schedule that runs without a proof can at least be carried out, and belongs to an existing rank.
#[test]
fn a_single_schedule_is_well_formed() {
    let shape = Shape::new(2);
    let named = |build: fn(&mut Builder)| Algorithm::new("wrong", Collective::AllReduce, build);
    let refused = |algorithm: &Algorithm, rank| algorithm.try_schedule(&shape, rank).unwrap_err().reason;
    for rank in [2, 65_535, 65_536, 65_537, u32::MAX] {
        assert_eq!(refused(&named(|_| {}), rank), Refusal::NoSuchRank { rank, ranks: 2 });
        assert_eq!(Action::peer(rank), rank.min(65_535) as u16, "and not rank 0 or 1");
    }
    for build in [
        |builder: &mut Builder| builder.send_all(65_536, [0]),
        |builder: &mut Builder| builder.send_all(builder.rank(), [0]),
        |builder: &mut Builder| builder.send_all(1 - builder.rank(), [1]),
    ] {
        let Refusal::Wrong(wrong) = refused(&named(build), 0) else { panic!("no counterexample") };
        assert!(matches!(*wrong.fault, Fault::Malformed { .. }), "{wrong}");
    }
    let too_many = Shape { ranks: Shape::RANKS_MAX + 1, ..shape };
    assert!(matches!(
        named(|_| {}).try_schedule(&too_many, 0).unwrap_err().reason,
        Refusal::DoesNotFit { ranks: 65_536, root: 0 }
    ));
    // An unmatched send is refused where schedules of all ranks are at hand.
    let mut registry = Registry::built_in();
    let sends = Arc::new(named(|builder| builder.send_all(1 - builder.rank(), [0])));
    registry.add(sends.clone(), Trust::Trusted).unwrap();
    let refused = registry.facts(&sends, &shape).unwrap_err();
    assert!(refused.to_string().contains("is never received"), "{refused}");
}

#[test]
fn schedules_can_be_data() {
    let (shape, ring) = (Shape::new(4), find_by_name("all_reduce/ring").unwrap());
    let schedules: Vec<Schedule> = (0..4).map(|rank| ring.schedule(&shape, rank)).collect();
    let data = |schedules| Algorithm::from_schedules("data", Collective::AllReduce, &shape, schedules);
    let copy = data(schedules.clone()).requires(Requires::COMMUTATIVE);
    assert_eq!(verify(&copy, &shape).unwrap(), verify(ring, &shape).unwrap());
    assert!(!copy.supports(&Shape::new(5)) && !data(schedules[..3].to_vec()).supports(&shape));
    let mut swapped = schedules;
    swapped.swap(1, 2);
    assert_eq!(fault(&data(swapped), 4), Fault::WrongRank { rank: 1, found: 2 });
}

/// A rank may have proved an algorithm in another group. The group chooses as the ranks without that proof do.
#[test]
fn what_one_rank_has_proved_alone_does_not_change_the_choice() {
    let star = Algorithm::new("star", Collective::Broadcast, |builder| {
        let (root, ranks) = (builder.root(), builder.ranks());
        for extent in 0..3000 {
            if builder.rank() == root {
                for rank in (0..ranks).filter(|rank| *rank != root) {
                    builder.send(rank, extent);
                }
            } else {
                builder.recv(root, extent);
            }
        }
    });
    let (star, shape) = (Arc::new(star.chunks(|_| 3000)), Shape::new(14));
    let mut registry = Registry::built_in();
    registry.add(star.clone(), Trust::Prove).unwrap();
    let is_admitted = || {
        let admitted = registry.admitted(Collective::Broadcast, &shape, &Admit::ANY);
        admitted.iter().any(|(one, _)| one.name == star.name)
    };
    let facts = registry.facts(&star, &shape).unwrap();
    assert!(facts.steps <= FIRST_USE_STEPS_MAX && facts.steps * 14 > FIRST_USE_STEPS_MAX);
    assert!(!is_admitted());
    for root in 0..14 {
        registry.facts(&star, &shape.with_root(root)).unwrap();
    }
    assert!(!is_admitted());
    (0..14).for_each(|root| registry.note(&star, &shape.with_root(root), facts));
    assert!(is_admitted());
}

#[test]
fn a_registry_is_a_value() {
    let named = |name| {
        Arc::new(Algorithm::new(name, Collective::AllGather, both_ways).chunks(|shape| 2 * shape.ranks))
    };
    let before = Registry::built_in();
    let mut after = before.clone();
    after.add(named("both_ways"), Trust::Prove).unwrap();
    assert!(before.find_by_name("all_gather/both_ways").is_none());
    assert!(after.find_by_name("all_gather/both_ways").is_some());
    for taken in ["both_ways", "ring"] {
        let refused = after.add(named(taken), Trust::Prove).unwrap_err();
        assert_eq!(refused.to_string(), format!("there is another all_gather/{taken}"));
    }
    for bad in ["", "a/b", "leaders:2", "two words", "caf\u{e9}"] {
        assert!(
            matches!(after.add(named(bad), Trust::Prove).unwrap_err().reason, Refusal::BadName(_)),
            "{bad:?}"
        );
    }
    let unknown = Choice::named(&after, Collective::AllGather, "both_way", &Shape::new(4)).unwrap_err();
    assert!(unknown.to_string().contains("the nearest are both_ways, "), "{unknown}");
}

/// A root may pass one buffer, and all ranks of an exscan but the first, which the other ranks do not see: they would
/// choose an algorithm that those cannot run.
#[test]
fn an_algorithm_that_needs_two_buffers_is_not_registered_where_ranks_may_differ() {
    let apart = Requires { out_of_place: true, ..Requires::COMMUTATIVE };
    for collective in Collective::ALL {
        let algorithm = Arc::new(Algorithm::new("apart", collective, |_| {}).requires(apart));
        for trust in [Trust::Prove, Trust::Trusted] {
            let added = Registry::built_in().add(algorithm.clone(), trust);
            assert_eq!(added.is_err(), collective.place_may_differ(), "{collective}: {added:?}");
            if let Err(refused) = added {
                assert!(refused.to_string().contains("some of its ranks may pass one buffer"), "{refused}");
            }
        }
    }
    let is_apart = |one: &Algorithm| one.collective.place_may_differ() && one.requires.out_of_place;
    assert!(!unisono_schedule::algorithms().iter().any(|one| is_apart(one)));
}

#[test]
fn it_takes_part_in_choice_with_the_cost_that_is_counted() {
    let mut registry = Registry::built_in();
    // No message at all cannot be beaten; it is wrong, but it is believed.
    let free = Algorithm::new("free", Collective::AllGather, |_| {}).cost(|_| unisono_schedule::Cost::FREE);
    registry.add(Arc::new(free), Trust::Trusted).unwrap();
    let unpriced = Algorithm::new("unpriced", Collective::Broadcast, |_| {});
    registry.add(Arc::new(unpriced), Trust::Trusted).unwrap();
    let wrong = Algorithm::new("wrong", Collective::Barrier, |_| {}).cost(|_| unisono_schedule::Cost::FREE);
    registry.add(Arc::new(wrong), Trust::Prove).unwrap();
    let shape = Shape::new(4);
    let chooser = Chooser::new(&registry, &shape, &CostModel::LOOPBACK);
    let chosen = |collective, bytes| chooser.choose(collective, bytes, &Admit::ANY).unwrap().name;
    assert_eq!(chosen(Collective::AllGather, 1 << 20), "free");
    assert!(chosen(Collective::Broadcast, 64) != "unpriced" && chosen(Collective::Barrier, 0) != "wrong");

    let mut registry = Registry::built_in();
    let ring = Algorithm::new("both_ways", Collective::AllGather, both_ways).chunks(|shape| 2 * shape.ranks);
    registry.add(Arc::new(ring), Trust::Prove).unwrap();
    let ring = registry.find_by_name("all_gather/both_ways").unwrap();
    let cost = registry.facts(ring, &shape).unwrap().cost.unwrap();
    assert_eq!(
        cost,
        find_by_name("all_gather/ring")
            .unwrap()
            .cost_of(&shape)
            .map(|one| {
                let all = unisono_schedule::Totals { messages: 2 * one.all.messages, ..one.all };
                unisono_schedule::Cost { messages: 2 * one.messages, all, ..one }
            })
            .unwrap()
    );
}

#[test]
fn a_rooted_algorithm_is_chosen_only_if_it_is_right_for_every_root() {
    let star = |broken: Option<u32>| {
        Algorithm::new("star", Collective::Broadcast, move |builder| {
            let (rank, root) = (builder.rank(), builder.root());
            for other in (0..builder.ranks()).filter(|other| *other != root && Some(root) != broken) {
                if rank == root {
                    builder.send(other, 0);
                } else if rank == other {
                    builder.push(0, Action::Recv { peer: Action::peer(root), destination: Slot::Output });
                }
            }
        })
    };
    for (broken, is_admitted) in [(None, true), (Some(2), false)] {
        let mut registry = Registry::built_in();
        registry.add(Arc::new(star(broken)), Trust::Prove).unwrap();
        let admitted = registry.admitted(Collective::Broadcast, &Shape::new(4), &Admit::ANY);
        assert_eq!(admitted.iter().any(|(one, _)| one.name == "star"), is_admitted);
    }
}
