//! The proofs, without a job: the author of an algorithm runs them after every change.

use bidirectional_ring::{bidirectional_ring, deadlocks, forgets};
use unisono_schedule::{
    Admit, Chooser, Collective, CostModel, Refusal, Registry, Shape, Trust, find_by_name, prove, verify,
};

#[test]
fn it_is_right_for_every_group_and_its_cost_is_true() {
    let ring = bidirectional_ring();
    for ranks in 1..=48 {
        verify(&ring, &Shape::new(ranks)).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

#[test]
fn it_has_the_messages_and_bytes_of_the_ring_and_half_of_its_rounds() {
    let (ours, ring) = (bidirectional_ring(), find_by_name("all_reduce/ring").unwrap());
    for ranks in [2, 3, 8, 17, 1000] {
        let costs = [&*ours, ring].map(|one| one.cost_of(&Shape::new(ranks)).unwrap());
        let [ours, ring] = costs;
        assert_eq!(ours, unisono_schedule::Cost { rounds: u64::from(ranks / 2 * 2), ..ring });
    }
}

#[test]
fn the_library_chooses_it_for_long_vectors() {
    let (shape, mut registry) = (Shape::new(8), Registry::built_in());
    registry.add(bidirectional_ring(), Trust::Prove).unwrap();
    for cores in [2, 8] {
        let model = CostModel::LOOPBACK.with_ranks_on_cores(8, cores);
        let chooser = Chooser::new(&registry, &shape, &model);
        let chosen = |bytes| chooser.choose(Collective::AllReduce, bytes, &Admit::ANY).unwrap().name;
        assert_eq!(chosen(64 << 20), "bidirectional_ring", "8 ranks on {cores} cores");
        assert_ne!(chosen(64), "bidirectional_ring", "few messages matter more then");
    }
}

#[test]
fn wrong_ones_get_a_counterexample() {
    for (wrong, expected) in [(deadlocks(), "deadlock: "), (forgets(), "lacks the contribution of rank")] {
        let refused = prove(&wrong, &Shape::new(8), 1_000_000).unwrap_err();
        assert!(matches!(refused.reason, Refusal::Wrong(_)), "{refused}");
        assert!(refused.to_string().contains(expected), "{refused}");
    }
}
