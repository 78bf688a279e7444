//! Worlds whose ranks are threads of this process, with a watchdog so that nothing hangs.

#![allow(dead_code, reason = "every test file uses its own part")]

pub(crate) mod child;
pub(crate) mod network;
pub(crate) mod proxy;

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use unisono_communicator::Communicator;
use unisono_control::handshake::JobId;
use unisono_control::secret::{SECRET_BYTES, Secret};
use unisono_job::config::Config;
use unisono_job::rendezvous::Membership;
use unisono_job::{Job, Listener};

use crate::TRANSPORT;

/// No test takes longer, however busy the machine is.
pub(crate) const TEST_TIME_MAX: Duration = Duration::from_secs(120);

/// The settings of tests: short deadlines, defaults otherwise.
pub(crate) fn config(settings: &[(&str, &str)]) -> Config {
    let lookup = |name: &str| {
        let set = settings.iter().find(|setting| setting.0 == name).map(|setting| setting.1);
        set.or((name == "UNISONO_CALL_TIMEOUT_S").then_some("60")).map(str::to_owned)
    };
    Config::from_lookup(&lookup).expect("good settings")
}

/// Listening sockets for `ranks` ranks of one host, and every rank's knowledge of them.
pub(crate) fn listeners(ranks: u32, config: &Config) -> (Vec<Listener>, Membership) {
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let secret = Secret::take(&mut [7; SECRET_BYTES]);
    let listen = |_| Job::listen(local, (&secret, None), config).expect("listen");
    let listeners: Vec<_> = (0..ranks).map(listen).collect();
    let members = Membership {
        rank: 0,
        job: JobId::random().expect("random bytes"),
        secret,
        addresses: listeners.iter().map(|one| one.local_addr().expect("bound")).collect(),
        hosts: vec![0; ranks as usize],
        processes: Vec::new(),
        world_size: ranks,
        job_settings: config.job_settings().expect("good settings").encode(),
        cores: Vec::new(),
    };
    (listeners, members)
}

/// Starts all ranks of a job in this process.
pub(crate) fn worlds(ranks: u32, config: &Config) -> Vec<Job> {
    let (listeners, members) = listeners(ranks, config);
    let start = |(rank, listener)| {
        Job::start(Membership { rank, ..members.clone() }, listener, config, &TRANSPORT).expect("start")
    };
    (0..).zip(listeners).map(start).collect()
}

/// Runs `body` once per world, each on its own thread, and returns the results in rank order. Each thread drops its
/// world at its end.
pub(crate) fn on_each<T: Send + 'static>(
    worlds: Vec<Job>,
    body: impl Fn(Job, Arc<dyn Communicator>) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let body = Arc::new(body);
    let (results, received) = mpsc::channel();
    let ranks = worlds.len();
    for (rank, world) in worlds.into_iter().enumerate() {
        let (body, results) = (body.clone(), results.clone());
        thread::spawn(move || {
            let communicator = world.communicator().expect("the communicator of all");
            let _ = results.send((rank, body(world, communicator)));
        });
    }
    drop(results);
    let deadline = Instant::now() + TEST_TIME_MAX;
    let mut all: Vec<(usize, T)> = Vec::new();
    while all.len() < ranks {
        let left = deadline.saturating_duration_since(Instant::now());
        match received.recv_timeout(left) {
            Ok(result) => all.push(result),
            Err(_) => panic!("ranks {:?} finished, the others of {ranks} hang or panicked", ranks_of(&all)),
        }
    }
    all.sort_by_key(|result| result.0);
    all.into_iter().map(|result| result.1).collect()
}

fn ranks_of<T>(results: &[(usize, T)]) -> Vec<usize> {
    results.iter().map(|result| result.0).collect()
}
