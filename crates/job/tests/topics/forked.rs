//! A killed rank whose child holds its connections open: every survivor on its host learns of its end from the kernel,
//! and the survivors on other hosts learn of it from them.

use crate::child::{Rank, leave_sockets_to_a_child, say, words};
use crate::network::{self, Network};
use rustix::process::Signal;
use unisono_collectives::Collectives;
use unisono_communicator::{Error, ReduceOp};
use unisono_job::Job;
use unisono_job::config::Config;

use crate::TRANSPORT;

/// The line of a rank that has left its sockets to a child.
const FORKED: &str = "forked";

/// The program of a rank.
pub(crate) fn one_rank() {
    let mut lines = std::io::stdin().lines().map_while(std::io::Result::ok);
    let task = lines.next().unwrap();
    let world = Job::join(&Config::from_environment().unwrap(), &TRANSPORT).unwrap();
    let communicator = world.communicator().unwrap();
    communicator.all_reduce(&mut [1u64; 100], ReduceOp::Sum).unwrap();
    communicator.barrier().unwrap();
    if task == "fork" {
        match leave_sockets_to_a_child() {
            Ok(()) => say(FORKED),
            Err(reason) => say(&reason.to_string()),
        }
        loop {
            std::thread::park();
        }
    }
    say("waits");
    let error = communicator.barrier().expect_err("one rank never comes");
    say(&outcome(&error));
    match communicator.shrink() {
        Ok(shrunk) => say(&format!("goes on {:?}", shrunk.new_ranks)),
        Err(error) => say(&outcome(&error)),
    }
    // Nobody leaves before all have spoken.
    lines.next();
}

fn outcome(error: &Error) -> String {
    match error.root_cause() {
        Error::PeerLost { certainty, .. } => format!("lost {:?} {certainty:?}", error.lost_ranks()),
        other => format!("failed otherwise: {other}"),
    }
}

/// Kills a rank that has left its sockets to a child; the others name it for sure and go on.
fn kill(mut ranks: Vec<Rank>, victim: usize) {
    for (rank, one) in ranks.iter_mut().enumerate() {
        one.tell(if rank == victim { "fork" } else { "wait" });
    }
    let said = ranks[victim].hear();
    if said != FORKED {
        return network::skip("pidfd_getfd", &said);
    }
    let others = || ranks.iter().enumerate().filter(|(rank, _)| *rank != victim);
    others().for_each(|(_, one)| assert_eq!(one.hear(), "waits"));
    ranks[victim].signal(Signal::KILL);
    let mut left = 0..;
    let new_ranks: Vec<Option<i32>> =
        (0..ranks.len()).map(|rank| (rank != victim).then(|| left.next()).flatten()).collect();
    for (rank, one) in others() {
        assert_eq!(one.hear(), format!("lost [{victim}] Confirmed"), "rank {rank}");
    }
    for (rank, one) in others() {
        assert_eq!(one.hear(), format!("goes on {new_ranks:?}"), "rank {rank}");
    }
}

#[test]
fn a_killed_rank_whose_child_holds_its_sockets_is_named_for_sure() {
    for (size, victim) in [(2, 1), (3, 0), (5, 2)] {
        let job = format!("forked-{}-{size}", std::process::id());
        let start = |rank: usize| {
            let variables = [
                ("UNISONO_JOB", job.clone()),
                ("UNISONO_RANK", rank.to_string()),
                ("UNISONO_WORLD_SIZE", size.to_string()),
            ];
            Rank::again(format!("rank {rank} of {size}"), "forked", &variables)
        };
        kill((0..size).map(start).collect(), victim);
    }
}

#[test]
fn another_host_learns_it_from_a_rank_on_the_host_of_the_killed() {
    for victim in 0..4 {
        let Some(network) = Network::or_skip(2) else { return };
        let start = |rank: usize| {
            let mut command = network.rank((rank / 2, 0), (rank, 4), "env".as_ref());
            Rank::start(format!("rank {rank}"), command.args(words("forked")))
        };
        kill((0..4).map(start).collect(), victim);
    }
}
