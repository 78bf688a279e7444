//! Algorithms with typical faults, and the verifier's message about each.

use unisono_schedule::{
    Action, Algorithm, Builder, Collective, Cost, Fault, Own, Requires, Shape, Slot, StepIndex, find_by_name,
    verify, verify_schedules,
};

/// An algorithm for the case at hand, taking sizes and claims from a registered one.
fn like(name: &str, build: fn(&mut Builder)) -> Algorithm {
    let like = find_by_name(name).expect("registered").clone();
    let (chunks, cost, scratch) = (like.clone(), like.clone(), like.clone());
    let wrong = Algorithm::new("wrong", like.collective, build).requires(like.requires);
    let wrong = if like.canonical { wrong.canonical() } else { wrong };
    let wrong = wrong.chunks(move |shape| chunks.chunks_of(shape));
    let wrong = wrong.scratch_chunks(move |shape| scratch.scratch_chunks_of(shape).expect("claimed"));
    wrong.cost(move |shape| cost.cost_of(shape).expect("claimed"))
}

fn fault(algorithm: &Algorithm, ranks: u32) -> (Fault, String) {
    let wrong = verify(algorithm, &Shape::new(ranks)).expect_err("it is wrong");
    (*wrong.fault.clone(), wrong.to_string())
}

#[test]
fn an_exchange_in_place_of_unequal_parts_needs_room() {
    let mut in_place = Algorithm::clone(find_by_name("all_to_all/direct").unwrap());
    (in_place.name, in_place.requires) = ("wrong", Requires::NOTHING);
    let (found, text) = fault(&in_place, 3);
    assert!(matches!(found, Fault::Deadlock { .. }), "{text}");
    assert_eq!(
        text,
        "all_to_all/wrong with 3 ranks: deadlock: rank 0 step 0 [send to 1 extent 1 input -> wire], waits for \
         rank 1 step 1 [send to 0 extent 3 input -> wire], waits for the first"
    );
}

#[test]
fn everybody_receiving_first_is_a_deadlock() {
    let around = like("all_gather/ring", |builder| {
        for hop in 1..builder.ranks() {
            let (to, from) = (builder.ahead(1), builder.behind(1));
            let received = builder.push(
                builder.behind(hop),
                Action::Recv { peer: Action::peer(from), destination: Slot::Output },
            );
            let sent = builder.send(to, builder.behind(hop - 1));
            builder.after(sent, received);
        }
        builder.deliver(builder.rank());
    });
    let (found, text) = fault(&around, 4);
    let Fault::Deadlock { cycle } = found else { panic!("{text}") };
    assert_eq!(cycle.len(), 4, "{text}");
}

/// All ranks send around a ring the bytes into which they receive. A link that keeps the bytes until the peer has
/// received them would stop all ranks.
#[test]
fn a_rotation_in_place_needs_room() {
    let rotation = |into_scratch: bool| {
        let rotation = move |builder: &mut Builder| {
            let (to, from) = (builder.ahead(1), builder.behind(1) as u16);
            builder.send(to, 0);
            let destination = if into_scratch { builder.scratch() } else { Slot::Output };
            builder.push(0, Action::Recv { peer: from, destination });
            builder.deliver(0);
        };
        Algorithm::new("wrong", Collective::AllReduce, rotation)
    };
    let (found, text) = fault(&rotation(false), 3);
    let Fault::Unbuffered { cycle } = found else { panic!("{text}") };
    assert_eq!(cycle.len(), 3, "{text}");
    assert!(
        text.starts_with("all_reduce/wrong with 3 ranks: deadlock if links do not buffer: rank "),
        "{text}"
    );
    assert!(text.ends_with("so receive into a scratch chunk and copy from there"), "{text}");
    // It cannot hang any more, and adds nothing up.
    let (found, text) = fault(&rotation(true), 3);
    assert!(matches!(found, Fault::Output { .. }), "{text}");
}

#[test]
fn a_barrier_of_too_few_rounds_lets_ranks_leave() {
    let short = like("barrier/dissemination", |builder| {
        let (to, from) = (builder.ahead(1), builder.behind(1));
        builder.push(0, Action::Send { peer: Action::peer(to), source: Slot::Input });
        let destination = builder.scratch();
        builder.push(0, Action::Recv { peer: Action::peer(from), destination });
    });
    let short = short.scratch_chunks(|_| 1);
    let (_, text) = fault(&short, 4);
    assert_eq!(text, "barrier/wrong with 4 ranks: rank 0 leaves without having heard of ranks 1, 2");
}

#[test]
fn adding_twice_and_missing_name_the_ranks() {
    // Recursive doubling that does not fold: right for powers of two only.
    let build: fn(&mut Builder) = |builder| {
        let rounds = builder.ranks().next_power_of_two().ilog2();
        for round in 0..rounds {
            let distance = 1 << round;
            builder.send(builder.ahead(distance), 0);
            builder.recv_reduce(builder.behind(distance), 0, Own::Right, round + 1 == rounds);
        }
    };
    let around = like("all_reduce/recursive_doubling", build);
    let mut around = around.requires(Requires::COMMUTATIVE);
    around.canonical = false;
    let (_, text) = fault(&around, 3);
    assert!(text.contains("adds the contribution of rank 0 twice"), "{text}");
    // For a power of two every contribution is in once, but each rank adds in an order of its own.
    let (found, text) = fault(&around, 4);
    assert!(matches!(found, Fault::Trees { .. }), "{text}");
    assert!(
        text.contains("extent 0 is ((1 + 2) + (3 + 0)) at rank 0 but ((2 + 3) + (0 + 1)) at rank 1"),
        "{text}"
    );
}

/// Partial sums of a ring in two scratch chunks that take turns.
fn ring_in_two_scratch_chunks(builder: &mut Builder) {
    let (next, previous, hops) = (builder.ahead(1), builder.behind(1), builder.ranks() - 1);
    let (mut scratch, mut value) = (Vec::new(), Slot::Input);
    for hop in 1..=hops {
        builder.push(builder.behind(hop), Action::Send { peer: Action::peer(next), source: value });
        let destination = match (hop == hops, scratch.len()) {
            (true, _) => Slot::Output,
            (false, 2) => scratch[(hop as usize + 1) % 2],
            (false, _) => {
                scratch.push(builder.scratch());
                scratch[scratch.len() - 1]
            }
        };
        let (operand, completes) = (Slot::Input, hop == hops);
        let peer = previous as u16;
        let action = Action::RecvReduce { peer, operand, destination, operand_is_left: false, completes };
        builder.push(builder.behind(hop + 1), action);
        value = destination;
    }
    if hops == 0 {
        builder.deliver(0);
    }
}

#[test]
fn scratch_may_be_shared_by_extents_of_any_lengths() {
    let shared = like("reduce_scatter/ring", ring_in_two_scratch_chunks);
    let scratch_chunks = |shape: &Shape| shape.ranks.saturating_sub(2).min(2);
    let shared = shared.scratch_chunks(scratch_chunks);
    for ranks in 1..=9 {
        verify(&shared, &Shape::new(ranks)).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

/// In place the copy has finished when the call begins. So a step that waits for the copy does not wait for the send
/// before it.
#[test]
fn a_path_over_a_copy_that_vanishes_in_place_does_not_order_steps() {
    let build: fn(&mut Builder) = |builder| {
        let peer = 1 - builder.rank() as u16;
        if builder.rank() == 0 {
            builder.push(0, Action::Send { peer, source: Slot::Input });
            builder.push(0, Action::Copy { source: Slot::Input, destination: Slot::Output });
            builder.push(0, Action::Recv { peer, destination: Slot::Output });
        } else {
            builder.recv_reduce(0, 0, Own::Right, true);
            builder.send(0, 0);
        }
    };
    let algorithm = like("all_reduce/recursive_doubling", build);
    let shape = Shape::new(2);
    let schedules = |of_the_receive: &[usize]| {
        let mut schedules: Vec<_> = (0..2).map(|rank| algorithm.schedule(&shape, rank)).collect();
        let dependencies =
            [&[][..], &[0], of_the_receive].map(|list| list.iter().copied().map(StepIndex::new).collect());
        schedules[0] = unisono_schedule::Schedule::new(0, 1, 0, schedules[0].steps.clone(), &dependencies);
        schedules
    };
    verify_schedules(&algorithm, &shape, &schedules(&[0, 1])).unwrap_or_else(|wrong| panic!("{wrong}"));
    let wrong = verify_schedules(&algorithm, &shape, &schedules(&[1])).expect_err("it is wrong");
    assert!(matches!(*wrong.fault, Fault::Race { .. }), "{wrong}");
}

#[test]
fn writing_the_input_and_bad_indices_are_named() {
    let shape = Shape::new(2);
    let ring = find_by_name("all_reduce/ring").unwrap();
    let changed = |step: usize, action: Action| {
        let mut schedules: Vec<_> = (0..2).map(|rank| ring.schedule(&shape, rank)).collect();
        schedules[1].steps[step].action = action;
        verify_schedules(ring, &shape, &schedules).expect_err("it is wrong").to_string()
    };
    let text = changed(3, Action::Recv { peer: 0, destination: Slot::Input });
    assert!(text.ends_with("rank 1 step 3 [recv from 0 extent 0 wire -> input] writes the input"), "{text}");
    let text = changed(0, Action::Send { peer: 7, source: Slot::Input });
    assert!(text.ends_with("names a rank beyond the last, 1"), "{text}");
    let text = changed(0, Action::Send { peer: 0, source: Slot::Scratch(0) });
    assert!(text.ends_with("uses scratch chunk 0 of 0"), "{text}");
}

/// With uneven counts a rank knows the lengths of the data that it sends and that it receives for itself, and no
/// others.
#[test]
fn an_all_to_all_that_relays_must_require_even_counts() {
    let mut bruck = Algorithm::clone(find_by_name("all_to_all/bruck").unwrap());
    bruck.name = "wrong";
    let apart = Requires { out_of_place: true, ..Requires::NOTHING };
    let relays = bruck.clone().requires(apart);
    // At three ranks no distance has two binary digits, so that nothing is passed on.
    verify(&relays, &Shape::new(3)).unwrap_or_else(|wrong| panic!("{wrong}"));
    for ranks in 4..=9 {
        let (found, text) = fault(&relays, ranks);
        assert!(matches!(found, Fault::Malformed { .. }), "{text}");
    }
    let (_, text) = fault(&relays, 4);
    let known = "only with even counts, which the algorithm does not require, this rank knows its length";
    assert_eq!(
        text,
        format!(
            "all_to_all/wrong with 4 ranks: rank 0 step 3 [recv from 3 extent 14 wire -> scratch 0] passes on what \
             rank 3 sends to rank 2; {known}"
        )
    );
    let refused = relays.try_schedule(&Shape::new(4), 1).expect_err("it is built without a proof");
    assert!(refused.to_string().ends_with(known), "{refused}");
    verify(&bruck.requires(Requires { even_counts: true, ..apart }), &Shape::new(4)).unwrap();
}

#[test]
fn schedules_that_are_not_one_for_each_rank_are_named() {
    let shape = Shape::new(3);
    let ring = find_by_name("all_gather/ring").unwrap();
    let text = |ranks: &[u32]| {
        let schedules: Vec<_> = ranks.iter().map(|rank| ring.schedule(&shape, *rank)).collect();
        verify_schedules(ring, &shape, &schedules).expect_err("it is wrong").to_string()
    };
    let wrong_rank = "all_gather/ring with 3 ranks: the schedule given for rank 1 is that of rank 2";
    assert_eq!(text(&[0, 2, 2]), wrong_rank);
    assert_eq!(text(&[0, 1]), "all_gather/ring with 3 ranks: there are 2 schedules for 3 ranks");
}

#[test]
fn a_group_of_one_that_forgets_to_copy_is_found() {
    let empty = like("all_gather/ring", |_| {}).cost(|_| Cost::FREE);
    let (_, text) = fault(&empty, 1);
    assert!(text.ends_with("rank 0's output of extent 0 lacks the contribution of rank 0"), "{text}");
    assert_eq!(empty.collective, Collective::AllGather);
}
