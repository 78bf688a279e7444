//! Memory on the host that a call reads or writes: one slice, or a list of slices.

use crate::error::Result;
use crate::memory::allocation::reserve;
use crate::memory::raw::OwnedBuffer;
use crate::memory::segments::{Division, SegmentList};

/// Host memory that is read: one slice, or a list of slices that follow each other.
#[derive(Clone, Debug)]
pub enum Segments<'a> {
    /// Contiguous.
    One(&'a [u8]),
    /// A list; empty segments are allowed.
    Many(SegmentList<&'a [u8]>),
    /// A list that an asynchronous call owns.
    Owned(&'a SegmentList<OwnedBuffer>),
}

/// Host memory that is written.
#[derive(Debug)]
pub enum SegmentsMut<'a> {
    /// Contiguous.
    One(&'a mut [u8]),
    /// A list; empty segments are allowed.
    Many(SegmentList<&'a mut [u8]>),
    /// A list that an asynchronous call owns.
    Owned(&'a mut SegmentList<OwnedBuffer>),
}

impl<'a> Segments<'a> {
    /// Size in bytes, all segments together.
    pub fn bytes(&self) -> usize {
        match self {
            Segments::One(slice) => slice.len(),
            Segments::Many(list) => list.bytes(),
            Segments::Owned(list) => list.bytes(),
        }
    }

    /// The segments in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let (one, many, owned) = match self {
            Segments::One(slice) => (Some(*slice), &[][..], &[][..]),
            Segments::Many(list) => (None, list.slices(), &[][..]),
            Segments::Owned(list) => (None, &[][..], list.slices()),
        };
        one.into_iter().chain(many.iter().copied()).chain(owned.iter().map(OwnedBuffer::bytes))
    }

    /// The list's division, and where its segments end; `None` for one segment.
    pub(crate) fn divided(&self) -> Option<(Division, &[usize])> {
        match self {
            Segments::One(_) => None,
            Segments::Many(list) => Some((list.division(), list.ends())),
            Segments::Owned(list) => Some((list.division(), list.ends())),
        }
    }

    /// All bytes in one vector.
    ///
    /// # Errors
    /// [`crate::Error::System`] when there is no memory for them.
    pub fn copied(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        reserve(&mut bytes, self.bytes())?;
        self.iter().for_each(|slice| bytes.extend_from_slice(slice));
        Ok(bytes)
    }
}

impl SegmentsMut<'_> {
    /// Size in bytes, all segments together.
    pub fn bytes(&self) -> usize {
        match self {
            SegmentsMut::One(slice) => slice.len(),
            SegmentsMut::Many(list) => list.bytes(),
            SegmentsMut::Owned(list) => list.bytes(),
        }
    }

    /// The segments in order, to read.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let (one, many, owned) = match self {
            SegmentsMut::One(slice) => (Some(&**slice), &[][..], &[][..]),
            SegmentsMut::Many(list) => (None, list.slices(), &[][..]),
            SegmentsMut::Owned(list) => (None, &[][..], list.slices()),
        };
        one.into_iter().chain(many.iter().map(|slice| &**slice)).chain(owned.iter().map(OwnedBuffer::bytes))
    }

    /// All bytes in one vector.
    ///
    /// # Errors
    /// [`crate::Error::System`] when there is no memory for them.
    pub fn copied(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        reserve(&mut bytes, self.bytes())?;
        self.iter().for_each(|slice| bytes.extend_from_slice(slice));
        Ok(bytes)
    }

    /// Copies from the start of `source` as many bytes as fit; further memory stays as it is.
    ///
    /// ```
    /// use unisono_communicator::{Segments, SegmentsMut};
    /// let (mut first, mut second) = ([0u8; 2], [0u8; 4]);
    /// let mut room = SegmentsMut::Many(vec![&mut first[..], &mut second[..]].into());
    /// room.write_front(&Segments::Many(vec![&[1u8][..], &[], &[2, 3, 4]].into()));
    /// assert_eq!((first, second), ([1, 2], [3, 4, 0, 0]));
    /// ```
    pub fn write_front(&mut self, source: &Segments<'_>) {
        let mut sources = source.iter();
        let mut bytes: &[u8] = &[];
        self.for_each(|mut slice| {
            while !slice.is_empty() {
                if bytes.is_empty() {
                    match sources.next() {
                        Some(next) => bytes = next,
                        None => return,
                    }
                }
                let (now, later) = bytes.split_at(slice.len().min(bytes.len()));
                let (target, rest) = std::mem::take(&mut slice).split_at_mut(now.len());
                target.copy_from_slice(now);
                (bytes, slice) = (later, rest);
            }
        });
    }

    /// Calls `change` with every segment in order.
    pub fn for_each(&mut self, mut change: impl FnMut(&mut [u8])) {
        match self {
            SegmentsMut::One(slice) => change(slice),
            SegmentsMut::Many(list) => list.slices_mut().iter_mut().for_each(|slice| change(slice)),
            SegmentsMut::Owned(list) => {
                list.slices_mut().iter_mut().for_each(|slice| change(slice.bytes_mut()))
            }
        }
    }

    /// The list's division, and where its segments end; `None` for one segment.
    pub(crate) fn divided(&self) -> Option<(Division, &[usize])> {
        match self {
            SegmentsMut::One(_) => None,
            SegmentsMut::Many(list) => Some((list.division(), list.ends())),
            SegmentsMut::Owned(list) => Some((list.division(), list.ends())),
        }
    }
}
