//! `CommsLogger::stragglers` among processes where something is wrong: a rank dies, does not come, or has recorded
//! something else (row I6).

use std::collections::HashMap;

use unisono::comms_log::{CommsLoggerConfig, Stragglers, Verdict};
use unisono::{Collectives, Communicator, Error, ReduceOp};
use unisono_communicator::settings::environment;

use crate::support::{Program, start_ranks};
use crate::{add, join_and_add, wait_for_a_word};

/// The report of this rank as one line.
fn tell(comm: &dyn Communicator, what: &str) -> Verdict {
    let report = comm.group().comms_logger().stragglers(comm).unwrap();
    eprintln!("{what}: {:?}", report.to_string());
    report.verdict
}

/// The work of this rank, by the name that the test gives.
fn work() -> String {
    let variables: HashMap<String, String> = environment().collect();
    variables["WORK"].clone()
}

/// Rank 2 does not come to the analysis; the others print their results.
pub(crate) fn program_without_rank_2() {
    let world = join_and_add();
    let (log, work) = (world.comms_logger(), work());
    log.start();
    add(&world);
    if world.rank() == 2 {
        match work.as_str() {
            "dies" => wait_for_a_word(),
            "sleeps" => wait_for_a_word(),
            _ => eprintln!("got {}", world.barrier().unwrap_err()),
        }
        // Before it leaves, the others have failed.
        wait_for_a_word();
        std::process::exit(0);
    }
    eprintln!("asks");
    let error = log.stragglers(&*world).unwrap_err();
    eprintln!("got {error}");
    let kind = match error.root_cause() {
        Error::PeerLost { .. } => "lost",
        Error::Timeout { .. } => "timeout",
        Error::Mismatch { .. } => "mismatch",
        _ => "another error",
    };
    eprintln!("kind {kind}");
    if kind == "lost" {
        let shrunk = world.shrink().unwrap();
        let survivors = shrunk.communicator;
        add(&*survivors);
        add(&*survivors);
        tell(&*survivors, "survivors");
        survivors.close().unwrap();
    }
}

fn without_rank_2(work: &str) -> Vec<Program> {
    let variables = [("WORK", work), ("UNISONO_CALL_TIMEOUT_S", "3")];
    let program = "stragglers::program_without_rank_2";
    let mut ranks = start_ranks(program, &format!("without, {work}"), 3, &variables);
    ranks[..2].iter_mut().for_each(|rank| drop(rank.hear("asks")));
    ranks
}

#[test]
fn i6_a_rank_that_dies_is_named_and_the_survivors_ask_again() {
    let mut ranks = without_rank_2("dies");
    std::thread::sleep(std::time::Duration::from_millis(200));
    // Kills it.
    drop(ranks.pop());
    let mut reports = Vec::new();
    for mut rank in ranks {
        let error = rank.hear("got ");
        assert!(error.contains("rank 2"), "{error}");
        assert_eq!(rank.hear("kind "), "kind lost", "{error}");
        let report = rank.hear("survivors: ");
        assert!(report.contains("2 calls of 2 ranks"), "{report}");
        reports.push(report);
        assert!(rank.end().0);
    }
    assert_eq!(reports[0], reports[1]);
}

#[test]
fn i6_a_rank_that_does_not_come_is_named_at_the_deadline() {
    let mut ranks = without_rank_2("sleeps");
    for rank in &mut ranks[..2] {
        let error = rank.hear("got ");
        assert!(error.contains("rank 2"), "{error}");
        assert_eq!(rank.hear("kind "), "kind timeout", "{error}");
    }
}

/// The copy of the communicator is made without a message, so the ranks wait in different communicators.
#[test]
fn i6_a_rank_that_calls_something_else_is_named_at_the_deadline() {
    let mut ranks = without_rank_2("calls");
    for rank in &mut ranks[..2] {
        let error = rank.hear("got ");
        assert!(error.contains("rank 2") && error.contains("label \"stragglers\""), "{error}");
        assert!(error.contains("tests/programs/stragglers.rs:"), "the caller's line: {error}");
        assert_eq!(rank.hear("kind "), "kind timeout", "{error}");
    }
    let error = ranks[2].hear("got ");
    assert!(error.contains("barrier") && error.contains("timed out"), "{error}");
}

/// Ranks record different calls, one of them none.
pub(crate) fn program_with_different_logs() {
    let world = join_and_add();
    let log = world.comms_logger();
    let some = |names: &[&str]| CommsLoggerConfig {
        prof_all: false,
        prof_ops: names.iter().map(|&name| name.to_owned()).collect(),
        ..CommsLoggerConfig::enabled()
    };
    // All ranks have made the second call before any changes its log.
    let calls = || {
        add(&world);
        world.broadcast(&mut [1u8; 16], 0).unwrap();
        world.barrier().unwrap();
    };
    assert_eq!(tell(&*world, "nothing"), Verdict::NoCalls);
    log.configure(CommsLoggerConfig::enabled());
    calls();
    tell(&*world, "all");
    tell(&*world, "all again");
    log.reset();
    log.configure(match world.rank() {
        0 => CommsLoggerConfig::enabled(),
        1 => some(&["all_reduce"]),
        _ => some(&["all_reduce", "broadcast"]),
    });
    calls();
    tell(&*world, "some");
    log.reset();
    if world.rank() == 1 {
        log.stop();
    }
    calls();
    tell(&*world, "off on rank 1");
    log.configure(CommsLoggerConfig::enabled());
    let group = world.subgroup(&[2, 0]).unwrap();
    if let Some(group) = group {
        for _ in 0..3 {
            group.all_reduce(&mut [1u64; 8], ReduceOp::Max).unwrap();
        }
        tell(&*group, "subgroup");
        tell(&*group, "subgroup again");
        group.close().unwrap();
    }
    let alone = world.split(Some(world.rank()), 0).unwrap().unwrap();
    add(&*alone);
    assert_eq!(tell(&*alone, "alone"), Verdict::Nobody);
    world.close().unwrap();
    let error = log.stragglers(&*world).unwrap_err();
    assert!(matches!(error.root_cause(), Error::Closed { .. }), "{error}");
}

/// The report behind the word, as its rank has printed it.
fn report<'a>(lines: &'a [String], what: &str) -> Option<&'a str> {
    lines.iter().find_map(|line| line.strip_prefix(what)?.strip_prefix(": "))
}

#[test]
fn i6_the_report_is_the_same_on_all_ranks_whatever_they_recorded() {
    let ranks = start_ranks("stragglers::program_with_different_logs", "different logs", 3, &[]);
    let ended: Vec<_> = ranks.into_iter().map(Program::end).collect();
    assert!(ended.iter().all(|(is_good, _)| *is_good), "{ended:#?}");
    let said: Vec<&[String]> = ended.iter().map(|(_, lines)| lines.as_slice()).collect();
    for (what, ranks, start) in [
        ("nothing", &[0, 1, 2][..], "0 calls of 3 ranks"),
        // The first analysis has recorded nothing, so the second one sees the same calls.
        ("all", &[0, 1, 2], "3 calls of 3 ranks"),
        ("all again", &[0, 1, 2], "3 calls of 3 ranks"),
        ("some", &[0, 1, 2], "4 calls of 3 ranks"),
        ("off on rank 1", &[0, 1, 2], "4 calls of 3 ranks"),
        ("subgroup", &[0, 2], "3 calls of 2 ranks"),
        ("subgroup again", &[0, 2], "3 calls of 2 ranks"),
    ] {
        let first = report(said[0], what).unwrap();
        assert!(first.contains(start), "{what}: {first}");
        for (rank, lines) in said.iter().enumerate() {
            assert_eq!(report(lines, what), ranks.contains(&rank).then_some(first), "{what}, rank {rank}");
        }
    }
    // Of the calls that not all ranks have recorded, the rows say who has.
    let some = report(said[0], "some").unwrap();
    let recorded_by = |name: &str| {
        let line = some.split("\\n").find(|line| line.starts_with(&format!("{name} "))).unwrap();
        line.split_whitespace().nth(4).unwrap().to_owned()
    };
    assert_eq!(["all_reduce", "broadcast", "barrier"].map(recorded_by), ["3", "2", "1"], "{some}");
}
