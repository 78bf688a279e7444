//! Every registered algorithm is proved right, with its claims and its stated cost, for many shapes.

use unisono_schedule::{
    Algorithm, Collective, Cost, Fraction, Shape, algorithms, find_by_name, verify, verify_range,
};

#[test]
fn every_algorithm_is_right_for_small_groups() {
    let all: Vec<&Algorithm> = algorithms().iter().map(|one| &**one).collect();
    for (algorithm, result) in all.iter().zip(verify_range(&all, 1..=17)) {
        let summary = result.unwrap_or_else(|counterexample| panic!("{counterexample}"));
        assert!(summary.shapes >= 17, "{}: {summary:?}", algorithm.qualified_name());
    }
}

#[test]
fn every_algorithm_is_right_for_some_large_groups() {
    let all: Vec<&Algorithm> = algorithms().iter().map(|one| &**one).collect();
    for ranks in [31, 48, 64, 96] {
        for result in verify_range(&all, ranks..=ranks) {
            result.unwrap_or_else(|counterexample| panic!("{counterexample}"));
        }
    }
}

#[test]
fn every_collective_has_an_algorithm_for_any_use() {
    for collective in Collective::ALL {
        let general = |algorithm: &Algorithm| {
            let requires = algorithm.requires;
            algorithm.collective == collective && requires == unisono_schedule::Requires::NOTHING
        };
        assert!(algorithms().iter().any(|algorithm| general(algorithm)), "{collective}");
    }
}

#[test]
fn names_are_unique_and_find_their_algorithm() {
    for (nth, algorithm) in algorithms().iter().enumerate() {
        let name = algorithm.qualified_name();
        let found = find_by_name(&name).expect("registered under its name");
        assert!(std::ptr::eq(found, algorithm), "{name}");
        assert!(algorithms()[nth + 1..].iter().all(|other| other.qualified_name() != name), "{name}");
        assert!(!algorithm.source.is_empty() && !algorithm.summary.is_empty(), "{name}");
    }
    assert!(find_by_name("all_reduce").is_none() && find_by_name("ring").is_none());
}

#[test]
fn a_group_of_one_costs_nothing() {
    for algorithm in algorithms() {
        let cost = algorithm.cost_of(&Shape::new(1));
        assert_eq!(cost, Some(Cost::FREE), "{}", algorithm.qualified_name());
    }
}

#[test]
fn false_claims_are_found() {
    let shape = Shape::new(6);
    let ring = || Algorithm::clone(find_by_name("all_reduce/ring").unwrap());
    let text = |algorithm: Algorithm| verify(&algorithm, &shape).unwrap_err().to_string();
    let canonical = text(ring().canonical());
    assert!(canonical.ends_with("its sums are not those of the canonical tree, as it claims"), "{canonical}");
    let order = text(ring().requires(unisono_schedule::Requires::NOTHING));
    assert!(order.ends_with("so it must require commutative operators"), "{order}");
    let scratch = text(ring().scratch_chunks(|_| 1));
    assert!(scratch.ends_with(": scratch chunks: claimed 1, counted 0"), "{scratch}");
    let true_cost = ring().cost_of(&shape).unwrap();
    let cost = text(ring().cost(move |_| Cost { messages: 8, ..true_cost }));
    assert!(cost.ends_with("with 6 ranks: messages: claimed 8, counted 20"), "{cost}");
    let cost = text(ring().cost(move |_| Cost { rounds: 3, sent: Fraction::ONE, ..true_cost }));
    assert!(cost.ends_with(": rounds: claimed 3, counted 10; sent: claimed 1, counted 5/3"), "{cost}");
}

#[test]
fn the_text_of_a_schedule_can_be_followed() {
    let shape = Shape::new(3);
    let text = find_by_name("reduce_scatter/ring").unwrap().schedule(&shape, 1).to_string();
    let expected = "\
rank 1: 3 extents, 1 scratch chunks
    0  send         to   2     extent 0    input -> wire
    1  recv_reduce  from 0     extent 2    wire + input -> scratch 0
    2  send         to   2     extent 2    scratch 0 -> wire                 after 1
    3  recv_reduce  from 0     extent 1    wire + input -> output, complete
";
    assert_eq!(text, expected);
}

/// Links copy buffered sends. So only exchanges are buffered, and scans that double, whose ranks also add to the value
/// that they have sent. A ring, a chain or a tree is not.
#[test]
fn only_exchanges_are_buffered() {
    for algorithm in algorithms() {
        let buffered = |shape: &Shape| {
            (0..shape.ranks).any(|rank| {
                let schedule = algorithm.schedule(shape, rank);
                schedule.indexed().any(|(index, _)| schedule.is_buffered(index))
            })
        };
        let shapes = (2..=9).map(Shape::new).map(|shape| shape.with_leaders(shape.leaders_max()));
        let is_buffered = shapes.filter(|shape| algorithm.supports(shape)).any(|shape| buffered(&shape));
        let name = algorithm.qualified_name();
        let doubling = ["all_reduce", "scan", "exscan"].map(|one| format!("{one}/recursive_doubling"));
        let exchanges = doubling.into_iter().chain(["all_reduce/leaders".to_owned()]);
        assert_eq!(is_buffered, exchanges.clone().any(|one| one == name), "{name}");
    }
}
