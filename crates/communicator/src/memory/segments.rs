//! Memory as a list of segments that follow each other.

use crate::error::Result;
use crate::memory::allocation::reserve;
use crate::memory::owned::OwnedBuffer;

/// What the slices of a list are to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// One buffer that lies in pieces, cut anywhere. Other ranks need not know.
    Anywhere,
    /// One buffer, a slice for each rank's share. Other ranks need not know.
    Shares,
    /// Buffers that one call handles together; their lengths must be the same on every rank.
    Coalesced,
}

/// What a list is made of: a slice of bytes, or a span of memory on a device.
pub trait Segment {
    /// Size in bytes.
    fn length(&self) -> usize;
}

impl Segment for &[u8] {
    fn length(&self) -> usize {
        self.len()
    }
}

impl Segment for &mut [u8] {
    fn length(&self) -> usize {
        self.len()
    }
}

impl Segment for OwnedBuffer {
    fn length(&self) -> usize {
        self.bytes().len()
    }
}

/// Segments that follow each other, with the offset at which each ends: a byte is found by binary search.
#[derive(Clone, Debug)]
pub struct SegmentList<S> {
    slices: Vec<S>,
    ends: Vec<usize>,
    division: Division,
}

impl<S: Segment> From<Vec<S>> for SegmentList<S> {
    fn from(slices: Vec<S>) -> SegmentList<S> {
        let ends = Vec::with_capacity(slices.len());
        let mut list = SegmentList { slices, ends, division: Division::Anywhere };
        list.measure();
        list
    }
}

impl<S: Segment> SegmentList<S> {
    /// Computes where the slices end.
    pub(crate) fn measure(&mut self) {
        let add = |end: &mut usize, slice: &S| {
            *end += slice.length();
            Some(*end)
        };
        self.ends.clear();
        self.ends.extend(self.slices.iter().scan(0, add));
    }

    /// The same list, divided in this way.
    #[must_use]
    pub fn divided(self, division: Division) -> SegmentList<S> {
        SegmentList { division, ..self }
    }

    /// How the list is divided.
    pub fn division(&self) -> Division {
        self.division
    }

    /// Where the slices end, in bytes.
    pub fn ends(&self) -> &[usize] {
        &self.ends
    }

    /// The slices in order.
    pub fn slices(&self) -> &[S] {
        &self.slices
    }

    /// The slices.
    pub fn into_slices(self) -> Vec<S> {
        self.slices
    }

    /// The slices in order, to write. Their lengths are fixed.
    pub fn slices_mut(&mut self) -> &mut [S] {
        &mut self.slices
    }

    /// Size in bytes, all slices together.
    pub fn bytes(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The slice that holds byte `offset`, and where in it; `None` at the end and after it.
    ///
    /// ```
    /// use unisono_communicator::SegmentList;
    /// let list = SegmentList::from(vec![&[1u8, 2][..], &[], &[3]]);
    /// assert_eq!((list.locate(1), list.locate(2), list.locate(3)), (Some((0, 1)), Some((2, 0)), None));
    /// ```
    pub fn locate(&self, offset: usize) -> Option<(usize, usize)> {
        let index = self.ends.partition_point(|&end| end <= offset);
        let slice = self.slices.get(index)?;
        Some((index, offset + slice.length() - self.ends[index]))
    }
}

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

    /// The list's division and where its segments end; `None` for one segment.
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

    /// Writes as many bytes of `source` as fit, from the start on; the rest of the memory stays as it is.
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
            SegmentsMut::Many(list) => list.slices.iter_mut().for_each(|slice| change(slice)),
            SegmentsMut::Owned(list) => list.slices.iter_mut().for_each(|slice| change(slice.bytes_mut())),
        }
    }

    /// The list's division and where its segments end; `None` for one segment.
    pub(crate) fn divided(&self) -> Option<(Division, &[usize])> {
        match self {
            SegmentsMut::One(_) => None,
            SegmentsMut::Many(list) => Some((list.division(), list.ends())),
            SegmentsMut::Owned(list) => Some((list.division(), list.ends())),
        }
    }
}
