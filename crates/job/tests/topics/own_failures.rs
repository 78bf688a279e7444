//! A rank whose own host does not let it connect: it blames itself, with address and reason, and nobody else is lost.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::process::Command;

use unisono_collectives::Collectives;
use unisono_communicator::{Error, ReduceOp};
use unisono_job::Job;
use unisono_job::config::Config;
use unisono_job::rendezvous::Membership;

use crate::TRANSPORT;
use crate::child::words;
use crate::network::Network;
use crate::support::{config, listeners, on_each};

/// Names the fault that a host of its own has.
const TROUBLE: &str = "TEST_TROUBLE";

/// An address without a route, also where there is a default route: no stream goes to all hosts.
const NO_ROUTE: Ipv4Addr = Ipv4Addr::BROADCAST;

/// The only network to which a host of its own forbids the way.
const FORBIDDEN: &str = "10.9.0.0/24";

fn patient_for_a_second() -> Config {
    config(&[("UNISONO_HANDSHAKE_TIMEOUT_MS", "1000")])
}

/// Rank 0 knows rank 1 at an address to which it cannot connect. Rank 1 knows rank 0 where nobody ever answers, so it
/// has nothing to say. Both know rank 2.
fn blame(address: Ipv4Addr, problem: &str) {
    let config = patient_for_a_second();
    let (listeners, members) = listeners(3, &config);
    let silent = TcpListener::bind("127.0.0.1:0").expect("bind");
    let worlds = (0..).zip(listeners).map(|(rank, listener)| {
        let mut members = Membership { rank, ..members.clone() };
        match rank {
            0 => members.addresses[1].set_ip(IpAddr::V4(address)),
            1 => members.addresses[0] = silent.local_addr().expect("bound"),
            _ => {}
        }
        Job::start(members, listener, &config, &TRANSPORT).expect("start")
    });
    let errors = on_each(worlds.collect(), |_world, communicator| {
        communicator.all_reduce(&mut [1u32; 10_000], ReduceOp::Sum).expect_err("two ranks cannot meet")
    });
    for error in &errors {
        check(error, "on rank 0", problem);
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}

/// The rank that has the problem names it, and nobody is lost.
fn check(error: &Error, rank: &str, problem: &str) {
    assert!(error.lost_ranks().is_empty(), "{error}");
    let Error::System { what, text } = error else { panic!("{error}") };
    assert!(what.starts_with("cannot connect to ") && what.contains(rank) && text == problem, "{error}");
}

#[test]
fn a_rank_without_a_route_blames_itself() {
    blame(NO_ROUTE, "Network is unreachable (os error 101)");
}

/// The program on a host where something is wrong: a job of ranks.
#[expect(clippy::disallowed_methods, reason = "variables of tests, no settings of the library")]
pub(crate) fn job_on_a_host_in_trouble() {
    if std::env::var_os(TROUBLE).is_some_and(|trouble| trouble == "forbidden") {
        let forbid = Command::new("ip").args(["route", "add", "prohibit", FORBIDDEN]).status().expect("ip");
        assert!(forbid.success());
        blame(Ipv4Addr::new(10, 9, 0, 1), "Permission denied (os error 13)");
    } else {
        without_ports();
    }
}

/// A host with one port for connections has one to each listener, and a long call needs two beside the first. Memory
/// needs none.
fn without_ports() {
    let config = config(&[("UNISONO_HANDSHAKE_TIMEOUT_MS", "1000"), ("UNISONO_SHM", "0")]);
    let (listeners, members) = listeners(2, &config);
    std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "45000 45000").expect("a host of its own");
    let worlds = (0..).zip(listeners).map(|(rank, listener)| {
        Job::start(Membership { rank, ..members.clone() }, listener, &config, &TRANSPORT).expect("start")
    });
    let errors = on_each(worlds.collect(), |_world, communicator| {
        communicator.all_reduce(&mut vec![1u32; 1_000_000], ReduceOp::Sum).expect_err("no ports")
    });
    // Either rank may be the first, or both.
    errors.iter().for_each(|error| check(error, "on rank", "Cannot assign requested address (os error 99)"));
}

fn on_a_host_of_its_own(trouble: &str) {
    let Some(network) = Network::or_skip(1) else { return };
    let mut job = network.command(0, "env".as_ref());
    job.args(words("on_a_host_in_trouble")).env(TROUBLE, trouble);
    let output = job.output().expect("start");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn a_rank_that_may_not_connect_blames_itself() {
    on_a_host_of_its_own("forbidden");
}

#[test]
fn a_rank_without_ports_blames_itself() {
    on_a_host_of_its_own("no ports");
}
