//! Ranks that end their program without `close`: what they have started goes on, nothing is lost in silence, and nobody
//! waits for long.

use std::time::Duration;

use crate::endings::{Ended, EndingJob, rounds};

/// How long a rank may wait for what it has started.
const DROP_TIMEOUT: (&str, &str) = ("UNISONO_DROP_TIMEOUT_MS", "1500");

/// Many times that, for a busy machine, and less than what calls may take.
const LONGEST: Duration = Duration::from_secs(20);

/// Runs a job of two ranks, as often as it is to run; `check` looks at both.
fn jobs(way: &str, check: impl Fn(&Ended, &Ended) -> bool) {
    for round in 0..rounds() {
        let program = env!("CARGO_BIN_EXE_leaving");
        let ended = EndingJob::start_program(program, 2, &[way], &[DROP_TIMEOUT]).end();
        let is_right = check(&ended[0], &ended[1]) && ended.iter().all(|rank| rank.took < LONGEST);
        assert!(is_right, "{way}, round {round}: {ended:#?}");
    }
}

/// Both end well, and neither has anything to say but how its calls have ended.
fn is_silent(rank: &Ended) -> bool {
    rank.is_success && rank.written.is_empty()
}

#[test]
fn started_calls_arrive_however_the_program_ends() {
    for way in ["return", "exit", "static", "collectives"] {
        jobs(way, |left, stayed| is_silent(left) && is_silent(stayed) && stayed.said == "done");
    }
}

#[test]
fn a_panic_gives_started_calls_up() {
    jobs("panic", |_, stayed| stayed.said.contains("lost rank 0") && stayed.said.contains("panicked"));
}

#[test]
fn a_cause_gives_started_calls_up() {
    jobs("cause", |left, _| left.is_success && left.said.contains("rank 1 aborted"));
}

/// Who goes says how many calls are lost; the rank that it waits for has gone, so it does not wait for its whole time.
#[test]
fn calls_that_nobody_takes_are_counted() {
    let counts = |rank: &Ended| rank.written.contains("this process ends with ");
    jobs("unmatched call", |left, _| left.written.contains("ends with 1 started call that is not over"));
    jobs("unmatched messages", |left, stayed| {
        counts(left) && stayed.written.contains("without having received messages: ")
    });
    jobs("two at once", |left, stayed| counts(left) || counts(stayed));
}

#[test]
fn an_exit_within_a_function_waits_for_nothing() {
    for way in ["exit in a function", "exit in an asynchronous function"] {
        jobs(way, |left, stayed| {
            let names_it = stayed.said.contains("lost rank 0") && stayed.said.contains("call in progress");
            left.is_success && names_it
        });
    }
}

#[test]
fn different_roots_are_told_when_the_ranks_leave() {
    jobs("two roots", |one, other| {
        let names_both = |rank: &&Ended| {
            let line = &rank.written;
            line.contains("was left after different calls")
                && line.contains("root 0")
                && line.contains("root 1")
        };
        one.said == "done" && other.said == "done" && [one, other].iter().any(names_both)
    });
}

#[test]
fn messages_that_nobody_has_received_are_told() {
    jobs("unread", |left, stayed| {
        is_silent(left) && stayed.written.contains("without having received messages: 3 that had arrived")
    });
}
