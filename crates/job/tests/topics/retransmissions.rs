//! A network that loses data is named in a warning, with the rank and its host; a network that loses nothing is not.
//!
//! The hosts are network namespaces, see `cut.rs`; where they cannot be made, the test says so and passes.

use std::fs::{self, File};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use unisono_collectives::Collectives;
use unisono_communicator::ReduceOp;
use unisono_job::Job;
use unisono_job::config::Config;

use crate::TRANSPORT;
use crate::child::{Rank, say, words};
use crate::network::{Cut, Network};
use crate::support::TEST_TIME_MAX;

/// Longer than the kernel waits before it sends again, and far below the silence after which a rank is lost.
const CUT_TIME: Duration = Duration::from_millis(700);

/// The two ways to call.
const IN_BULK: &str = "in bulk";
const WITH_PAUSES: &str = "with pauses";

/// The program of a rank.
pub(crate) fn one_rank() {
    let hear = || std::io::stdin().lines().next().and_then(std::io::Result::ok);
    let way = hear().unwrap();
    // Few segments a second, so that a lost one is a share of them that counts.
    let (bulk_bytes, pause) = match &*way {
        IN_BULK => (1 << 20, Duration::ZERO),
        _ => (0, Duration::from_millis(1)),
    };
    let (sender, stop) = channel();
    std::thread::spawn(move || hear().is_some() && sender.send(()).is_ok());
    let world = Job::join(&Config::from_environment().unwrap(), &TRANSPORT).unwrap();
    let communicator = world.communicator().unwrap();
    communicator.barrier().unwrap();
    say("ready");
    let mut is_over = [0u8];
    let mut bulk = vec![0u8; bulk_bytes];
    while is_over == [0] {
        is_over = [u8::from(stop.try_recv().is_ok())];
        communicator.all_reduce(&mut is_over, ReduceOp::Max).unwrap();
        communicator.all_reduce(&mut bulk, ReduceOp::Max).unwrap();
        std::thread::sleep(pause);
    }
    communicator.close().unwrap();
    say("done");
}

/// The lines of a rank on its standard error, in a file that goes with this.
struct Errors(PathBuf);

impl Errors {
    fn of(test: &str, rank: usize) -> Errors {
        Errors(std::env::temp_dir().join(format!("unisono-errors-{}-{test}-{rank}", std::process::id())))
    }

    fn warnings(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.0).unwrap();
        text.lines().filter(|line| line.contains("sent again")).map(str::to_owned).collect()
    }
}

impl Drop for Errors {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Two ranks on hosts of their own, in calls of this way.
fn talkers(network: &Network, errors: &[Errors; 2], way: &str) -> [Rank; 2] {
    let mut ranks = [0, 1].map(|rank| {
        let mut command = network.rank((rank, 0), (rank, 2), "env".as_ref());
        let quiet = [("UNISONO_SUSPECT_AFTER_MS", "100000"), ("UNISONO_LOG", "warn")];
        command.args(words("retransmissions")).envs(quiet).stderr(File::create(&errors[rank].0).unwrap());
        Rank::start(format!("rank {rank}"), &mut command)
    });
    ranks.iter_mut().for_each(|rank| rank.tell(way));
    ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "ready"));
    ranks
}

fn end(mut ranks: [Rank; 2]) {
    ranks[0].tell("enough");
    ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "done"));
    ranks.into_iter().for_each(Rank::end);
}

#[test]
fn what_the_network_loses_is_warned_of_by_the_rank_that_sent_it() {
    let Some(network) = Network::or_skip(2) else { return };
    let errors = [0, 1].map(|rank| Errors::of("lossy", rank));
    let ranks = talkers(&network, &errors, WITH_PAUSES);
    network.cut(1, Cut::Silence).unwrap();
    std::thread::sleep(CUT_TIME);
    network.heal(1, Cut::Silence).unwrap();
    let until = Instant::now() + TEST_TIME_MAX;
    while errors.iter().all(|one| one.warnings().is_empty()) {
        assert!(Instant::now() < until, "nobody warns");
        std::thread::sleep(Duration::from_millis(50));
    }
    end(ranks);
    for (rank, errors) in errors.iter().enumerate() {
        let warnings = errors.warnings();
        let expected = format!("the network has lost data on the way to rank {} (pid ", 1 - rank);
        assert!(warnings.len() <= 1, "one line in a minute: {warnings:?}");
        assert!(warnings.iter().all(|line| line.contains(&expected)), "{warnings:?}");
    }
}

/// On a full machine acknowledgements come late, so the kernel sends segments again that have arrived.
#[test]
fn a_network_that_loses_nothing_is_not_blamed_for_a_full_machine() {
    let Some(network) = Network::or_skip(2) else { return };
    let errors = [0, 1].map(|rank| Errors::of("full", rank));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let cores = std::thread::available_parallelism().map_or(2, NonZero::get);
        for _ in 0..2 * cores {
            threads.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // The threads end also when an assertion fails.
        let outcome = std::panic::catch_unwind(|| {
            let ranks = talkers(&network, &errors, IN_BULK);
            std::thread::sleep(Duration::from_secs(4));
            end(ranks);
        });
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    errors.iter().for_each(|one| assert_eq!(one.warnings(), Vec::<String>::new()));
}
