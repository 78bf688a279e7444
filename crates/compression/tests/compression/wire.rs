//! The bytes on the wire: their number, and the outcome when they arrive changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::links::{Counter, Damage, DamagedLinks};
use crate::common::{bits, codecs, input, owed, state};
use unisono_collectives::Collectives;
use unisono_communicator::{CallOptions, Communicator, Error, Executor, JobRank, ReduceOp, Result};
use unisono_compression::{
    Bf16, Codec, CompressedCollectives, Int4, Int8, IntOptions, Rebound, SignL1, SignRms, wire_bytes,
};
use unisono_engine::in_process::{self, EngineOptions};
use unisono_engine::{HEADER_BYTES, Tapped};

/// The bytes that all ranks together send in `body`, headers included.
fn sent_by(ranks: u32, body: impl Fn(&dyn Communicator) + Sync) -> u64 {
    let sent = Arc::new(AtomicU64::new(0));
    let wrap = |_, links| Tapped::with_tap(links, Counter { sent: sent.clone(), to: None });
    in_process::run_of(ranks, &EngineOptions::default(), wrap, |comm| body(&*comm));
    sent.load(Ordering::SeqCst)
}

/// Statuses, scales and codes, and a header for each message: nothing else, no sizes.
///
/// Rows: G9
#[test]
fn wire_bytes_are_what_is_sent() {
    let cases = [(1, 100), (2, 0), (2, 1), (2, 5000), (4, 3), (9, 20_000), (2, 50_000)];
    for codec in codecs() {
        for (ranks, elements) in cases {
            let sent = sent_by(ranks, |comm| {
                let mut state = state(comm, &codec, elements);
                let mut vector = input(comm.group().rank(), 0, elements);
                let direct = comm.with(CallOptions::new().algorithm("direct"));
                // Of a barrier, which comes first in codecs that measure, there is no direct one.
                let result = if codec.measures() {
                    comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state)
                } else {
                    direct.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state)
                };
                result.unwrap();
            });
            let encoded = wire_bytes(&*codec, elements, ranks as usize);
            let what = format!("{codec:?}, {elements} on {ranks}");
            if codec.measures() {
                // As many headers as the algorithms want, which are chosen.
                let barrier = sent_by(ranks, |comm| comm.barrier().unwrap());
                let headers = sent - barrier - encoded;
                assert!(headers.is_multiple_of(HEADER_BYTES as u64), "{what}: {headers}");
            } else {
                // A header for each message: two exchanges for each piece.
                let exchanges = 2 * u64::from(ranks * (ranks - 1)).max(1) * HEADER_BYTES as u64;
                assert!((sent - encoded).is_multiple_of(exchanges), "{what}: {sent} and {encoded}");
                assert!(elements > 20_000 || ranks == 1 || sent - encoded == exchanges, "{what}");
            }
        }
    }
}

/// The outcome of three calls on a rank, the second of which is damaged, and of a shrink after it.
struct Seen {
    errors: Vec<Option<Error>>,
    outputs: Vec<Vec<u32>>,
    rebound: Option<Rebound>,
    calls: u64,
}

const RANKS: u32 = 3;
const ELEMENTS: usize = 192;

/// After an error all ranks go on in a new communicator.
fn damaged(codec: &Arc<dyn Codec>, damage: Damage) -> Vec<Seen> {
    let wrap = |rank, links| DamagedLinks::new(rank, links, damage);
    in_process::run_of(RANKS, &EngineOptions::default(), wrap, |comm| {
        let direct = comm.with(CallOptions::new().algorithm("direct"));
        let mut state = state(&*comm, codec, ELEMENTS);
        let mut seen = Seen { errors: Vec::new(), outputs: Vec::new(), rebound: None, calls: 0 };
        let call = |comm: &dyn Communicator, state: &mut _, number| -> (Result<()>, Vec<u32>) {
            let given = input(direct.group().rank(), number, ELEMENTS);
            let mut vector = given.clone();
            let result = comm.compressed_all_reduce(&mut vector, ReduceOp::Avg, state);
            assert!(result.is_ok() || bits(&vector) == bits(&given), "a failed call leaves the vector");
            (result, bits(&vector))
        };
        for number in 0..3 {
            let before = owed(&state);
            let (result, output) = if codec.measures() {
                call(&*comm, &mut state, number)
            } else {
                call(&direct, &mut state, number)
            };
            assert!(result.is_ok() || owed(&state) == before, "a failed call leaves the residuals");
            seen.errors.push(result.err());
            seen.outputs.push(output);
        }
        if seen.errors.iter().any(Option::is_some) {
            let shrunk = comm.shrink().unwrap();
            assert_eq!(shrunk.communicator.group().size(), RANKS);
            seen.rebound = Some(state.rebind(&shrunk).unwrap());
            seen.calls = state.calls();
            let (result, output) = call(&*shrunk.communicator, &mut state, 3);
            result.unwrap();
            seen.outputs.push(output);
        }
        seen
    })
}

/// Bytes of the stream between two ranks before the second call, and of its first message; shares of 64 elements.
fn message(codec: &dyn Codec) -> (u64, u64) {
    let message = HEADER_BYTES as u64 + 4 * (1 + codec.encoded_words(64) as u64);
    (2 * message, message)
}

fn codecs_of_64() -> [Arc<dyn Codec>; 3] {
    let options = IntOptions { block: 64, feedback: true, ..IntOptions::default() };
    [
        Arc::new(SignL1::with_block(64).unwrap()),
        Arc::new(Int8::new(options).unwrap()),
        Arc::new(Int4::new(IntOptions { symmetric: false, ..options }).unwrap()),
    ]
}

/// A status, and a scale that becomes negative: on the way to the owner all ranks get the error of the call; on the way
/// from it, one rank gets it and the others get it with their next call, and the ranks that had a result go back.
#[test]
fn damaged_messages_are_named_on_all_ranks() {
    for codec in codecs_of_64() {
        // The status, then the highest byte of the first scale.
        let changes = [(0, 0xff), (2, 1), (7, 0x80), (7, 0x7f)];
        let cases =
            changes.into_iter().flat_map(|change| [true, false].map(|is_to_owner| (change, is_to_owner)));
        let went_back = at_once(cases, |(change, is_to_owner)| is_named(&codec, change, is_to_owner));
        assert!(went_back.into_iter().sum::<usize>() > 0, "{codec:?}");
    }
}

/// The number of ranks that went back.
fn is_named(codec: &Arc<dyn Codec>, (byte, flipped): (u64, u8), is_to_owner: bool) -> usize {
    let (second_call, message) = message(&**codec);
    let offset = second_call + if is_to_owner { 0 } else { message } + HEADER_BYTES as u64 + byte;
    let damage = Damage { from: 2, to: 1, offset, flipped };
    // 0x3f.. becomes 0x40.., which is a scale as good as any other.
    let is_noticed = (byte, flipped) != (7, 0x7f);
    let seen = damaged(codec, damage);
    for (rank, seen) in (0..).zip(&seen) {
        let what = format!("{codec:?}, {damage:?}, rank {rank}: {:?}", seen.errors);
        if !is_noticed {
            assert!(seen.errors.iter().all(Option::is_none), "{what}");
            continue;
        }
        // On the way from the owner, the others have their results, unless they are slow to take them.
        let first = seen.errors.iter().take_while(|error| error.is_none()).count();
        let first_max = usize::from(!is_to_owner && rank != 1) + 1;
        assert!((1..=first_max).contains(&first), "{what}");
        for error in &seen.errors[first..] {
            let Error::Corrupted { from, to, .. } = error.as_ref().unwrap().root_cause() else {
                panic!("{what}")
            };
            assert_eq!([*from, *to], [2, 1].map(JobRank::new), "{what}");
        }
        let rebound = seen.rebound.as_ref().unwrap();
        assert_eq!(rebound.went_back, first == 2, "{what}");
        assert_eq!((seen.calls, rebound.lost.len(), rebound.lost_elements.len()), (1, 0, 0));
    }
    if is_noticed {
        assert!(seen.iter().all(|one| one.outputs[3] == seen[0].outputs[3]), "{codec:?}, {damage:?}");
    }
    seen.iter().filter(|one| one.rebound.as_ref().is_some_and(|rebound| rebound.went_back)).count()
}

/// Runs `trial` on each, on threads: most of it is waiting for a cause that does not come.
fn at_once<T: Send, R: Send>(all: impl Iterator<Item = T>, trial: impl Fn(T) -> R + Sync) -> Vec<R> {
    std::thread::scope(|threads| {
        let trial = &trial;
        let trials: Vec<_> = all.map(|one| threads.spawn(move || trial(one))).collect();
        trials.into_iter().map(|trial| trial.join().unwrap()).collect()
    })
}

/// Any byte of a call, headers too: a typed error, or numbers that are wrong; no panic, and no rank that waits.
#[test]
fn no_damage_is_worse_than_an_error() {
    let mut codecs: Vec<Arc<dyn Codec>> = codecs_of_64().into();
    codecs.extend([Arc::new(Bf16) as Arc<dyn Codec>, Arc::new(SignRms::deepspeed())]);
    let mut noticed = 0;
    for codec in codecs {
        let (second_call, message) = message(&*codec);
        let offsets = (second_call..second_call + 2 * message).step_by(7);
        noticed += at_once(offsets, |offset| noticed_at(&codec, offset)).into_iter().sum::<usize>();
    }
    assert!(noticed > 0);
}

/// The number of ranks that notice a changed bit of this byte.
fn noticed_at(codec: &Arc<dyn Codec>, offset: u64) -> usize {
    let damage = Damage { from: 0, to: 1, offset, flipped: 1 << (offset % 8) };
    let seen = damaged(codec, damage);
    for error in seen.iter().flat_map(|seen| &seen.errors).flatten() {
        let is_typed = matches!(
            error.root_cause(),
            Error::Corrupted { .. } | Error::Mismatch { .. } | Error::PeerLost { .. }
        );
        assert!(is_typed, "{codec:?}, {damage:?}: {error}");
    }
    seen.iter().filter(|seen| seen.rebound.is_some()).count()
}
