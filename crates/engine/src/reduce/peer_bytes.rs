//! Bytes that have come from a peer, as a step stores or reduces them.
//!
//! A link through shared memory gives them where they lie. A peer that breaks the rules may change them there at any
//! time: then they are any bytes, and nothing worse. So no `&[u8]` is made of them, whose bytes may not change. Each
//! byte is read once.

#![expect(unsafe_code, reason = "memory that a peer may change at any time")]

use std::borrow::Cow;
use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU8;

use bytemuck::Pod;

/// Bytes that have come from a peer.
#[derive(Clone, Copy)]
pub(crate) enum PeerBytes<'a> {
    /// In memory of this process.
    Own(&'a [u8]),
    /// In memory that the peer can write.
    Shared(&'a [AtomicU8]),
}

/// A `U` at any address, which the peer may change.
#[repr(C, packed)]
pub(super) struct Element<U>(UnsafeCell<U>);

impl<U: Pod> Element<U> {
    /// Its value now.
    #[inline(always)]
    pub(super) fn get(&self) -> U {
        // SAFETY: this is a reference to a `U` at any address. Every bit pattern is a `Pod`, so its value is sound
        // while the peer's process writes; no thread of this process writes it. The cell says to the compiler that it
        // may change.
        unsafe { (&raw const self.0).cast::<U>().read_unaligned() }
    }
}

impl<'a> PeerBytes<'a> {
    /// The number of bytes.
    #[inline]
    pub(crate) fn len(self) -> usize {
        match self {
            PeerBytes::Own(bytes) => bytes.len(),
            PeerBytes::Shared(bytes) => bytes.len(),
        }
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The first `count` bytes, and the others.
    ///
    /// # Panics
    /// When there are fewer.
    #[inline]
    pub(crate) fn split_at(self, count: usize) -> (PeerBytes<'a>, PeerBytes<'a>) {
        match self {
            PeerBytes::Own(bytes) => {
                let (first, others) = bytes.split_at(count);
                (PeerBytes::Own(first), PeerBytes::Own(others))
            }
            PeerBytes::Shared(bytes) => {
                let (first, others) = bytes.split_at(count);
                (PeerBytes::Shared(first), PeerBytes::Shared(others))
            }
        }
    }

    /// Copies all bytes.
    ///
    /// # Panics
    /// When the lengths differ.
    #[inline]
    pub(crate) fn copy_to(self, into: &mut [u8]) {
        match self {
            PeerBytes::Own(bytes) => into.copy_from_slice(bytes),
            PeerBytes::Shared(bytes) => {
                assert_eq!(into.len(), bytes.len());
                // SAFETY: both have this length, and they do not overlap, since `into` is borrowed alone. Writes of the
                // peer's process meanwhile make these any bytes; no thread of this process writes them.
                unsafe { into.as_mut_ptr().copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len()) };
            }
        }
    }

    /// The bytes in memory of this process: a copy if the peer can write them.
    pub(super) fn own(self) -> Cow<'a, [u8]> {
        match self {
            PeerBytes::Own(bytes) => Cow::Borrowed(bytes),
            PeerBytes::Shared(_) => {
                let mut copy = vec![0; self.len()];
                self.copy_to(&mut copy);
                Cow::Owned(copy)
            }
        }
    }

    /// As many `U` as there are whole ones.
    #[inline(always)]
    pub(super) fn elements<U: Pod>(self) -> &'a [Element<U>] {
        let place = match self {
            PeerBytes::Own(bytes) => bytes.as_ptr(),
            PeerBytes::Shared(bytes) => bytes.as_ptr().cast(),
        };
        // SAFETY: an `Element<U>` is as long as a `U`, has any address and any bits, and so many of them are within the
        // bytes, which stay for `'a`. An element is only read, so the bytes of `Own` do not change.
        unsafe { std::slice::from_raw_parts(place.cast::<Element<U>>(), self.len() / size_of::<U>()) }
    }

    /// The bytes behind the last whole `U`, with zeros behind them.
    #[inline(always)]
    pub(super) fn padded_rest<U: Pod>(self) -> U {
        let mut unit = U::zeroed();
        let rest = self.len() % size_of::<U>();
        let (_, last) = self.split_at(self.len() - rest);
        last.copy_to(&mut bytemuck::bytes_of_mut(&mut unit)[..rest]);
        unit
    }
}
