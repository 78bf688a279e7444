//! Ranks that come to a store once more, or to the store of another run.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::join::JoinConfig;
use super::tests::{
    IMPATIENT, PATIENT, config, join, joining, loopback, meet, refused, secret, store, vacant, watched,
};
use crate::config::Config;
use crate::secret::create_secret_file;
use crate::secret::tests::TestDirectory;
use crate::task_thread::TaskThread;

/// A way to the store, whose first connection ends when the store sends something after `cut` was set, and `held`
/// later: the rank does not get that. Returns its address, `cut`, and whether the connection was cut.
fn way_that_is_cut(store: SocketAddr, held: Duration) -> (SocketAddr, Arc<AtomicBool>, Arc<AtomicBool>) {
    let listener = TcpListener::bind(loopback(0)).unwrap();
    let (address, flags) =
        (listener.local_addr().unwrap(), [(); 2].map(|()| Arc::new(AtomicBool::new(false))));
    let [cut, is_cut] = flags.clone();
    thread::spawn(move || {
        for rank in listener.incoming() {
            let rank = rank.unwrap();
            // Where no store listens any more, nobody listens here either.
            let Ok(store) = TcpStream::connect(store) else { return };
            for (mut from, mut to, answers) in
                [(rank.try_clone().unwrap(), store.try_clone().unwrap(), false), (store, rank, true)]
            {
                let (cut, is_cut) = (cut.clone(), is_cut.clone());
                thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(count @ 1..) = from.read(&mut bytes) {
                        let cuts = answers && cut.swap(false, Ordering::SeqCst);
                        is_cut.fetch_or(cuts, Ordering::SeqCst);
                        thread::sleep(if cuts { held } else { Duration::ZERO });
                        if cuts || to.write_all(&bytes[..count]).is_err() {
                            break;
                        }
                    }
                    // An end that is gone needs none.
                    [from, to].iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
                });
            }
        }
    });
    let [cut, is_cut] = flags;
    (address, cut, is_cut)
}

#[test]
fn a_rank_whose_answer_was_lost_gets_it_again() {
    watched(|| {
        for stays in [true, false] {
            let store = store(2, loopback(0));
            let (address, cut, is_cut) = way_that_is_cut(store.address(), Duration::ZERO);
            let timeout = 10 * IMPATIENT;
            let one = joining(JoinConfig { timeout, ..config(address, 1, 2) });
            thread::sleep(IMPATIENT);
            cut.store(true, Ordering::SeqCst);
            let zero = join(&config(store.address(), 0, 2)).unwrap();
            // A rank that hosts the store goes on when it has its own answer.
            let kept = stays.then_some(store);
            let one = one.join().unwrap().unwrap();
            drop(kept);
            assert!(is_cut.load(Ordering::SeqCst), "the first answer was lost");
            assert_eq!((one.rank, one.job, one.addresses), (1, zero.job, zero.addresses));
        }
    });
}

/// A host whose line is busy with the answers to thousands of others looks like this to a rank.
#[test]
fn a_rank_whose_answer_takes_long_finds_the_store_still_there() {
    watched(|| {
        let store = store(2, loopback(0));
        let (address, cut, is_cut) = way_that_is_cut(store.address(), Duration::from_secs(4));
        let one = joining(config(address, 1, 2));
        thread::sleep(IMPATIENT);
        cut.store(true, Ordering::SeqCst);
        let zero = join(&config(store.address(), 0, 2)).unwrap();
        drop(store);
        let one = one.join().unwrap().unwrap();
        assert!(is_cut.load(Ordering::SeqCst), "the first answer was lost");
        assert_eq!((one.rank, one.job), (1, zero.job));
    });
}

#[test]
fn a_rank_that_has_gone_without_its_answer_holds_nobody() {
    watched(|| {
        let store = store(2, loopback(0));
        let (address, cut, _) = way_that_is_cut(store.address(), PATIENT);
        let one = thread::spawn(move || {
            let (thread, config) = (TaskThread::start("test").unwrap(), config(address, 1, 2));
            let brief = thread.within(|| tokio::time::timeout(4 * IMPATIENT, super::join(&config)));
            assert!(thread.wait_for(brief).is_err(), "it goes before it has its answer");
        });
        thread::sleep(IMPATIENT);
        cut.store(true, Ordering::SeqCst);
        join(&config(store.address(), 0, 2)).unwrap();
        one.join().unwrap();
        let begin = Instant::now();
        drop(store);
        assert!(begin.elapsed() < PATIENT, "it has waited as long as rank 0 might");
    });
}

/// Both runs have the same master, and a step of Slurm each.
#[test]
fn a_rank_that_still_waits_is_not_taken_into_the_next_run() {
    watched(|| {
        let directory = TestDirectory::new();
        let secret_file = directory.0.join("secret");
        create_secret_file(&secret(), &secret_file).unwrap();
        let (secret_file, port) =
            (secret_file.to_str().unwrap().to_owned(), (vacant().port() - 1).to_string());
        let start = |rank: &'static str, step: &'static str| {
            let (secret_file, port) = (secret_file.clone(), port.clone());
            thread::spawn(move || {
                let own = [("RANK", rank), ("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "1")];
                let master = [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port.as_str())];
                let slurm = [("SLURM_JOB_ID", "77"), ("SLURM_STEP_ID", step), ("SLURM_PROCID", rank)];
                let more = [("SLURM_STEP_NUM_TASKS", "2"), ("UNISONO_SECRET_FILE", secret_file.as_str())];
                let variables = [&own[..], &master, &slurm, &more].concat();
                let lookup = |name: &str| {
                    variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string())
                };
                let config = Config::from_lookup(&lookup).unwrap();
                let listen = TcpListener::bind(loopback(0)).unwrap().local_addr().unwrap();
                meet(&config, listen, Vec::new())
            })
        };
        let earlier = start("1", "3");
        thread::sleep(IMPATIENT);
        let zero = start("0", "4");
        refused(earlier, "is of Slurm's step 77.3, and the ranks that meet here are of Slurm's step 77.4");
        let one = start("1", "4");
        let [zero, one] = [zero, one].map(|rank| rank.join().unwrap().unwrap());
        assert_eq!((zero.job, one.rank), (one.job, 1));
    });
}
