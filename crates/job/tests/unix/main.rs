//! A second transport on the seam of the job: over memory that ranks of one host pass each other.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod links;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use unisono_backend::Companion;
use unisono_communicator::{Collectives, Communicator, Peer, ReduceOp, Result};
use unisono_control::handshake::JobId;
use unisono_control::secret::Secret;
use unisono_control::wire::ConnectionRole;
use unisono_job::Job;
use unisono_job::config::Config;
use unisono_job::rendezvous::Membership;
use unisono_job::sockets::SocketKind;
use unisono_job::transport::{NewCommunicator, Transport};

use links::PassedLinks;

/// A hang is a failure.
const WATCHDOG: Duration = Duration::from_secs(60);

/// By rank, peer and purpose: the kind of the connection that the rank has got.
type Kinds = Arc<Mutex<BTreeMap<(u32, u32, ConnectionRole), SocketKind>>>;

/// The transport of one rank.
struct Passing {
    kinds: Kinds,
}

impl Transport for Passing {
    fn communicator(&self, new: NewCommunicator<'_>) -> Result<Companion> {
        let (rank, ranks) = (new.group().rank(), new.group().size());
        let kinds = self.kinds.clone();
        new.over("passing", |connections| PassedLinks::new((rank, ranks), connections, kinds))
    }

    fn within_host(&self) -> SocketKind {
        SocketKind::Unix
    }
}

/// Listening sockets for a rank on each of these hosts, and what every rank knows of them.
fn meet(hosts: &[u32]) -> (Vec<TcpListener>, Membership, Config) {
    let config = Config::from_lookup(&|_| None).unwrap();
    let listen = |_| Job::listen((Ipv4Addr::LOCALHOST, 0).into(), &config).unwrap();
    let listeners: Vec<_> = hosts.iter().map(listen).collect();
    let membership = Membership {
        rank: 0,
        job: JobId::random().unwrap(),
        secret: Secret::random().unwrap(),
        addresses: listeners.iter().map(|one| one.local_addr().unwrap()).collect(),
        hosts: hosts.to_vec(),
        processes: Vec::new(),
        world_size: hosts.len() as u32,
        job_settings: config.job_settings().unwrap().encode(),
        cores: Vec::new(),
    };
    (listeners, membership, config)
}

/// Runs every kind of call on a rank for each listener, and returns the kinds of their connections.
fn run((listeners, membership, config): (Vec<TcpListener>, Membership, Config)) -> Kinds {
    let kinds = Kinds::default();
    let (done, ends) = mpsc::channel();
    let ranks = membership.world_size;
    let start = |(rank, listener)| {
        let transport: &'static Passing = Box::leak(Box::new(Passing { kinds: kinds.clone() }));
        Job::start(Membership { rank, ..membership.clone() }, listener, &config, transport).unwrap()
    };
    // Ranks that meet listen before anybody dials them.
    let jobs: Vec<Job> = (0..).zip(listeners).map(start).collect();
    for (rank, job) in (0..).zip(jobs) {
        let done = done.clone();
        std::thread::spawn(move || {
            calls(&*job.communicator().unwrap(), rank, ranks);
            drop(job);
            done.send(rank).unwrap();
        });
    }
    for _ in 0..ranks {
        ends.recv_timeout(WATCHDOG).expect("all ranks end");
    }
    kinds
}

fn calls(all: &dyn Communicator, rank: u32, ranks: u32) {
    for elements in [1, 300_000] {
        let mut sum = vec![rank + 1; elements];
        all.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        assert!(sum.iter().all(|one| *one == (1..=ranks).sum::<u32>()));
    }
    let (next, last) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    let mut received = [0; 1000];
    all.send(&[rank; 1000], next, 7).unwrap();
    all.recv(&mut received, Peer::Rank(last), 7).unwrap();
    assert_eq!(received, [last; 1000]);
    all.barrier().unwrap();
}

/// The kinds of the connections between two ranks, which are the same on both.
fn between(kinds: &Kinds, (one, other): (u32, u32)) -> BTreeSet<SocketKind> {
    let kinds = kinds.lock().unwrap();
    let of = |from, to| {
        let found = kinds.iter().filter(move |((rank, peer, _), _)| (*rank, *peer) == (from, to));
        found.map(|((_, _, role), kind)| (*role, *kind)).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(of(one, other), of(other, one));
    of(one, other).into_values().collect()
}

#[test]
fn ranks_of_a_host_get_sockets_that_pass_descriptors_and_others_tcp() {
    let kinds = run(meet(&[0, 0, 1]));
    assert_eq!(between(&kinds, (0, 1)), [SocketKind::Unix].into());
    assert_eq!(between(&kinds, (0, 2)), [SocketKind::Tcp].into());
    assert_eq!(between(&kinds, (1, 2)), [SocketKind::Tcp].into());
}

/// As in containers with one host's name: the ranks believe that they share a host, and do not reach each other there.
#[test]
fn where_unix_sockets_lead_elsewhere_both_sides_get_tcp() {
    let met = meet(&[0, 0, 0]);
    // Another process has the names of ranks 0 and 1, and says nothing there, or what nobody understands.
    for (address, says) in met.1.addresses.iter().zip([&b""[..], &[0x55; 4096]]) {
        let listener = take_name(address);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // The dialler may have gone.
                let _ = stream.unwrap().write_all(says);
            }
        });
    }
    let kinds = run(met);
    assert_eq!(between(&kinds, (0, 1)), [SocketKind::Tcp].into());
    // Rank 2 can be reached, and reaches nobody: the lower rank decides which connection is kept.
    assert!(!between(&kinds, (0, 2)).is_empty() && !between(&kinds, (1, 2)).is_empty());
}

fn take_name(address: &SocketAddr) -> UnixListener {
    let name = format!("unisono/{}/{}", address.ip(), address.port());
    let name = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    UnixListener::bind_addr(&name).unwrap()
}
