//! The pairs of ranks that share memory. The ranks are threads of this process, which counts the bytes of its rings; so
//! there is one test.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::net::Ipv4Addr;
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use unisono_collectives::Collectives;
use unisono_communicator::{Communicator, Peer, ReduceOp};
use unisono_control::handshake::JobId;
use unisono_control::secret::Secret;
use unisono_job::config::Config;
use unisono_job::rendezvous::Membership;
use unisono_job::{Job, Listener};
use unisono_shared_memory::Segment;
use unisono_transport_tcp::Tcp;

/// A hang is a failure.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Each ring has this many bytes.
const RING_BYTES: u64 = 256 << 10;

/// Listening sockets for a rank on each of these hosts, and every rank's knowledge of them.
struct Met {
    listeners: Vec<Listener>,
    membership: Membership,
    config: Config,
}

fn meet(hosts: &[u32], shm: &str) -> Met {
    let config = Config::from_lookup(&|name| (name == "UNISONO_SHM").then(|| shm.to_owned())).unwrap();
    let secret = Secret::random().unwrap();
    let listen = |_| Job::listen((Ipv4Addr::LOCALHOST, 0).into(), (&secret, None), &config).unwrap();
    let listeners: Vec<_> = hosts.iter().map(listen).collect();
    let membership = Membership {
        rank: 0,
        job: JobId::random().unwrap(),
        secret,
        addresses: listeners.iter().map(|one| one.local_addr().unwrap()).collect(),
        hosts: hosts.to_vec(),
        processes: Vec::new(),
        world_size: hosts.len() as u32,
        job_settings: config.job_settings().unwrap().encode(),
        cores: Vec::new(),
    };
    Met { listeners, membership, config }
}

/// Runs every kind of call on all ranks, and returns how many bytes their rings have while all of them are there.
fn ring_bytes(Met { listeners, membership, config }: Met) -> u64 {
    let ranks = membership.world_size;
    let (done, ends) = mpsc::channel();
    let all_are_there = Arc::new(Barrier::new(listeners.len()));
    for (rank, listener) in (0..).zip(listeners) {
        let (done, all_are_there) = (done.clone(), all_are_there.clone());
        let (membership, config) = (Membership { rank, ..membership.clone() }, config.clone());
        std::thread::spawn(move || {
            let job = Job::start(membership, listener, &config, &Tcp { memory: true }).unwrap();
            let communicator = job.communicator().unwrap();
            calls(&*communicator, rank, ranks);
            all_are_there.wait();
            let bytes = Segment::bytes_in_process();
            all_are_there.wait();
            drop((communicator, job));
            done.send(bytes).unwrap();
        });
    }
    (0..ranks).map(|_| ends.recv_timeout(WATCHDOG).expect("all ranks end")).max().unwrap()
}

fn calls(all: &dyn Communicator, rank: u32, ranks: u32) {
    for elements in [1, 300_000] {
        let mut sum = vec![rank + 1; elements];
        all.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        assert!(sum.iter().all(|one| *one == (1..=ranks).sum::<u32>()));
    }
    let mut gathered = vec![0; ranks as usize];
    let mut own = gathered.clone();
    own.fill(rank);
    all.all_to_all(&own, &mut gathered).unwrap();
    assert!(gathered.iter().copied().eq(0..ranks));
    for other in (0..ranks).filter(|other| *other != rank) {
        all.send(&[rank; 1000], other, 7).unwrap();
        let mut received = [0; 1000];
        all.recv(&mut received, Peer::Rank(other), 7).unwrap();
        assert_eq!(received, [other; 1000]);
    }
}

/// Rows: D7, J4
#[test]
fn ranks_that_prove_to_share_a_host_share_memory() {
    // Each of two ranks has a ring for collectives and one for messages.
    assert_eq!(ring_bytes(meet(&[0, 0], "1")), 4 * RING_BYTES);
    // A progress thread may have the last handle of a communicator for a moment longer.
    let ended = std::time::Instant::now();
    while Segment::bytes_in_process() > 0 {
        assert!(ended.elapsed() < WATCHDOG, "the job has ended");
        std::thread::yield_now();
    }
    assert_eq!(ring_bytes(meet(&[0, 0, 1], "1")), 4 * RING_BYTES);
    assert_eq!(ring_bytes(meet(&[0, 1, 2], "1")), 0);
    assert_eq!(ring_bytes(meet(&[0, 0, 0], "0")), 0);

    // As in containers with one host's name: the ranks believe that they share a host, and do not find each other.
    let apart = meet(&[0, 0], "1");
    let elsewhere = Membership { secret: Secret::random().unwrap(), ..apart.membership };
    assert_eq!(ring_bytes(Met { membership: elsewhere, ..apart }), 0);
}
