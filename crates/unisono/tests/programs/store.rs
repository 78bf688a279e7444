//! The key-value store of a world over real processes: barriers, elections, deadlines, limits, and ranks that are
//! killed or leave.

use std::time::{Duration, Instant};

use unisono::{Collectives, Communicator, Error, Store, World};

use crate::support::{Program, start, start_ranks};

const RANKS: u32 = 4;

/// Longer than a loaded machine needs, and shorter than the deadline of calls.
const PATIENCE: Duration = Duration::from_secs(90);

fn join() -> (World, Store) {
    let world = unisono::init().unwrap();
    let store = world.store();
    (world, store)
}

/// All ranks wait until all have come: the last one opens the gate.
fn barrier(world: &World, store: &Store, name: &str) {
    let store = store.prefixed(name);
    if store.add("arrived", 1).unwrap() == i64::from(world.size()) {
        store.set("gate", b"open").unwrap();
    }
    store.wait(&["gate"], PATIENCE).unwrap();
}

/// Says to the test that this rank goes on.
fn say(word: &str) {
    eprintln!("says {word}");
}

/// The error of a store whose holder, rank 0, is gone.
fn assert_holder_is_gone(error: &Error, evidence: &str) {
    let Error::PeerLost { culprits, .. } = error else { panic!("{error}") };
    let of_rank_0 = culprits.iter().map(|one| (one.rank.get(), one.process.is_some()));
    assert!(of_rank_0.eq([(0, true)]) && error.to_string().contains(evidence), "{error}");
}

/// Every operation, races and limits, by all ranks.
pub(crate) fn program_with_a_store() {
    let (world, store) = join();
    let (rank, size) = (world.rank(), world.size());
    for round in 0..20 {
        barrier(&world, &store, &format!("round {round}/"));
        assert_eq!(store.get(&format!("round {round}/arrived"), None).unwrap(), size.to_string().as_bytes());
    }

    // One rank wins, and all know which.
    let own = format!("rank {rank}");
    let leader = store.compare_and_set("leader", b"", own.as_bytes()).unwrap();
    store.add("winners", i64::from(leader == own.as_bytes())).unwrap();
    barrier(&world, &store, "elected/");
    assert_eq!(store.add("winners", 0).unwrap(), 1);
    assert_eq!(store.get("leader", None).unwrap(), leader);

    // Several threads of each rank at once, some of which wait for others.
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let (store, next) = (store.prefixed("ring/"), (rank * 8 + thread + 1) % (size * 8));
            scope.spawn(move || {
                for _ in 0..25 {
                    store.add("sum", 1).unwrap();
                }
                store.set(&format!("{}", rank * 8 + thread), b"here").unwrap();
                assert_eq!(store.get(&next.to_string(), PATIENCE).unwrap(), b"here");
            });
        }
    });
    barrier(&world, &store, "rang/");
    let ring = store.prefixed("ring/");
    assert_eq!(ring.add("sum", 0).unwrap(), i64::from(size) * 8 * 25);
    assert_eq!(ring.count().unwrap(), u64::from(size) * 8 + 1);
    barrier(&world, &store, "counted/");
    assert!(ring.delete(&(rank * 8).to_string()).unwrap());
    assert!(!ring.delete(&(rank * 8).to_string()).unwrap());
    assert_eq!(ring.try_get(&(rank * 8).to_string()).unwrap(), None);

    check_refusals(&store);
    barrier(&world, &store, "refused/");
    fill(&world, &store);

    // A communicator of its own has a store of its own.
    let copy = world.duplicate().unwrap();
    assert_eq!(world.store_of(&*copy).try_get("leader").unwrap(), None);
    // The holder leaves last, so that nobody misses an answer.
    world.barrier().unwrap();
    world.close().unwrap();
}

fn check_refusals(store: &Store) {
    let start = Instant::now();
    let late = store.get("never", Duration::from_millis(50)).unwrap_err();
    assert!(start.elapsed() < PATIENCE, "it took {:?}", start.elapsed());
    assert!(matches!(&late, Error::StoreTimeout { key, .. } if &**key == "never"), "{late}");
    let late = store.prefixed("a/").wait(&["never"], Duration::ZERO).unwrap_err();
    assert!(late.to_string().contains("store.wait(\"a/never\") timed out"), "{late}");
    let refused = |error: Error, argument: &str, limit: &str| {
        let is_named = matches!(&error, Error::InvalidArgument { argument: named, .. } if *named == argument);
        assert!(is_named && error.to_string().contains(limit), "{error}");
    };
    refused(store.set(&"k".repeat(1025), b"").unwrap_err(), "key", "1024");
    refused(store.prefixed(&"k".repeat(1000)).get(&"k".repeat(25), None).unwrap_err(), "key", "1024");
    refused(store.set("large", &vec![0; 1 << 20]).unwrap_err(), "value", "16384");
    refused(store.compare_and_set("large", b"", &vec![0; 1 << 20]).unwrap_err(), "desired", "16384");
    assert_eq!(store.try_get("large").unwrap(), None);
    store.set("largest", &[7; 16 << 10]).unwrap();
    let swapped = store.compare_and_set("largest", &[7; 16 << 10], &[7; 16 << 10]).unwrap();
    assert_eq!(swapped, [7; 16 << 10]);
    store.set("text", b"seven").unwrap();
    refused(store.add("text", 1).unwrap_err(), "key", "no number");
    // A wait for several keys ends with the last of them, wherever the others stand in the list.
    for keys in [["text", "never"], ["never", "text"]] {
        let late = store.wait(&keys, Duration::from_millis(20)).unwrap_err();
        assert!(matches!(&late, Error::StoreTimeout { .. }), "{late}");
    }
    store.wait(&["text", "largest"], PATIENCE).unwrap();
    store.prefixed("outer/").prefixed("inner/").set("key", b"nested").unwrap();
    assert_eq!(store.get("outer/inner/key", None).unwrap(), b"nested");
}

/// Values until the store is full: it says so, and the memory of its holder is bounded.
fn fill(world: &World, store: &Store) {
    let before = resident_bytes();
    let filled = store.prefixed("fill/");
    let mut error = None;
    for number in 0..8192 {
        if let Err(full) = filled.set(&format!("{} {number}", world.rank()), &[1; 16 << 10]) {
            error = Some(full);
            break;
        }
    }
    let error = error.expect("64 MiB hold fewer values");
    assert!(matches!(&error, Error::StoreFull { .. }) && error.to_string().contains("67108864"), "{error}");
    world.barrier().unwrap();
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 160 << 20, "rank {} has grown by {grown} bytes", world.rank());
    // There is room again, for all.
    world.barrier().unwrap();
    for number in 0..8192 {
        if !filled.delete(&format!("{} {number}", world.rank())).unwrap() {
            break;
        }
    }
    world.barrier().unwrap();
    store.add("room", 1).unwrap();
}

/// The memory of this process.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Rank 0 is killed while all others wait.
pub(crate) fn program_whose_holder_is_killed() {
    let (world, store) = join();
    barrier(&world, &store, "here/");
    if world.rank() == 0 {
        // Until every other one waits, most probably; the others fail in the same way before that.
        std::thread::sleep(Duration::from_millis(200));
        say("ready");
        std::thread::sleep(PATIENCE);
    }
    let error = store.get("never", PATIENCE).unwrap_err();
    assert_holder_is_gone(&error, "");
    let later = store.set("another", b"").unwrap_err();
    assert_holder_is_gone(&later, "");
    // The survivors go on with a store of their own, which is empty.
    let survivors = world.shrink().unwrap().communicator;
    let theirs = world.store_of(&*survivors);
    assert_eq!(theirs.try_get("here/gate").unwrap(), None);
    assert!(theirs.add("survivors", 1).unwrap() <= 3);
    if survivors.rank() == 0 {
        while theirs.add("survivors", 0).unwrap() < 3 {
            std::thread::sleep(Duration::from_millis(1));
        }
        theirs.set("all", b"").unwrap();
    }
    theirs.wait(&["all"], PATIENCE).unwrap();
    survivors.barrier().unwrap();
    std::process::exit(0);
}

/// Rank 2 is killed while it waits.
pub(crate) fn program_whose_waiter_is_killed() {
    let (world, store) = join();
    barrier(&world, &store, "here/");
    match world.rank() {
        2 => {
            say("ready");
            store.get("go", PATIENCE).unwrap();
        }
        1 => {
            // A collective tells the loss; the store has no need of it.
            world.barrier().unwrap_err();
            assert_eq!(store.add("n", 1).unwrap(), 1);
            store.set("go", b"on").unwrap();
        }
        _ => {}
    }
    assert_eq!(store.get("go", PATIENCE).unwrap(), b"on");
    // The holder leaves when the others need it no more.
    if world.rank() == 0 {
        store.wait(&["end"], PATIENCE).unwrap();
    } else if store.add("gone on", 1).unwrap() == 2 {
        store.set("end", b"").unwrap();
    }
    std::process::exit(0);
}

/// Rank 0 leaves while all others wait; its last answers come.
pub(crate) fn program_whose_holder_leaves() {
    let (world, store) = join();
    barrier(&world, &store, "here/");
    if world.rank() == 0 {
        store.set("last words", b"bye").unwrap();
        drop(store);
        world.close().unwrap();
        return;
    }
    assert_eq!(store.get("last words", PATIENCE).unwrap(), b"bye");
    let error = store.get("never", PATIENCE).unwrap_err();
    assert_holder_is_gone(&error, "it has left the job");
    assert_holder_is_gone(&store.count().unwrap_err(), "it has left the job");
    // Other ranks may have left too early for a close without complaint.
    std::process::exit(0);
}

fn end_all(ranks: Vec<Program>) {
    for rank in ranks {
        let (succeeded, lines) = rank.end();
        assert!(succeeded, "{lines:?}");
    }
}

/// Rows: B26
#[test]
fn ranks_of_a_job_share_a_store() {
    end_all(start_ranks("store::program_with_a_store", "store", RANKS, &[]));
}

/// Rows: B26
#[test]
fn the_death_of_the_holder_ends_all_waits_and_survivors_have_another_store() {
    let mut ranks = start_ranks("store::program_whose_holder_is_killed", "holder killed", RANKS, &[]);
    ranks[0].hear("says ready");
    drop(ranks.remove(0));
    end_all(ranks);
}

#[test]
fn the_death_of_a_rank_that_waits_harms_nobody() {
    let mut ranks = start_ranks("store::program_whose_waiter_is_killed", "waiter killed", RANKS, &[]);
    ranks[2].hear("says ready");
    drop(ranks.remove(2));
    end_all(ranks);
}

#[test]
fn a_holder_that_leaves_ends_all_waits_after_its_last_answers() {
    end_all(start_ranks("store::program_whose_holder_leaves", "holder leaves", RANKS, &[]));
}

#[test]
fn a_world_of_one_has_a_store() {
    end_all(vec![start("store::program_alone", &[])]);
}

/// A world of one, without any network.
pub(crate) fn program_alone() {
    let (world, store) = join();
    check_refusals(&store);
    assert_eq!(store.add("n", 2).unwrap(), 2);
    assert_eq!(store.compare_and_set("leader", b"", b"me").unwrap(), b"me");
    assert_eq!((store.prefixed("l").count().unwrap(), store.try_get("no").unwrap()), (2, None));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| store.get("later", PATIENCE).unwrap());
        store.set("later", b"now").unwrap();
        assert_eq!(waits.join().unwrap(), b"now");
    });
    fill(&world, &store);
    world.close().unwrap();
}
