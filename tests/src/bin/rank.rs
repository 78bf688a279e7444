//! One rank of the tests with real processes: joins the job that its environment names and does what its argument says.
//!
//! What it learns goes to standard output, one line each, for the test to read.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the test reads it")]

use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use unisono::call::Place;
use unisono::{
    Collective, Collectives, CollectivesAsync, Communicator, Culprit, DType, Error, Peer, ReduceOp, Result,
    World,
};
use unisono_tests::case::Case;
use unisono_tests::sample::op_in;
use unisono_tests::suite::SECONDS_MAX;
use unisono_tests::watchdog::{Seat, watchdog};

fn main() -> ExitCode {
    let scenario = std::env::args().nth(1).unwrap_or_default();
    if scenario == "stuck" {
        let seat = Seat::take("the one seat".to_owned());
        seat.note("waits for nobody".to_owned());
        watchdog(1, "stuck", std::thread::park);
    }
    watchdog(SECONDS_MAX, &format!("rank doing {scenario:?}"), || match unisono::init() {
        Ok(comm) => act(&comm, &scenario),
        Err(Error::Rendezvous { missing, .. }) if !missing.is_empty() => say(&format!("missing {missing:?}")),
        Err(Error::Refused { problem }) => say(&format!("refused {problem}")),
        Err(other) => say(&format!("not joined {other}")),
    })
}

fn say(text: &str) -> ExitCode {
    println!("{text}");
    ExitCode::SUCCESS
}

fn act(comm: &World, scenario: &str) -> ExitCode {
    match scenario {
        "mixed" => {
            mixed(&**comm).unwrap();
            comm.close().unwrap();
            say("done")
        }
        "until_failure" => {
            say("joined");
            let cause = until_failure(&**comm);
            match cause.root_cause() {
                Error::PeerLost { culprits, .. } => say(&lost_text(culprits)),
                other => say(&format!("failed otherwise: {other}")),
            };
            // Nobody leaves before all have spoken: leaving would look like another failure.
            let _ = std::io::stdin().read(&mut [0]);
            ExitCode::SUCCESS
        }
        other => {
            say(&format!("no such scenario: {other:?}"));
            ExitCode::FAILURE
        }
    }
}

/// Small and large calls, blocking and not, in one order.
fn mixed(comm: &dyn Communicator) -> Result<()> {
    let (rank, ranks) = (comm.group().rank(), comm.group().size());
    let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    for (round, count) in [1, 1000, 0, 200_000, 7].into_iter().enumerate() {
        let seed = round as u64;
        for collective in Collective::ALL {
            let root = if collective.is_rooted() { seed as u32 % ranks } else { 0 };
            let op = collective.reduces().then_some(op_in(collective, ReduceOp::Avg));
            let case = Case { op, root, seed, ..Case::new(collective, DType::F32, count) };
            case.check(comm)?;
            Case { place: Place::InPlace, segments: Some(seed), ..case }.check(comm)?;
        }
        let receive = comm.recv_async(vec![0u32; count], Peer::Rank(previous), 1).into_work();
        let sums = comm.all_reduce_async(vec![rank; count], ReduceOp::Sum);
        comm.send(&vec![rank; count], next, 1)?;
        assert_eq!(receive.wait()?.source, Some(previous));
        assert!(sums.wait()?.iter().all(|&sum| sum == ranks * (ranks - 1) / 2));
        let halves = comm.subgroup(&(0..ranks).step_by(2).collect::<Vec<_>>())?;
        if let Some(half) = halves {
            Case::new(Collective::AllToAll, DType::I16, 33).check(&*half)?;
            half.close()?;
        }
    }
    Ok(())
}

/// Rank and process of each, and whether it was heard of in a call.
fn lost_text(culprits: &[Culprit]) -> String {
    let text = |culprit: &Culprit| {
        let pid = culprit.process.as_ref().map(|process| process.pid);
        format!(" rank {} pid {:?} heard {}", culprit.rank, pid, culprit.last_call.is_some())
    };
    format!("lost{}", culprits.iter().map(text).collect::<String>())
}

/// Calls of all sizes, until one fails; says when it has made one of each.
fn until_failure(comm: &dyn Communicator) -> Error {
    let mut buffer = vec![1.0f32; 1 << 20];
    for round in 0.. {
        if round == 3 {
            say("has called");
        }
        let length = [1, 1000, 1 << 20][round % 3];
        if let Err(error) = comm.all_reduce(&mut buffer[..length], ReduceOp::Max) {
            return error;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Error::closed()
}
