//! Lists of segments that follow each other, on the host or on a device.

/// The meaning of a list's slices in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// One buffer in pieces, cut anywhere. Other ranks need not know.
    Anywhere,
    /// One buffer, with a slice for each rank's share. Other ranks need not know.
    Shares,
    /// Several buffers that one call handles together. Their lengths must be the same on every rank.
    Coalesced,
}

/// An item of a list: a slice of bytes, or a span of memory on a device.
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

/// Segments in order, and the offset at which each ends, so that a binary search finds a byte.
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
    pub(crate) fn measure(&mut self) {
        let add = |end: &mut usize, slice: &S| {
            *end += slice.length();
            Some(*end)
        };
        self.ends.clear();
        self.ends.extend(self.slices.iter().scan(0, add));
    }

    /// The same list with this division.
    #[must_use]
    pub fn divided(self, division: Division) -> SegmentList<S> {
        SegmentList { division, ..self }
    }

    /// The list's division.
    pub fn division(&self) -> Division {
        self.division
    }

    /// The ends of the slices, in bytes.
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

    /// The slices in order, to write. Their lengths must stay.
    pub fn slices_mut(&mut self) -> &mut [S] {
        &mut self.slices
    }

    /// Size in bytes, all slices together.
    pub fn bytes(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The index of the slice that holds byte `offset`, and the place in it; `None` at the end and after it.
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
