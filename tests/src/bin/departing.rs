//! One rank of the tests of endings: does its work and ends, or goes too early in one of many ways, and says how the
//! calls of the others ended before it ends at once.
//!
//! `finish WORK END HOLD`: a right program. `go WAY`: the last rank goes in that way, the others call until they fail.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the test reads it")]

use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use unisono::{
    CallOptions, Collectives, CollectivesAsync, Communicator, Error, Peer, ReduceOp, Result, World,
};

/// A communicator that nobody drops.
static HELD: OnceLock<World> = OnceLock::new();

/// How long a call of the ranks that stay may take where the last one does not come.
const SHORT_TIMEOUT: Duration = Duration::from_millis(400);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let comm = unisono::init().unwrap();
    match words[..] {
        ["finish", work, end, hold] => finish(comm, work, end, hold),
        ["go", way] => go(comm, way),
        _ => panic!("unknown words {words:?}"),
    }
}

/// A right program: all of its calls succeed, whenever and however its ranks end.
fn finish(comm: World, work: &str, end: &str, hold: &str) -> ExitCode {
    if hold == "static" {
        let _ = HELD.set(comm.clone());
    }
    if let Err(error) = do_work(&*comm, work) {
        println!("failed: {error}");
        return ExitCode::FAILURE;
    }
    if end == "exit" {
        std::process::exit(0);
    }
    ExitCode::SUCCESS
}

fn do_work(comm: &dyn Communicator, work: &str) -> Result<()> {
    let (rank, ranks) = (comm.group().rank(), comm.group().size());
    match work {
        "once" => comm.all_reduce(&mut [1u32; 4], ReduceOp::Sum),
        "long" => comm.all_reduce(&mut vec![1f32; 1 << 20], ReduceOp::Sum),
        "many" => {
            let calls: Vec<_> =
                (0..2000).map(|_| comm.all_reduce_async(vec![1u32; 16], ReduceOp::Sum)).collect();
            for call in calls {
                assert_eq!(call.wait()?, vec![ranks; 16]);
            }
            Ok(())
        }
        "messages" if rank == 0 => {
            for _ in 0..50 * (ranks - 1) {
                let mut text = [0u8; 100];
                comm.recv(&mut text, Peer::Any, 7)?;
                assert_eq!(text[1..], [text[0]; 99]);
            }
            Ok(())
        }
        "messages" => {
            for _ in 0..50 {
                comm.send(&[rank as u8; 100], 0, 7)?;
            }
            Ok(())
        }
        other => panic!("unknown work {other:?}"),
    }
}

/// The last rank goes after some calls, the others go on until they fail, say why, and end at once.
fn go(comm: World, way: &str) -> ExitCode {
    let is_last = comm.group().rank() + 1 == comm.group().size();
    if way.ends_with("-static") {
        let _ = HELD.set(comm.clone());
    }
    let first_calls = (0..3).try_for_each(|_| comm.all_reduce(&mut [1u32; 4], ReduceOp::Sum));
    if is_last {
        first_calls.unwrap();
        return depart(comm, way);
    }
    let options = match way {
        "timeout" => CallOptions::new().timeout(SHORT_TIMEOUT),
        _ => CallOptions::new(),
    };
    // The last of the first calls may be over on the last rank, which is killed at once, and not yet here.
    match first_calls.and_then(|()| call_until_failure(&comm.with(options))) {
        Ok(()) => println!("succeeded"),
        Err(error) => println!("{}", words_of(&error)),
    }
    std::process::exit(1);
}

fn depart(comm: World, way: &str) -> ExitCode {
    match way {
        // Its communicator is dropped while its thread unwinds, or stays in a static.
        "panic" | "panic-static" => {
            std::panic::set_hook(Box::new(|_| {}));
            let _mine = comm;
            panic!("the last rank has had enough");
        }
        "exit" | "exit-static" => std::process::exit(3),
        "return" => ExitCode::FAILURE,
        "abort" => std::process::abort(),
        "kill" => {
            println!("kill me");
            loop {
                std::thread::park();
            }
        }
        "timeout" => {
            std::thread::sleep(3 * SHORT_TIMEOUT);
            let error = call_until_failure(&*comm).unwrap_err();
            println!("{}", words_of(&error));
            std::process::exit(1);
        }
        other => panic!("unknown way {other:?}"),
    }
}

fn call_until_failure(comm: &(impl Communicator + ?Sized)) -> Result<()> {
    for _ in 0..1_000_000 {
        comm.all_reduce(&mut [1f64; 100], ReduceOp::Sum)?;
    }
    Ok(())
}

/// What all ranks must agree on: the kind of the error, and whom it is about.
fn words_of(error: &Error) -> String {
    match error {
        Error::PeerLost { .. } => format!("lost {:?}: {error}", error.lost_ranks()),
        Error::Timeout { not_arrived, .. } => {
            let last = not_arrived.iter().map(|one| one.rank).max();
            format!("timeout of {last:?}: {error}")
        }
        other => format!("otherwise: {other}"),
    }
}
