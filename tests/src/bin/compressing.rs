//! One rank of the tests of compressed training with real processes: the last rank dies in the middle of a call, at a
//! place that the arguments name. The survivors shrink, take their states along, compare them with those of ranks that
//! have never failed, and go on.
//!
//! Arguments: the codec, what the codec of the dying rank is asked for, and the how manieth time.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the test reads it")]

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use unisono::{Communicator, Error, ReduceOp, Result, World};
use unisono_compression::{Codec, CompressedCollectives, CompressionState, codec_by_name};
use unisono_engine::in_process;
use unisono_tests::compressed::{CodecStep, WatchedCodec, bits, gradients, state};
use unisono_tests::suite::SECONDS_MAX;
use unisono_tests::watchdog::watchdog;

/// Several pieces of each share, and a last one that is short.
const ELEMENTS: usize = 120_007;

fn main() {
    watchdog(SECONDS_MAX, "a compressing rank", || {
        let [name, step, number] = [1, 2, 3].map(|word| std::env::args().nth(word).unwrap());
        let step = match step.as_str() {
            "encode" => CodecStep::Encode,
            "reduce" => CodecStep::Reduce,
            "decode" => CodecStep::Decode,
            "accept" => CodecStep::Accept,
            other => panic!("no such step: {other}"),
        };
        let comm = unisono::init().unwrap();
        let codec = codec_by_name(&name).unwrap();
        if comm.group().rank() + 1 == comm.group().size() {
            let (number, asked) = (number.parse::<u64>().unwrap(), AtomicU64::new(0));
            let dying = WatchedCodec::shared(codec, move |now| {
                if now == step && asked.fetch_add(1, Ordering::SeqCst) + 1 == number {
                    std::process::abort();
                }
            });
            panic!("outlived by {:?}", train(&*comm, &mut state(&*comm, &dying, ELEMENTS)).1);
        }
        survive(&comm, &codec);
        // Nobody leaves before all have spoken: leaving would look like another failure.
        let _ = std::io::stdin().read(&mut [0]);
    });
}

fn call(comm: &dyn Communicator, state: &mut CompressionState, number: u64) -> Result<Vec<f32>> {
    let given = gradients(comm.group().own_job_rank().get(), number, ELEMENTS);
    let (mut vector, owed) = (given.clone(), bits(&state.residual()));
    let result = comm.compressed_all_reduce(&mut vector, ReduceOp::Avg, state);
    if result.is_err() {
        assert!(bits(&vector) == bits(&given), "a failed call leaves the vector");
        assert!(bits(&state.residual()) == owed, "a failed call leaves the residuals");
    }
    result.map(|()| vector)
}

/// Calls until one fails: the results, and the error.
fn train(comm: &dyn Communicator, state: &mut CompressionState) -> (Vec<Vec<u32>>, Error) {
    let mut results = Vec::new();
    loop {
        match call(comm, state, results.len() as u64) {
            Ok(result) => results.push(bits(&result)),
            Err(error) => return (results, error),
        }
        assert!(results.len() < 100, "nobody has died");
    }
}

fn survive(comm: &World, codec: &Arc<dyn Codec>) {
    let (rank, ranks) = (comm.group().rank(), comm.group().size());
    let mut state = state(&**comm, codec, ELEMENTS);
    let (mut results, error) = train(&**comm, &mut state);
    let Error::PeerLost { culprits, .. } = error.root_cause() else { panic!("{error}") };
    assert!(culprits.iter().any(|culprit| culprit.rank.get() == ranks - 1), "{error}");
    let shrunk = comm.shrink().unwrap();
    let rebound = state.rebind(&shrunk).unwrap();
    assert_eq!(rebound.lost.iter().map(|rank| rank.get()).collect::<Vec<_>>(), [ranks - 1]);
    if rebound.went_back {
        results.pop();
    }
    assert_eq!(state.calls(), results.len() as u64);
    let never_failed = in_process::run(ranks, |comm| {
        let mut state = unisono_tests::compressed::state(&*comm, codec, ELEMENTS);
        let results =
            (0..results.len() as u64).map(|number| bits(&call(&*comm, &mut state, number).unwrap()));
        (results.collect::<Vec<_>>(), bits(&state.residual()), state.owned(), bits(&state.owner_residual()))
    });
    let (expected, residual, ..) = &never_failed[rank as usize];
    assert!(*expected == results, "other results than without a failure");
    assert!(*residual == bits(&state.residual()), "another residual than without a failure");
    let mut sums = vec![0; ELEMENTS];
    for (.., owned, residual) in never_failed.iter().take(ranks as usize - 1) {
        sums[owned.clone()].iter_mut().zip(residual).for_each(|(sum, owed)| *sum = *owed);
    }
    let is_owed = !codec.has_feedback() || sums[state.owned()] == bits(&state.owner_residual());
    assert!(is_owed, "another residual of sums");
    let mut checksum = 0u64;
    for number in 0..3 {
        let result = call(&*shrunk.communicator, &mut state, 1000 + number).unwrap();
        for bits in bits(&result) {
            checksum = checksum.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(bits);
        }
    }
    println!("{} calls, then {checksum:x}", results.len());
}
