//! Ranks that run out of descriptors or memory: they say so, the others learn the rank, nobody hangs or aborts, and
//! with more to be had the rank is as good as before.
//!
//! Limits hold for a process, so every rank is one.

use std::time::Instant;

use crate::child::{Rank, say};
use crate::support::{config, on_each, worlds};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use unisono_collectives::{Collectives, CollectivesUneven};
use unisono_communicator::{Communicator, Error, Peer, ReduceOp, Result};
use unisono_job::Job;
use unisono_job::config::Config;

use crate::TRANSPORT;

/// The system's message when a process has no descriptors left.
const NO_MORE_FILES: &str = "Too many open files";

/// Bytes of a call that needs as many again.
const SCALED_BYTES: usize = 64 << 20;

/// The rank whose limit is low.
const LIMITED: u32 = 1;

/// A program that joins with a few descriptors, whose number is the first line.
pub(crate) fn rank_that_joins() {
    with_few_descriptors(|config| {
        let world = Job::join(config, &TRANSPORT)?;
        let communicator = world.communicator()?;
        communicator.all_reduce(&mut vec![1u32; 100_000], ReduceOp::Sum)?;
        Ok((world, communicator))
    });
}

/// The same of a rank that agrees with the others as it begins.
pub(crate) fn rank_that_begins() {
    with_few_descriptors(|config| {
        let world = Job::join(config, &TRANSPORT)?;
        let companion = world.companion()?;
        assert!(companion.gate().agree_to_begin(true, Instant::now(), config.join_timeout)?);
        Ok((world, companion))
    });
}

/// Runs `work`, and keeps its result until it may end.
fn with_few_descriptors<T>(work: impl FnOnce(&Config) -> Result<T>) {
    let mut lines = std::io::stdin().lines().map_while(std::io::Result::ok);
    let free = lines.next().unwrap();
    let config = Config::from_environment().unwrap();
    if config.placement.rank() == LIMITED {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        let current = Some(descriptor_limit(free.parse().unwrap()));
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    }
    let joined = work(&config);
    say(&outcome(&joined));
    lines.next();
}

/// A program that makes communicators that it may not have the descriptors for.
pub(crate) fn rank_that_duplicates() {
    one_rank(Resource::Nofile, descriptor_limit, |copy| {
        let mut values = vec![1u32; 100_000];
        copy.all_reduce(&mut values, ReduceOp::Sum)?;
        assert_eq!(values, vec![copy.group().size(); 100_000]);
        Ok(())
    });
}

/// A program that makes calls that need a copy of their input, which it may not have the memory for.
pub(crate) fn rank_that_scales() {
    let (input, mut output) = (vec![1f32; SCALED_BYTES / 4], vec![2f32; SCALED_BYTES / 4]);
    one_rank(Resource::As, memory_limit, |copy| {
        copy.all_reduce_into(&input, &mut output, ReduceOp::PreMulSum(0.5))?;
        let expected = copy.group().size() as f32 / 2.0;
        assert!(output.iter().all(|value| *value == expected));
        Ok(())
    });
}

/// A program that writes letters to itself, which it may not have the memory to keep.
pub(crate) fn rank_that_writes_to_itself() {
    let lines = std::io::stdin().lines().map_while(std::io::Result::ok);
    let communicator =
        Job::join(&Config::from_environment().unwrap(), &TRANSPORT).unwrap().communicator().unwrap();
    let own = communicator.group().rank();
    let (letter, mut room) = (vec![3u8; SCALED_BYTES], vec![5u8; SCALED_BYTES]);
    let unlimited = getrlimit(Resource::As);
    let mut write = || {
        communicator.send(&letter, own, 7)?;
        room.fill(5);
        communicator.recv(&mut room, Peer::Rank(own), 7)?;
        assert_eq!(room, letter);
        Ok(())
    };
    say("ready");
    for left in lines {
        if own == LIMITED {
            let current = Some(memory_limit(left.parse().unwrap()));
            setrlimit(Resource::As, Rlimit { current, maximum: unlimited.maximum }).unwrap();
        }
        say(&outcome(&write()));
        setrlimit(Resource::As, unlimited).unwrap();
        say(&outcome(&communicator.barrier().and_then(|()| write())));
    }
    communicator.close().unwrap();
}

/// Joins. For every line it does its work on a new communicator, the limited rank with as much left of a resource as
/// the line says; then all do it once more without that limit.
fn one_rank(
    resource: Resource,
    limit: impl Fn(usize) -> u64,
    mut work: impl FnMut(&dyn Communicator) -> Result<()>,
) {
    let mut lines = std::io::stdin().lines().map_while(std::io::Result::ok);
    let world = Job::join(&Config::from_environment().unwrap(), &TRANSPORT).unwrap();
    let communicator = world.communicator().unwrap();
    let is_limited = communicator.group().rank() == LIMITED;
    let unlimited = getrlimit(resource);
    let mut work_on_copy = || {
        let copy = communicator.duplicate()?;
        work(&*copy)?;
        copy.close()
    };
    communicator.all_reduce(&mut vec![1u32; 100_000], ReduceOp::Sum).unwrap();
    say("ready");
    while let Some(left) = lines.next() {
        if is_limited {
            let current = Some(limit(left.parse().unwrap()));
            setrlimit(resource, Rlimit { current, maximum: unlimited.maximum }).unwrap();
        }
        say(&outcome(&work_on_copy()));
        // Until all have spoken, so that no answer is about the next part.
        lines.next();
        if is_limited {
            setrlimit(resource, unlimited).unwrap();
        }
        say(&outcome(&communicator.barrier().and_then(|()| work_on_copy())));
    }
    communicator.close().unwrap();
}

/// The limit under which just so many descriptors can be had: it is on numbers, and the lowest that is free is given
/// out.
fn descriptor_limit(left: usize) -> u64 {
    let is_open = |number: &u64| std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok();
    (0..).filter(|number| !is_open(number)).nth(left).unwrap()
}

/// The limit under which this process can have just so many bytes more.
fn memory_limit(left: usize) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let now_kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    now_kib * 1024 + left as u64
}

/// The words for a result.
fn outcome<T>(result: &Result<T>) -> String {
    let Err(error) = result else { return "fine".to_owned() };
    match error.root_cause() {
        Error::System { .. } => format!("system: {error}"),
        Error::PeerLost { .. } => format!("lost {:?}: {error}", error.lost_ranks()),
        Error::Timeout { not_arrived, .. } => {
            let ranks: Vec<_> = not_arrived.iter().map(|awaited| awaited.rank).collect();
            format!("awaits {ranks:?}: {error}")
        }
        Error::Rendezvous { missing, .. } => format!("missing {missing:?}: {error}"),
        other => format!("otherwise: {other}"),
    }
}

/// A job whose ranks run `program`, and whose parts are patient for seconds and not for minutes.
fn job(program: &str, name: &str, ranks: u32) -> Vec<Rank> {
    let job = format!("limits-{}-{name}", std::process::id());
    let start = |rank: u32| {
        let variables = [
            ("UNISONO_JOB", job.clone()),
            ("UNISONO_RANK", rank.to_string()),
            ("UNISONO_WORLD_SIZE", ranks.to_string()),
            ("UNISONO_JOIN_TIMEOUT_S", "15".to_owned()),
            ("UNISONO_HANDSHAKE_TIMEOUT_MS", "1000".to_owned()),
        ];
        Rank::again(format!("rank {rank} of {name}"), program, &variables)
    };
    (0..ranks).map(start).collect()
}

#[test]
fn who_cannot_join_for_want_of_descriptors_says_so_and_is_named() {
    let free = [0, 1, 2, 4, 5, 6, 7, 8, 10, 12, 16, 32];
    shortage_is_named("joins", 2, &free, &["missing [1]", "lost [1]", "system: "]);
}

#[test]
fn who_cannot_begin_for_want_of_descriptors_says_so_and_is_named() {
    // Enough to join, and too few for the connections that carry news.
    let free = [5, 6, 7, 8, 9, 16, 32];
    shortage_is_named("begins", 8, &free, &["missing [1]", "lost [1]", "system: ", "awaits [1]"]);
}

/// Starts jobs of `program` in which one rank has few descriptors: its words, and the words of all others about it.
fn shortage_is_named(program: &str, ranks: u32, free: &[usize], named: &[&str]) {
    let mut jobs: Vec<_> =
        free.iter().map(|free| job(program, &format!("{program} with {free}"), ranks)).collect();
    for (ranks, free) in jobs.iter_mut().zip(free) {
        ranks.iter_mut().for_each(|rank| rank.tell(&free.to_string()));
    }
    let mut short = 0;
    for (mut ranks, free) in jobs.into_iter().zip(free) {
        let said: Vec<String> = ranks.iter().map(Rank::hear).collect();
        eprintln!("{program}, {free} descriptors: {said:?}");
        let limited = &said[LIMITED as usize];
        if limited == "fine" {
            assert!(said.iter().all(|other| other == "fine"), "{free} descriptors: {said:?}");
        } else {
            short += 1;
            assert!(limited.starts_with("system: ") && limited.contains(NO_MORE_FILES), "{free}: {limited}");
            let others = (0..).zip(&said).filter(|(rank, _)| *rank != LIMITED);
            for (_, other) in others {
                let is_named = named.iter().any(|one| other.starts_with(one));
                assert!(is_named, "{free} descriptors: {other}");
            }
        }
        ranks.iter_mut().for_each(|rank| rank.tell("enough"));
        ranks.into_iter().for_each(Rank::end);
    }
    assert!((1..free.len()).contains(&short), "{short} of {} were short", free.len());
}

/// With so much left of a resource, the work of one rank fails for want of it on all ranks, or succeeds on all; with
/// all of it, it succeeds. Both must have happened.
fn fail_and_recover(test: &str, left: &[usize], no_more: &str) {
    let mut ranks = job(test, test, 3);
    ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "ready"));
    let mut short = 0;
    for left in left {
        ranks.iter_mut().for_each(|rank| rank.tell(&left.to_string()));
        let said: Vec<String> = ranks.iter().map(Rank::hear).collect();
        eprintln!("{test}, {left} left: {said:?}");
        if said[LIMITED as usize] == "fine" {
            assert_eq!(said, ["fine"; 3], "{test}, {left} left");
        } else {
            short += 1;
            let first = &said[0];
            let names_rank = first.starts_with("system: ") && first.contains(&format!("on rank {LIMITED}"));
            assert!(names_rank && first.contains(no_more), "{test}, {left} left: {first}");
            assert!(said.iter().all(|other| other == first), "{test}, {left} left: {said:?}");
        }
        ranks.iter_mut().for_each(|rank| rank.tell("on"));
        ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "fine", "{test}, after {left} left"));
    }
    assert!((1..left.len()).contains(&short), "{test}: {short} of {} were short", left.len());
    ranks.into_iter().for_each(Rank::end);
}

#[test]
fn a_communicator_without_descriptors_fails_and_the_next_one_is_well() {
    fail_and_recover("duplicates", &[0, 1, 2, 3, 4, 5, 64], NO_MORE_FILES);
}

#[test]
fn a_call_without_memory_fails_before_it_sends_and_the_next_one_is_well() {
    fail_and_recover("scales", &[SCALED_BYTES / 4, SCALED_BYTES * 3], "no memory for the");
}

#[test]
fn a_letter_without_memory_is_not_kept_and_nothing_else_is_amiss() {
    let mut ranks = job("writes_to_itself", "letters", 2);
    ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "ready"));
    for (left, is_short) in [(SCALED_BYTES / 4, true), (SCALED_BYTES * 2, false)] {
        ranks.iter_mut().for_each(|rank| rank.tell(&left.to_string()));
        let said: Vec<String> = ranks.iter().map(Rank::hear).collect();
        let is_refused = said[1].starts_with("system: ") && said[1].contains("no memory for the");
        let is_right = if is_short { is_refused } else { said[1] == "fine" };
        assert!(said[0] == "fine" && is_right, "{left} left: {said:?}");
        ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "fine", "after {left} left"));
    }
    ranks.into_iter().for_each(Rank::end);
}

#[test]
fn counts_beyond_all_memory_are_refused_and_nothing_is_sent() {
    on_each(worlds(2, &config(&[])), |_world, communicator| {
        for counts in [[usize::MAX, 1], [usize::MAX / 2, usize::MAX / 2 + 2], [usize::MAX; 2]] {
            let input = (communicator.group().rank() == 0).then_some(&[1u64; 2][..]);
            let results = [
                communicator.all_gather_v(&[1u64], &mut [0; 2], &counts),
                communicator.scatter_v(input, &mut [0u64], &counts, 0),
                communicator.reduce_scatter_v(&[1u64; 2], &mut [0; 1], &counts, ReduceOp::Sum),
            ];
            for result in results {
                let error = result.expect_err("more than there is");
                assert!(error.is_before_start(), "{counts:?}: {error}");
            }
        }
        communicator.barrier().expect("all are as well as before");
    });
}
