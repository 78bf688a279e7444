//! Arbitrary bytes as messages of a compressed call and as a checkpoint: a target for cargo-fuzz (`fuzz/`), and the
//! same as a plain test.
//!
//! Compiled for tests and for cargo-fuzz alone.

#![expect(clippy::expect_used, reason = "a fuzzed run fails by panicking")]

#[allow(dead_code, reason = "another crate needs the rest of it")]
#[path = "../../../fuzz/shared/input.rs"]
mod input;
#[cfg(test)]
#[path = "../../../fuzz/shared/replay.rs"]
mod replay;

use std::sync::Arc;

use input::Input;
use unisono_collectives::Solo;
use unisono_communicator::{Buffer, BufferMut, Communicator, DType, ReduceOp};
use unisono_kernels::Kernels;

use crate::message::{self, Fault, message_words};
use crate::{
    Bf16, Codec, CompressedCollectives, CompressionState, EncodeContext, Feedback, HostKernels, Int4, Int8,
    IntOptions, SignL1, SignRms,
};

/// The first byte of an input selects one of these kinds.
const KINDS: u8 = 3;

/// Elements of a part: one, less than a byte of codes, a word and more, several blocks.
const LENGTHS: [usize; 6] = [1, 5, 33, 64, 130, 600];

const RANKS: u32 = 3;

/// Target `compression`: messages of other ranks, and checkpoints.
pub fn compression(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(KINDS) {
        0 => arrived(&mut input),
        1 => changed(&mut input),
        _ => imported(&mut input),
    }
}

fn codec(input: &mut Input<'_>) -> Arc<dyn Codec> {
    let options = |symmetric| IntOptions { symmetric, block: 64, feedback: true, ..IntOptions::default() };
    let [sign, int8, int4, int4a]: [Arc<dyn Codec>; 4] = [
        Arc::new(SignL1::with_block(64).expect("a block")),
        Arc::new(Int8::new(options(true)).expect("a block")),
        Arc::new(Int4::new(options(true)).expect("a block")),
        Arc::new(Int4::new(options(false)).expect("a block")),
    ];
    match input.below(7) {
        0 => sign,
        1 => int8,
        2 => int4,
        3 => int4a,
        4 => Arc::new(SignRms::default()),
        5 => Arc::new(SignRms::deepspeed()),
        _ => Arc::new(Bf16),
    }
}

/// The encoded part within a message.
fn part<'m>(codec: &dyn Codec, message: &'m [u32], elements: usize) -> &'m [u32] {
    &message[message::part_words(codec, 0..message.len(), elements)]
}

/// A message for rank 2 of rank `from`; whether it can be used.
fn accepted(codec: &dyn Codec, message: &mut [u32], elements: usize, from: u32) -> bool {
    let before = message.to_vec();
    match message::accept(codec, message, elements, [from, 2], RANKS) {
        Ok(()) => true,
        Err(fault) => {
            // A fault that is passed on names ranks that exist; any other names the two ends of its way.
            let (Fault::NonFinite { rank, .. } | Fault::Damaged { from: rank, .. }) = fault;
            assert!(rank < RANKS, "{fault:?} of {before:?}");
            let mut written = vec![1; message.len()];
            message::write_fault(&mut written, fault);
            let again = message::accept(codec, &mut written, elements, [0, 0], RANKS);
            assert_eq!(again, Err(fault), "a fault is understood as it is said");
            false
        }
    }
}

/// Messages of anything. The accepted ones are summed and decoded, and the result is accepted.
fn arrived(input: &mut Input<'_>) {
    let codec = codec(input);
    let elements = LENGTHS[usize::from(input.below(LENGTHS.len() as u8))];
    let words = message_words(&*codec, elements);
    let mut messages = Vec::new();
    for from in 0..=u32::from(input.below(RANKS as u8)) {
        let mut message = vec![0u32; words];
        let is_usable = !input.rarely(8);
        message.iter_mut().for_each(|word| *word = input.u32());
        if is_usable {
            let (status, _) = message.split_at_mut(1);
            status[0] = message::USABLE;
        }
        if accepted(&*codec, &mut message, elements, from) {
            messages.push(message);
        }
    }
    if !messages.is_empty() {
        sum(&*codec, &messages, elements);
    }
}

fn sum(codec: &dyn Codec, messages: &[Vec<u32>], elements: usize) {
    let kernels = HostKernels(Kernels::best());
    let parts: Vec<Buffer<'_>> =
        messages.iter().map(|message| Buffer::of(part(codec, message, elements))).collect();
    let mut decoded = vec![0.0f32; elements];
    for message in messages {
        let (part, out) = (part(codec, message, elements), BufferMut::of(&mut decoded));
        codec.decode(&kernels, Buffer::of(part), 1.0, out).expect("host memory");
    }
    let (old, mut new) = (vec![0.0f32; elements], vec![0.0f32; elements]);
    let has_feedback = codec.has_feedback();
    let feedback = has_feedback.then(|| Feedback { old: Buffer::of(&old), new: BufferMut::of(&mut new) });
    let context = EncodeContext { key: 1, first: 0, scale: 1.0 };
    let words = message_words(codec, elements);
    let mut message = vec![0u32; words];
    let out = BufferMut::of(&mut message[message::part_words(codec, 0..words, elements)]);
    let bad = codec.reduce_encode(&kernels, &parts, elements, feedback, context, out);
    if bad.expect("host memory").is_none() {
        message::close(codec, &mut message, elements, None);
        assert!(
            accepted(codec, &mut message, elements, 1),
            "{codec:?} sends what it does not accept: {message:?}"
        );
        assert!(new.iter().all(|value| value.is_finite()), "{codec:?}: {new:?}");
    }
}

/// A genuine message with a few changed words.
fn changed(input: &mut Input<'_>) {
    let codec = codec(input);
    let elements = LENGTHS[usize::from(input.below(LENGTHS.len() as u8))];
    let vector: Vec<f32> = (0..elements).map(|_| f32::from(i16::from_le_bytes(input.array()))).collect();
    let (old, mut new) = (vec![0.0f32; elements], vector.clone());
    let feedback =
        codec.has_feedback().then(|| Feedback { old: Buffer::of(&old), new: BufferMut::of(&mut new) });
    let context = EncodeContext { key: 1, first: 0, scale: 1000.0 };
    let mut message = vec![0u32; message_words(&*codec, elements)];
    let part = message::part_words(&*codec, 0..0, elements);
    let out = BufferMut::of(&mut message[part]);
    let kernels = HostKernels(Kernels::best());
    let bad = codec.encode(&kernels, Buffer::of(&vector), feedback, context, out);
    assert_eq!(bad.expect("host memory"), None, "all elements are finite");
    message::close(&*codec, &mut message, elements, None);
    let mut is_genuine = true;
    for _ in 0..input.below(4) {
        let (at, flipped) = (usize::from(input.u16()) % message.len(), input.u32());
        message[at] ^= flipped;
        is_genuine &= flipped == 0;
    }
    let is_accepted = accepted(&*codec, &mut message, elements, 0);
    assert!(is_accepted || !is_genuine, "{codec:?} refuses what it has made");
    if is_accepted {
        sum(&*codec, &[message], elements);
    }
}

/// A checkpoint with edits, or anything else in its place: a state that an import accepts can go on.
fn imported(input: &mut Input<'_>) {
    let codec = codec(input);
    let comm = Solo::new();
    let elements = usize::from(input.below(40));
    let is_anything = input.rarely(4);
    let mut state = CompressionState::with_codec(&comm, codec.clone(), DType::F32, elements).expect("memory");
    let mut vector: Vec<f32> = (0..elements).map(|_| f32::from(input.u8()) - 100.0).collect();
    comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut state).expect("a clean call");
    let mut bytes = state.export().expect("an all-reduce");
    if is_anything {
        bytes = input.rest().to_vec();
    }
    let is_edited = input.edit(&mut bytes) || is_anything;
    match CompressionState::import_with_codec::<f32>(&comm, codec, &bytes) {
        Ok(mut taken) => {
            assert!(taken.export().is_ok_and(|again| again.len() == bytes.len()));
            // It may have elements that are too many for a residual of these, or none; not too many for memory.
            let mut vector = vec![0.5f32; taken.elements().min(1 << 16)];
            if vector.len() == taken.elements() {
                let _ = comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, &mut taken);
            }
        }
        Err(error) => assert!(is_edited && error.is_before_start(), "{error}"),
    }
    assert_eq!(comm.size(), 1);
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzzed_messages_and_checkpoints_do_no_harm() {
        super::replay::replay("compression", super::compression);
    }
}
