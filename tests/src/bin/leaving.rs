//! One rank of the tests of ranks that leave without `close`: `leaving WAY`. It says how its own calls have ended; the
//! library's lines go to standard error.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the test reads it")]

use std::process::exit;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use unisono::call::{Descriptor, OwnedBuffers, OwnedCall, OwnedMemory, Place};
use unisono::{
    Collective, Collectives, CollectivesAsync, Communicator, DType, Peer, ReduceOp, Result, UserOp, World,
};

/// A communicator that nobody drops.
static HELD: OnceLock<World> = OnceLock::new();

/// As many as the credits of a receiver do not cover.
const MESSAGES: u32 = 200;
const MESSAGE_BYTES: usize = 100_000;
const TAG: u32 = 7;

/// How long a rank computes before it comes to its peer.
const COMPUTES: Duration = Duration::from_millis(300);

fn main() {
    let way = std::env::args().nth(1).unwrap();
    let comm = unisono::init().unwrap();
    match comm.group().rank() {
        0 => leave(comm, &way),
        _ => stay(comm, &way),
    }
}

/// Rank 0 starts calls, drops their handles, and ends.
fn leave(comm: World, way: &str) {
    match way {
        "return" => send_all(&*comm, 1),
        "exit" => {
            send_all(&*comm, 1);
            exit(0);
        }
        "static" => {
            send_all(&*comm, 1);
            let _ = HELD.set(comm);
        }
        "panic" => {
            send_all(&*comm, 1);
            std::panic::set_hook(Box::new(|_| {}));
            let _mine = comm;
            panic!("rank 0 has had enough");
        }
        "collectives" => {
            for call in 0..MESSAGES {
                drop(comm.all_reduce_async(vec![call; 1000], ReduceOp::Sum));
            }
        }
        "cause" => {
            // Rank 1 has said that it will not come.
            drop(comm.all_reduce_async(vec![1u32], ReduceOp::Sum));
            say(comm.recv(&mut [0u8], Peer::Rank(1), TAG).map(drop));
        }
        "unmatched call" => drop(comm.all_reduce_async(vec![1u32], ReduceOp::Sum)),
        "unmatched messages" | "two at once" => send_all(&*comm, 1),
        "exit in a function" => say(comm.all_reduce_user(&mut vec![1u32; REDUCED], OP, |_, _, _| exit(0))),
        "exit in an asynchronous function" => {
            // The thread that moves the call ends the process.
            drop(comm.start(exiting_call()));
            std::thread::sleep(Duration::from_secs(60));
        }
        "two roots" => say(comm.broadcast(&mut [0u32; 4], 0)),
        "unread" => say((0..3).try_for_each(|_| comm.send(&[1u8; 10], 1, TAG))),
        other => panic!("unknown way {other:?}"),
    }
}

/// Rank 1 has its part in that.
fn stay(comm: World, way: &str) {
    match way {
        "return" | "exit" | "static" | "panic" => {
            std::thread::sleep(COMPUTES);
            say(receive_all(&*comm));
        }
        "collectives" => {
            std::thread::sleep(COMPUTES);
            say((0..MESSAGES).try_for_each(|call| {
                let mut sum = vec![call; 1000];
                comm.all_reduce(&mut sum, ReduceOp::Sum)?;
                assert_eq!(sum, vec![2 * call; 1000]);
                Ok(())
            }));
        }
        "cause" => {
            std::thread::sleep(COMPUTES);
            say(comm.abort());
        }
        "unmatched call" => std::thread::sleep(COMPUTES),
        "unmatched messages" => std::thread::sleep(2 * COMPUTES),
        "two at once" => send_all(&*comm, 0),
        "exit in a function" | "exit in an asynchronous function" => {
            let mut vector = vec![1u32; REDUCED];
            say(comm.all_reduce_user(&mut vector, OP, |one, _, sum| sum.copy_from_slice(one)));
        }
        "two roots" => say(comm.broadcast(&mut [1u32; 4], 1)),
        "unread" => std::thread::sleep(COMPUTES),
        other => panic!("unknown way {other:?}"),
    }
}

/// Where both ranks reduce.
const OP: UserOp = UserOp::commutative("one");
const REDUCED: usize = 1 << 20;

/// A reduction whose function ends the process.
fn exiting_call() -> OwnedCall {
    let descriptor = Descriptor::new(Collective::AllReduce, DType::U32, REDUCED as u64);
    let descriptor = Descriptor { op: Some(ReduceOp::User(OP)), place: Place::InPlace, ..descriptor };
    let call = OwnedCall::new(descriptor, OwnedBuffers::InOut(OwnedMemory::of(vec![1u32; REDUCED])));
    OwnedCall { user_function: Some(Arc::new(|_, _, _| exit(0))), ..call }
}

fn send_all(comm: &dyn Communicator, to: u32) {
    for number in 0..MESSAGES {
        drop(comm.send_async(vec![number as u8; MESSAGE_BYTES], to, TAG));
    }
}

fn receive_all(comm: &dyn Communicator) -> Result<()> {
    let mut message = vec![0u8; MESSAGE_BYTES];
    (0..MESSAGES).try_for_each(|number| {
        comm.recv(&mut message, Peer::Rank(0), TAG)?;
        assert!(message.iter().all(|&byte| byte == number as u8));
        Ok(())
    })
}

fn say(result: Result<()>) {
    match result {
        Ok(()) => println!("done"),
        Err(error) => println!("{error}"),
    }
}
