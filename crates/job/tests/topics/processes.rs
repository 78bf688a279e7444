//! Real processes that are killed, stopped, or end without a word: every survivor names the same rank, and the
//! survivors go on.
//!
//! The test starts its own program once per rank. A rank says where it listens on its standard output, learns who the
//! others are on its standard input, and says at last how its calls ended.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use unisono_collectives::Collectives;
use unisono_communicator::{Communicator, Error, ReduceOp, Result};
use unisono_control::handshake::JobId;
use unisono_control::secret::{SECRET_BYTES, Secret};
use unisono_job::Job;
use unisono_job::job_settings::JobSettings;
use unisono_job::rendezvous::Membership;

use crate::TRANSPORT;
use crate::child::{Rank, say};

/// The calls of the ranks until one of them fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scenario {
    /// Short calls without end.
    Busy,
    /// Long calls without end.
    Bulky,
    /// The last rank does not come, the others sleep in a barrier.
    Asleep,
    /// The last rank ends its process without a word.
    Exit,
    /// Calls without end; the survivors of a failure shrink and go on.
    Recover,
}

const SCENARIOS: [Scenario; 5] =
    [Scenario::Busy, Scenario::Bulky, Scenario::Asleep, Scenario::Exit, Scenario::Recover];

/// The program of a rank.
pub(crate) fn one_rank() {
    let mut lines = std::io::stdin().lines().map_while(std::io::Result::ok);
    let first = lines.next().unwrap();
    let config = crate::support::config(&[]);
    let secret = Secret::take(&mut [9; SECRET_BYTES]);
    let listener = Job::listen(SocketAddr::from(([127, 0, 0, 1], 0)), (&secret, None), &config).unwrap();
    say(&listener.local_addr().unwrap().to_string());
    let numbers: Vec<u32> = first.split(' ').map(|word| word.parse().unwrap()).collect();
    let (rank, ranks, scenario) = (numbers[0], numbers[1], SCENARIOS[numbers[2] as usize]);
    let addresses: Vec<SocketAddr> =
        lines.by_ref().take(ranks as usize).map(|line| line.parse().unwrap()).collect();
    let members = Membership {
        rank,
        job: JobId::from_key("processes"),
        secret,
        addresses,
        hosts: vec![0; ranks as usize],
        processes: Vec::new(),
        world_size: ranks,
        job_settings: JobSettings::default().encode(),
        cores: Vec::new(),
    };
    let world = Job::start(members, listener, &config, &TRANSPORT).unwrap();
    let communicator = world.communicator().unwrap();
    communicator.barrier().unwrap();
    say("ready");
    let error = act(&*communicator, scenario).unwrap_err();
    say(&match error.root_cause() {
        Error::PeerLost { certainty, .. } => format!("lost {:?} {certainty:?}", error.lost_ranks()),
        Error::Evicted { .. } => "evicted".to_owned(),
        other => format!("failed otherwise: {other}"),
    });
    if scenario == Scenario::Recover {
        recover(communicator, &mut lines);
    }
    // The survivors stay until the parent has seen all of them, so that no ending is taken for another failure.
    lines.next();
}

/// Shrinks after every failure and prints the result, until the parent has heard enough.
fn recover(mut communicator: Arc<dyn Communicator>, lines: &mut impl Iterator<Item = String>) {
    loop {
        let shrunk = match communicator.shrink() {
            Ok(shrunk) => shrunk,
            Err(error) => {
                assert!(matches!(error, Error::Evicted { .. }), "{error}");
                let again = communicator.barrier().unwrap_err();
                assert!(matches!(again, Error::Evicted { .. }), "{again}");
                return say("stays out");
            }
        };
        communicator = shrunk.communicator;
        let mut values = vec![1u32 << communicator.group().own_job_rank().get(); 1 << 20];
        communicator.all_reduce(&mut values, ReduceOp::Sum).unwrap();
        assert!(values.iter().all(|value| *value == values[0]));
        let (new_ranks, epoch) = (&shrunk.new_ranks, communicator.group().epoch());
        say(&format!("epoch {epoch}, {new_ranks:?}, sum {:b}", values[0]));
        if lines.next().is_none_or(|line| line == "enough") {
            communicator.close().unwrap();
            return say("closed");
        }
        let error = act(&*communicator, Scenario::Recover).unwrap_err();
        assert!(matches!(error.root_cause(), Error::PeerLost { .. }), "{error}");
    }
}

fn act(communicator: &dyn Communicator, scenario: Scenario) -> Result<()> {
    let is_last = communicator.group().rank() + 1 == communicator.group().size();
    match scenario {
        Scenario::Busy | Scenario::Recover => loop {
            communicator.all_reduce(&mut [1u64; 8], ReduceOp::Sum)?;
        },
        Scenario::Bulky => {
            let mut values = vec![1f32; 4 << 20];
            loop {
                communicator.all_reduce(&mut values, ReduceOp::Max)?;
            }
        }
        Scenario::Asleep if is_last => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        Scenario::Exit if is_last => {
            // Well after everybody has left the barrier before.
            std::thread::sleep(Duration::from_millis(300));
            std::process::exit(3)
        }
        Scenario::Asleep | Scenario::Exit => loop {
            communicator.barrier()?;
        },
    }
}

fn job(ranks: u32, scenario: Scenario) -> Vec<Rank> {
    let start = |rank| Rank::again(format!("rank {rank} of {ranks}"), "processes", &[] as &[(&str, &str)]);
    let mut all: Vec<Rank> = (0..ranks).map(start).collect();
    let number = SCENARIOS.iter().position(|&one| one == scenario).unwrap();
    for (rank, one) in all.iter_mut().enumerate() {
        one.tell(&format!("{rank} {ranks} {number}"));
    }
    let addresses: Vec<String> = all.iter().map(Rank::hear).collect();
    all.iter_mut().for_each(|one| addresses.iter().for_each(|address| one.tell(address)));
    all.iter().for_each(|one| assert_eq!(one.hear(), "ready"));
    all
}

fn all_survivors_name(all: &[Rank], victim: usize, certainty: &str, what: &str) {
    let started = Instant::now();
    for (rank, one) in all.iter().enumerate().filter(|(rank, _)| *rank != victim) {
        assert_eq!(
            one.hear(),
            format!("lost [{victim}] {certainty}"),
            "{what}: rank {rank} of {}",
            all.len()
        );
    }
    eprintln!("{what}: {} survivors knew after {:?}", all.len() - 1, started.elapsed());
}

#[test]
fn a_killed_process_is_named_by_every_survivor() {
    for (ranks, victim, scenario) in [
        (2, 1, Scenario::Busy),
        (4, 0, Scenario::Busy),
        (4, 2, Scenario::Bulky),
        (5, 4, Scenario::Asleep),
        (7, 6, Scenario::Asleep),
    ] {
        let all = job(ranks, scenario);
        std::thread::sleep(Duration::from_millis(100));
        all[victim].signal(Signal::KILL);
        all_survivors_name(&all, victim, "Confirmed", &format!("killed, {scenario:?}"));
    }
}

#[test]
fn a_process_that_ends_without_goodbye_is_named() {
    let all = job(4, Scenario::Exit);
    all_survivors_name(&all, 3, "Confirmed", "exit");
}

#[test]
fn a_stopped_process_is_suspected_and_learns_it_when_it_goes_on() {
    for scenario in [Scenario::Busy, Scenario::Bulky, Scenario::Asleep] {
        let all = job(3, scenario);
        all[2].signal(Signal::STOP);
        all_survivors_name(&all, 2, "Suspected", &format!("stopped, {scenario:?}"));
        if scenario == Scenario::Busy {
            all[2].signal(Signal::CONT);
            assert_eq!(all[2].hear(), "evicted", "the one that was taken for dead");
        }
    }
}

/// The line of every survivor after a failure: the same.
fn all_survivors_say(all: &[Rank], gone: &[usize], expected: &str) {
    for (rank, one) in all.iter().enumerate().filter(|(rank, _)| !gone.contains(rank)) {
        assert_eq!(one.hear(), expected, "rank {rank}, without {gone:?}");
    }
}

fn tell_survivors(all: &mut [Rank], gone: &[usize], text: &str) {
    let survivors = all.iter_mut().enumerate().filter(|(rank, _)| !gone.contains(rank));
    survivors.for_each(|(_, one)| one.tell(text));
}

#[test]
fn survivors_go_on_without_the_killed_until_one_is_left() {
    let mut all = job(4, Scenario::Recover);
    all[0].signal(Signal::KILL);
    all_survivors_name(&all, 0, "Confirmed", "rank 0 killed");
    all_survivors_say(&all, &[0], "epoch 1, [None, Some(0), Some(1), Some(2)], sum 1110");
    tell_survivors(&mut all, &[0], "go on");
    all[2].signal(Signal::KILL);
    all_survivors_say(&all, &[0, 2], "epoch 2, [Some(0), None, Some(1)], sum 1010");
    tell_survivors(&mut all, &[0, 2], "go on");
    all[1].signal(Signal::KILL);
    all_survivors_say(&all, &[0, 1, 2], "epoch 3, [None, Some(0)], sum 1000");
    tell_survivors(&mut all, &[0, 1, 2], "enough");
    all_survivors_say(&all, &[0, 1, 2], "closed");
}

#[test]
fn a_stopped_process_stays_out_when_the_others_have_gone_on() {
    let mut all = job(3, Scenario::Recover);
    all[1].signal(Signal::STOP);
    all_survivors_name(&all, 1, "Suspected", "stopped");
    all_survivors_say(&all, &[1], "epoch 1, [Some(0), None, Some(1)], sum 101");
    all[1].signal(Signal::CONT);
    assert_eq!([all[1].hear(), all[1].hear()], ["evicted", "stays out"]);
    tell_survivors(&mut all, &[1], "enough");
    all_survivors_say(&all, &[1], "closed");
}
