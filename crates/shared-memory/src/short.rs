//! Short messages, which need no index: each lies in a place of its own, with the word that says that it is there
//! beside its bytes. So a message of up to [`PAYLOAD_BYTES_MAX`] bytes moves two cache lines from one core to the
//! other, where bytes of the ring move a third one, with the index.
//!
//! A message is part of the stream: it takes as many indices as it has bytes, and nothing is stored in the ring at
//! these. It may begin with a header, for which a key stands. A reader that finds the key that it expects
//! skips the header, and its cache line stays with the writer. A bare message has no header.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The size of the header of a short message.
pub const HEADER_BYTES: usize = if cfg!(loom) { 1 } else { 64 };

/// The most bytes behind a header, and of a bare message: with the words before them they fill two cache lines.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 100;

/// The payload bytes on the cache line of the word that publishes a message.
#[cfg(not(loom))]
pub(crate) const PAYLOAD_NEAR_BYTES: usize = 64 - 28;

/// The number of short messages that can be under way: so many fit on the page of the indices.
pub(crate) const PLACES: usize = if cfg!(loom) { 1 } else { 16 };

/// Set in the length of a bare message.
const BARE: u32 = 1 << 31;

/// A stand-in for a header: two headers with equal keys are equal.
pub type Key = [u64; 2];

/// The places of one direction, in whose order messages are written, again and again.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Places {
    messages: [Message; PLACES],
    /// In memory of their own, since they are seldom read.
    #[cfg(not(loom))]
    headers: [[AtomicU8; HEADER_BYTES]; PLACES],
}

#[derive(Debug)]
#[repr(C, align(128))]
struct Message {
    /// One more than the index of its first byte in the stream. Grows from message to message of a place.
    start_plus_1: AtomicU64,
    #[cfg(not(loom))]
    key: [AtomicU64; 2],
    /// The bytes of the header and behind it, or the bytes of a bare message and [`BARE`].
    length: AtomicU32,
    #[cfg(not(loom))]
    payload: [AtomicU8; PAYLOAD_BYTES_MAX],
}

/// A message in a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    /// The index of its first byte in the stream.
    pub(crate) start: u64,
    /// The number of its bytes.
    pub(crate) length: u64,
    /// Whether it has no header.
    pub(crate) is_bare: bool,
}

impl Placed {
    /// The index behind its last byte.
    #[inline]
    pub(crate) fn end(self) -> u64 {
        self.start.saturating_add(self.length)
    }
}

impl Places {
    #[cfg(any(test, loom))]
    pub(crate) fn new() -> Places {
        Places {
            messages: [(); PLACES].map(|()| Message {
                start_plus_1: AtomicU64::new(0),
                #[cfg(not(loom))]
                key: [const { AtomicU64::new(0) }; 2],
                length: AtomicU32::new(0),
                #[cfg(not(loom))]
                payload: [const { AtomicU8::new(0) }; PAYLOAD_BYTES_MAX],
            }),
            #[cfg(not(loom))]
            headers: [const { [const { AtomicU8::new(0) }; HEADER_BYTES] }; PLACES],
        }
    }

    /// The message in this place is there, with all that has been stored in the ring and in places before.
    #[inline]
    pub(crate) fn publish(&self, place: usize, start: u64, length: u32, is_bare: bool) {
        let message = &self.messages[place];
        message.length.store(length | if is_bare { BARE } else { 0 }, Ordering::Relaxed);
        message.start_plus_1.store(start + 1, Ordering::Release);
    }

    /// The newest message in this place, if it does not begin before `from`. With it come all bytes of the stream
    /// before it.
    #[inline]
    pub(crate) fn newest(&self, place: usize, from: u64) -> Option<Placed> {
        let message = &self.messages[place];
        let start_plus_1 = message.start_plus_1.load(Ordering::Acquire);
        (start_plus_1 > from).then(|| {
            let length = message.length.load(Ordering::Relaxed);
            let is_bare = length & BARE != 0;
            Placed { start: start_plus_1 - 1, length: (length & !BARE).into(), is_bare }
        })
    }

    /// The end of the last message.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        let newest = (0..PLACES).filter_map(|place| self.newest(place, 0));
        newest.map(Placed::end).max().unwrap_or(0)
    }

    /// The key of the message in a place.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn key(&self, place: usize) -> Key {
        self.key_words(place).each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// The words of the key in a place, which the writer stores before it publishes the message.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn key_words(&self, place: usize) -> &[AtomicU64; 2] {
        &self.messages[place].key
    }

    /// The header of a place.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn header(&self, place: usize) -> &[AtomicU8; HEADER_BYTES] {
        &self.headers[place]
    }

    /// The bytes behind the header.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn payload(&self, place: usize) -> &[AtomicU8; PAYLOAD_BYTES_MAX] {
        &self.messages[place].payload
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Message>() == 128, "two cache lines");
#[cfg(not(loom))]
const _: () = assert!(std::mem::offset_of!(Message, payload) + PAYLOAD_NEAR_BYTES == 64, "on the first line");
