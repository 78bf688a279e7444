//! Ranks that run out of descriptors or memory: they say so, the others learn who it was, nobody hangs or aborts, and
//! with more to be had the rank is as good as before.
//!
//! Limits are those of a process, so every rank is one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "support/child.rs"]
mod child;
mod support;

use std::sync::Arc;

use child::{Rank, say};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use unisono_communicator::{Collectives, Communicator, Error, ReduceOp, Result};
use unisono_transport_tcp::World;
use unisono_transport_tcp::config::Config;

/// What the system says when a process has no descriptors left.
const NO_MORE_FILES: &str = "Too many open files";

/// The one whose limit is low.
const LIMITED: u32 = 1;

/// Not a test by itself: joins with a few descriptors, whose number is the first line.
#[test]
#[ignore = "started by the other tests, once per rank"]
fn rank_that_joins() {
    let mut lines = std::io::stdin().lines().map_while(std::io::Result::ok);
    let Some(free) = lines.next() else { return };
    let config = Config::from_environment().unwrap();
    if config.placement.rank() == LIMITED {
        leave_descriptors(free.parse().unwrap());
    }
    let joined = World::join(&config).and_then(|world| {
        let communicator = world.communicator()?;
        communicator.all_reduce(&mut vec![1u32; 100_000], ReduceOp::Sum)?;
        Ok((world, communicator))
    });
    say(&outcome(&joined));
    lines.next();
}

/// Not a test by itself: joins, and for every line makes a communicator that it may not have the descriptors for.
#[test]
#[ignore = "started by the other tests, once per rank"]
fn rank_that_duplicates() {
    let mut lines = std::io::stdin().lines().map_while(std::io::Result::ok);
    if lines.next().is_none() {
        return;
    }
    let world = World::join(&Config::from_environment().unwrap()).unwrap();
    let communicator = world.communicator().unwrap();
    let is_limited = communicator.group().rank() == LIMITED;
    let all = getrlimit(Resource::Nofile);
    let use_copy = || {
        let copy: Arc<dyn Communicator> = communicator.duplicate()?;
        let mut values = vec![1u32; 100_000];
        copy.all_reduce(&mut values, ReduceOp::Sum)?;
        assert_eq!(values, vec![communicator.group().size(); 100_000]);
        copy.close()
    };
    communicator.all_reduce(&mut vec![1u32; 100_000], ReduceOp::Sum).unwrap();
    say("ready");
    while let Some(free) = lines.next() {
        if is_limited {
            leave_descriptors(free.parse().unwrap());
        }
        say(&outcome(&use_copy()));
        // Until all have spoken, so that no answer is about what comes next.
        lines.next();
        if is_limited {
            setrlimit(Resource::Nofile, all).unwrap();
        }
        let again = communicator.barrier().and_then(|()| use_copy());
        say(&outcome(&again));
    }
    communicator.close().unwrap();
}

/// Lowers the limit so that just so many descriptors can be had.
fn leave_descriptors(free: usize) {
    let is_open = |number: &u64| std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok();
    // The limit is on numbers, and the lowest that is free is given out.
    let limit = (0..).filter(|number| !is_open(number)).nth(free);
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit, maximum }).unwrap();
}

/// What is said of a result.
fn outcome<T>(result: &Result<T>) -> String {
    let Err(error) = result else { return "fine".to_owned() };
    let by = match error {
        Error::Revoked { by, .. } => format!("by {by}, "),
        _ => String::new(),
    };
    let cause = match error.root_cause() {
        Error::System { .. } => format!("system: {error}"),
        Error::PeerLost { .. } => format!("lost {:?}: {error}", error.lost_ranks()),
        Error::Rendezvous { missing, .. } => format!("missing {missing:?}: {error}"),
        other => format!("otherwise: {other}"),
    };
    by + &cause
}

/// A job whose ranks run `test`, and whose parts are patient for seconds and not for minutes.
fn job(test: &str, name: &str, ranks: u32) -> Vec<Rank> {
    let job = format!("limits-{}-{name}", std::process::id());
    let start = |rank: u32| {
        let variables = [
            ("UNISONO_JOB", job.clone()),
            ("UNISONO_RANK", rank.to_string()),
            ("UNISONO_WORLD_SIZE", ranks.to_string()),
            ("UNISONO_JOIN_TIMEOUT_S", "5".to_owned()),
            ("UNISONO_HANDSHAKE_TIMEOUT_MS", "1000".to_owned()),
        ];
        Rank::again(format!("rank {rank} of {name}"), test, &variables)
    };
    (0..ranks).map(start).collect()
}

#[test]
fn who_cannot_join_for_want_of_descriptors_says_so_and_is_named() {
    let free = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 32];
    let mut jobs: Vec<_> =
        free.iter().map(|free| job("rank_that_joins", &format!("joining with {free}"), 2)).collect();
    for (ranks, free) in jobs.iter_mut().zip(free) {
        ranks.iter_mut().for_each(|rank| rank.tell(&free.to_string()));
    }
    let mut short = 0;
    for (mut ranks, free) in jobs.into_iter().zip(free) {
        let (other, limited) = (ranks[0].hear(), ranks[1].hear());
        println!("{free} descriptors: the limited one {limited}; the other {other}");
        if limited == "fine" {
            assert_eq!(other, "fine", "{free} descriptors");
        } else {
            short += 1;
            assert!(limited.starts_with("system: ") && limited.contains(NO_MORE_FILES), "{free}: {limited}");
            let is_named =
                ["missing [1]", "lost [1]", "by 1, system: "].iter().any(|one| other.starts_with(one));
            assert!(is_named, "{free} descriptors: {other}");
        }
        ranks.iter_mut().for_each(|rank| rank.tell("enough"));
        ranks.into_iter().for_each(Rank::end);
    }
    assert!((1..free.len()).contains(&short), "{short} of {} were short", free.len());
}

#[test]
fn a_communicator_without_descriptors_fails_and_the_next_one_is_well() {
    let mut ranks = job("rank_that_duplicates", "duplicating", 3);
    ranks.iter_mut().for_each(|rank| rank.tell("begin"));
    ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "ready"));
    let free = [0, 1, 2, 3, 4, 5, 64];
    let mut short = 0;
    for free in free {
        ranks.iter_mut().for_each(|rank| rank.tell(&free.to_string()));
        let said: Vec<String> = ranks.iter().map(Rank::hear).collect();
        println!("{free} descriptors: {said:?}");
        let limited = &said[LIMITED as usize];
        if limited == "fine" {
            assert_eq!(said, ["fine"; 3], "{free} descriptors");
        } else {
            short += 1;
            assert!(limited.starts_with("system: ") && limited.contains(NO_MORE_FILES), "{free}: {limited}");
            for other in [&said[0], &said[2]] {
                assert!(
                    other.starts_with("by 1, system: ") && other.contains(NO_MORE_FILES),
                    "{free}: {other}"
                );
            }
        }
        ranks.iter_mut().for_each(|rank| rank.tell("on"));
        ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "fine", "with descriptors again, after {free}"));
    }
    assert!((1..free.len()).contains(&short), "{short} of {} were short", free.len());
    ranks.into_iter().for_each(Rank::end);
}
