//! Hosts that are cut off from each other: the ranks that may go on name the gone ranks and nobody else, the others
//! learn that they may not, and nobody hangs.
//!
//! The hosts are network namespaces. Where they cannot be made, the tests say so and pass; with `namespaces` in
//! `UNISONO_REQUIRE` they fail. `benches/soak` measures these times.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;

use std::time::Duration;

use support::child::{self, Rank, say, words};
use support::network::{Cut, Network};
use unisono_collectives::Collectives;
use unisono_communicator::{Error, ReduceOp};
use unisono_job::config::Config;
use unisono_transport_tcp::Tcp;

const TRANSPORT: Tcp = Tcp { memory: false };

#[test]
fn program_of_this_process() {
    child::run(&[("one_rank", one_rank)]);
}

/// The program of a rank.
fn one_rank() {
    let mut lines = std::io::stdin().lines().map_while(std::io::Result::ok);
    let world = unisono_job::Job::join(&Config::from_environment().unwrap(), &TRANSPORT).unwrap();
    let communicator = world.communicator().unwrap();
    communicator.barrier().unwrap();
    say("ready");
    let error = loop {
        if let Err(error) = communicator.all_reduce(&mut [1u64; 100], ReduceOp::Sum) {
            break error;
        }
    };
    say(&outcome(&error));
    match communicator.shrink() {
        Ok(shrunk) => {
            let survivors = shrunk.communicator;
            // Every rank has a bit of its own, so the sum tells who took part.
            let mut values = vec![1u32 << world.group().rank(); 100_000];
            survivors.all_reduce(&mut values, ReduceOp::Sum).unwrap();
            assert!(values.iter().all(|value| *value == values[0]));
            say(&format!("goes on {:?} {:b}", shrunk.new_ranks, values[0]));
            lines.next();
            survivors.close().unwrap();
        }
        Err(error) => {
            say(&outcome(&error));
            // A rank that may not go on is told so again and again.
            let again = communicator.shrink().map(|_| ()).expect_err("no way back");
            assert_eq!(outcome(&again), outcome(&error));
            communicator.barrier().expect_err("no way back");
            lines.next();
        }
    }
    say("done");
}

fn outcome(error: &Error) -> String {
    match error.root_cause() {
        Error::PeerLost { certainty, .. } => format!("lost {:?} {certainty:?}", error.lost_ranks()),
        Error::NoQuorum { survivors, silent } => format!("no quorum {survivors:?} {silent:?}"),
        Error::Evicted { .. } => "evicted".to_owned(),
        other => format!("failed otherwise: {other}"),
    }
}

/// A job: `hosts` says where each rank lives.
struct Job {
    hosts: &'static [usize],
    // The ranks go before their network.
    ranks: Vec<Rank>,
    network: Network,
}

impl Job {
    /// `None`, and a line that says why, where there are no namespaces.
    fn start(hosts: &'static [usize], cut: Cut) -> Option<Job> {
        let network = Network::or_skip(hosts.iter().max()? + 1)?;
        let start = |(rank, host): (usize, &usize)| {
            let mut command = network.rank((*host, hosts[0]), (rank, hosts.len()), "env".as_ref());
            // Longer than any of this takes, and shorter than the search for one rank after the other.
            command.env("UNISONO_CALL_TIMEOUT_S", "25");
            if cut == Cut::Resets {
                // They come at once; on a busy machine the usual patience would be over before they are heard.
                command.env("UNISONO_SUSPECT_AFTER_MS", "4000");
            }
            Rank::start(format!("rank {rank}"), command.args(words("one_rank")))
        };
        let ranks: Vec<Rank> = hosts.iter().enumerate().map(start).collect();
        ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "ready"));
        Some(Job { hosts, ranks, network })
    }

    /// The ranks on a host, or the ranks on all others.
    fn ranks_of(&self, host: usize, is_there: bool) -> Vec<usize> {
        (0..self.hosts.len()).filter(|rank| (self.hosts[*rank] == host) == is_there).collect()
    }

    /// Every one of `here` says that some of `there` are gone, and nobody of its own side.
    fn name_only(&self, here: &[usize], there: &[usize], cut: Cut) {
        let certainty = match cut {
            Cut::LinkDown | Cut::Silence | Cut::Blackhole => "Suspected",
            Cut::Resets => "Confirmed",
        };
        for rank in here {
            let said = self.ranks[*rank].hear();
            let named = said.strip_suffix(certainty);
            let list = named.and_then(|rest| rest.strip_prefix("lost [")?.strip_suffix("] "));
            let list = list.unwrap_or_else(|| panic!("rank {rank} of {here:?}: {said}"));
            let named: Vec<usize> = list.split(", ").map(|one| one.parse().unwrap()).collect();
            assert!(named.iter().all(|one| there.contains(one)), "rank {rank} of {here:?}: {said}");
        }
    }

    /// They go on, all of them and nobody else.
    fn go_on(&self, survivors: &[usize]) {
        let place = |rank| survivors.iter().position(|one| *one == rank);
        let new_ranks: Vec<Option<usize>> = (0..self.hosts.len()).map(place).collect();
        let sum: u32 = survivors.iter().map(|rank| 1 << rank).sum();
        for rank in survivors {
            let expected = format!("goes on {new_ranks:?} {sum:b}");
            assert_eq!(self.ranks[*rank].hear(), expected, "rank {rank} of {survivors:?}");
        }
    }

    fn end(mut self) {
        self.ranks.iter_mut().for_each(|rank| rank.tell("enough"));
        self.ranks.iter().for_each(|rank| assert_eq!(rank.hear(), "done"));
        self.ranks.drain(..).for_each(Rank::end);
    }
}

/// Cuts a host off for good. Its ranks go on if `it_goes_on`, else the others.
fn cut_off(hosts: &'static [usize], host: usize, cut: Cut, it_goes_on: bool) {
    let Some(job) = Job::start(hosts, cut) else { return };
    let (survivors, others) = (job.ranks_of(host, it_goes_on), job.ranks_of(host, !it_goes_on));
    job.network.cut(host, cut).unwrap();
    job.name_only(&survivors, &others, cut);
    job.go_on(&survivors);
    job.name_only(&others, &survivors, cut);
    for rank in &others {
        let expected = format!("no quorum {others:?} {survivors:?}");
        assert_eq!(job.ranks[*rank].hear(), expected, "rank {rank}, {cut:?} of host {host} of {hosts:?}");
    }
    job.end();
}

#[test]
fn a_host_whose_link_is_down_is_named_and_the_others_go_on() {
    cut_off(&[0, 0, 1, 2], 2, Cut::LinkDown, false);
}

#[test]
fn a_host_whose_packets_vanish_is_named_also_when_rank_0_is_there() {
    cut_off(&[1, 0, 0, 2], 1, Cut::Silence, false);
}

#[test]
fn a_host_behind_a_blackhole_is_named_and_the_others_go_on() {
    cut_off(&[0, 0, 1, 2], 1, Cut::Blackhole, false);
}

/// Others watch two of its ranks. The survivors look for the rest.
#[test]
fn a_host_with_many_ranks_that_vanishes_is_lost_as_a_whole() {
    cut_off(&[0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2], 1, Cut::Silence, false);
}

#[test]
fn two_ranks_on_one_host_are_outnumbered_by_three() {
    cut_off(&[0, 1, 1, 0, 2], 1, Cut::LinkDown, false);
}

#[test]
fn of_two_halves_the_one_with_the_lowest_rank_goes_on() {
    cut_off(&[0, 0, 1, 2], 0, Cut::Silence, true);
}

/// A refused dial is no proof of a death on another host.
#[test]
fn of_two_halves_that_get_resets_the_one_with_the_lowest_rank_goes_on() {
    cut_off(&[0, 0, 1, 1], 1, Cut::Resets, false);
    cut_off(&[0, 1, 1, 0], 0, Cut::Resets, true);
}

#[test]
fn a_host_that_gets_resets_is_named_and_the_others_go_on() {
    cut_off(&[1, 0, 0, 2], 1, Cut::Resets, false);
}

#[test]
fn a_host_that_comes_back_too_late_stays_out() {
    for cut in [Cut::LinkDown, Cut::Blackhole] {
        let Some(job) = Job::start(&[0, 0, 1, 2], cut) else { return };
        job.network.cut(1, cut).unwrap();
        job.name_only(&[0, 1, 3], &[2], cut);
        job.network.heal(1, cut).unwrap();
        job.go_on(&[0, 1, 3]);
        // The first error decides: that it has heard from nobody, or that the others say they have taken it for dead.
        let first = job.ranks[2].hear();
        assert!(
            first == "evicted" || first.starts_with("lost [") && !first.contains('2'),
            "{cut:?}: {first}"
        );
        let second = job.ranks[2].hear();
        // A rank that has been heard of again is not silent.
        assert!(second == "evicted" || second.starts_with("no quorum [2] ["), "{cut:?}: {second}");
        job.end();
    }
}

/// A link that comes back at the very moment at which both sides make up their minds.
#[test]
fn never_do_both_sides_go_on() {
    for delay_ms in [750, 850, 950] {
        let Some(mut job) = Job::start(&[1, 0, 2], Cut::Silence) else { return };
        job.network.cut(1, Cut::Silence).unwrap();
        std::thread::sleep(Duration::from_millis(delay_ms));
        job.network.heal(1, Cut::Silence).unwrap();
        // A rank that has noticed nothing says nothing, and that is well.
        let hear = |rank: &Rank| [rank.hear_soon(), rank.hear_soon()].map(Option::unwrap_or_default);
        let said: Vec<[String; 2]> = job.ranks.iter().map(hear).collect();
        let goes_on = |rank: usize| said[rank][1].starts_with("goes on");
        assert!(!goes_on(0) || !goes_on(1) && !goes_on(2), "{delay_ms} ms: {said:?}");
        job.ranks.iter_mut().for_each(|rank| rank.tell("enough"));
    }
}
