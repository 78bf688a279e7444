//! Programs as users start them: the lines on standard error, and the effect of a value that cannot be obeyed.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "every function here is part of a test")]
#![expect(clippy::disallowed_methods, reason = "variables of tests, no settings of the library")]

mod comms_log;
#[cfg(feature = "compression")]
mod compressed;
mod examples;
mod init;
mod meeting;
mod mesh;
mod metrics;
mod skipped;
mod store;
mod stragglers;
mod support;

use std::fmt::Debug;

use support::{run, start, start_ranks};
use tracing::field::{Field, Visit};
use tracing::span;
use unisono::{Backend, Collectives, Communicator, Config, Peer, ReduceOp, SecondInit, World, in_process};

#[test]
fn program_of_this_process() {
    run(&[
        ("comms_log::program_with_a_log", comms_log::program_with_a_log),
        ("comms_log::program_with_a_switched_log", comms_log::program_with_a_switched_log),
        ("comms_log::program_with_times", comms_log::program_with_times),
        ("comms_log::program_with_two_logs", comms_log::program_with_two_logs),
        #[cfg(feature = "compression")]
        ("compressed::program_that_compresses", compressed::program_that_compresses),
        ("meeting::program_that_meets_at_a_url", meeting::program_that_meets_at_a_url),
        ("mesh::program_with_a_mesh", mesh::program_with_a_mesh),
        ("mesh::program_with_a_mesh_of_a_part", mesh::program_with_a_mesh_of_a_part),
        ("metrics::program_that_is_counted", metrics::program_that_is_counted),
        ("program_that_adds", program_that_adds),
        ("program_that_gives_up", program_that_gives_up),
        ("program_that_joins_twice", program_that_joins_twice),
        ("program_with_a_late_rank", program_with_a_late_rank),
        ("program_with_a_subscriber", program_with_a_subscriber),
        ("program_with_threads", program_with_threads),
        ("skipped::program_that_may_skip", skipped::program_that_may_skip),
        ("store::program_alone", store::program_alone),
        ("store::program_whose_holder_is_killed", store::program_whose_holder_is_killed),
        ("store::program_whose_holder_leaves", store::program_whose_holder_leaves),
        ("store::program_whose_waiter_is_killed", store::program_whose_waiter_is_killed),
        ("store::program_with_a_store", store::program_with_a_store),
        ("stragglers::program_with_different_logs", stragglers::program_with_different_logs),
        ("stragglers::program_without_rank_2", stragglers::program_without_rank_2),
    ]);
}

/// The usual program: joins, adds, leaves; an error is one line.
fn join_and_add() -> World {
    let world = unisono::init().unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1);
    });
    add(&world);
    world
}

fn add(world: &dyn Communicator) {
    let mut values = vec![1u32; 1000];
    world.all_reduce(&mut values, ReduceOp::Sum).unwrap();
    assert_eq!(values[999], world.size());
}

/// Waits until the test says something.
fn wait_for_a_word() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

fn program_that_adds() {
    join_and_add().close().unwrap();
}

/// Rank 1 comes to the second call and to its message when it is told.
fn program_with_a_late_rank() {
    let world = join_and_add();
    if world.rank() == 1 {
        wait_for_a_word();
    }
    add(&world);
    if world.rank() == 1 {
        wait_for_a_word();
        world.send(&[7u8], 0, 3).unwrap();
    } else {
        world.recv(&mut [0u8], Peer::Rank(1), 3).unwrap();
    }
    world.close().unwrap();
}

fn program_that_gives_up() {
    join_and_add().abort().unwrap();
}

fn program_that_joins_twice() {
    let first = join_and_add();
    let another = Config::from_environment().unwrap().with_second_init(SecondInit::Another);
    let second = unisono::init_with(&another).unwrap();
    add(&second);
    add(&*first);
    add(&*second);
    first.close().unwrap();
    drop(first);
    let third = unisono::init_with(&another).unwrap();
    add(&third);
    add(&*second);
    add(&*third);
    second.close().unwrap();
    third.close().unwrap();
}

/// Writes its events as they come, marked.
struct Subscriber;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!(" {field}={value:?}");
    }
}

impl tracing::Subscriber for Subscriber {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(format!("event {}", event.metadata().level()));
        event.record(&mut line);
        eprintln!("{}", line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

fn program_with_a_subscriber() {
    tracing::subscriber::set_global_default(Subscriber).unwrap();
    join_and_add().close().unwrap();
}

#[test]
fn a_misspelt_variable_is_reported_once_in_a_process() {
    let misspelt =
        [("UNISONO_CALL_TIMEOUT", "20"), ("UNISONO_PRICES", "latency_ns=1"), ("UNISONO_EMPTY", "")];
    let expected = "unisono: UNISONO_CALL_TIMEOUT is no setting; the nearest is UNISONO_CALL_TIMEOUT_S; \
                    UNISONO_PRICES is no setting any more; it is called UNISONO_COST_MODEL now (`unisono \
                    settings` lists all)";
    assert_eq!(start("program_that_adds", &misspelt).end(), (true, vec![expected.to_owned()]));
    let ranks = start_ranks("program_that_adds", "misspelt", 3, &misspelt);
    let lines: Vec<String> = ranks.into_iter().flat_map(|rank| rank.end().1).collect();
    // Started by hand: each may have an environment of its own, and a terminal of its own.
    assert_eq!(lines, [expected; 3]);
    let twice = start("program_that_joins_twice", &misspelt[..1]).end();
    assert!(twice.0 && twice.1.len() == 1, "{twice:?}");
    let silent = [&misspelt[..], &[("UNISONO_LOG", "off")]].concat();
    assert_eq!(start("program_that_adds", &silent).end(), (true, Vec::new()));
}

#[test]
fn a_value_that_cannot_be_obeyed_ends_the_program_in_one_line() {
    for (name, value, problem) in [
        ("UNISONO_LOG", "loud", "one of off, warn, info, debug is needed"),
        ("UNISONO_CALL_TIMEOUT_S", "soon", "a number of seconds above 0 is needed"),
        ("UNISONO_ALGORITHM", "rign", "\"rign\" is no algorithm; the nearest are "),
        ("UNISONO_INTERFACE", "nosuch0", "no interface with an address matches"),
    ] {
        let (is_good, lines) = start("program_that_adds", &[(name, value)]).end();
        assert!(!is_good && lines.len() == 1, "{lines:?}");
        assert!(lines[0].starts_with(&format!("{name}={value}: {problem}")), "{lines:?}");
    }
}

#[test]
fn with_a_subscriber_every_line_goes_there() {
    let variables = [("UNISONO_FOO", "1"), ("UNISONO_LOG", "off")];
    let (is_good, lines) = start("program_with_a_subscriber", &variables).end();
    assert!(is_good && !lines.is_empty(), "{lines:?}");
    assert!(lines.iter().all(|line| line.starts_with("event ")), "{lines:?}");
    assert!(lines[0].starts_with("event WARN message=UNISONO_FOO is no setting"), "{lines:?}");
    assert!(lines[1].starts_with("event INFO") && lines[1].contains("a world of one"), "{lines:?}");
}

#[test]
fn info_says_how_the_job_was_joined_and_debug_which_algorithm_was_chosen() {
    let alone = start("program_that_adds", &[("UNISONO_LOG", "info")]).end();
    let chosen =
        "unisono: rank 0: backend solo: UNISONO_BACKEND=auto; no launcher names other ranks: a world of one";
    assert_eq!(alone.1, [chosen]);
    let ranks = start_ranks("program_that_adds", "debug", 2, &[("UNISONO_LOG", "debug")]);
    for (rank, program) in ranks.into_iter().enumerate() {
        let (is_good, lines) = program.end();
        let start = format!("unisono: rank {rank}: ");
        assert!(is_good && lines.iter().all(|line| line.starts_with(&start)), "{lines:?}");
        let joined = lines[0].strip_prefix(&start).unwrap();
        assert!(joined.starts_with("joined a job of 2 ranks on 1 host in "), "{joined}");
        assert!(joined.contains("; listens at 127.0.0.1:"), "{joined}");
        // The other rank may have connected before.
        let chosen =
            lines.iter().find(|line| line.contains("backend")).unwrap().strip_prefix(&start).unwrap();
        assert!(lines.iter().any(|line| line.ends_with("for data goes through memory")), "{lines:?}");
        let why = match unisono::BACKENDS.contains(&Backend::Nccl) {
            true => "no NCCL here: ",
            false => "this program was built without NCCL",
        };
        assert!(chosen.starts_with(&format!("backend tcp: UNISONO_BACKEND=auto; {why}")), "{chosen}");
        let plans: Vec<_> = lines.iter().filter(|line| line.contains(" plans all_reduce(")).collect();
        assert_eq!(plans.len(), 1, "one for each new plan: {lines:?}");
        assert!(plans[0].contains(" predicted to take "), "{plans:?}");
    }
}

#[test]
fn a_late_rank_is_named_while_it_is_awaited_and_when_it_has_come() {
    let mut ranks = start_ranks("program_with_a_late_rank", "late", 2, &[("UNISONO_WARN_AFTER_S", "0.3")]);
    let warned = ranks[0].hear("all_reduce");
    assert!(warned.starts_with("unisono: rank 0: call 1 all_reduce("), "{warned}");
    assert!(
        warned.contains("rank 1")
            && warned.contains("has not called; its last was call 0 ")
            && warned.contains("; its deadline is 600s"),
        "{warned}"
    );
    ranks[1].tell("go on");
    let went_on = ranks[0].hear("went on");
    assert!(went_on.contains("call 1 all_reduce(") && went_on.contains("rank 1 came last"), "{went_on}");
    let warned = ranks[0].hear("recv(");
    assert!(warned.contains("has not moved for ") && warned.contains("rank 1 has "), "{warned}");
    ranks[1].tell("go on");
    let went_on = ranks[0].hear("went on");
    assert!(
        went_on.contains("recv(1 x u8, peer 1, tag 3)") && went_on.contains("rank 1 came last"),
        "{went_on}"
    );
    for rank in ranks {
        let (is_good, lines) = rank.end();
        assert!(is_good, "{lines:?}");
    }
}

#[test]
fn info_says_where_a_flight_record_is() {
    let folder = std::env::temp_dir().join(format!("unisono-flight-{}", std::process::id()));
    let variables = [("UNISONO_FLIGHT_DIR", folder.to_str().unwrap()), ("UNISONO_LOG", "info")];
    for (rank, program) in
        start_ranks("program_that_gives_up", "flight", 2, &variables).into_iter().enumerate()
    {
        let (_, lines) = program.end();
        let path = folder.join(format!("rank-{rank}.json"));
        let expected = format!("unisono: rank {rank}: has written its flight record to {}", path.display());
        assert!(lines.contains(&expected) && path.exists(), "{lines:?}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_process_may_join_again_when_all_ranks_do() {
    assert_eq!(start("program_that_joins_twice", &[]).end(), (true, Vec::new()));
    for program in start_ranks("program_that_joins_twice", "twice", 3, &[]) {
        assert_eq!(program.end(), (true, Vec::new()));
    }
}

fn program_with_threads() {
    let timeout = in_process::options(2).timeout;
    eprintln!("{timeout:?}");
}

#[test]
fn the_deadline_of_in_process_worlds_comes_from_the_environment() {
    let said = |value: Option<&str>| {
        let variable = value.map(|value| ("UNISONO_CALL_TIMEOUT_S", value));
        let (is_good, lines) = start("program_with_threads", variable.as_slice()).end();
        (is_good, lines)
    };
    assert_eq!(said(None), (true, vec!["120s".to_owned()]));
    assert_eq!(said(Some("2.5")), (true, vec!["2.5s".to_owned()]));
    let (is_good, lines) = said(Some("soon"));
    assert!(!is_good && lines.iter().any(|line| line.contains("UNISONO_CALL_TIMEOUT_S=soon: ")), "{lines:?}");
}
