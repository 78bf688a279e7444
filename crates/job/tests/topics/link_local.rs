//! Jobs on link-local addresses of IPv6.

use std::process::Command;

use unisono_collectives::Collectives;
use unisono_communicator::ReduceOp;
use unisono_job::Job;
use unisono_job::config::Config;

use crate::TRANSPORT;
use crate::child::{Rank, say, words};
use crate::network::{INTERFACE, Network};

/// The program of a rank.
pub(crate) fn one_rank() {
    let world = match Job::join(&Config::from_environment().unwrap(), &TRANSPORT) {
        Ok(world) => world,
        Err(error) => return say(&error.to_string()),
    };
    let communicator = world.communicator().unwrap();
    let mut sum = [world.group().rank() + 1; 10_000];
    communicator.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    communicator.close().unwrap();
    say(&format!("sum {} on {} hosts", sum[9_999], world.group().hosts().iter().max().unwrap() + 1));
}

/// The link-local address of a host.
fn address(host: usize) -> String {
    format!("fe80::5:{}", host + 1)
}

/// Two hosts, each with a rank that is given these variables.
fn job(variables: impl Fn(usize) -> Vec<(&'static str, String)>) -> Option<[String; 2]> {
    let network = Network::or_skip(2)?;
    for host in 0..2 {
        let [first, rest @ ..] = network.entering(host);
        let mut ip = Command::new(first);
        ip.args(rest).args([
            "ip",
            "address",
            "add",
            &format!("{}/64", address(host)),
            "dev",
            INTERFACE,
            "nodad",
        ]);
        assert!(ip.status().expect("ip").success(), "IPv6 addresses can be given");
    }
    let ranks = [0, 1].map(|rank| {
        let mut command = network.rank((rank, 0), (rank, 2), "env".as_ref());
        command.args(words("link_local")).envs(variables(rank));
        Rank::start(format!("rank {rank}"), &mut command)
    });
    Some(ranks.map(|rank| rank.hear()))
}

#[test]
fn a_job_meets_and_works_on_link_local_addresses() {
    let master = |interface: &str| ("UNISONO_MASTER_ADDRESS", format!("{}%{interface}", address(0)));
    let expected = ["sum 3 on 2 hosts"; 2];
    let Some(said) = job(|_| vec![master(INTERFACE)]) else { return };
    assert_eq!(said, expected);
    let said = job(|rank| vec![master(INTERFACE), ("UNISONO_ADDRESS", address(rank))]);
    assert_eq!(said.unwrap(), expected);
    for said in job(|_| vec![master("nosuch0")]).unwrap() {
        assert!(said.contains("fe80::5:1%nosuch0") && said.contains("no interface \"nosuch0\""), "{said}");
    }
    for said in job(|_| vec![("UNISONO_MASTER_ADDRESS", address(0))]).unwrap() {
        assert!(said.contains("a link-local address needs its interface: fe80::5:1%eth0"), "{said}");
    }
}
