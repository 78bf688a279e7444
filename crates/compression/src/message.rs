//! The messages between ranks in a compressed call: a word that says whether the rest can be used, and the encoded
//! part.
//!
//! | status, word 0 | words 1 ... |
//! | --- | --- |
//! | 0000ffff | the part, [`Codec::encoded_words`] words |
//! | 00ff00ff: an element cannot be encoded | the rank of the group, the block of the vector, zeros |
//! | 0f0f0f0f: a part came damaged | the rank that sent it, the rank that noticed, zeros |
//!
//! Words are little-endian. A part of no elements has no message. The length follows from the number of elements, and
//! is never sent.

use std::ops::Range;

use crate::codec::Codec;

/// Why a part cannot be used. All ranks report the lowest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A rank has an element that is not finite, or too large for the codec.
    NonFinite {
        /// Of the whole vector.
        block: u32,
        /// Of the group.
        rank: u32,
    },
    /// A part that came from one rank to another has impossible content.
    Damaged {
        /// The sender.
        from: u32,
        /// The rank that noticed.
        to: u32,
    },
}

impl Fault {
    /// A number for each, in the same order, below `u64::MAX`. Numbers of ranks have 31 bits.
    pub(crate) fn code(self) -> u64 {
        match self {
            Fault::NonFinite { block, rank } => u64::from(block) << 31 | u64::from(rank),
            Fault::Damaged { from, to } => 1 << 63 | u64::from(from) << 31 | u64::from(to),
        }
    }

    /// The fault of a number.
    pub(crate) fn from_code(code: u64) -> Fault {
        let (high, low) = ((code >> 31) as u32, code as u32 & 0x7fff_ffff);
        if code >> 63 == 0 {
            Fault::NonFinite { block: high, rank: low }
        } else {
            Fault::Damaged { from: high & 0x7fff_ffff, to: low }
        }
    }
}

// Any two differ in 16 bits, and each in 16 from zero: damage makes none of another.
pub(crate) const USABLE: u32 = 0x0000_ffff;
const NON_FINITE: u32 = 0x00ff_00ff;
const DAMAGED: u32 = 0x0f0f_0f0f;

/// The status, and room for two numbers.
const WORDS_MIN: usize = 3;

/// The length of a message with a part of `elements`.
pub(crate) fn message_words(codec: &dyn Codec, elements: usize) -> usize {
    if elements == 0 { 0 } else { (1 + codec.encoded_words(elements)).max(WORDS_MIN) }
}

/// The words at the front of a message by which it can be judged: its status, and the scales of its part.
pub(crate) fn head_words(codec: &dyn Codec, elements: usize) -> usize {
    (1 + codec.head_words(elements)).max(WORDS_MIN)
}

/// Makes the message, or its front, say why it has no part.
pub(crate) fn write_fault(message: &mut [u32], fault: Fault) {
    let words = match fault {
        Fault::NonFinite { block, rank } => [NON_FINITE, rank, block],
        Fault::Damaged { from, to } => [DAMAGED, from, to],
    };
    message.fill(0);
    message[..WORDS_MIN].copy_from_slice(&words);
}

/// The place of the encoded part of `elements` elements in a message at `words`.
pub(crate) fn part_words(codec: &dyn Codec, words: Range<usize>, elements: usize) -> Range<usize> {
    words.start + 1..words.start + 1 + codec.encoded_words(elements)
}

/// Ends a message whose part kernels have written: with its status, or with a fault instead of the part.
pub(crate) fn close(codec: &dyn Codec, message: &mut [u32], elements: usize, fault: Option<Fault>) {
    if let Some(fault) = fault {
        return write_fault(message, fault);
    }
    message[0] = USABLE;
    let (part, padding) = message[1..].split_at_mut(codec.encoded_words(elements));
    codec.seal(part);
    padding.fill(0);
}

/// Takes a message of `from` with a part of `elements` off the wire, for rank `to` among `ranks`: the whole message, or
/// its front of [`head_words`] where the rest is on a device.
pub(crate) fn accept(
    codec: &dyn Codec,
    message: &mut [u32],
    elements: usize,
    [from, to]: [u32; 2],
    ranks: u32,
) -> Result<(), Fault> {
    let damaged = Fault::Damaged { from, to };
    if message[0] == USABLE {
        let end = message.len().min(1 + codec.encoded_words(elements));
        let part = &mut message[1..end];
        return codec.accept(part, elements).map_err(|_| damaged);
    }
    let (words, rest) = message.split_at(WORDS_MIN);
    let is_whole = rest.iter().all(|word| *word == 0);
    Err(match *words {
        [NON_FINITE, rank, block] if is_whole && rank < ranks => Fault::NonFinite { block, rank },
        [DAMAGED, from, to] if is_whole && from < ranks && to < ranks => Fault::Damaged { from, to },
        _ => damaged,
    })
}
